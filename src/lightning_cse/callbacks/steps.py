"""The loss and learning rate of every optimizer step for the loggers, and a line per evaluation."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning import Callback

from lightning_cse.callbacks.evaluation import Evaluation

log = logging.getLogger(__name__)


class StepLog(Callback):
    """Log the loss and the learning rate of every optimizer step, and measure the training time.

    Keys: ``train/loss``, ``train/learning_rate``, and ``train/<part>`` where a loss has several
    terms. A loss or part is the mean over the batches of the step that have it.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sentences = 0
        self._losses: dict[str, list[float]] = {}  # of the batches since the last step
        self._step = 0
        self._start = 0.0
        self._learning_rate = 0.0

    def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Start the clock, and record the learning rate of this step."""
        self._start = time.perf_counter()
        self._step = trainer.global_step
        self._learning_rate = trainer.optimizers[0].param_groups[0]["lr"]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *args: Any
    ) -> None:
        """Stop the clock and log the step."""
        # Before the clock stops: on a GPU, reading a value waits for the step.
        losses = {"loss": batch_loss(trainer, outputs)}
        for name, part in outputs["parts"].items():
            losses[name] = part.item()

        for name, value in losses.items():
            self._losses.setdefault(name, []).append(value)

        self.seconds += time.perf_counter() - self._start
        self.sentences += outputs["sentences"]
        if trainer.global_step == self._step:
            return  # gradients are being accumulated

        means = {}
        for name, values in self._losses.items():
            means[f"train/{name}"] = sum(values) / len(values)

        means["train/learning_rate"] = self._learning_rate
        self._losses = {}
        for logger in trainer.loggers:
            logger.log_metrics(means, step=trainer.global_step)

    def state_dict(self) -> dict[str, Any]:
        """Return the totals so far."""
        return {"seconds": self.seconds, "sentences": self.sentences}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the totals."""
        self.seconds = state_dict["seconds"]
        self.sentences = state_dict["sentences"]


def batch_loss(trainer: pl.Trainer, outputs: Any) -> float:
    """Return the loss of a batch, which Lightning has divided by the number of batches per step."""
    return float(outputs["loss"].item() * trainer.accumulate_grad_batches)


class StepLines(Callback):
    """Log a line per evaluation, with the mean loss since the last one."""

    _RFD = (("rfd_a", "diag/rfd_alignment"), ("rfd_u", "diag/rfd_uniformity"))

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self._losses: list[float] = []  # since the last evaluation
        self._logged: int | None = None

    def on_train_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Log the evaluation before the first step, if there was one."""
        self._log(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *args: Any
    ) -> None:
        """Log the evaluation of this step, if there was one."""
        self._losses.append(batch_loss(trainer, outputs))
        self._log(trainer)

    def _log(self, trainer: pl.Trainer) -> None:
        step = trainer.global_step
        evaluation = self.evaluation
        if step != evaluation.step or step == self._logged:
            return

        self._logged = step  # not again for the other batches of an accumulated step
        latest = evaluation.latest
        parts = [f"step {step}/{trainer.estimated_stepping_batches}"]
        if self._losses:
            parts.append(f"loss {sum(self._losses) / len(self._losses):.3f}")

        self._losses = []
        parts.append(f"{evaluation.monitor} {latest[evaluation.monitor]:.4f}")
        parts += [f"{name} {latest[key]:+.3f}" for name, key in self._RFD if key in latest]
        if evaluation.patience and evaluation.waited:
            parts.append(f"not improved {evaluation.waited}/{evaluation.patience}")

        log.info("  ".join(parts))
        if evaluation.stopped:
            log.info("stopped early: %s", evaluation.stopped)
