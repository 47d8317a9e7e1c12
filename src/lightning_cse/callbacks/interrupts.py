"""Ctrl-C, SIGTERM and SLURM's time limit: a run stops after a step that can be resumed."""

from __future__ import annotations

import logging
import os
import signal
import threading
from types import FrameType
from typing import Any

from pytorch_lightning import Callback

from lightning_cse.devices import largest, world
from lightning_cse.errors import Interrupted, stop_signals

log = logging.getLogger(__name__)


class Interrupts(Callback):
    """Handle stop signals: a context manager around a whole run, and a callback of its training.

    During training, the first signal is only recorded: the checkpoint callback saves the current
    step and raises `Interrupted`. At any other time, and for a second signal, `Interrupted` is
    raised at once.
    """

    def __init__(self, *, force: bool = False) -> None:
        # The recorded signal, which all processes set in the same step, and this process's own.
        self.signum: int | None = None
        self._received: int | None = None
        self.command = "the same command" + (" without force=true" if force else "")
        self.continues = "starts the run"  # what the same command would do next
        self._training = False
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

    def on_train_start(self, *args: Any) -> None:
        """Replace the handler that Lightning has just installed, which would exit with code 0."""
        for signum in self._previous:
            signal.signal(signum, self._handle)

    def on_train_batch_start(self, *args: Any) -> None:
        """Only record a first signal from now on."""
        self._training = True

    def on_train_batch_end(self, *args: Any) -> None:
        """Agree with the other processes on a signal that one of them received."""
        self.signum = largest(self._received or 0) or None

    def end_training(self) -> None:
        """Raise `Interrupted` if a signal was recorded, and at once for any later signal."""
        self.on_train_batch_end()
        self._training = False
        if self.signum is not None:
            self.stop(f"{self.command} {self.continues}")

    def stop(self, message: str) -> None:
        """Raise `Interrupted`."""
        raise Interrupted(message, self.signum or self._received or signal.SIGINT)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # A worker of the data loader: Ctrl-C reaches it too, and the run still needs it.
            if signum == signal.SIGTERM:
                os._exit(128 + signum)

            return

        is_first = self._received is None
        self._received = signum
        if world()[1] == 1:
            self.signum = signum
        if not self._training or not is_first:
            self.stop(f"stopped; {self.command} {self.continues}")

        log.warning("stopping after this step; a second signal stops at once")
