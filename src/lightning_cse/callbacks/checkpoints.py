"""Resuming: the best and the last checkpoint, and the random state."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from lightning_cse.callbacks.evaluation import Evaluation
from lightning_cse.devices import from_all, world
from lightning_cse.errors import TrainingError
from lightning_cse.runs import atomic_file


class BestAndLast(Checkpoint):
    """Keep ``best.ckpt``, the weights of the best evaluation, and ``last.ckpt``, to resume from.

    ``last.ckpt`` is written after each evaluation and, on Ctrl-C or SIGTERM, after the current
    step; ``best.ckpt`` after an evaluation that is the best so far. Lightning calls checkpoint
    callbacks after all others, so a checkpoint includes the evaluation of its step. A file is
    written next to its target, synced and renamed, so a kill at any moment leaves the previous one.
    The best comes first: after a kill between the two, the run resumes from the older ``last.ckpt``
    and makes the same best again.
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

    def on_train_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Save the best if a resumed run has just made an evaluation that was due."""
        if self.evaluation.step == trainer.global_step != self._saved and self.evaluation.improved:
            self._write(trainer, self.best)

    def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Record the number of steps made."""
        self._before = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Save if this step was evaluated, or if it is the last one because of a signal."""
        self._save(trainer)
        step = trainer.global_step
        accumulates = step == self._before
        if self.interrupts.signum is None or accumulates:
            return

        if step != self._saved:
            self._write(trainer, self.last)

        self.interrupts.stop(
            f"stopped at step {step}; {self.interrupts.command} continues from there"
        )

    def on_train_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Save the last step, wherever training ended."""
        self._save(trainer)
        self.interrupts.end_training()

    def _save(self, trainer: pl.Trainer) -> None:
        step = trainer.global_step
        if step == 0 or step == self._saved or self.evaluation.step != step:
            return

        self._saved = step
        if self.evaluation.improved:
            self._write(trainer, self.best)

        self._write(trainer, self.last)

    def _write(self, trainer: pl.Trainer, path: Path) -> None:
        trainer.save_checkpoint(path, weights_only=path == self.best)
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

    Lightning itself writes a checkpoint to memory, then to the folder of temporary files, and moves
    it from there. This takes three times the space, two of them outside the run's folder. A
    checkpoint of weights alone keeps no counters, so the same weights give the same file.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write the file, and wait until it is on the disk."""
        if "optimizer_states" not in checkpoint:
            keys = ("state_dict", "global_step", "pytorch-lightning_version")
            checkpoint = {key: checkpoint[key] for key in keys}

        with atomic_file(Path(path)) as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # torch's error for a full disk hides the system's
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None

                raise


class RandomState(Callback):
    """Save the random states of torch, NumPy and Python, which Lightning leaves out.

    They belong to a number of processes. A run whose steps have drawn no random number (no dropout)
    may continue with another number.
    """

    def __init__(self) -> None:
        self._restored: dict[str, Any] | None = None
        self._before: list[Any] = []
        self._draws = False

    def state_dict(self) -> dict[str, Any]:
        """Return the states of every process, which ``weights_only=True`` can read."""
        return {"ranks": from_all(self._state()), "draws": any(from_all(self._draws))}

    @staticmethod
    def _state() -> dict[str, Any]:
        # Third-party code draws from the global generator.
        numpy: Any = np.random.get_state()  # noqa: NPY002
        return {
            "torch": torch.get_rng_state(),
            # Only of the run's own GPU: its number may differ when the run is resumed.
            "cuda": [torch.cuda.get_rng_state()] if torch.cuda.is_available() else [],
            "numpy": (numpy[0], numpy[1].tolist(), *numpy[2:]),
            "python": random.getstate(),
        }

    @staticmethod
    def check(state: dict[str, Any], count: int) -> None:
        """Raise TrainingError if ``count`` processes cannot continue from a saved state."""
        saved = len(state["ranks"])
        if saved == count or not state.get("draws", True):
            return

        raise TrainingError(
            f"the run was started on {saved} devices, and its steps draw random numbers (dropout), "
            f"others on {count}: continue with trainer.devices x trainer.num_nodes = {saved}, or "
            "start again with force=true"
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the states until training starts."""
        rank, count = world()
        self.check(state_dict, count)
        self._draws = state_dict.get("draws", True)
        if len(state_dict["ranks"]) == count:
            self._restored = state_dict["ranks"][rank]

    def on_train_start(self, *args: Any) -> None:
        """Restore the states for an evaluation that is still due."""
        self._restore()

    def on_train_batch_start(self, *args: Any) -> None:
        """Restore the states again, after what the trainer draws before the first batch."""
        self._restore()
        self._restored = None
        if not self._draws:
            self._before = self._comparable()

    def on_train_batch_end(self, *args: Any) -> None:
        """Record whether the step has drawn a random number."""
        self._draws = self._draws or self._comparable() != self._before

    def _comparable(self) -> list[Any]:
        state = self._state()
        tensors = [state["torch"], *state["cuda"]]
        return [state["numpy"], state["python"], *(tensor.tolist() for tensor in tensors)]

    def _restore(self) -> None:
        if self._restored is None:
            return

        state = self._restored
        torch.set_rng_state(state["torch"])
        if state["cuda"]:
            torch.cuda.set_rng_state(state["cuda"][0])

        np.random.set_state(state["numpy"])  # noqa: NPY002
        random.setstate(state["python"])
