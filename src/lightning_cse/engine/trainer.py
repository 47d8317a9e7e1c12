"""Lightning's Trainer for a run: its callbacks, its loggers, and when it validates."""

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig
from pytorch_lightning.callbacks import ProgressBar, RichProgressBar
from pytorch_lightning.loggers import Logger

from lightning_cse.callbacks import (
    AtomicCheckpointIO,
    BestCheckpoint,
    Interrupts,
    LastCheckpoint,
    Lines,
    RandomState,
    Timing,
    TrainingEnd,
)
from lightning_cse.data import ContrastiveDataModule
from lightning_cse.engine.build import Parts
from lightning_cse.engine.resume import Checkpoint
from lightning_cse.errors import TrainingError
from lightning_cse.loggers import CurvesDigest, CurvesLogger
from lightning_cse.methods import Method
from lightning_cse.runs import Curves, Run

BAR_EVERY = 10
"""Batches between two updates of the progress bar: each reads the loss from the device."""


@dataclass
class Training:
    """A Trainer, and the callbacks of ours that are asked about it."""

    trainer: pl.Trainer
    best: BestCheckpoint
    timing: Timing
    total: int
    """The number of steps of a training that is not stopped early."""
    steps: int = 0
    """The number of steps that were made."""
    stopped_early: str | None = None
    """Why training ended before its last step; None if it did not."""

    def fit(self, parts: Parts, checkpoint: Checkpoint | None) -> None:
        """Train from the start or from a checkpoint, and validate the last step.

        Raises TrainingError if no checkpoint is the best.
        """
        trainer = self.trainer
        if checkpoint is not None and checkpoint.is_over:
            checkpoint.restore(trainer, parts.method)
            self.steps = checkpoint.step
        else:
            last = None if checkpoint is None else checkpoint.path
            trainer.fit(parts.method, parts.data, ckpt_path=last, weights_only=True)
            self.steps = trainer.global_step

        self.stopped_early = self._reason(parts.method)
        if self.best.path.is_file():
            return
        if self.steps == 0:
            limits = "trainer.limit_train_batches and trainer.max_time"
            raise TrainingError(f"no training step was made: see {limits}")

        raise TrainingError(
            f"{parts.monitor} was NaN at every evaluation, so no checkpoint is the best: repair "
            "the task that gives it, or choose another monitor"
        )

    def _reason(self, method: Method) -> str | None:
        """Return why training ended before its last step, or None if it did not."""
        if method.is_over:
            return "the learning rate is below that of method.schedule.least"

        stopping = self.trainer.early_stopping_callback
        if stopping is None or self.steps >= self.total or stopping.wait_count < stopping.patience:
            return None

        by = f" by more than {abs(stopping.min_delta):g}" if stopping.min_delta else ""

        return f"{stopping.monitor} has not improved{by} in {stopping.patience} evaluations"


def build_training(
    cfg: DictConfig,
    parts: Parts,
    folder: Run,
    interrupts: Interrupts,
    loggers: Sequence[Logger] = (),
) -> Training:
    """Return the Trainer of a run in a folder."""
    curves = Curves(folder.curves_path)
    best = BestCheckpoint(folder.checkpoints, cfg.monitor, lambda: _warm_up(parts.method, trainer))
    last = LastCheckpoint(folder.checkpoints)
    timing = Timing()
    interrupts.last = last.path
    callbacks = list(parts.callbacks)
    bar = cfg.trainer.get("enable_progress_bar", sys.stderr.isatty())
    if bar and not any(isinstance(callback, ProgressBar) for callback in callbacks):
        callbacks.append(RichProgressBar(refresh_rate=BAR_EVERY))

    every = _every(cfg, parts.data)
    trainer = parts.make_trainer(
        logger=[CurvesLogger(curves), *loggers],
        # The first measures before a callback that averages weights puts the current ones back.
        callbacks=[
            parts.diagnostics,
            RandomState(),
            TrainingEnd(cfg.monitor, every),
            *callbacks,
            timing,
            Lines(cfg.monitor),
            CurvesDigest(curves),
            best,
            last,
            interrupts,
        ],
        default_root_dir=str(folder.path),
        enable_progress_bar=bar,
        **_validation(cfg, every),
    )
    trainer.strategy.checkpoint_io = AtomicCheckpointIO()
    if trainer.global_rank:  # its own dropout masks
        pl.seed_everything(cfg.seed + trainer.global_rank, workers=True, verbose=False)

    return Training(trainer, best, timing, total_steps(cfg, parts.data))


def _every(cfg: DictConfig, data: ContrastiveDataModule) -> int | None:
    """Return the steps between two validations: ``eval_every``, or fewer in a run too short for
    ``least_evaluations``; None if ``trainer.val_check_interval`` takes their place.
    """
    if cfg.trainer.get("val_check_interval") is not None:
        return None

    batches = data.batches_per_epoch(_limit(cfg.trainer))
    every = cfg.eval_every or math.ceil(batches / cfg.trainer.accumulate_grad_batches)

    return int(min(every, max(1, total_steps(cfg, data) // cfg.least_evaluations)))


def _validation(cfg: DictConfig, every: int | None) -> dict[str, Any]:
    """Return the arguments of the Trainer that say when it validates, across epochs."""
    if every is None:
        is_share = isinstance(cfg.trainer.val_check_interval, float)  # of an epoch
        return {"check_val_every_n_epoch": 1 if is_share else None}

    batches = every * cfg.trainer.accumulate_grad_batches
    return {"val_check_interval": batches, "check_val_every_n_epoch": None}


def total_steps(cfg: DictConfig, data: ContrastiveDataModule) -> int:
    """Return the number of optimizer steps of a training that is not stopped early."""
    trainer = cfg.trainer
    if trainer.max_epochs in (None, -1):
        return int(trainer.max_steps)

    batches = data.batches_per_epoch(_limit(trainer))
    steps = int(trainer.max_epochs * math.ceil(batches / trainer.accumulate_grad_batches))

    return steps if trainer.max_steps == -1 else min(steps, int(trainer.max_steps))


def _limit(trainer: DictConfig) -> int | float | None:
    """Return the limit on the batches of an epoch."""
    limit: int | float | None = trainer.get("overfit_batches") or trainer.limit_train_batches
    return limit


def _warm_up(method: Method, trainer: pl.Trainer) -> int:
    """Return the steps until the learning rate stops rising; 0 if it rises until the last step."""
    schedule = method.schedule
    total = int(trainer.estimated_stepping_batches)
    if schedule.watches:
        return 0

    factors = (schedule(step, total=total) for step in range(total))
    pairs = enumerate(itertools.pairwise(factors))

    return next((step for step, (before, after) in pairs if after <= before), 0)
