"""A training run from its config to its record."""

from __future__ import annotations

import contextlib
import logging
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from lightning_cse import runs
from lightning_cse.callbacks import Interrupts
from lightning_cse.config.check import devices
from lightning_cse.config.compose import recipe_name
from lightning_cse.devices import is_lost
from lightning_cse.engine.build import Parts, build, plain, prepare
from lightning_cse.engine.processes import check_processes, meet
from lightning_cse.engine.record import (
    cut_sentences,
    final_values,
    measured,
    parameter_counts,
    provenance,
    test,
)
from lightning_cse.engine.resume import (
    Checkpoint,
    claimed,
    read_checkpoint,
    report_changes,
    report_other_data,
    restore,
)
from lightning_cse.engine.trainer import Training, build_training
from lightning_cse.errors import ConfigError, Interrupted, TrainingError, one_line
from lightning_cse.loggers import CurvesLogger, Guard, log_final
from lightning_cse.runs.hashing import Identity

log = logging.getLogger(__name__)


def run(cfg: DictConfig) -> runs.Outcome:
    """Train a method and print the table; the command calls this once per point of a sweep."""
    outcome = train(cfg)
    if rank_of(cfg) == 0 and outcome.folder:
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
    meet(cfg)
    with Interrupts(force=cfg.force) as interrupts, _lost_process(interrupts):
        parts, run_identity = prepare(cfg)
        root = Path(cfg.paths.runs_dir).expanduser()
        folder = runs.Run(root, str(cfg.name), run_identity.config_hash, cfg.seed)
        if cfg.trainer.get("fast_dev_run"):
            return _try_out(cfg, parts, folder, interrupts)

        with claimed(cfg, folder, rank) as start:
            if start.finished:
                _clean_up(cfg, folder, rank)
                log.info("%s is finished; force=true runs it again", folder.path)
                score = _best_score(folder)
                return runs.Outcome("skipped", str(folder.path), score, cfg.monitor)

            checkpoint = None
            if start.is_resumed:  # a run that cannot be resumed has not failed
                checkpoint = read_checkpoint(folder, devices(cfg), rank)

            with _writing(cfg, folder, run_identity, rank):
                record = _train(cfg, parts, folder, run_identity, interrupts, checkpoint)

            interrupts.continues = "finds the run finished"
            _clean_up(cfg, folder, rank)

    return runs.Outcome("finished", str(folder.path), record["best"]["score"], cfg.monitor)


def _train(
    cfg: DictConfig,
    parts: Parts,
    folder: runs.Run,
    run_identity: Identity,
    interrupts: Interrupts,
    checkpoint: Checkpoint | None,
) -> dict[str, Any]:
    """Train from the start or from the last checkpoint, test the best one, and write the record."""
    data = parts.data
    rank = rank_of(cfg)
    data.setup()
    cut = cut_sentences(parts)
    if checkpoint is not None:
        report_changes(checkpoint, parts.method)
    elif rank == 0:
        folder.curves_path.unlink(missing_ok=True)

    resumed_at = checkpoint.step if checkpoint else None
    with _loggers(cfg, folder, resumed_at) as loggers:
        curves = CurvesLogger(runs.Curves(folder.curves_path))
        training = build_training(
            cfg, parts, folder.path, interrupts, curves, loggers, is_resumed=checkpoint is not None
        )
        _report_start(cfg, parts, folder, resumed_at)

        with _training_errors(data):
            steps = _fit(training, parts, checkpoint, interrupts)
            interrupts.continues = "repeats only the test"
            tested = test(cfg, parts, training, folder.predictions)

        record = {
            **provenance(cfg, parts, folder, run_identity),
            **tested,
            **measured(cfg, parts, training, folder, steps, tested["seconds"]),
            "rows": cut | data.counts,  # a stream counts the sentences that are cut itself
        }
        if rank == 0:
            for logger in loggers:
                log_final(logger, final_values(record), steps)

            if cfg.figures:
                _draw_figures(folder, cfg.monitor)

    if rank == 0:
        folder.finish(record)

    return record


def _fit(
    training: Training, parts: Parts, checkpoint: Checkpoint | None, interrupts: Interrupts
) -> int:
    """Train from step 0, which is validated, or from a checkpoint; return the steps made."""
    method = parts.method
    trainer = training.trainer
    if checkpoint is None:
        trainer.validate(method, parts.data, verbose=False)
    else:
        interrupts.continues = f"continues from step {checkpoint.step}"

    if checkpoint is not None and checkpoint.is_over:
        steps = checkpoint.step
        restore(checkpoint, method, training.best, training.timing)
    elif checkpoint is not None and training.averages and checkpoint.step >= training.total:
        raise TrainingError(
            f"{checkpoint.path} was written before the averaged weights were validated, and "
            "StochasticWeightAveraging cannot continue from there: train again with force=true"
        )
    else:
        with training.finding():
            last = None if checkpoint is None else checkpoint.path
            trainer.fit(method, parts.data, ckpt_path=last, weights_only=True)

        steps = trainer.global_step
        if training.averages:
            trainer.validate(method, parts.data, verbose=False)
            training.best.save_if_best(trainer)
            training.last.finish(trainer)

    if not training.best.path.is_file():
        raise TrainingError(_no_best(str(training.best.monitor), steps))

    return steps


def _try_out(
    cfg: DictConfig, parts: Parts, folder: runs.Run, interrupts: Interrupts
) -> runs.Outcome:
    """Make one step, one validation and one test, as ``fast_dev_run`` does; nothing is kept."""
    curves = CurvesLogger(runs.Curves(folder.curves_path))
    trainer = build_training(cfg, parts, folder.path, interrupts, curves).trainer
    with _training_errors(parts.data):
        trainer.fit(parts.method, parts.data)
        trainer.test(parts.method, parts.data, verbose=False)

    log.info("trainer.fast_dev_run: a step, a validation and a test were made; there is no record")

    return runs.Outcome("finished", "")


