"""A training run from its config to its record."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from lightning_cse import runs
from lightning_cse.callbacks import (
    BestAndLast,
    Evaluation,
    Interrupts,
    MemoryEstimate,
    RandomState,
    StepLines,
    StepLog,
)
from lightning_cse.config.check import devices
from lightning_cse.config.compose import in_sweep, recipe_name
from lightning_cse.data.cells import sha256_of
from lightning_cse.data.token_cache import token_table
from lightning_cse.devices import is_lost, together
from lightning_cse.engine.build import (
    Parts,
    automatic_reading,
    build,
    built,
    check_nodes,
    plain,
    resolve_automatic,
)
from lightning_cse.engine.initial import initialise
from lightning_cse.engine.processes import Start, agree, check_processes, started
from lightning_cse.errors import ConfigError, Interrupted, TrainingError, one_line
from lightning_cse.evaluation import TaskResult, keyed, run_tasks
from lightning_cse.loggers import CurvesLogger
from lightning_cse.runs.hashing import portable, training_key
from lightning_cse.runs.machine import device_name, peak_memory, return_freed_memory

if TYPE_CHECKING:
    from lightning_cse.loggers import RunView

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A run to train: its config, the objects built from it, its folder and its hash's content."""

    cfg: DictConfig
    parts: Parts
    folder: runs.Run
    key: str
    decisive: dict[str, Any]
    interrupts: Interrupts
    callbacks: list[pl.Callback]
    """Those that the user added."""

    @property
    def last(self) -> Path:
        """Return the checkpoint from which the run is resumed."""
        return self.folder.checkpoints / "last.ckpt"


def run(cfg: DictConfig) -> runs.Outcome:
    """Train a method and print the table; the command calls this once per point of a sweep."""
    outcome = train(cfg)
    if rank_of(cfg) == 0:
        from lightning_cse.runs.table import print_run

        folder = runs.Run.at(Path(outcome.folder))
        print_run(folder.read(), folder.record_path)

    return outcome


def train(cfg: DictConfig) -> runs.Outcome:
    """Train the method that a config describes, unless this is done, and return the outcome.

    A finished run is skipped (``force=true`` starts again). An interrupted or failed run is resumed
    from its last checkpoint, and gives the same numbers as a run that was never stopped. This
    process holds the lock of the run's folder. Raises the errors of `Run.claim`, Interrupted after
    Ctrl-C or SIGTERM, and user errors; once training has begun, an error is also written to the
    run's ``failed.json``.
    """
    rank = rank_of(cfg)
    _quiet(cfg, rank)
    check_processes(cfg)
    with Interrupts(force=cfg.force) as interrupts:
        job = _prepare(cfg, interrupts)
        if rank:
            return _follow(job)

        leave_failed = in_sweep() and not cfg.retry_failed
        with job.folder.claim(force=cfg.force, leave_failed=leave_failed) as unfinished:
            if unfinished:
                with _logging_to(job.folder.log_path):
                    record = _run(job)
            else:
                _tell(job, Start(finished=True))
                record = job.folder.read()
                log.info("%s is finished; force=true runs it again", job.folder.path)

    score = record.get("best", {}).get("score")

    return runs.Outcome("finished" if unfinished else "skipped", str(job.folder.path), score)


def tokenise(cfg: DictConfig) -> None:
    """Read and tokenise the sentences of a run into the cache, so that its start takes no time."""
    if cfg.paths.cache_dir is None:
        raise ConfigError(["paths.cache_dir: must be a folder, in which the tokens are kept"])

    if cfg.data.get("streaming"):
        fault = "data.streaming: a stream is tokenised by the batch; there is nothing to prepare"
        raise ConfigError([fault])

    check_nodes(cfg)
    parts = build(cfg)
    parts.data.setup()
    _count_cut(parts)
    log.info(
        "%s: %s training rows are tokenised in %s",
        cfg.name,
        f"{len(parts.data.train):,}",
        parts.data.cache_dir,
    )


def rank_of(cfg: DictConfig) -> int:
    """Return the rank of this process: 0 writes everything."""
    return int(rank_zero_only.rank) if devices(cfg) > 1 else 0  # type: ignore[attr-defined]  # set by Lightning


