"""Checkpoints: the best and the last one, written atomically, and the random state in them."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor

from lightning_cse.devices import from_all, world
from lightning_cse.errors import TrainingError
from lightning_cse.runs import atomic_file, read_checkpoint

BEST = "best.ckpt"
LAST = "last.ckpt"


class BestCheckpoint(ModelCheckpoint):
    """Keep ``best.ckpt``, the weights of the validation with the highest monitor.

    A value from the warm-up of the learning rate counts only until there is a later one: a model
    that has hardly been trained may have a high score by chance. ``warm_up`` returns the steps of
    the warm-up.
    """

    def __init__(self, folder: Path, monitor: str, warm_up: Callable[[], int]) -> None:
        super().__init__(
            folder,
            Path(BEST).stem,
            monitor,
            mode="max",
            auto_insert_metric_name=False,
            enable_version_counter=False,
        )
        self.path = Path(str(self.dirpath)) / BEST
        self.warm_up = warm_up
        self.best_step = -1

    def check_monitor_top_k(self, trainer: pl.Trainer, current: Tensor | None = None) -> bool:
        """Whether a value is the best so far; NaN never is."""
        if current is None or bool(current.isnan()):
            return False

        is_first = self.best_step <= self.warm_up() < trainer.global_step
        is_best = is_first or super().check_monitor_top_k(trainer, current)
        if is_best:
            self.best_step = trainer.global_step

        return is_best

    def state_dict(self) -> dict[str, Any]:
        """Return the best step and score; not the path, as a run's folder may be moved."""
        return {"best_step": self.best_step, "best_model_score": self.best_model_score}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore these."""
        vars(self).update(state_dict)
        if self.best_model_score is not None:
            self.best_model_path = self.kth_best_model_path = str(self.path)
            self.best_k_models = {str(self.path): self.best_model_score}
            self.kth_value = self.best_model_score


class LastCheckpoint(ModelCheckpoint):
    """Write ``last.ckpt`` after each validation, from which a run is resumed.

    It says whether training is over (``is_over``): then only the test is left. ModelCheckpoint's
    ``save_last`` would write it only after a validation that is the best so far.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Path(LAST).stem, enable_version_counter=False)
        self.path = Path(str(self.dirpath)) / LAST

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: its file is the checkpoint itself."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore nothing."""

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the state, unless gradients are being accumulated, which no checkpoint holds."""
        if not trainer.fit_loop._should_accumulate():
            super().on_validation_end(trainer, pl_module)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add ``is_over``, and what the last digits depend on."""
        checkpoint["is_over"] = trainer.should_stop
        checkpoint["environment"] = environment_of(pl_module)


def environment_of(method: Any) -> dict[str, Any]:
    """Return what changes the last digits of a run if it changes before the run is resumed."""
    return {
        "the method's version": method.version,
        "torch": str(torch.__version__),
        "the number of threads": torch.get_num_threads(),
    }


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint as `atomic_file` does: as a whole, or the previous one stays.

    Lightning itself writes a checkpoint to memory, then to the folder of temporary files, and moves
    it from there. This takes three times the space, two of them outside the run's folder.
    ``best.ckpt`` is for use, not for resuming: it has the weights alone, so the same weights give
    the same file.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write the file, and wait until it is on the disk."""
        if Path(path).name == BEST:
            keys = ("state_dict", "global_step", "pytorch-lightning_version")
            checkpoint = {key: checkpoint[key] for key in keys}

        with atomic_file(Path(path)) as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # torch's error for a full disk hides the system's
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None

                raise

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        """Read a file of tensors and plain values."""
        return read_checkpoint(Path(path))


class RandomState(Callback):
    """Save the random states of torch, NumPy and Python, which Lightning leaves out.

    There is a state for each process, so a run continues on the number of processes that it was
    started on.
    """

    def __init__(self) -> None:
        self._restored: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the states of every process, which ``weights_only=True`` can read."""
        return {"ranks": from_all(self._state())}

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
        if saved != count:
            raise TrainingError(
                f"the run was started on {saved} devices, whose random numbers are not those of "
                f"{count}: continue with trainer.devices x trainer.num_nodes = {saved}, or start "
                "again with force=true"
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the states until training starts."""
        rank, count = world()
        self.check(state_dict, count)
        self._restored = state_dict["ranks"][rank]

    def on_train_batch_start(self, *args: Any) -> None:
        """Restore the states, after what the Trainer draws before the first batch."""
        if self._restored is not None:
            self._restore(self._restored)
            self._restored = None

    @staticmethod
    def _restore(state: dict[str, Any]) -> None:
        torch.set_rng_state(state["torch"])
        if state["cuda"]:
            torch.cuda.set_rng_state(state["cuda"][0])

        np.random.set_state(state["numpy"])  # noqa: NPY002
        random.setstate(state["python"])
