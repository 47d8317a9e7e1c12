"""A training run from its config to its record."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from lightning_cse import runs
from lightning_cse.callbacks import Interrupts
from lightning_cse.config.compose import in_sweep, recipe_name
from lightning_cse.engine.build import Parts, build, plain, prepare
from lightning_cse.engine.processes import join, lost_process
from lightning_cse.engine.record import (
    cut_sentences,
    final_values,
    measured,
    provenance,
    test,
    tunable,
)
from lightning_cse.engine.reporting import (
    draw_figures,
    report_start,
    reported,
    run_loggers,
    training_errors,
)
from lightning_cse.engine.resume import (
    Checkpoint,
    claimed,
    last_checkpoint,
    report_changes,
    restore,
)
from lightning_cse.engine.trainer import Training, build_training
from lightning_cse.errors import ConfigError, TrainingError
from lightning_cse.loggers import log_final

log = logging.getLogger(__name__)


def run(cfg: DictConfig) -> runs.Outcome:
    """Train a method and print the table; the command calls this once per point of a sweep."""
    outcome = train(cfg)
    if rank_zero_only.rank == 0 and outcome.folder:  # type: ignore[attr-defined]  # set by Lightning
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
    processes = join(cfg)
    is_first = processes.rank == 0
    with contextlib.ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts(force=cfg.force))
        stack.enter_context(lost_process(interrupts))
        cfg, parts, identity = prepare(cfg)
        root = Path(cfg.paths.runs_dir).expanduser()
        folder = runs.Run(root, str(cfg.name), identity.config_hash, cfg.seed)
        if cfg.trainer.get("fast_dev_run"):
            _try_out(build_training(cfg, parts, folder, interrupts), parts)
            return runs.Outcome("finished", "")

        leave_failed = in_sweep() and not cfg.retry_failed
        start = stack.enter_context(
            claimed(folder, processes, force=cfg.force, leave_failed=leave_failed)
        )
        if start.finished:
            _clean_up(folder, keep_last=cfg.keep_last or not is_first)
            log.info("%s is finished; force=true runs it again", folder.path)
            score = folder.read().get("best", {}).get("score")
            return runs.Outcome("skipped", str(folder.path), score, cfg.monitor)

        # A run that cannot be resumed has not failed, so this comes before its folder is written.
        checkpoint = last_checkpoint(folder, processes) if start.is_resumed else None
        if is_first:
            config = OmegaConf.to_yaml(cfg, resolve=True)
            stack.enter_context(reported(folder, config, identity.key))
            if checkpoint is None:
                folder.curves_path.unlink(missing_ok=True)

        parts.data.setup()
        cut = cut_sentences(parts)
        configured = tunable(parts)
        resumed_at = checkpoint.step if checkpoint else None
        # They end before the record says that the run is finished.
        with run_loggers(plain(cfg) if is_first else {}, folder, resumed_at) as loggers:
            training = build_training(
                cfg, parts, folder, interrupts, loggers, is_resumed=checkpoint is not None
            )
            machine = f"{cfg.trainer.accelerator}, {cfg.trainer.precision}"
            report_start(parts, folder, f"recipe {recipe_name(cfg)}, {machine}", resumed_at)

            with training_errors(parts.data):
                steps = _fit(training, parts, checkpoint, interrupts)
                interrupts.continues = "repeats only the test"
                tested = test(parts, training, folder)

            record = {
                **provenance(parts, folder, identity),
                **tested,
                **measured(parts, training, folder, steps, configured),
                "rows": cut | parts.data.counts,
            }
            record["seconds"] |= tested["seconds"]
            for logger in loggers:
                log_final(logger, final_values(record), steps)

        if is_first:
            if cfg.figures:
                draw_figures(folder, record["best"]["monitor"])

            folder.finish(record)

        interrupts.continues = "finds the run finished"
        _clean_up(folder, keep_last=cfg.keep_last or not is_first)

    return runs.Outcome("finished", str(folder.path), record["best"]["score"], cfg.monitor)


def _fit(
    training: Training, parts: Parts, checkpoint: Checkpoint | None, interrupts: Interrupts
) -> int:
    """Train from step 0, which is validated, or from a checkpoint; return the steps made."""
    method = parts.method
    trainer = training.trainer
    if checkpoint is None:
        trainer.validate(method, parts.data, verbose=False)
    else:
        report_changes(checkpoint, method)
        interrupts.continues = f"continues from step {checkpoint.step}"

    if checkpoint is not None and checkpoint.is_over:
        steps = checkpoint.step
        restore(checkpoint, trainer, method)
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

    if training.best.path.is_file():
        return steps
    if steps == 0:
        limits = "trainer.limit_train_batches and trainer.max_time"
        raise TrainingError(f"no training step was made: see {limits}")

    raise TrainingError(
        f"{training.best.monitor} was NaN at every evaluation, so no checkpoint is the best: repair "
        "the task that gives it, or choose another monitor"
    )


def _try_out(training: Training, parts: Parts) -> None:
    """Make one step, one validation and one test, as ``fast_dev_run`` does; nothing is kept."""
    with training_errors(parts.data):
        training.trainer.fit(parts.method, parts.data)
        training.trainer.test(parts.method, parts.data, verbose=False)

    log.info("trainer.fast_dev_run: a step, a validation and a test were made; there is no record")


def _clean_up(folder: runs.Run, *, keep_last: bool) -> None:
    """Remove the checkpoint from which a finished run need not be resumed."""
    if not keep_last:
        (folder.checkpoints / "last.ckpt").unlink(missing_ok=True)


def tokenise(cfg: DictConfig) -> None:
    """Read and tokenise the sentences of a run into the cache, so that its start takes no time."""
    if cfg.paths.cache_dir is None:
        raise ConfigError(["paths.cache_dir: must be a folder, in which the tokens are kept"])

    parts = build(cfg)
    parts.data.setup()
    cut_sentences(parts)
    rows = f"{len(parts.data.train):,}"
    log.info("%s: %s training rows are tokenised in %s", cfg.name, rows, parts.data.cache_dir)
