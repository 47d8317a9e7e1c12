"""What every optimizer step tells: loss and learning rate to the loggers, progress to the screen."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import ProgressBar, RichProgressBar

from lightning_cse.callbacks.evaluation import Evaluation

log = logging.getLogger(__name__)


class StepLog(Callback):
    """Log loss and learning rate of every optimizer step, and measure the time training takes.

    Keys: ``train/loss``, ``train/learning_rate``, and ``train/<part>`` where a loss has several terms: the mean over
    the batches of a step that have it.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sentences = 0
        self._losses: dict[str, list[float]] = {}  # of the batches since the last step
        self._step = 0
        self._start = 0.0
        self._learning_rate = 0.0

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start the clock, and note the rate this step is made with."""
        self._start = time.perf_counter()
        self._step = trainer.global_step
        self._learning_rate = trainer.optimizers[0].param_groups[0]["lr"]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop the clock and log the step."""
        losses = {"loss": batch_loss(trainer, outputs)}  # before the clock: on a GPU this waits for the step
        losses |= {name: part.item() for name, part in outputs["parts"].items()}
        for name, value in losses.items():
            self._losses.setdefault(name, []).append(value)
        self.seconds += time.perf_counter() - self._start
        self.sentences += outputs["sentences"]
        if trainer.global_step == self._step:
            return  # gradients are being accumulated
        means = {f"train/{name}": sum(values) / len(values) for name, values in self._losses.items()}
        self._losses = {}
        for logger in trainer.loggers:
            logger.log_metrics(means | {"train/learning_rate": self._learning_rate}, step=trainer.global_step)

    def state_dict(self) -> dict[str, Any]:
        """Return the account so far."""
        return {"seconds": self.seconds, "sentences": self.sentences}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the account of another run."""
        self.seconds, self.sentences = state_dict["seconds"], state_dict["sentences"]


def batch_loss(trainer: pl.Trainer, outputs: Any) -> float:
    """Return the loss of a batch, which Lightning hands on divided by the number of batches a step is made of."""
    return float(outputs["loss"].item() * trainer.accumulate_grad_batches)


SHOWN = {"rfd_a": "diag/rfd_alignment", "rfd_u": "diag/rfd_uniformity"}


class EvaluationBar(RichProgressBar):
    """Lightning's bar with the loss, the dev score and the RFD of the last evaluation."""

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__(leave=True)
        self.evaluation = evaluation
        self._loss = float("nan")

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the loss, then draw."""
        self._loss = batch_loss(trainer, outputs)
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        """Return what stands behind the bar."""
        shown = {"loss": f"{self._loss:.3f}"}
        if self.evaluation.latest:
            shown["dev"] = f"{self.evaluation.latest[self.evaluation.monitor]:.4f}"
        latest = self.evaluation.latest
        return shown | {name: f"{latest[key]:+.3f}" for name, key in SHOWN.items() if key in latest}


class EvaluationLines(ProgressBar):
    """A line an evaluation, for logs and other places without a terminal."""

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__()
        self.evaluation = evaluation
        self._told = -1
        self._losses: list[float] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Tell the evaluation before the first step."""
        self._tell(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Tell a new evaluation."""
        self._losses.append(batch_loss(trainer, outputs))
        self._tell(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Tell the last evaluation."""
        self._tell(trainer)

    def _tell(self, trainer: pl.Trainer) -> None:
        evaluation = self.evaluation
        if evaluation.step in (self._told, -1) or not evaluation.latest:
            return
        self._told = evaluation.step
        parts = [f"step {evaluation.step}/{trainer.estimated_stepping_batches}"]
        if self._losses:
            parts.append(f"loss {sum(self._losses) / len(self._losses):.3f}")
        parts.append(f"{evaluation.monitor} {evaluation.latest[evaluation.monitor]:.4f}")
        parts += [f"{name} {evaluation.latest[key]:+.3f}" for name, key in SHOWN.items() if key in evaluation.latest]
        self._losses = []
        log.info("  ".join(parts))


def progress(evaluation: Evaluation) -> ProgressBar:
    """Return a live bar in a terminal, and lines elsewhere."""
    return EvaluationBar(evaluation) if sys.stdout.isatty() else EvaluationLines(evaluation)
