"""An evaluation task: the sentences to embed, and metrics and predictions from the answers of a
model.
"""

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import pandas as pd
import torch
from datasets import Dataset
from torch import Tensor

from lightning_cse.data.corpora import read_sources
from lightning_cse.data.rows import check_column, digests_of, origin_of
from lightning_cse.embeddings import Embedding
from lightning_cse.errors import DataError
from lightning_cse.evaluation.files import OwnFiles
from lightning_cse.metrics import best_threshold

Split = Literal["dev", "test"]

SENTENCE_COLUMNS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("implicit", "explicit"),
    ("anchor", "positive"),
    ("sentence",),
)
"""The columns that hold the sentences of a row, by kind of corpus."""

Answers = Any
"""A model that embeds sentences, and answers the questions that it has methods for:
``similarity``, ``entailment_score``, ``direction``, ``implicitness``, ``log_determinant``,
``label_scores`` and ``features`` take embeddings, ``judge`` takes sentences.
"""
Embed = Callable[[list[str]], Any]


@dataclass(frozen=True)
class TaskResult:
    """The outcome of a task: metrics by name, and the predictions for every example, by column.

    If a model lacks the property that is measured, there are none, and ``reason`` says why.
    """

    metrics: dict[str, float]
    predictions: dict[str, list[Any]] = field(default_factory=dict)
    reason: str = ""


class Embedded:
    """A model, and its embeddings of sentences, looked up by sentence.

    Each distinct sentence is embedded once, by ``embed`` if given, otherwise by the model.
    """

    def __init__(
        self, answers: Answers, sentences: Iterable[str], embed: Embed | None = None
    ) -> None:
        self.answers = answers
        self._row = {sentence: row for row, sentence in enumerate(dict.fromkeys(sentences))}
        self.embedding = (embed or answers.embed)(list(self._row))

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self._row)

    def __contains__(self, sentence: object) -> bool:
        """Whether a sentence is among them."""
        return sentence in self._row

    def __getitem__(self, sentences: Sequence[str]) -> Embedding:
        """Return one embedding per sentence, in order."""
        rows = [self._row[sentence] for sentence in sentences]
        chosen: Embedding = self.embedding[torch.tensor(rows, dtype=torch.long)]

        return chosen

    def ask(self, question: str, rows: Dataset) -> Tensor:
        """Return the float64 answers to a question about the sentence pairs of rows: (n,)."""
        first, second = (self[rows[side][:]] for side in sides(rows))
        scores: Tensor = getattr(self.answers, question)(first, second)

        return scores.double()


class Task(ABC):
    """One evaluation of one protocol on a dev or a test split.

    ``needs`` names the questions it asks; a model that does not answer them is skipped.
    ``splits`` are the splits it evaluates; a test set without its own dev split is not
    evaluated during training. ``suffix`` is appended to the name of the corpus in the keys of
    its metrics, to name the protocol: ``mnli_matched``. ``without_dev`` is the advice of the
    error message if a task without a dev split is to choose the checkpoint.
    """

    needs: ClassVar[tuple[str, ...]]
    splits: tuple[Split, ...] = ("dev", "test")
    suffix: str = ""
    without_dev: str = "choose another task"

    @property
    @abstractmethod
    def metrics(self) -> tuple[str, ...]:
        """The names of its metrics."""

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file that it reads."""
        return {}

    def sentences(self, split: Split) -> list[str]:
        """Return all sentences that `evaluate` looks up; duplicates cost nothing."""
        return []

    @abstractmethod
    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Return metrics and predictions of the model of ``embedded`` on a split."""

    def lacking(self) -> str | None:
        """Return why the task cannot run with any model, or None if it can."""
        return None

    def suits(self, answers: object) -> bool:
        """Whether the model answers all questions of this task."""
        return all(hasattr(answers, question) for question in self.needs)

    def limited_to(self, sentences: Container[str]) -> "Task":
        """Return this task on the rows whose sentences are all among some."""
        return self


