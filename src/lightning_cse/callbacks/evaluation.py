"""Evaluation during training, at regular optimizer steps: dev tasks and diagnostics."""

import copy
import itertools
import math
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
from lightning_cse.errors import ConfigError, TrainingError
from lightning_cse.evaluation import Embedded, Task, keyed, suiting_tasks
from lightning_cse.methods import Method


class Evaluation(Callback):
    """Run the tasks on their dev split and the diagnostics, log all values, and keep the best step.

    Lightning's own validation counts batches, cannot span more than an epoch and misses the last
    step. Here, each distinct sentence of all tasks and diagnostics is embedded once. The method is
    in evaluation mode (unless ``dropout``), the random state is forked, and the method is restored
    afterwards, so training is the same with and without this callback. The vectors of a frozen
    encoder are kept from the first evaluation to the last (``width`` float32 numbers a sentence).

    Args:
        tasks: dev tasks by name; a task's metric ``m`` is logged as ``val/<task>/<m>``.
        diagnostics: the sides that alignment, uniformity and RFD are measured on.
        every, least: optimizer steps between two evaluations (None: those of an epoch), fewer in a
            run too short for ``least`` evaluations.
        monitor: the key whose highest value makes the best checkpoint; a value from the warm-up of
            the learning rate counts only until there is a later one.
        patience: stop after this many evaluations in a row without a higher value of the monitor;
            None never stops.
        min_delta: an increase of at most this much does not count as a higher value for
            ``patience``.
        dropout: whether dropout is active for the diagnostics, as in the NGCSE authors' code, so
            that a pair of a sentence with itself is a dropout pair; it is never active for tasks.
        interrupts: after a signal, an evaluation that is due is left to the resumed run, unless
            training may end there.
    """

    _STATE = ("step", "due", "latest", "best_step", "best_score", "seconds", "waited", "to_beat")

    def __init__(
        self,
        tasks: Mapping[str, Task],
        diagnostics: Diagnostics,
        *,
        every: int | None,
        least: int = 1,
        monitor: str,
        patience: int | None = None,
        min_delta: float = 0.0,
        dropout: bool = False,
        interrupts: Interrupts | None = None,
    ) -> None:
        self.tasks = dict(tasks)
        self.diagnostics = diagnostics
        self.every = every or 0
        self.least = least
        self.monitor = monitor
        self.patience = patience
        self.min_delta = min_delta
        self.dropout = dropout
        self.interrupts = interrupts or Interrupts()
        self.due = False
        self.step = -1
        self.latest: dict[str, float] = {}
        self.best_step = -1
        self.best_score = float("-inf")
        self.seconds = 0.0
        self.waited = 0  # evaluations since the monitor was higher than `to_beat`
        self.to_beat = float("-inf")
        self.stopped: str | None = None  # why training ends before its last step
        self._vectors: dict[bytes, list[torch.Tensor]] = {}  # of a frozen encoder
        self._suiting: tuple[dict[str, Task], list[str]] | None = None
        self._warm: int | None = None  # the steps of the warm-up

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate before the first step, or when an interrupted run left an evaluation due."""
        if not self.every:
            self.every = math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)

        self.every = min(self.every, max(1, int(trainer.estimated_stepping_batches) // self.least))
        if trainer.global_step == 0 or self.due:
            self._evaluate(trainer, pl_module)

        self._stop_early(
            trainer, pl_module
        )  # also for a run that was killed after it had stopped early

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        """Evaluate if a step was made and an evaluation is due."""
        step = trainer.global_step
        is_last = _is_last(trainer)
        if step == self.step or (step % self.every and not is_last):
            return

        may_end = is_last or self.waited + 1 == self.patience
        self.due = self.interrupts.signum is not None and not may_end
        if not self.due:
            self._evaluate(trainer, pl_module)
            self._stop_early(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate the last step, wherever training ended, and release what was kept."""
        self._evaluate(trainer, pl_module)
        self._vectors = {}
        self._suiting = None
        self._warm = None

    @property
    def improved(self) -> bool:
        """Whether the latest evaluation is the best so far; that of step 0 never is."""
        return self.step == self.best_step

    def _stop_early(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop if patience or the schedule of the learning rate runs out before the last step."""
        if _is_last(trainer):
            return

        if cast(Method, pl_module).is_over:
            self.stopped = "the learning rate is below that of method.schedule.least"
            trainer.should_stop = True
        elif self.patience is not None and self.waited >= self.patience:
            by = f" by more than {self.min_delta:g}" if self.min_delta else ""
            self.stopped = f"{self.monitor} has not improved{by} in {self.waited} evaluations"
            trainer.should_stop = True

    def _evaluate(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.global_step == self.step:
            return

        self.step = trainer.global_step
        self.due = False
        start = time.perf_counter()
        method = cast(Method, pl_module)
        encoder = method.model.encoder
        with (
            isolate_rng(),
            trainer.precision_plugin.forward_context(),
            encoder.keeping(self._vectors),
        ):
            self.latest = self._measure(method)

        if self.step > 0:
            score = self.latest[self.monitor]
            if self._warm is None:
                self._warm = _warm_up(method, int(trainer.estimated_stepping_batches))

            is_first = self.best_step <= self._warm < self.step
            if score > (float("-inf") if is_first else self.best_score):
                self.best_step = self.step
                self.best_score = score

            self.waited += 1
            if score > self.to_beat + self.min_delta:
                self.waited = 0
                self.to_beat = score

            method.on_evaluation(score)

        self.seconds += time.perf_counter() - start
        for logger in trainer.loggers:
            logger.log_metrics(self.latest, step=self.step)

    def _measure(self, method: Method) -> dict[str, float]:
        watched = self.diagnostics.sentences()
        if self._suiting is None:  # the same at every evaluation
            tasks, sentences = suiting_tasks(self.tasks, method.model, "dev")
            self._suiting = (tasks, list(dict.fromkeys(sentences)))

        tasks, sentences = self._suiting
        with _mode(method, training=False):
            embedded = self._embed(method, sentences if self.dropout else sentences + watched)
            results = {name: task.evaluate(embedded, "dev") for name, task in tasks.items()}

        values = keyed({name: result.metrics for name, result in results.items()}, "val/")
        if self.monitor not in values:
            reason = results[self.monitor.split("/")[1]].reason
            raise ConfigError(
                [f"monitor: {self.monitor} has no value, since {reason}: choose another dev score"]
            )

        if not watched:
            return values

        if not self.dropout:
            return values | self.diagnostics.measure(embedded, embedded, self.step)

        with _mode(method, training=True):
            with method.view(0):
                first = self._embed(method, watched)

            with method.view(1):
                second = self._embed(method, self.diagnostics.seconds())

            return values | self.diagnostics.measure(first, second, self.step)

    def _embed(self, method: Method, sentences: list[str]) -> Embedded:
        embedded = Embedded(method.model, sentences)
        if not embedded.embedding.is_finite:
            raise TrainingError(
                f"after step {self.step} some embeddings are not finite numbers. The checkpoint "
                "before it is kept: lower method.optimizer.lr, or use trainer.precision=32-true"
            )

        return embedded

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs to continue as if it had not stopped."""
        curves = {"curves": copy.deepcopy(self.diagnostics.curves)}
        return {name: getattr(self, name) for name in self._STATE} | {"diagnostics": curves}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore that state."""
        for name in self._STATE:
            setattr(self, name, state_dict[name])

        self.diagnostics.curves = state_dict["diagnostics"]["curves"]


def _warm_up(method: Method, total: int) -> int:
    """Return the steps until the learning rate stops rising; 0 if it rises until the last step."""
    schedule = method.schedule
    if schedule.watches:
        return 0

    factors = (schedule(step, total=total) for step in range(total))
    pairs = enumerate(itertools.pairwise(factors))

    return next((step for step, (before, after) in pairs if after <= before), 0)


def _is_last(trainer: pl.Trainer) -> bool:
    return bool(trainer.global_step == trainer.estimated_stepping_batches)


@contextmanager
def _mode(module: torch.nn.Module, training: bool) -> Iterator[None]:
    """Put a module and all its parts in one mode, and restore the mode of each part afterwards."""
    modes = {part: part.training for part in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
