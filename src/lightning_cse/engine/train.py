"""A training run from its config to its record: resolve, check, build, train, test the best checkpoint, record."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import time
import warnings
import zlib
from collections.abc import Iterator
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
    RandomState,
    StepBar,
    StepLog,
)
from lightning_cse.config.check import devices
from lightning_cse.config.compose import in_sweep, portable, recipe_name
from lightning_cse.config.key import training_key
from lightning_cse.data.token_cache import token_table
from lightning_cse.devices import together
from lightning_cse.engine.build import (
    Parts,
    automatic_reading,
    build,
    built,
    check_nodes,
    plain,
    resolve_automatic,
)
from lightning_cse.errors import Interrupted, TrainingError
from lightning_cse.evaluation import Split, TaskResult, run_tasks
from lightning_cse.loggers import CurvesLogger
from lightning_cse.runs.machine import device_name, peak_memory
from lightning_cse.runs.table import print_run

if TYPE_CHECKING:
    from lightning_cse.loggers import RunView

log = logging.getLogger(__name__)


def run(cfg: DictConfig) -> runs.Outcome:
    """Train a method and print the table; the command calls this once per point of a sweep."""
    outcome = train(cfg)
    if rank_of(cfg):
        return outcome
    folder = runs.Run.at(Path(outcome.folder))
    print_run(folder.read(), folder.record_path)
    return outcome


def train(cfg: DictConfig) -> runs.Outcome:
    """Train the method that a config describes, unless this is done, and return the outcome.

    A finished run is skipped (``force=true`` starts again). An interrupted or failed run is resumed from its last
    checkpoint, and gives the same numbers as a run that was never stopped. This process holds the lock of the run's
    folder. Raises the errors of `Run.claim`, Interrupted after Ctrl-C or SIGTERM, and user errors; once training has
    begun, an error is also written to the run's ``failed.json``.
    """
    logging.getLogger("pytorch_lightning").setLevel(
        logging.WARNING
    )  # no tips, and no list of missing hardware
    rank = rank_of(cfg)
    if devices(cfg) == 1:
        rank_zero_only.rank = 0  # type: ignore[attr-defined]  # Lightning takes it from the environment, as under srun
    if rank:
        logging.getLogger("lightning_cse").setLevel(logging.ERROR)  # the first process logs it
    with Interrupts(force=cfg.force) as interrupts:
        key = training_key(plain(cfg))
        resolved = resolve_automatic(cfg)
        check_nodes(cfg)
        pl.seed_everything(cfg.seed, workers=True, verbose=False)
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()  # else, in a sweep, that of the previous point
        parts = build(cfg)
        decides: dict[str, Any] = {
            "data": parts.digests,
            "encoder": {"name": parts.encoder.name, **parts.encoder.digests},
            "resolved": resolved | automatic_reading(cfg, parts.encoder),
        }
        config_hash = runs.config_hash(plain(cfg), **decides)
        folder = runs.Run(
            Path(cfg.paths.runs_dir).expanduser(), str(cfg.name), config_hash, cfg.seed
        )
        if rank and folder.status == "finished" and not cfg.force:
            return runs.Outcome("skipped", str(folder.path))
        if rank:
            last = folder.checkpoints / "last.ckpt"
            with contextlib.suppress(Interrupted):  # the first process raises it, too
                _fit_and_test(
                    cfg,
                    parts,
                    folder,
                    [],
                    interrupts,
                    last if last.is_file() and not cfg.force else None,
                )
            return runs.Outcome("finished", str(folder.path))
        with folder.claim(
            force=cfg.force, leave_failed=in_sweep() and not cfg.retry_failed
        ) as unfinished:
            if unfinished:
                with _logging_to(folder.log_path):
                    record = _run(
                        cfg, parts, folder, key, runs.decisive(plain(cfg), **decides), interrupts
                    )
            else:
                record = folder.read()
                log.info("%s is finished; force=true runs it again", folder.path)
                if missing := [
                    str(name) for name in cfg.baselines if name not in record.get("baselines", ())
                ]:
                    log.warning(
                        "it has no values of the baselines %s: force=true adds them",
                        ", ".join(missing),
                    )
    score = record.get("best", {}).get("score")
    return runs.Outcome("finished" if unfinished else "skipped", str(folder.path), score)


def _run(
    cfg: DictConfig,
    parts: Parts,
    folder: runs.Run,
    key: str,
    decisive: dict[str, Any],
    interrupts: Interrupts,
) -> dict[str, Any]:
    """Start or resume the run in its folder, with the lock held, and return the record."""
    last = folder.checkpoints / "last.ckpt"
    step, due = _resume_point(last) if last.is_file() else (None, False)
    folder.start(OmegaConf.to_yaml(cfg, resolve=True), key)
    how = f"{parts.encoder.name}, recipe {recipe_name(cfg)}, {cfg.trainer.accelerator}, {cfg.trainer.precision}"
    log.info(
        "%s: %d training rows, %s; everything is written to %s",
        cfg.name,
        len(parts.data.train),
        how,
        folder.path,
    )
    curves = runs.Curves(folder.curves_path)
    if step is not None:
        log.info("resuming from step %d of %s", step, last)
        interrupts.continues = f"continues from step {step}"
    shown = (
        "train/" if due else ""
    )  # keys to keep of that step: an evaluation still due is logged again
    curves.keep(
        lambda at, key: step is not None and (at < step or (at == step and key.startswith(shown)))
    )
    views = _views(cfg, folder, resumed_at=step)
    loggers = [CurvesLogger(curves), *views]
    exit_code = 1
    try:
        record = {
            "name": folder.name,
            "config_hash": folder.config_hash,
            "seed": folder.seed,
            "key": key,
            "overrides": portable(HydraConfig.get().overrides.task)
            if HydraConfig.initialized()
            else [],
            "decisive": decisive,
            **_fit_and_test(
                cfg, parts, folder, loggers, interrupts, None if step is None else last
            ),
        }
        if parts.data.provenance:
            record["provenance"] = parts.data.provenance
        folder.finish(record)
        interrupts.continues, exit_code = "finds the run finished", 0
        if not cfg.keep_last:
            last.unlink(missing_ok=True)
        for view in views:
            view.conclude(record)
    except Interrupted as interrupted:
        exit_code = 128 + interrupted.signum
        raise
    except Exception as error:
        folder.fail(error, stage="training")
        raise
    finally:
        for view in views:
            view.close(exit_code)
    if cfg.figures:
        from lightning_cse.loggers.plots import run_figures  # matplotlib

        try:
            run_figures(curves.read(), folder.figures, cfg.monitor)
        except Exception as error:  # noqa: BLE001 - the run is finished
            log.warning("no figures: %s", error)
    return record


def rank_of(cfg: DictConfig) -> int:
    """Return the rank of this process: 0, which writes everything, unless the run has several devices."""
    return int(rank_zero_only.rank) if devices(cfg) > 1 else 0  # type: ignore[attr-defined]  # set by Lightning


def _resume_point(last: Path) -> tuple[int, bool]:
    """Return the step of a checkpoint, and whether its evaluation is still due."""
    try:
        state = torch.load(last, map_location="cpu", weights_only=True)
        _ = [state[key] for key in ("state_dict", "optimizer_states", "lr_schedulers", "loops")]
        return int(state["global_step"]), bool(state["callbacks"][Evaluation.__qualname__]["due"])
    except Exception as error:  # torch raises many kinds
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise TrainingError(
            f"{last} is damaged ({what}): force=true starts this run again"
        ) from error


def _views(cfg: DictConfig, folder: runs.Run, *, resumed_at: int | None) -> list[RunView]:
    """Return the view that the config names, if any; a view must not fail the run."""
    if not cfg.logger:
        return []
    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
    group = f"{cfg.name}/{choices['sweep']}" if choices.get("sweep") else str(cfg.name)
    tags = [str(choices[name]) for name in ("profile", "debug") if choices.get(name)]
    try:  # called outside Hydra, which would build every node of the settings
        view = instantiate(cfg.logger, _partial_=True)
        return [
            view(run=folder, group=group, settings=plain(cfg), resumed_at=resumed_at, tags=tags)
        ]
    except Exception as error:  # noqa: BLE001 - a missing package or a wrong folder, for example
        log.warning("the run continues without %s: %s", cfg.logger._target_, error)
        return []


@together()
def _fit_and_test(
    cfg: DictConfig,
    parts: Parts,
    folder: runs.Run,
    loggers: list[Logger],
    interrupts: Interrupts,
    last: Path | None,
) -> dict[str, Any]:
    """Train from the start or the last checkpoint, test the best one, and return the results for the record."""
    parts.data.limit_train_batches = cfg.trainer.limit_train_batches
    parts.data.setup()
    truncated = _truncated(parts)
    evaluation = Evaluation(
        parts.tasks,
        parts.diagnostics,
        every=cfg.eval_every,
        least=cfg.least_evaluations,
        monitor=cfg.monitor,
        **cfg.callbacks.early_stopping,
        dropout=cfg.diag.dropout,
        interrupts=interrupts,
    )
    steps, checkpoints = StepLog(), BestAndLast(folder.checkpoints, evaluation)
    one_gpu = cfg.trainer.accelerator in ("gpu", "cuda") and torch.cuda.is_available()
    one_gpu &= (
        devices(cfg) == cfg.trainer.devices == 1
    )  # one machine, and a number of devices, not a list of GPUs
    trainer: pl.Trainer = built(
        cfg.trainer,
        logger=loggers or False,
        callbacks=[
            interrupts,
            RandomState(),
            steps,
            evaluation,
            *([StepBar(evaluation)] if loggers else ()),
            checkpoints,
        ],
        limit_train_batches=None,  # the data loader applies it
        # The GPU that "cuda" means in this process, which Lightning would ignore.
        devices=[torch.cuda.current_device()] if one_gpu else cfg.trainer.devices,
        default_root_dir=str(folder.path),
        _convert_="all",
    )
    if trainer.global_rank:
        pl.seed_everything(
            cfg.seed + trainer.global_rank, workers=True, verbose=False
        )  # its own dropout masks
    _fit(trainer, parts, last)
    if trainer.global_step == 0:
        raise TrainingError(
            "no training step was made: see trainer.limit_train_batches and trainer.max_time"
        )
    if not checkpoints.best.is_file():
        raise TrainingError(
            f"{cfg.monitor} was never a finite number, see {folder.curves_path}: no best checkpoint"
        )
    interrupts.continues = "repeats only the test"
    start = time.perf_counter()
    metrics, baselines = _test(cfg, parts, folder, trainer, checkpoints.best)
    with checkpoints.best.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "model": parts.method.model.settings(),
        "metrics": metrics,
        "baselines": baselines,
        "left_out": {name: [why] for name, why in parts.left_out.items()},
        "best": {
            "step": evaluation.best_step,
            "score": evaluation.best_score,
            "monitor": cfg.monitor,
        },
        "final": evaluation.latest,
        "summary": dataclasses.asdict(
            runs.summarise(runs.Curves(folder.curves_path).read(), cfg.monitor)
        ),
        "steps": trainer.global_step,
        "stopped_early": evaluation.stopped,
        "rows": parts.data.counts | truncated,
        "data": parts.digests,
        "task_data": {name: task.digests for name, task in parts.tasks.items()},
        "encoder": {"name": parts.encoder.name, **parts.encoder.digests},
        "checkpoint": {"sha256": digest},
        "device": device_name(trainer.strategy.root_device),
        "precision": str(trainer.precision),
        "environment": runs.environment(),
        "code": runs.code_digest(plain(cfg.method)),
        "seconds": {
            "training": steps.seconds,
            "evaluation": evaluation.seconds,
            "test": time.perf_counter() - start,
        },
        "evaluation_share": evaluation.seconds / max(evaluation.seconds + steps.seconds, 1e-9),
        "sentences_per_second": steps.sentences / max(steps.seconds, 1e-9),
        "peak_memory_mib": peak_memory(),
    }


def _truncated(parts: Parts) -> dict[str, int]:
    """Count the sentences that are cut, warn once about them, and give the model the evaluation's tokens."""
    longest = parts.encoder.max_length - max(len(template) for template in parts.method.templates)
    splits: tuple[Split, ...] = ("dev", "test")
    evaluated = {
        s for task in parts.tasks.values() for split in splits for s in task.sentences(split)
    }
    evaluated.update(parts.diagnostics.sentences())
    table = token_table(sorted(evaluated), parts.encoder.tokenizer, parts.data.cache_dir)
    parts.method.model.table, lengths = table, table.lengths  # embedded at every evaluation
    cut = {
        "sentences_cut": parts.data.longer_than(longest),
        "evaluation_sentences_cut": int((lengths > longest).sum()),
    }
    if any(cut.values()):
        log.warning(
            "%d of %d training sentences and %d of %d evaluation sentences are longer than encoder.max_length or "
            "data.max_tokens, and are cut",
            *(
                cut["sentences_cut"],
                parts.data.sentences,
                cut["evaluation_sentences_cut"],
                len(evaluated),
            ),
        )
    return cut


