"""A training run from its config to its record."""

from __future__ import annotations

import contextlib
import copy
import logging
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from lightning_cse import runs
from lightning_cse.callbacks import Interrupts
from lightning_cse.config.compose import in_sweep
from lightning_cse.config.recipe import recipe_name
from lightning_cse.engine.automatic import machine_values
from lightning_cse.engine.build import build
from lightning_cse.engine.processes import claimed, join, lost_process
from lightning_cse.engine.record import make_record
from lightning_cse.engine.reporting import (
    draw_figures,
    log_results,
    report_cut_sentences,
    report_start,
    reported,
    run_loggers,
    training_errors,
)
from lightning_cse.engine.resume import last_checkpoint
from lightning_cse.engine.testing import fast_dev_run, test
from lightning_cse.engine.trainer import build_training
from lightning_cse.errors import ConfigError
from lightning_cse.runs.keys import training_key

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

        # Build method, data and callbacks, which name the run.
        requested: Any = OmegaConf.to_container(cfg, resolve=True)
        key = training_key(requested)
        cfg = copy.deepcopy(cfg)
        cfg.trainer.update(machine_values(cfg.trainer, "trainer."))
        pl.seed_everything(cfg.seed, workers=True, verbose=False)
        parts = build(cfg)
        method, data = parts.method, parts.data
        cfg.monitor = parts.monitor
        settings: Any = OmegaConf.to_container(cfg, resolve=True)
        decisive = runs.decisive(
            settings, data=parts.digests, encoder=parts.encoder_digests, resolved=parts.resolved
        )
        root = Path(cfg.paths.runs_dir).expanduser()
        folder = runs.Run(root, str(cfg.name), runs.config_hash(decisive), cfg.seed)
        if cfg.trainer.get("fast_dev_run"):
            fast_dev_run(parts)
            return runs.Outcome("finished", "")

        # Find it finished, interrupted or new.
        leave_failed = in_sweep() and not cfg.retry_failed
        start = stack.enter_context(
            claimed(folder, processes, force=cfg.force, leave_failed=leave_failed)
        )
        if start == "finished":
            _clean_up(folder, keep_last=cfg.keep_last or not is_first)
            log.info("%s is finished; force=true runs it again", folder.path)
            score = folder.read().get("best", {}).get("score")
            return runs.Outcome("skipped", str(folder.path), score, cfg.monitor)

        # A run that cannot be resumed has not failed, so this comes before its folder is written.
        checkpoint = last_checkpoint(folder, processes) if start == "resumed" else None
        resumed_at = checkpoint.step if checkpoint else None
        if is_first:
            config = OmegaConf.to_yaml(cfg, resolve=True)
            stack.enter_context(reported(folder, config, key))
            if checkpoint is None:
                folder.curves_path.unlink(missing_ok=True)

        data.setup()
        # The loggers end before the record says that the run is finished.
        with run_loggers(settings if is_first else {}, folder, resumed_at) as loggers:
            training = build_training(cfg, parts, folder, interrupts, loggers)
            machine = f"{cfg.trainer.accelerator}, {cfg.trainer.precision}"
            report_start(parts, folder, f"recipe {recipe_name(cfg)}, {machine}", resumed_at)
            with training_errors(data):
                if checkpoint is None:
                    training.trainer.validate(method, data, verbose=False)
                else:
                    checkpoint.report_changes(method)

                training.fit(parts, checkpoint)  # validates the last step, too
                tested = test(training, parts, folder)  # the best checkpoint, and the baselines

            record = make_record(parts, training, folder, key, decisive, tested)
            log_results(loggers, record)

        if is_first:
            if cfg.figures:
                draw_figures(folder, cfg.monitor)

            folder.finish(record)

        _clean_up(folder, keep_last=cfg.keep_last or not is_first)

    return runs.Outcome("finished", str(folder.path), record["best"]["score"], cfg.monitor)


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
    report_cut_sentences(parts)
    rows = f"{len(parts.data.train):,}"
    log.info("%s: %s training rows are tokenised in %s", cfg.name, rows, parts.data.cache_dir)
