"""Lines about the progress of a run, and the time that it takes."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback

log = logging.getLogger(__name__)

SILENCE = 30.0
"""The most seconds without a line."""

_RFD = (("rfd_a", "diag/rfd_alignment"), ("rfd_u", "diag/rfd_uniformity"))


class Lines(Callback):
    """Log a line for each validation, and one every 30 seconds during validation and test.

    A line of a validation has the mean loss since the last one.
    """

    def __init__(self, monitor: str) -> None:
        self.monitor = monitor
        self._loss: torch.Tensor | None = None
        self._batches = 0
        self._sentences = 0
        self._time = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *args: Any
    ) -> None:
        """Add the loss, which stays on the device."""
        loss = outputs["loss"].detach() * trainer.accumulate_grad_batches
        self._loss = loss if self._loss is None else self._loss + loss
        self._batches += 1

    def on_validation_start(self, *args: Any, **kwargs: Any) -> None:
        """Begin to count."""
        self._sentences = 0
        self._time = time.monotonic()

    on_test_start = on_validation_start

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Log how many sentences are embedded, if there was no line for a while."""
        self._sentences += len(batch["sentences"])
        if trainer.is_global_zero and time.monotonic() - self._time > SILENCE:
            stage = "test" if trainer.testing else "validation"
            log.info("%s: %s sentences embedded", stage, f"{self._sentences:,}")
            self._time = time.monotonic()

    on_test_batch_end = on_validation_batch_end

    def on_validation_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Log the line of this validation."""
        values = trainer.callback_metrics
        if not trainer.is_global_zero or self.monitor not in values:
            return

        parts = [f"step {trainer.global_step}"]
        if trainer.state.fn == "fit":
            parts = [f"{parts[0]}/{trainer.estimated_stepping_batches}"]
        if self._loss is not None:
            parts.append(f"loss {float(self._loss) / self._batches:.3f}")

        self._loss = None
        self._batches = 0
        parts.append(f"{self.monitor} {float(values[self.monitor]):.4f}")
        parts += [f"{name} {float(values[key]):+.3f}" for name, key in _RFD if key in values]
        log.info("  ".join(parts))


class Timing(Callback):
    """Measure the seconds of training steps and of validations, and count the sentences.

    The totals are part of a checkpoint, so that they add up over resumed runs.
    """

    def __init__(self) -> None:
        self.training = 0.0
        self.evaluation = 0.0
        self.sentences = 0
        self._start = 0.0

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    on_validation_start = on_train_batch_start

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *args: Any
    ) -> None:
        """Add the time of the step; on a GPU, only steps that are logged wait for the device."""
        self.training += time.perf_counter() - self._start
        self.sentences += outputs["sentences"]

    def on_validation_end(self, *args: Any) -> None:
        """Add the time of the validation."""
        self.evaluation += time.perf_counter() - self._start

    def state_dict(self) -> dict[str, Any]:
        """Return the totals so far."""
        totals = ("training", "evaluation", "sentences")
        return {name: getattr(self, name) for name in totals}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the totals."""
        vars(self).update(state_dict)