def tokenise(cfg: DictConfig) -> None:
    """Read and tokenise the sentences of a run into the cache, so that its start takes no time."""
    if cfg.paths.cache_dir is None:
        raise ConfigError(["paths.cache_dir: must be a folder, in which the tokens are kept"])

    if cfg.data.get("streaming"):
        fault = "data.streaming: a stream is tokenised by the batch; there is nothing to prepare"
        raise ConfigError([fault])

    parts = build(cfg)
    parts.data.setup()
    cut_sentences(parts)
    rows = f"{len(parts.data.train):,}"
    log.info("%s: %s training rows are tokenised in %s", cfg.name, rows, parts.data.cache_dir)


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
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()  # else, in a sweep, that of the previous point


@contextlib.contextmanager
def _lost_process(interrupts: Interrupts) -> Iterator[None]:
    """Raise TrainingError if another process of the run is lost."""
    try:
        yield
    except RuntimeError as error:
        if not is_lost(error):
            raise

        raise TrainingError(
            "another process of this run has ended, or its machine cannot be reached "
            f"({one_line(error)[:160]}...): {interrupts.command} on all machines "
            f"{interrupts.continues}"
        ) from error


@contextlib.contextmanager
def _writing(
    cfg: DictConfig, folder: runs.Run, run_identity: Identity, rank: int
) -> Iterator[None]:
    """Write config and log of a run, and what it failed with; only in the first process."""
    if rank:
        yield
        return

    report_other_data(folder, run_identity.key)
    folder.start(OmegaConf.to_yaml(cfg, resolve=True), run_identity.key)
    with _logging_to(folder.log_path):
        try:
            yield
        except Exception as error:
            folder.fail(error, stage="training")
            raise


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


@contextlib.contextmanager
def _loggers(cfg: DictConfig, folder: runs.Run, resumed_at: int | None) -> Iterator[list[Guard]]:
    """Yield the loggers that the config names, and end them with the run."""
    loggers: list[Guard] = []
    if cfg.logger and rank_of(cfg) == 0:
        from lightning_cse.loggers import build_loggers  # imports W&B

        choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
        sweep = choices.get("sweep")
        settings = runs.public(plain(cfg))
        loggers = build_loggers(
            settings["logger"],
            folder,
            settings,
            group=f"{cfg.name}/{sweep}" if sweep else str(cfg.name),
            tags=[str(choices[name]) for name in ("profile", "debug") if choices.get(name)],
            resumed_at=resumed_at,
        )

    exit_code = 1
    try:
        yield loggers
        exit_code = 0
    except Interrupted as interrupted:
        exit_code = 128 + interrupted.signum
        raise
    finally:
        for logger in loggers:
            logger.close(exit_code)


@contextlib.contextmanager
def _training_errors(data: Any) -> Iterator[None]:
    """Name the rows of a failed step, and raise Ctrl-C where Lightning exits."""
    try:
        with warnings.catch_warnings():
            # Lightning 2.6 itself causes it with torch 2.13.
            warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
            # A run that is resumed has checkpoints; our loaders have no workers.
            warnings.filterwarnings("ignore", message=r"Checkpoint directory .* exists")
            yield
    except SystemExit as ending:  # Lightning turns a KeyboardInterrupt into this
        if isinstance(ending.__context__, KeyboardInterrupt):
            raise ending.__context__ from None

        raise
    except TrainingError as error:
        if not error.rows:
            raise

        places = ", ".join(data.where(row) for row in error.rows[:3])
        raise TrainingError(f"{error} (the first: {places})", error.rows) from error


def _no_best(monitor: str, steps: int) -> str:
    """Return why there is no best checkpoint."""
    if steps == 0:
        limits = "trainer.limit_train_batches and trainer.max_time"
        return f"no training step was made: see {limits}"

    return (
        f"{monitor} was NaN at every evaluation, so no checkpoint is the best: repair the task "
        "that gives it, or choose another monitor"
    )


def _report_start(cfg: DictConfig, parts: Parts, folder: runs.Run, step: int | None) -> None:
    """Log what is trained, and from where."""
    encoder = parts.encoder
    log.info(
        "%s: %s, %s, recipe %s, %s, %s; everything is written to %s",
        cfg.name,
        parts.data.size,
        encoder.name,
        recipe_name(cfg),
        cfg.trainer.accelerator,
        cfg.trainer.precision,
        folder.path,
    )

    count = parameter_counts(parts)
    if count["trainable"] < count["total"]:
        share = 100 * count["trainable"] / count["total"]
        adapter = f": {encoder.adapter}" if encoder.adapter else ""
        log.info("trains %.2g %% of %s parameters%s", share, f"{count['total']:,}", adapter)

    if step is not None:
        log.info("resuming from step %d of %s", step, folder.checkpoints / "last.ckpt")


def _draw_figures(folder: runs.Run, monitor: str) -> None:
    from lightning_cse.loggers.plots import run_figures  # matplotlib

    try:
        run_figures(runs.Curves(folder.curves_path).read(), folder.figures, monitor)
    except Exception as error:  # noqa: BLE001 - figures must not fail a run
        log.warning("no figures: %s", error)


def _clean_up(cfg: DictConfig, folder: runs.Run, rank: int) -> None:
    """Remove the checkpoint from which a finished run need not be resumed."""
    if rank == 0 and not cfg.keep_last:
        (folder.checkpoints / "last.ckpt").unlink(missing_ok=True)


def _best_score(folder: runs.Run) -> float | None:
    score: float | None = folder.read().get("best", {}).get("score")
    return score
