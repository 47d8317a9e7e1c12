"""Evaluation while training: every so many optimizer steps, at step 0 and at the last step."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback
from pytorch_lightning.utilities.seed import isolate_rng

from lightning_cse.callbacks.diagnostics import Diagnostics
from lightning_cse.callbacks.interrupts import Interrupts
from lightning_cse.errors import ConfigError, TrainingError, did_you_mean
from lightning_cse.evaluation import Embedded, Task
from lightning_cse.methods import Method


class Evaluation(Callback):
    """Run the tasks on their dev split and the diagnostics, log every value, and remember the best step.

    Lightning's own validation counts batches, may not be longer than an epoch and misses the end. All sentences of all
    tasks and diagnostics are embedded once, each distinct one once. The method is in evaluation mode (unless
    ``dropout``), the random state is forked, and the method is left as it was: training is the same with and without
    this callback.

    Args:
        tasks: dev tasks by name; a task's metric ``m`` is logged as ``val/<task>/<m>``.
        diagnostics: alignment, uniformity and RFD; None to leave them out.
        every, least: optimizer steps between two evaluations, fewer in a run too short for ``least`` evaluations.
        monitor: the key whose highest value makes the best checkpoint.
        dropout: whether dropout is active for the diagnostics, as the NGCSE authors have it, so that a pair of one
            sentence with itself is a dropout pair; tasks never see it.
        interrupts: after a signal, an evaluation that is due is left to the resumed run.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task],
        diagnostics: Diagnostics | None,
        *,
        every: int,
        least: int = 1,
        monitor: str,
        dropout: bool = False,
        interrupts: Interrupts | None = None,
    ) -> None:
        self.tasks = dict(tasks)
        self.diagnostics = diagnostics
        self.every = every
        self.least = least
        self.monitor = monitor
        self.dropout = dropout
        self.interrupts = interrupts or Interrupts()
        self.due = False
        self.step = -1
        self.latest: dict[str, float] = {}
        self.best_step = -1
        self.best_score = float("-inf")
        self.seconds = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate before the first step, and where an interrupted run left it undone."""
        self.every = min(self.every, max(1, int(trainer.estimated_stepping_batches) // self.least))
        if trainer.global_step == 0 or self.due:
            self._evaluate(trainer, pl_module)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any) -> None:
        """Evaluate if a step was made that is due."""
        last = trainer.global_step == trainer.estimated_stepping_batches
        if trainer.global_step == self.step or not (last or trainer.global_step % self.every == 0):
            return
        self.due = self.interrupts.signum is not None and not last
        if not self.due:
            self._evaluate(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate the last step, wherever training ended."""
        self._evaluate(trainer, pl_module)

    @property
    def improved(self) -> bool:
        """Whether the evaluation just made is the best so far; step 0 never is, nothing is learned there."""
        return self.step == self.best_step

    def _evaluate(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.global_step == self.step:
            return
        self.step, self.due = trainer.global_step, False
        start = time.perf_counter()
        method = cast(Method, pl_module)
        with isolate_rng(), trainer.precision_plugin.forward_context():
            self.latest = self._measure(method)
        if self.monitor not in self.latest:
            near = did_you_mean(self.monitor, self.latest)
            raise ConfigError([f"monitor: {self.monitor!r} is not evaluated{near}; there are: {sorted(self.latest)}"])
        if self.step > 0 and self.latest[self.monitor] > self.best_score:
            self.best_step, self.best_score = self.step, self.latest[self.monitor]
        self.seconds += time.perf_counter() - start
        for logger in trainer.loggers:
            logger.log_metrics(self.latest, step=self.step)

    def _measure(self, method: Method) -> dict[str, float]:
        watched = [] if self.diagnostics is None else self.diagnostics.sentences()
        tasks = {name: task for name, task in self.tasks.items() if "dev" in task.splits and task.suits(method.model)}
        sentences = [sentence for task in tasks.values() for sentence in task.sentences("dev")]
        with _mode(method, training=False):
            embedded = self._embed(method, sentences if self.dropout else sentences + watched)
            values: dict[str, float] = {}
            for name, task in tasks.items():
                metrics = task.evaluate(method.model, embedded, "dev").metrics
                values |= {f"val/{name}/{metric}": value for metric, value in metrics.items()}
        if self.diagnostics is None:
            return values
        if not self.dropout:
            return values | self.diagnostics.measure(embedded, embedded, self.step)
        with _mode(method, training=True):
            first, second = (self._embed(method, some) for some in (watched, self.diagnostics.seconds()))
            return values | self.diagnostics.measure(first, second, self.step)

    def _embed(self, method: Method, sentences: list[str]) -> Embedded:
        embedded = Embedded(method.model, sentences)
        if not embedded.is_finite:
            raise TrainingError(
                f"after step {self.step} some embeddings are not finite numbers. The checkpoint before it is kept: "
                "lower method.optimizer.lr, or use trainer.precision=32-true"
            )
        return embedded

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs to continue as if it had not stopped."""
        return {
            "step": self.step,
            "due": self.due,
            "latest": dict(self.latest),
            "best_step": self.best_step,
            "best_score": self.best_score,
            "seconds": self.seconds,
            "diagnostics": None if self.diagnostics is None else self.diagnostics.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from there."""
        self.due = state_dict["due"]
        self.step, self.latest = state_dict["step"], dict(state_dict["latest"])
        self.best_step, self.best_score = state_dict["best_step"], state_dict["best_score"]
        self.seconds = state_dict["seconds"]
        if self.diagnostics is not None and state_dict["diagnostics"] is not None:
            self.diagnostics.load_state_dict(state_dict["diagnostics"])


@contextmanager
def _mode(module: torch.nn.Module, training: bool) -> Iterator[None]:
    """Put a module and all its parts in one mode, and each part back in its own afterwards."""
    modes = {part: part.training for part in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
