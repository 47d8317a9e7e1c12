"""When to validate and to end: the last step is validated, and a schedule may end training."""

import sys
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning import Callback

from lightning_cse.errors import ConfigError
from lightning_cse.methods import Method


class TrainingEnd(Callback):
    """Validate the last step wherever it is, and follow a schedule that watches dev scores.

    Lightning validates when ``trainer.should_stop`` is set, so this sets it at the last step.
    It counts batches; where a step takes several, and the last one of an epoch fewer, this counts
    the steps: after ``every`` of them, or as Lightning does if it is None.
    ``monitor`` is the score that such a schedule watches (`DevSchedule`).
    """

    def __init__(self, monitor: str, every: int | None = None) -> None:
        self.monitor = monitor
        self.every = every
        self._before = 0

    def _set_due(self, trainer: pl.Trainer, *, is_step: bool) -> None:
        if self.every is not None and trainer.accumulate_grad_batches > 1:
            is_due = is_step and trainer.global_step % self.every == 0
            trainer.val_check_batch = 1 if is_due else sys.maxsize  # batches

    def on_train_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Let Lightning see that a run is resumed after a validation, not before one."""
        self._set_due(trainer, is_step=True)

    def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Note the steps so far."""
        self._before = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Validate after every so many steps, and stop after the last one."""
        self._set_due(trainer, is_step=trainer.global_step > self._before)
        if trainer.global_step == trainer.estimated_stepping_batches:
            trainer.should_stop = True

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report the score to the method, whose schedule may be over.

        Raises ConfigError if no task gives the monitor a value.
        """
        if not isinstance(pl_module, Method):
            return

        if self.monitor not in trainer.callback_metrics:
            result = pl_module.results.get(self.monitor.split("/")[1])
            cause = f", since {result.reason}" if result else ""
            fault = f"{self.monitor} has no value{cause}: choose another dev score"
            raise ConfigError([f"monitor: {fault}"])

        if trainer.state.fn == "fit" and pl_module.schedule.watches:
            pl_module.on_evaluation(float(trainer.callback_metrics[self.monitor]))
            trainer.should_stop = trainer.should_stop or pl_module.is_over