def _quiet(cfg: DictConfig, rank: int) -> None:
    """Silence Lightning's tips, and all processes but the first."""
    # No tips of Lightning, and no list of missing hardware.
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    # Where SLURM is installed but has not started this process, Lightning advises to use it.
    warnings.filterwarnings("ignore", message=r"The `srun` command is available")
    if devices(cfg) == 1:
        rank_zero_only.rank = 0  # type: ignore[attr-defined]  # Lightning takes it from the environment, as under srun
    if rank:
        logging.getLogger("lightning_cse").setLevel(logging.ERROR)  # the first process logs it


def _prepare(cfg: DictConfig, interrupts: Interrupts) -> Job:
    """Resolve and check the config, build its objects, and name the run's folder."""
    key = training_key(plain(cfg))  # of the settings as they were requested
    resolved = resolve_automatic(cfg)
    check_nodes(cfg)
    pl.seed_everything(cfg.seed, workers=True, verbose=False)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()  # else, in a sweep, that of the previous point

    callbacks = _own_callbacks(cfg.callbacks)
    parts = build(cfg)
    resolved |= automatic_reading(cfg, parts.encoder)
    if cfg.init_from is not None:
        resolved["init_from"] = initialise(parts.method, str(cfg.init_from))

    decides: dict[str, Any] = {
        "data": parts.digests,
        "encoder": {"name": parts.encoder.name, **parts.encoder.digests},
        "resolved": resolved,
    }

    config = plain(cfg)
    folder = runs.Run(
        Path(cfg.paths.runs_dir).expanduser(),
        str(cfg.name),
        runs.config_hash(config, **decides),
        cfg.seed,
    )

    return Job(cfg, parts, folder, key, runs.decisive(config, **decides), interrupts, callbacks)


def _own_callbacks(cfg: DictConfig) -> list[pl.Callback]:
    """Return the callbacks that the user added."""
    callbacks = []
    for name in map(str, cfg):
        if name == "early_stopping":
            continue

        callback = built(cfg[name])
        if not isinstance(callback, pl.Callback):
            kind = "is not a callback of pytorch_lightning"
            raise ConfigError([f"callbacks.{name}: {cfg[name]._target_} {kind}"])

        callbacks.append(callback)

    return callbacks


def _follow(job: Job) -> runs.Outcome:
    """Take part in a training as another process than the first, which alone writes."""
    if started():
        start = agree(job.cfg, job.folder)
    elif job.cfg.force:
        start = Start(finished=False)
    else:  # Lightning has started this process beside the first one, which waits for it
        finished = job.folder.status == "finished"
        start = Start(finished, step=0 if job.last.is_file() else None)

    if start.finished:
        return runs.Outcome("skipped", str(job.folder.path))

    score = None
    with contextlib.suppress(Interrupted):  # the first process raises it, too
        score = fit_and_test(job, [], start.step)["best"]["score"]

    return runs.Outcome("finished", str(job.folder.path), score)


def _tell(job: Job, start: Start) -> None:
    """Send the start of the run to the processes that torchrun or SLURM has started."""
    if devices(job.cfg) > 1 and started():
        agree(job.cfg, job.folder, start)


def _run(job: Job) -> dict[str, Any]:
    """Start or resume the run in its folder, with the lock held, and return the record."""
    start = _resume_point(job) if job.last.is_file() else Start(finished=False)
    _tell(job, start)
    step = start.step
    job.folder.start(OmegaConf.to_yaml(job.cfg, resolve=True), job.key)
    _report_start(job, step)
    curves = runs.Curves(job.folder.curves_path)

    def is_kept(at: int, key: str) -> bool:
        """Whether a value is before the checkpoint, so that it is not logged again."""
        if step is None or at > step:
            return False

        return at < step or not start.evaluation_due or key.startswith("train/")

    curves.keep(is_kept)
    views = _views(job, resumed_at=step)
    exit_code = 1

    try:
        results = fit_and_test(job, [CurvesLogger(curves), *views], step)
        record = _record(job, results)
        job.folder.finish(record)
        job.interrupts.continues = "finds the run finished"
        exit_code = 0

        if not job.cfg.keep_last:
            job.last.unlink(missing_ok=True)

        for view in views:
            view.conclude(record)
    except Interrupted as interrupted:
        exit_code = 128 + interrupted.signum
        raise
    except Exception as error:
        job.folder.fail(error, stage="training")
        raise
    finally:
        for view in views:
            view.close(exit_code)

    if job.cfg.figures:
        from lightning_cse.loggers.plots import run_figures  # matplotlib

        try:
            run_figures(curves.read(), job.folder.figures, job.cfg.monitor)
        except Exception as error:  # noqa: BLE001 - the run is finished
            log.warning("no figures: %s", error)

    return record


