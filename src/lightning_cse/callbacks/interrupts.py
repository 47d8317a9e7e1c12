"""Ctrl-C, SIGTERM and SLURM's time limit: a run stops after a step that can be resumed."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from lightning_cse.devices import largest, world
from lightning_cse.errors import Interrupted, stop_signals

log = logging.getLogger(__name__)


class Interrupts(Checkpoint):
    """Handle stop signals: a context manager around a whole run, and a callback of its training.

    During training, the first signal is only recorded: after the step, and after its validation if
    that is due, the state is saved to ``last`` and `Interrupted` is raised. At any other time, and
    for a second signal, `Interrupted` is raised at once. It is a checkpoint callback, which
    Lightning calls after all others.
    """

    def __init__(self, *, force: bool = False) -> None:
        command = "the same command" + (" without force=true" if force else "")
        self.advice = f"{command} continues from the last checkpoint"
        # The recorded signal, which all processes set in the same step, and this process's own.
        self.signum: int | None = None
        self._received: int | None = None
        self.last: Path | None = None
        self._training = False
        self._before = -1
        self._pid = os.getpid()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for signum in stop_signals():
                self._previous[signum] = signal.signal(signum, self._handle)

        return self

    def __exit__(self, *args: object) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)

    def on_train_start(self, *args: Any, **kwargs: Any) -> None:
        """Replace the handler that Lightning has just installed, which would exit with code 0."""
        for signum in self._previous:
            signal.signal(signum, self._handle)

    on_validation_start = on_train_start
    on_test_start = on_train_start

    def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Stop if a signal came in the step before, whose validation has saved the state; only
        record a first signal from now on.
        """
        self._before = trainer.global_step
        self._training = True
        if self.signum is not None:
            self._stop_after_step(trainer)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Save and stop after a signal to any process, unless the step is validated first."""
        accumulates = trainer.global_step == self._before
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # set by Lightning
        # Several processes wait for each other here, so only at steps that are logged.
        if accumulates or (world()[1] > 1 and trainer.global_step % every):
            return

        self.signum = largest(self._received or 0) or None
        if self.signum is None or _validates_next(trainer):
            return

        # Lightning logs the values of the step only after this hook.
        trainer._logger_connector.on_batch_end()
        trainer._logger_connector.update_train_step_metrics()
        trainer.save_checkpoint(str(self.last))
        self._stop_after_step(trainer)

    def on_train_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Stop if a signal came in the last step, and at once for any later signal."""
        self.signum = largest(self._received or 0) or None
        self._training = False
        if self.signum is not None:
            self._stop_after_step(trainer)

    def stop(self, message: str) -> None:
        """Raise `Interrupted`."""
        raise Interrupted(message, self.signum or self._received or signal.SIGINT)

    def _stop_after_step(self, trainer: pl.Trainer) -> None:
        self.stop(f"stopped at step {trainer.global_step}; {self.advice}")

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # A worker of the data loader: Ctrl-C reaches it too, and the run still needs it.
            if signum == signal.SIGTERM:
                os._exit(128 + signum)

            return

        is_first = self._received is None
        self._received = signum
        if not self._training or not is_first:
            self.stop(f"stopped; {self.advice}")

        log.warning("stopping after this step; a second signal stops at once")


def _validates_next(trainer: pl.Trainer) -> bool:
    """Whether Lightning validates after this step; it has no public name for this."""
    loop: Any = trainer.fit_loop
    return bool(loop.epoch_loop._should_check_val_fx(loop._data_fetcher))
