"""Evaluation during training, at regular optimizer steps: dev tasks, alignment, uniformity and RFD."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback
from pytorch_lightning.utilities.seed import isolate_rng

from lightning_cse.callbacks.checkpoints import Interrupts
from lightning_cse.data import ContrastiveDataModule, Rows, read_corpus
from lightning_cse.errors import ConfigError, DataError, TrainingError, did_you_mean
from lightning_cse.evaluation import Embedded, Task, measure
from lightning_cse.methods import Method

SIDES = ("held_out", "eval")
MEASURES = ("alignment", "uniformity")


class Evaluation(Callback):
    """Run the tasks on their dev split and the diagnostics, log every value, and remember the best step.

    Lightning's own validation counts batches, cannot span more than an epoch and misses the last step. Here, each
    distinct sentence of all tasks and diagnostics is embedded once. The method is in evaluation mode (unless
    ``dropout``), the random state is forked, and the method is restored afterwards, so training is the same with and
    without this callback.

    Args:
        tasks: dev tasks by name; a task's metric ``m`` is logged as ``val/<task>/<m>``.
        diagnostics: the sides that alignment, uniformity and RFD are measured on.
        every, least: optimizer steps between two evaluations, fewer in a run too short for ``least`` evaluations.
        monitor: the key whose highest value makes the best checkpoint.
        patience: stop after this many evaluations in a row without a higher value of the monitor; None never stops.
        min_delta: an increase of at most this much does not count as a higher value for ``patience``.
        dropout: whether dropout is active for the diagnostics, as in the NGCSE authors' code, so that a pair of a
            sentence with itself is a dropout pair; it is never active for tasks.
        interrupts: after a signal, an evaluation that is due is left to the resumed run, unless training may end there.
    """

    _STATE = ("step", "due", "latest", "best_step", "best_score", "seconds", "waited", "to_beat")

    def __init__(
        self,
        tasks: Mapping[str, Task],
        diagnostics: Diagnostics,
        *,
        every: int,
        least: int = 1,
        monitor: str,
        patience: int | None = None,
        min_delta: float = 0.0,
        dropout: bool = False,
        interrupts: Interrupts | None = None,
    ) -> None:
        self.tasks = dict(tasks)
        self.diagnostics = diagnostics
        self.every = every
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

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate before the first step, or when an interrupted run left an evaluation due."""
        self.every = min(self.every, max(1, int(trainer.estimated_stepping_batches) // self.least))
        if trainer.global_step == 0 or self.due:
            self._evaluate(trainer, pl_module)
        self._stop_early(trainer)  # also for a run that was killed after it had stopped early

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        """Evaluate if a step was made and an evaluation is due."""
        last = _is_last(trainer)
        if trainer.global_step == self.step or not (last or trainer.global_step % self.every == 0):
            return
        may_end = last or self.waited + 1 == self.patience
        self.due = self.interrupts.signum is not None and not may_end
        if not self.due:
            self._evaluate(trainer, pl_module)
            self._stop_early(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate the last step, wherever training ended."""
        self._evaluate(trainer, pl_module)

    @property
    def improved(self) -> bool:
        """Whether the latest evaluation is the best so far; that of step 0, before any learning, never is."""
        return self.step == self.best_step

    def _stop_early(self, trainer: pl.Trainer) -> None:
        """Stop if patience runs out before the last step."""
        if self.patience is None or self.waited < self.patience or _is_last(trainer):
            return
        by = f" by more than {self.min_delta:g}" if self.min_delta else ""
        self.stopped = f"{self.monitor} has not improved{by} in {self.waited} evaluations"
        trainer.should_stop = True

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
            raise ConfigError(
                [
                    f"monitor: {self.monitor!r} is not evaluated{near}; choose from: {sorted(self.latest)}"
                ]
            )
        if self.step > 0:
            score = self.latest[self.monitor]
            if score > self.best_score:
                self.best_step, self.best_score = self.step, score
            self.waited += 1
            if score > self.to_beat + self.min_delta:
                self.waited, self.to_beat = 0, score
        self.seconds += time.perf_counter() - start
        for logger in trainer.loggers:
            logger.log_metrics(self.latest, step=self.step)

    def _measure(self, method: Method) -> dict[str, float]:
        watched = self.diagnostics.sentences()
        tasks = {
            name: task
            for name, task in self.tasks.items()
            if "dev" in task.splits and task.suits(method.model)
        }
        sentences = [sentence for task in tasks.values() for sentence in task.sentences("dev")]
        with _mode(method, training=False):
            embedded = self._embed(method, sentences if self.dropout else sentences + watched)
            values: dict[str, float] = {}
            for name, task in tasks.items():
                metrics = task.evaluate(method.model, embedded, "dev").metrics
                values |= {f"val/{name}/{metric}": value for metric, value in metrics.items()}
        if not watched:
            return values
        if not self.dropout:
            return values | self.diagnostics.measure(embedded, embedded, self.step)
        with _mode(method, training=True):
            first, second = (
                self._embed(method, some) for some in (watched, self.diagnostics.seconds())
            )
            return values | self.diagnostics.measure(first, second, self.step)

    def _embed(self, method: Method, sentences: list[str]) -> Embedded:
        embedded = Embedded(method.model, sentences)
        if not embedded.embedding.is_finite:
            raise TrainingError(
                f"after step {self.step} some embeddings are not finite numbers. The checkpoint before it is kept: "
                "lower method.optimizer.lr, or use trainer.precision=32-true"
            )
        return embedded

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs to continue as if it had not stopped."""
        curves = {"curves": copy.deepcopy(self.diagnostics.curves)}
        return {name: getattr(self, name) for name in self._STATE} | {"diagnostics": curves}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore that state."""
        for name in self._STATE:
            setattr(
                self, name, state_dict.get(name, getattr(self, name))
            )  # an older checkpoint may lack a name
        self.diagnostics.curves = state_dict["diagnostics"]["curves"]


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


@dataclass(frozen=True)
class Side:
    """One side of the comparison: the pairs for alignment, by view, and the sentences for uniformity."""

    pairs: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    sentences: Sequence[str]
    digests: dict[str, str] = field(
        default_factory=dict
    )  # sha256 of the files that only this side reads


@dataclass
class Diagnostics:
    r"""Measure both sides at every evaluation, and keep the running RFD.

    For each view, on L2-normalised vectors: alignment over the side's pairs, uniformity over its sentences, and

    .. math:: \text{RFD} = \frac{1}{|T|} \sum_{t \in T} (\text{held-out}_t - \text{eval}_t)

    over the evaluations T after step 0. Keys: ``diag/held_out/alignment``, ``diag/eval/uniformity``,
    ``diag/rfd_alignment`` for the primary view; other views insert their name: ``diag/implicit/rfd_alignment``.

    Source: NGCSE, section on relative fitting difficulty, and the authors' plotting code (which sides, step 0).
    Differs: the last step counts as an evaluation even if it is not a multiple of ``eval_every``; the authors stop at
    the last multiple.
    """

    held_out: (
        Side | None
    )  # rows of the training distribution that are never trained on; None logs no RFD
    evaluation: Side | None  # None also logs no RFD
    # By measure, side and view, one entry per evaluation after step 0; part of the checkpoint.
    curves: dict[str, list[float]] = field(default_factory=dict)

    @property
    def sides(self) -> dict[str, Side]:
        """The sides by name."""
        return {
            name: side
            for name, side in zip(SIDES, (self.held_out, self.evaluation), strict=True)
            if side
        }

    def sentences(self) -> list[str]:
        """Return every sentence that `measure` looks up."""
        found = []
        for side in self.sides.values():
            found += [
                *side.sentences,
                *(s for pair in side.pairs.values() for sentences in pair for s in sentences),
            ]
        return found

    def seconds(self) -> list[str]:
        """Return the second sentence of every pair."""
        return [
            sentence
            for side in self.sides.values()
            for _, second in side.pairs.values()
            for sentence in second
        ]

    def measure(self, embedded: Embedded, second: Embedded, step: int) -> dict[str, float]:
        """Return all values of this evaluation by key, from the embedded `sentences`; there is no RFD at step 0.

        ``second`` has the embedded `seconds`: from another pass with dropout, or the same as in ``embedded``.
        """
        values: dict[str, float] = {}
        views = list(embedded[self.sentences()[:1]].views())
        for view in views:
            prefix = "diag/" if view == views[0] else f"diag/{view}/"
            for name, side in self.sides.items():
                if view in side.pairs:
                    a, b = side.pairs[view]
                    first, other = embedded[a].views()[view], second[b].views()[view]
                    values[f"{prefix}{name}/alignment"] = measure("Alignment", first, other)
                values[f"{prefix}{name}/uniformity"] = measure(
                    "Uniformity", embedded[side.sentences].views()[view]
                )
            for name in MEASURES if len(self.sides) == 2 and step > 0 else ():
                keys = [f"{prefix}{side}/{name}" for side in SIDES]
                if not values.keys() >= {*keys}:
                    continue
                for key in keys:
                    self.curves.setdefault(key, []).append(values[key])
                curves = (self.curves[key] for key in keys)
                values[f"{prefix}rfd_{name}"] = measure("RelativeFittingDifficulty", *curves)
        return values


def build_diagnostics(
    method: Method, data: ContrastiveDataModule, options: Mapping[str, Any], data_dir: str
) -> Diagnostics:
    """Return the diagnostics of a method on its data, with the config's ``diag`` as options.

    The held-out side is the data's held-out rows, if there are any. Its pairs are, for each view, those of the two
    roles that the method names. Its sentences are those of the roles that the method spreads (all roles of the data if
    it names none), row by row, cut to the first ``options["sentences"]``. A role that no held-out row has is left out,
    and so is a view whose pair needs it.
    """
    if not options["dropout"] and any(a == b for a, b in method.pairs.values()):
        kind = type(method).__name__
        raise ConfigError(
            [
                f"diag.dropout: the pairs of {kind} are dropout passes over one sentence; set it to true"
            ]
        )
    if options["evaluation"] == "corpus_dev":
        raise ConfigError(
            ["diag.evaluation: corpus_dev is already the held-out side; use stsb_dev or none"]
        )
    other = (
        None if options["evaluation"] == "none" else stsb_dev(list(method.pairs), options, data_dir)
    )
    if not len(data.held_out):
        return Diagnostics(None, other)
    there = {role for role in data.held_out.names if data.held_out.has(role).any()}
    spread = [role for role in method.spread or data.roles if role in there]
    aligned = {
        view: pair for view, pair in method.pairs.items() if there.issuperset(pair)
    } or method.pairs
    watched = data.watched(
        list(dict.fromkeys([*spread, *(role for pair in aligned.values() for role in pair)]))
    )
    pairs = {view: (watched.column(a), watched.column(b)) for view, (a, b) in aligned.items()}
    return Diagnostics(Side(pairs, _flat(watched, spread)[: options["sentences"]]), other)


def stsb_dev(views: Sequence[str], options: Mapping[str, Any], data_dir: str) -> Side:
    """Return STS-B dev as NGCSE uses it: alignment over similar pairs, uniformity also over dissimilar ones."""
    try:
        rows = read_corpus("stsb", "dev", data_dir)
    except DataError as error:
        raise DataError(
            f"{error}\n  diag.evaluation=none trains without it, and logs no RFD"
        ) from None
    scores = rows.column("score")
    close = [row for row, score in enumerate(scores) if score >= options["positive_score"]]
    if not close:
        raise ConfigError(
            [
                f"diag.positive_score: {options['positive_score']} is above all scores of STS-B dev ({max(scores)})"
            ]
        )
    chosen = [
        r
        for r, s in enumerate(scores)
        if s >= options["positive_score"] or s <= options["negative_score"]
    ]
    aligned = rows.select(close)
    pair = (aligned.column("sentence1"), aligned.column("sentence2"))
    sentences = _flat(rows.select(chosen), ("sentence1", "sentence2"))[: options["sentences"]]
    return Side(
        dict.fromkeys(views, pair), sentences, {file.name: file.sha256 for file in rows.files}
    )


def _flat(rows: Rows, columns: Sequence[str]) -> list[str]:
    """Return the sentences row by row, as the authors of NGCSE count them."""
    return [
        sentence
        for row in zip(*(rows.column(column) for column in columns), strict=True)
        for sentence in row
    ]
