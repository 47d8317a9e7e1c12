"""Stopping and resuming: best and last checkpoint, the random state, Ctrl-C and SIGTERM."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from lightning_cse.devices import from_all, largest, world
from lightning_cse.errors import Interrupted, TrainingError, stop_signals
from lightning_cse.runs import atomic_file

if TYPE_CHECKING:
    from lightning_cse.callbacks.evaluation import Evaluation

log = logging.getLogger(__name__)


class BestAndLast(Checkpoint):
    """Keep ``best.ckpt`` (weights of the best evaluation) and ``last.ckpt`` (everything needed to resume).

    ``last.ckpt`` is written after each evaluation and, on Ctrl-C or SIGTERM, after the current step; ``best.ckpt``
    after an evaluation that is the best so far. Lightning calls checkpoint callbacks after all others, so a checkpoint
    includes the evaluation of its step. A file is written next to its target, synced and renamed, so a kill at any
    moment leaves the previous one. The best comes first: after a kill between the two, the run resumes from the older
    ``last.ckpt`` and makes the same best again.
    """

    def __init__(self, folder: Path, evaluation: Evaluation) -> None:
        self.best = folder / "best.ckpt"
        self.last = folder / "last.ckpt"
        self.evaluation = evaluation
        self.interrupts = evaluation.interrupts
        self._saved = -1
        self._before = -1

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Make Lightning write checkpoints with `AtomicCheckpointIO`."""
        trainer.strategy.checkpoint_io = AtomicCheckpointIO()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the best if a resumed run has just made the evaluation that its interruption skipped."""
        if self.evaluation.step == trainer.global_step != self._saved and self.evaluation.improved:
            self._write(trainer, self.best, weights_only=True)

    def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Record the number of steps made."""
        self._before = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        """Save if this step was evaluated, or if it is the last one because of a signal."""
        self._save(trainer)
        step = trainer.global_step
        if (
            self.interrupts.signum is not None and step > self._before
        ):  # not while gradients are accumulated
            if step != self._saved:
                self._write(trainer, self.last, weights_only=False)
            self.interrupts.stop(
                f"stopped at step {step}; {self.interrupts.command} continues from there"
            )

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the last step, wherever training ended."""
        self._save(trainer)
        self.interrupts.end_training()

    def _save(self, trainer: pl.Trainer) -> None:
        step = trainer.global_step
        if step == 0 or step == self._saved or self.evaluation.step != step:
            return
        self._saved = step
        if self.evaluation.improved:
            self._write(trainer, self.best, weights_only=True)
        self._write(trainer, self.last, weights_only=False)

    def _write(self, trainer: pl.Trainer, path: Path, *, weights_only: bool) -> None:
        trainer.save_checkpoint(path, weights_only=weights_only)
        if path == self.last:
            self.interrupts.continues = f"continues from step {trainer.global_step}"

    def state_dict(self) -> dict[str, Any]:
        """Return the step of the last save after an evaluation."""
        return {"saved": self._saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore that step."""
        self._saved = state_dict["saved"]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint as `atomic_file` does: as a whole, or the previous one stays.

    Lightning itself writes a checkpoint to memory, then to the folder of temporary files, and moves it from there. This
    takes three times the space, two of them outside the run's folder. A checkpoint of weights alone keeps no counters,
    so the same weights give the same file.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write the file, and wait until it is on the disk."""
        if "optimizer_states" not in checkpoint:
            checkpoint = {
                key: checkpoint[key]
                for key in ("state_dict", "global_step", "pytorch-lightning_version")
            }
        with atomic_file(Path(path)) as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # which torch raises for a full disk, for example
                raise (
                    error.__context__ if isinstance(error.__context__, OSError) else error
                ) from None


class RandomState(Callback):
    """Save the random states of torch, NumPy and Python in the checkpoint; Lightning leaves them out."""

    def __init__(self) -> None:
        self._restored: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the states of every process, as tensors and plain values that ``weights_only=True`` can read."""
        return {"ranks": from_all(self._state())}

    @staticmethod
    def _state() -> dict[str, Any]:
        numpy: Any = np.random.get_state()  # noqa: NPY002 - third-party code draws from the global generator
        return {
            "torch": torch.get_rng_state(),
            # Only of the run's own GPU: its number may differ when another process or a sweep resumes the run.
            "cuda": [torch.cuda.get_rng_state()] if torch.cuda.is_available() else [],
            "numpy": (numpy[0], numpy[1].tolist(), *numpy[2:]),
            "python": random.getstate(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the states until training starts."""
        rank, count = world()
        if (saved := len(state_dict["ranks"])) != count:
            raise TrainingError(
                f"the run was started on {saved} devices: continue with trainer.devices={saved}"
            )
        self._restored = state_dict["ranks"][rank]

    def on_train_start(self, *args: Any) -> None:
        """Restore the states for an evaluation that is still due."""
        self._restore()

    def on_train_batch_start(self, *args: Any) -> None:
        """Restore the states again, after everything that the trainer draws before the first batch."""
        self._restore()
        self._restored = None

    def _restore(self) -> None:
        if self._restored is None:
            return
        state = self._restored
        torch.set_rng_state(state["torch"])
        if state["cuda"]:
            torch.cuda.set_rng_state(state["cuda"][0])
        np.random.set_state(state["numpy"])  # noqa: NPY002 - the global generator, see above
        random.setstate(state["python"])


class Interrupts(Callback):
    """Handle Ctrl-C, SIGTERM and SLURM's time limit: a context manager around a whole run, and a training callback.

    During training, the first signal is only recorded: the checkpoint callback saves the current step and raises
    `Interrupted`. At any other time, and for a second signal, `Interrupted` is raised at once.
    """

    def __init__(self, *, force: bool = False) -> None:
        self.signum: int | None = (
            None  # of the recorded signal; all processes set it in the same step
        )
        self._noted: int | None = None  # of the signal that this process received
        self.command = "the same command" + (" without force=true" if force else "")
        self.continues = "starts the run"  # what the same command would do next
        self._training = False
        self._pid = os.getpid()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._previous = {one: signal.signal(one, self._handle) for one in stop_signals()}
        return self

    def __exit__(self, *args: object) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Replace the handler that Lightning has just installed, which would exit with code 0."""
        for signum in self._previous:
            signal.signal(signum, self._handle)

    def on_train_batch_start(self, *args: Any) -> None:
        """Only record a first signal from now on."""
        self._training = True

    def on_train_batch_end(self, *args: Any) -> None:
        """Agree with the other processes on a signal that one of them received."""
        self.signum = largest(self._noted or 0) or None

    def end_training(self) -> None:
        """Raise `Interrupted` if a signal was recorded, and at once for any later signal."""
        self.on_train_batch_end()
        self._training = False
        if self.signum is not None:
            self.stop(f"{self.command} {self.continues}")

    def stop(self, message: str) -> None:
        """Raise `Interrupted`."""
        raise Interrupted(message, self.signum or self._noted or signal.SIGINT)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if (
            os.getpid() != self._pid
        ):  # a worker of the data loader: Ctrl-C reaches it too, and the run still needs it
            if signum == signal.SIGTERM:
                os._exit(128 + signum)
            return
        first, self._noted = self._noted is None, signum
        if world()[1] == 1:
            self.signum = signum
        if not (self._training and first):
            self.stop(f"stopped; {self.command} {self.continues}")
        log.warning("stopping after this step; a second signal stops at once")