@dataclass(kw_only=True, eq=False)
class CorpusTask(Task):
    """A task on the dev and the test split of corpora, or on files of your own; each is read when
    it is first needed.

    Args:
        data_dir: the folder of the corpora.
        dev: ``corpus/split`` or your own file, for tuning thresholds and for evaluation during
            training; None for a task without dev.
        test: the same for test.
        own: the files of both, in place of corpora.
        watched: whether dev is evaluated during training; False if a test set borrows the dev
            split of another corpus.
        dev_rows: the maximum number of rows of dev, the first ones; None uses all.
        test_rows: the same for test.
    """

    corpora: ClassVar[dict[Split, str]] = {}
    """``dev`` and ``test`` of a task that always has the same."""
    limited_by: ClassVar[str | None] = None
    """A column: if a corpus has it, the limits count the rows of each of its values."""
    reads: ClassVar[tuple[str, ...]] = ()
    """The columns that corpora and your own files need."""
    also_reads: ClassVar[tuple[str, ...]] = ()
    """The columns that it also reads, if they are there."""

    data_dir: str = ""
    test: str | None = None
    dev: str | None = None
    own: OwnFiles | None = None
    watched: bool = True
    dev_rows: int | None = None
    test_rows: int | None = None

    def __post_init__(self) -> None:
        self.sources: dict[Split, Any] = dict(self.corpora)
        if self.dev is not None:
            self.sources["dev"] = self.dev
        if self.test is not None:
            self.sources["test"] = self.test
        if self.own is not None:
            self.sources = self.own.sources
            self.without_dev = f"give it one: {self.own.key}={{dev: FILE, test: FILE}}"
        if "test" not in self.sources:
            raise ValueError("test: give corpus/split or a file")

        self.limits: dict[Split, int | None] = {"dev": self.dev_rows, "test": self.test_rows}
        self.splits = tuple(self.sources) if self.watched else ("test",)
        self.suffix = "_matched" if str(self.sources["test"]).endswith("/dev_matched") else ""
        self.table: Callable[[Split], Dataset] = functools.cache(self.read)
        """All rows of a split."""
        self.rows: Callable[[Split], Dataset] = functools.cache(
            lambda split: self.select(self.table(split), split)
        )
        """The rows that a split is evaluated on."""

    def limited_to(self, sentences: Container[str]) -> Self:
        """Return this task on the rows whose sentences are all among some."""

        def covered(rows: Dataset) -> Dataset:
            pairs = zip(*(rows[side][:] for side in sides(rows)), strict=True)
            numbers = [
                number
                for number, pair in enumerate(pairs)
                if all(sentence in sentences for sentence in pair)
            ]
            return rows.select(numbers)

        limited = copy.copy(self)
        limited.table = functools.cache(lambda split: covered(self.table(split)))
        limited.rows = functools.cache(lambda split: covered(self.rows(split)))

        return limited

    def read(self, split: Split) -> Dataset:
        """Read all rows of a split."""
        if self.own is not None:
            return self.own.read(split, self.reads, self.also_reads)

        (rows,) = read_sources([self.sources[split]], self.data_dir, key=f"suite: {split}")
        if self.reads:  # corpora name their sentences in different ways
            sentences = {name for columns in SENTENCE_COLUMNS for name in columns}
            for name in (*sides(rows), *(name for name in self.reads if name not in sentences)):
                check_column(rows, name)

        return rows

    def select(self, rows: Dataset, split: Split) -> Dataset:
        """Return the rows of a split to evaluate.

        Tasks that need them in another form override this.
        """
        return first_rows(rows, self.limits[split], column=self.limited_by)

    def unmeasurable(self, rows: Dataset, reason: str) -> DataError:
        """Return the error for rows whose metric would mean nothing."""
        key = "suite" if self.own is None else self.own.key
        return DataError(f"{key}: {origin_of(rows)}: {reason}")

    def tune(
        self, embedded: Embedded, dev: Dataset, rows: Dataset, **options: Any
    ) -> tuple[float, Tensor]:
        """Return the best threshold of ``entailment_score`` on dev, and the scores of the rows."""
        scores = embedded.ask("entailment_score", dev)
        threshold, _ = best_threshold(entailed(dev), scores, **options)

        return threshold, scores if rows is dev else embedded.ask("entailment_score", rows)

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the files of its splits."""
        if self.own is not None:
            return self.own.digests({split: self.table(split) for split in self.sources})

        return digests_of(self.table(split) for split in self.sources)

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split, or none if the split is not evaluated."""
        return texts(self.rows(split)) if split in self.splits else []


def entailed(rows: Dataset) -> list[bool]:
    """Return whether each pair is labelled as entailed; your own files may have 1 for it."""
    return [label in ("entailment", "1", True) for label in rows["label"][:]]


def texts(rows: Dataset) -> list[str]:
    """Return the sentences of rows, column by column."""
    return [sentence for column in sides(rows) for sentence in rows[column][:]]


def sides(rows: Dataset) -> tuple[str, ...]:
    """Return the columns that hold the sentences of rows."""
    for columns in SENTENCE_COLUMNS:
        if columns[0] in rows.column_names:
            return columns

    return SENTENCE_COLUMNS[0]


def first_rows(rows: Dataset, limit: int | None, *, column: str | None = None) -> Dataset:
    """Return the first ``limit`` rows, or those of each value of the ``column`` if the rows
    have it.

    Examples:
        >>> from lightning_cse.data.rows import dataset_of
        >>> rows = dataset_of({"label": ["a", "a", "b", "a", "b"], "sentence": list("vwxyz")})
        >>> first_rows(rows, 1, column="label")["sentence"][:]
        ['v', 'x']
    """
    if limit is None:
        return rows

    if column not in rows.column_names:
        return rows.select(range(min(limit, len(rows))))

    values = pd.DataFrame({"value": rows[column][:]})
    return rows.select(values.groupby("value", dropna=False).head(limit).index)