def _report_start(job: Job, step: int | None) -> None:
    """Log what is trained, and from where."""
    cfg = job.cfg
    log.info(
        "%s: %s, %s, recipe %s, %s, %s; everything is written to %s",
        cfg.name,
        job.parts.data.size,
        job.parts.encoder.name,
        recipe_name(cfg),
        cfg.trainer.accelerator,
        cfg.trainer.precision,
        job.folder.path,
    )

    count = _parameters(job.parts)
    if count["trainable"] < count["total"]:
        adapter = job.parts.encoder.adapter
        log.info(
            "trains %.2g %% of %s parameters%s",
            100 * count["trainable"] / count["total"],
            f"{count['total']:,}",
            f": {adapter}" if adapter else "",
        )

    if step is not None:
        log.info("resuming from step %d of %s", step, job.last)
        job.interrupts.continues = f"continues from step {step}"


def _record(job: Job, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a finished run."""
    overrides = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    provenance = job.parts.data.provenance
    record = {
        "name": job.folder.name,
        "config_hash": job.folder.config_hash,
        "seed": job.folder.seed,
        "key": job.key,
        "overrides": portable(overrides),
        "decisive": job.decisive,
        **results,
    }

    return record | {"provenance": provenance} if provenance else record


def _resume_point(job: Job) -> Start:
    """Return the step of the last checkpoint, and whether its evaluation is still due."""
    try:
        state = torch.load(job.last, map_location="cpu", weights_only=True)
        step = int(state["global_step"])
        callbacks = state["callbacks"]
        evaluation_due = bool(callbacks[Evaluation.__qualname__]["due"])
        random_state = callbacks[RandomState.__qualname__]
    except Exception as error:  # torch raises many kinds
        fault = f"{job.last} is damaged ({one_line(error)}): force=true starts this run again"
        raise TrainingError(fault) from error

    RandomState.check(random_state, devices(job.cfg))

    return Start(finished=False, step=step, evaluation_due=evaluation_due)


def _views(job: Job, *, resumed_at: int | None) -> list[RunView]:
    """Return the view that the config names, if any; a view must not fail the run."""
    cfg = job.cfg
    if not cfg.logger:
        return []

    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
    sweep = choices.get("sweep")
    try:  # called outside Hydra, which would build every node of the settings
        view = instantiate(cfg.logger, _partial_=True)(
            run=job.folder,
            group=f"{cfg.name}/{sweep}" if sweep else str(cfg.name),
            settings=plain(cfg),
            resumed_at=resumed_at,
            tags=[str(choices[name]) for name in ("profile", "debug") if choices.get(name)],
        )
    except Exception as error:  # noqa: BLE001 - a missing package or a wrong folder, for example
        log.warning("the run continues without %s: %s", cfg.logger._target_, error)
        return []

    return [view]


@contextlib.contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Also write logs, warnings and the traceback of an error to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)

    try:
        yield
    except BaseException as error:
        with path.open("a", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)

        raise
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        handler.close()


# Training and test of the objects built ----------------------------------------------


@together()
def fit_and_test(job: Job, loggers: list[Logger], step: int | None) -> dict[str, Any]:
    """Train from the start or the checkpoint of a step, test the best one, and return the results.

    Raises TrainingError if another process of the run is lost.
    """
    try:
        return _fit_and_test(job, loggers, None if step is None else job.last)
    except RuntimeError as error:
        if not is_lost(error):
            raise

        raise TrainingError(
            "another process of this run has ended, or its machine cannot be reached "
            f"({one_line(error)[:160]}...): {job.interrupts.command} on all machines "
            f"{job.interrupts.continues}"
        ) from error


def _fit_and_test(job: Job, loggers: list[Logger], last: Path | None) -> dict[str, Any]:
    parts = job.parts
    parts.data.limit_train_batches = job.cfg.trainer.limit_train_batches
    parts.data.setup()
    cut = _count_cut(parts)

    steps = StepLog()
    evaluation = _evaluation(job)
    checkpoints = BestAndLast(job.folder.checkpoints, evaluation)
    lines = [StepLines(evaluation)] if loggers else []
    callbacks = [
        job.interrupts,
        RandomState(),
        MemoryEstimate(),
        *job.callbacks,
        steps,
        evaluation,
        *lines,
        checkpoints,
    ]
    trainer = _trainer(job, loggers, callbacks)
    passes = parts.encoder.passes(trainer.strategy.root_device)
    log.info("%s encodes %s sentences", parts.encoder.name, passes)
    _fit(job, trainer, last)
    if not checkpoints.best.is_file():
        raise TrainingError(
            f"{evaluation.monitor} was NaN at every evaluation, so no checkpoint is the best: "
            "repair the task that gives it, or choose another monitor"
        )

    job.interrupts.continues = "repeats only the test"
    start = time.perf_counter()
    metrics, baselines = _test(job, trainer, checkpoints.best)
    seconds = {
        "training": steps.seconds,
        "evaluation": evaluation.seconds,
        "test": time.perf_counter() - start,
    }

    return {
        "model": parts.method.model.settings(),
        "parameters": _parameters(parts),
        "metrics": metrics,
        "baselines": baselines,
        "left_out": parts.left_out,
        "steps": trainer.global_step,
        "rows": cut | parts.data.counts,  # a stream counts the sentences that are cut itself
        **_scores(job.cfg, job.folder, evaluation),
        **_inputs(job, trainer, checkpoints.best),
        "seconds": seconds,
        "evaluation_share": evaluation.seconds / max(evaluation.seconds + steps.seconds, 1e-9),
        "sentences_per_second": steps.sentences / max(steps.seconds, 1e-9),
        "peak_memory_mib": peak_memory(),
    }


def _parameters(parts: Parts) -> dict[str, int]:
    """Return the numbers of all parameters and of those that are trained."""
    sizes = [(weight.numel(), weight.requires_grad) for weight in parts.method.parameters()]
    return {
        "total": sum(size for size, _ in sizes),
        "trainable": sum(size for size, is_trained in sizes if is_trained),
    }


def _evaluation(job: Job) -> Evaluation:
    """Return the callback that evaluates on the way."""
    cfg = job.cfg
    return Evaluation(
        job.parts.tasks,
        job.parts.diagnostics,
        every=cfg.eval_every,
        least=cfg.least_evaluations,
        monitor=cfg.monitor,
        **cfg.callbacks.early_stopping,
        dropout=cfg.diag.dropout,
        interrupts=job.interrupts,
    )


def _trainer(job: Job, loggers: list[Logger], callbacks: list[pl.Callback]) -> pl.Trainer:
    """Return Lightning's Trainer for a run."""
    trainer: pl.Trainer = built(
        job.cfg.trainer,
        logger=loggers or False,
        callbacks=callbacks,
        limit_train_batches=None,  # the data loader applies it
        default_root_dir=str(job.folder.path),
        enable_progress_bar=job.cfg.trainer.get("enable_progress_bar", sys.stderr.isatty()),
        _convert_="all",
    )

    if trainer.global_rank:  # its own dropout masks
        pl.seed_everything(job.cfg.seed + trainer.global_rank, workers=True, verbose=False)

    return trainer


def _scores(cfg: DictConfig, folder: runs.Run, evaluation: Evaluation) -> dict[str, Any]:
    """Return the dev scores for the record."""
    curves = runs.Curves(folder.curves_path).read()
    step = evaluation.best_step

    return {
        "best": {"step": step, "score": evaluation.best_score, "monitor": cfg.monitor},
        "final": evaluation.latest,
        "summary": dataclasses.asdict(runs.summarise(curves, cfg.monitor)),
        "stopped_early": evaluation.stopped,
    }


def _inputs(job: Job, trainer: pl.Trainer, best: Path) -> dict[str, Any]:
    """Return the digests of data, encoder, best checkpoint and code, and the environment."""
    parts = job.parts
    from lightning_cse.runs.code import code_digest

    return {
        "data": parts.digests,
        "task_data": {name: task.digests for name, task in parts.tasks.items()},
        "encoder": {"name": parts.encoder.name, **parts.encoder.digests},
        "checkpoint": {"sha256": sha256_of(best)},
        "code": code_digest(plain(job.cfg.method)),
        "device": device_name(trainer.strategy.root_device),
        "passes": parts.encoder.passes(trainer.strategy.root_device),
        "precision": str(trainer.precision),
        "environment": runs.environment(),
    }


def _count_cut(parts: Parts) -> dict[str, int]:
    """Count the sentences that are cut, and give the model the evaluation's tokens."""
    longest = parts.encoder.max_length - max(map(len, parts.method.templates))
    evaluated = set(parts.diagnostics.sentences())
    for task in parts.tasks.values():
        evaluated.update(task.sentences("dev"), task.sentences("test"))

    table = token_table(
        sorted(evaluated), parts.encoder.instructed["default"], parts.data.cache_dir
    )
    parts.method.model.table = table  # embedded at every evaluation
    by_role = parts.data.cut_to(longest)
    cut = {
        "sentences_cut": sum(by_role.values()),
        "evaluation_sentences_cut": int((table.lengths > longest).sum()),
    }

    if any(cut.values()):
        log.warning(
            "%d training sentences and %d evaluation sentences are longer than encoder.max_length "
            "or data.max_tokens, and are cut%s",
            *cut.values(),
            "".join(f"\n  {name}: {count:,}" for name, count in by_role.items()),
        )

    return cut | by_role


def _fit(job: Job, trainer: pl.Trainer, last: Path | None) -> None:
    """Train; name the rows of a failed step, and raise Ctrl-C where Lightning exits."""
    data = job.parts.data
    try:
        with warnings.catch_warnings():
            # Lightning 2.6 itself causes it with torch 2.13.
            warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
            trainer.fit(job.parts.method, data, ckpt_path=last, weights_only=True)
    except SystemExit as ending:  # Lightning turns a KeyboardInterrupt into this
        if isinstance(ending.__context__, KeyboardInterrupt):
            raise ending.__context__ from None

        raise
    except TrainingError as error:
        if not error.rows:
            raise

        places = ", ".join(data.where(row) for row in error.rows[:3])
        raise TrainingError(f"{error} (the first: {places})", error.rows) from error

    if trainer.global_step == 0:
        limits = "trainer.limit_train_batches and trainer.max_time"
        raise TrainingError(f"no training step was made: see {limits}")


# The test ------------------------------------------------------------------------------------


def _test(
    job: Job, trainer: pl.Trainer, best: Path
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return the test metrics of every task, for the best checkpoint and for the baselines."""
    parts = job.parts
    weights = torch.load(best, map_location="cpu", weights_only=True)["state_dict"]
    parts.method.load_state_dict(weights)
    parts.method.to(trainer.strategy.root_device).eval()
    _free_training(trainer)
    # Each in a context of its own, which keeps a copy of the weights in its dtype.
    with trainer.precision_plugin.forward_context():
        results = run_tasks(parts.tasks, parts.method.model, "test")

    metrics = _metrics(job, trainer, results)
    baselines = {}
    for name in map(str, job.cfg.baselines):
        with trainer.precision_plugin.forward_context():
            model = built(job.cfg.baselines[name]).to(trainer.strategy.root_device).eval()
            found = run_tasks(parts.tasks, model, "test")

        baselines[name] = _metrics(job, trainer, found, f"{name}-")

    parts.left_out.update(
        {task: result.reason for task, result in results.items() if result.reason}
    )

    return metrics, baselines


def _free_training(trainer: pl.Trainer) -> None:
    """Free the gradients and the optimizers, so that a baseline has room beside the model."""
    trainer.lightning_module.zero_grad(set_to_none=True)
    trainer.optimizers = []
    trainer.strategy.lr_scheduler_configs = []
    return_freed_memory()


def _metrics(
    job: Job, trainer: pl.Trainer, results: Mapping[str, TaskResult], prefix: str = ""
) -> dict[str, float]:
    """Write the predictions of each task, and return its metrics by their keys."""
    for task, result in results.items():
        if result.predictions and trainer.is_global_zero:  # an average of other tasks has none
            runs.write_predictions(job.folder.predictions, f"{prefix}{task}", result.predictions)

    return keyed({task: result.metrics for task, result in results.items()}, "test/")
