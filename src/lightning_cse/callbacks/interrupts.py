"""Ctrl-C and SIGTERM while a run is at work."""

from __future__ import annotations

import logging
import os
import signal
import threading
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning import Callback

from lightning_cse.errors import Interrupted

log = logging.getLogger(__name__)


class Interrupts(Callback):
    """Answer Ctrl-C and SIGTERM, as a context manager around a whole run and as a callback of its training.

    During training, the first signal is only noted: the checkpoint callback saves the step that is being made, and
    raises `Interrupted`. At any other time, and for a second signal, it is raised at once.

    Attributes:
        signum: The signal that was noted; None before.
        continues: What the same command does later, for the message.
    """

    def __init__(self, *, force: bool = False) -> None:
        self.signum: int | None = None
        self.command = "the same command" + (" without force=true" if force else "")
        self.continues = "starts the run"
        self._training = False
        self._pid = os.getpid()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._previous = {one: signal.signal(one, self._handle) for one in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *args: object) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the place of the handler that Lightning has just installed, which would end with exit code 0."""
        for signum in self._previous:
            signal.signal(signum, self._handle)

    def on_train_batch_start(self, *args: Any) -> None:
        """Note signals from now on."""
        self._training = True

    def end_training(self) -> None:
        """Raise signals at once from now on, and the one that was noted."""
        self._training = False
        if self.signum is not None:
            self.stop(f"{self.command} {self.continues}")

    def stop(self, message: str) -> None:
        """Raise `Interrupted`."""
        raise Interrupted(message, self.signum or signal.SIGINT)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # a worker of the data loader: Ctrl-C reaches it too, and the run still needs it
            if signum == signal.SIGTERM:
                os._exit(128 + signum)
            return
        first, self.signum = self.signum is None, signum
        if not (self._training and first):
            self.stop(f"stopped; {self.command} {self.continues}")
        log.warning("stopping after this step; once more stops at once")