def _fit(trainer: pl.Trainer, parts: Parts, last: Path | None) -> None:
    try:
        with warnings.catch_warnings():
            # Lightning 2.6 itself causes it with torch 2.13.
            warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
            trainer.fit(parts.method, parts.data, ckpt_path=last, weights_only=True)
    except SystemExit as ending:  # Lightning turns a KeyboardInterrupt into this
        if isinstance(ending.__context__, KeyboardInterrupt):
            raise ending.__context__ from None
        raise
    except TrainingError as error:
        places = ", ".join(parts.data.train.where(row) for row in error.rows[:3])
        raise TrainingError(
            f"{error} (the first: {places})" if places else str(error), error.rows
        ) from error


def _test(
    cfg: DictConfig, parts: Parts, folder: runs.Run, trainer: pl.Trainer, best: Path
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return the test metrics of every task, for the best checkpoint and for the baselines."""

    def metrics(results: dict[str, TaskResult], prefix: str = "") -> dict[str, float]:
        for task, result in results.items():
            if result.predictions and trainer.is_global_zero:  # an average of other tasks has none
                runs.write_predictions(folder.predictions, f"{prefix}{task}", result.predictions)
            if result.reason and not prefix:
                parts.left_out[task] = result.reason
                log.info("the task %s is left out: %s", task, result.reason)
        return {
            f"test/{task}/{name}": v
            for task, result in results.items()
            for name, v in result.metrics.items()
        }

    device = trainer.strategy.root_device
    parts.method.load_state_dict(
        torch.load(best, map_location="cpu", weights_only=True)["state_dict"]
    )
    parts.method.to(device).eval()
    with trainer.precision_plugin.forward_context():
        tested = metrics(run_tasks(parts.tasks, parts.method.model, "test"))
        baselines = {}
        for name, node in cfg.baselines.items():
            model = built(node).to(device).eval()
            decides = [
                plain(cfg.suite),
                *(task.digests for task in parts.tasks.values()),
                str(device),
                _weights(model),
            ]
            key = f"{plain(node)} {decides} {trainer.precision}"
            if _baselines.get(name, ("",))[0] != key:
                _baselines[name] = key, run_tasks(parts.tasks, model, "test")
            baselines[name] = metrics(_baselines[name][1], f"{name}-")
    return tested, baselines


_baselines: dict[str, tuple[str, dict[str, TaskResult]]] = {}
"""The latest results of each baseline, with a key of all that affects them; the points of a sweep share them."""


def _weights(model: torch.nn.Module) -> list[int]:
    """Return a checksum of each tensor of a model."""
    return [
        zlib.crc32(tensor.cpu().flatten().view(torch.uint8).numpy())
        for tensor in model.state_dict().values()
    ]


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
        exc_info = (type(error), error, error.__traceback__)
        handler.handle(
            logging.LogRecord(__name__, logging.ERROR, __file__, 0, str(error), None, exc_info)
        )
        error.log_path = path  # type: ignore[attr-defined]  # for the message of the command
        raise
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        handler.close()
