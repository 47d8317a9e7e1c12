"""What an evaluation task is: sentences to embed, and an answer from their embeddings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from lightning_cse.baselines import Verdict
from lightning_cse.data import Rows
from lightning_cse.embeddings import Embedding
from lightning_cse.errors import ConfigError, TaskError, did_you_mean

Split = Literal["dev", "test"]


QUESTIONS = ("similarity", "entailment_score", "direction", "implicitness", "log_determinant", "features", "judge")
"""What a method can be asked: all about embeddings but ``judge``, which is about sentences as they stand."""


class Answers(Protocol):
    """What evaluation asks of a method or a baseline; the other questions are asked of those that have them."""

    def embed(self, sentences: Sequence[str]) -> Embedding:
        """Embed sentences."""
        ...


class Judge(Protocol):
    """What evaluation asks of a model that reads sentences and has no embeddings of them."""

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict]:
        """Return a verdict on every pair, in their order."""
        ...


@dataclass(frozen=True)
class TaskResult:
    """The outcome of a task: metrics by name, and what was predicted for every example, by column."""

    metrics: dict[str, float]
    predictions: dict[str, list[Any]] = field(default_factory=dict)


class Embedded:
    """The embeddings of sentences, each distinct one embedded once, looked up by the sentence."""

    def __init__(self, answers: Answers, sentences: Iterable[str]) -> None:
        self._row = {sentence: row for row, sentence in enumerate(dict.fromkeys(sentences))}
        self._embedding = answers.embed(list(self._row))

    def __len__(self) -> int:
        return len(self._row)

    def __getitem__(self, sentences: Sequence[str]) -> Embedding:
        """Return one embedding a sentence, in order."""
        return self._embedding[torch.tensor([self._row[sentence] for sentence in sentences], dtype=torch.long)]

    @property
    def is_finite(self) -> bool:
        """Whether every number of every embedding is finite."""
        return all(bool(torch.isfinite(tensor).all()) for tensor in self._embedding.fields().values())


class Task(ABC):
    """One evaluation of one protocol on a dev or a test split.

    ``needs`` names the questions it asks, ``metrics`` what it measures; a method that does not answer is told by name.
    ``splits`` are those that it evaluates: a test set without a dev split of its own has no part in training.
    ``suffix`` is what the keys of its metrics say of the protocol behind the corpus's name: ``mnli_matched``.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    splits: tuple[Split, ...] = ("dev", "test")
    suffix: str = ""

    @property
    @abstractmethod
    def metrics(self) -> tuple[str, ...]:
        """The names of what it measures."""

    @abstractmethod
    def sentences(self, split: Split) -> list[str]:
        """Return all sentences that `evaluate` will look up; repeats are free."""

    @abstractmethod
    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Return metrics and predictions of a method on a split."""

    def judged(self, judge: Judge, split: Split) -> TaskResult:
        """Return metrics and predictions of a model that has no embeddings, on a split.

        Raises:
            TaskError: as a rule; a task that verdicts are enough for has a way of its own, and says so in `suits`.
        """
        raise TaskError(f"the task {self.name} asks about embeddings, and {type(judge).__name__} has none")

    @property
    @abstractmethod
    def digests(self) -> dict[str, str]:
        """The sha256 of every file the task reads."""

    def lacking(self) -> str | None:
        """Return why the task cannot be done, whatever the method; None where nothing is in its way."""
        return None

    def suits(self, answers: object) -> bool:
        """Whether the method answers all questions of this task."""
        return all(hasattr(answers, question) for question in self.needs)

    def ask(self, answers: object, question: str, *embeddings: Embedding) -> Tensor:
        """Ask a method a question about embeddings, row by row: (n,).

        Raises:
            TaskError: if the method does not answer it, naming those it does.
        """
        if not hasattr(answers, question):
            known = [name for name in QUESTIONS if hasattr(answers, name)]
            raise TaskError(
                f"the task {self.name} needs {question!r}, which {type(answers).__name__} does not answer; "
                f"it answers: {', '.join(known) or 'none'}"
            )
        scores: Tensor = getattr(answers, question)(*embeddings)
        return scores


def first_of_each(rows: Rows, column: str, limit: int) -> Rows:
    """Return the first so many rows of each value of a column, in the order they stand in.

    Example:
        >>> rows = Rows({"label": ["a", "a", "b", "a", "b"], "sentence": list("vwxyz")})
        >>> first_of_each(rows, "label", 1).column("sentence")
        ['v', 'x']
    """
    seen: Counter[str] = Counter()
    chosen = []
    for row, value in enumerate(rows.column(column)):
        seen[value] += 1
        if seen[value] <= limit:
            chosen.append(row)
    return rows.select(chosen)


class Summary(Task):
    """A value of a whole suite: made of other tasks' metrics, not of sentences.

    ``parts`` names them: ``<task>/<metric>``, the task by its name in the suite.
    """

    needs = ()
    parts: tuple[str, ...]

    @abstractmethod
    def summarize(self, values: Sequence[float]) -> TaskResult:
        """Return its metrics from the values of its parts, in their order."""

    def sentences(self, split: Split) -> list[str]:
        """Return nothing."""
        return []

    @property
    def digests(self) -> dict[str, str]:
        """No file is read."""
        return {}

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Refuse: it has no embeddings to look at.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{type(self).__name__} is made of results: call summarize_tasks when its parts are there")


def check_parts(tasks: Mapping[str, Task]) -> None:
    """Check that every part of every summary is a metric of the suite.

    Raises:
        ConfigError: if one is not, with all that are not.
    """
    known = [f"{name}/{metric}" for name, task in tasks.items() for metric in task.metrics]
    there = f"(there are: {', '.join(known)})"
    faults = [
        f"suite.{name}.of: {part!r} is no metric of this suite{did_you_mean(part, known)} {there}"
        for name, task in tasks.items()
        if isinstance(task, Summary)
        for part in task.parts
        if part not in known
    ]
    if faults:
        raise ConfigError(faults)


def summarize_tasks(
    tasks: Mapping[str, Task], metrics: Mapping[str, Mapping[str, float]], split: Split
) -> dict[str, TaskResult]:
    """Return the summaries of a suite that have the split and all their parts.

    Args:
        tasks: the whole suite.
        metrics: what its tasks gave on the split, by task and metric; a part that is not there leaves its summary out.
        split: the split they were evaluated on.

    Raises:
        ConfigError: as `check_parts`.
    """
    check_parts(tasks)
    values = {f"{name}/{metric}": value for name, found in metrics.items() for metric, value in found.items()}
    return {
        name: task.summarize([values[part] for part in task.parts])
        for name, task in tasks.items()
        if isinstance(task, Summary) and split in task.splits and all(part in values for part in task.parts)
    }


def run_tasks(tasks: Mapping[str, Task], answers: Answers, split: Split) -> dict[str, TaskResult]:
    """Run every task that has the split and suits the method, with one pass over all their sentences.

    Raises:
        ConfigError: as `check_parts`, before anything is run.
    """
    check_parts(tasks)
    suiting = {
        name: task
        for name, task in tasks.items()
        if not isinstance(task, Summary) and split in task.splits and task.suits(answers)
    }
    if not suiting:
        return {}
    embedded = Embedded(answers, (sentence for task in suiting.values() for sentence in task.sentences(split)))
    results = {name: task.evaluate(answers, embedded, split) for name, task in suiting.items()}
    return results | summarize_tasks(tasks, {name: result.metrics for name, result in results.items()}, split)
