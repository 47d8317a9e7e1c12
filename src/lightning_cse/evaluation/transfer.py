"""Transfer: how well does a linear classifier on frozen embeddings do SentEval's classification tasks?"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import torch
from torch import Tensor

from lightning_cse.data import Rows, read_corpus
from lightning_cse.errors import DataError, did_you_mean
from lightning_cse.evaluation import logistic
from lightning_cse.evaluation.logistic import SEED, Fit, Linear, Solver, fit_lbfgs, fit_senteval
from lightning_cse.evaluation.task import Answers, Embedded, Split, Task, TaskResult, first_of_each

SPLITS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "mr": ("all",),
        "cr": ("all",),
        "subj": ("all",),
        "mpqa": ("all",),
        "sst2": ("train", "dev", "test"),
        "trec": ("train", "test"),
        "mrpc": ("train", "test"),
    }
)
"""The corpora and their splits, which decide how L2 is chosen."""

SOLVERS: Final[Mapping[str, Solver]] = MappingProxyType({"lbfgs": fit_lbfgs, "senteval": fit_senteval})

L2: Final = (1e-5, 1e-4, 1e-3, 1e-2)
"""The weight decays to choose from, in SentEval's order."""

FOLDS: Final = 10


@dataclass(frozen=True)
class Round:
    """One test: L2 is chosen on the folds (train, dev), then fitted on ``train`` (SentEval stops on ``dev``)."""

    folds: list[tuple[logistic.Rows, logistic.Rows]]
    train: logistic.Rows
    test: logistic.Rows
    dev: logistic.Rows | None = None


class Transfer(Task):
    r"""Accuracy of a logistic regression on frozen embeddings, for one of MR, CR, SUBJ, MPQA, SST2, TREC and MRPC.

    Features are the method's ``features``: (n, d), the primary view; of MRPC's pairs
    :math:`[\lvert a - b \rvert, \; a \odot b]`. The weight decay is the one of {1e-5, 1e-4, 1e-3, 1e-2} with the best
    mean accuracy (the smallest of the best, to two decimals of a percent):

    - MR, CR, SUBJ, MPQA, which have one split: 10 folds; for each, chosen by 10 folds within the other nine, fitted
      anew on all nine, tested on it. The accuracy is the mean over the folds;
    - TREC, MRPC: chosen by 10 folds of train, fitted anew on all of train;
    - SST2: chosen on dev.

    Folds are stratified, shuffled with seed 1111, of rows sorted by number of words as SentEval sorts them. Where a
    class has fewer rows than there are folds, there are as many folds as that (never so in the official corpora).

    ``protocol`` is how a classifier is fitted, and part of the metric's name: ``accuracy_lbfgs`` to the optimum
    (`fit_lbfgs`: no seed decides the fit), ``accuracy_senteval`` by Adam with early
    stopping (`fit_senteval`), which the numbers of papers are made with.

    Source: Conneau and Kiela 2018 and SentEval's code, with the settings of SimCSE's full mode.  Differs: ``lbfgs`` is
    ours; accuracies are not rounded before they are averaged; the blank lines of CR (4) and MPQA (3) are no sentences.

    Args:
        data_dir: where the corpora are.
        corpus: one of the seven.
        protocol: ``lbfgs`` or ``senteval``.
        rows: use only the first so many rows of each class, of each split.

    Raises:
        ValueError: for an unknown corpus or protocol.
    """

    name = "transfer"
    needs = ("features",)
    splits: tuple[Split, ...] = ("test",)

    def __init__(self, *, data_dir: str, corpus: str, protocol: str = "lbfgs", rows: int | None = None) -> None:
        for key, given, known in (("corpus", corpus, SPLITS), ("protocol", protocol, SOLVERS)):
            if given not in known:
                raise ValueError(f"{key}: {given!r} is not one of {', '.join(known)}{did_you_mean(given, known)}")
        self.data_dir = Path(data_dir)
        self.corpus = corpus
        self.protocol = protocol
        self.limit = rows

    @property
    def metrics(self) -> tuple[str, ...]:
        """The accuracy, by protocol."""
        return (f"accuracy_{self.protocol}",)

    @cached_property
    def tables(self) -> dict[str, Rows]:
        """The rows of the corpus by its own splits, in the order of the files."""
        tables = {split: read_corpus(self.corpus, split, self.data_dir) for split in SPLITS[self.corpus]}
        if self.limit is not None:
            tables = {split: first_of_each(rows, "label", self.limit) for split, rows in tables.items()}
        return tables

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the corpus's files."""
        return {file.name: file.sha256 for rows in self.tables.values() for file in rows.files}

    def sentences(self, split: Split) -> list[str]:
        """Return all sentences of the corpus: they are trained on and tested on."""
        if split not in self.splits:
            return []
        return [s for rows in self.tables.values() for column in _sides(rows) for s in rows.column(column)]

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Choose L2, fit and test, round by round."""
        labels = {label for rows in self.tables.values() for label in rows.column("label")}
        classes = sorted(labels, reverse=self.corpus == "subj")  # SentEval's order, in which objective is the second
        orders = [_senteval_order(rows, classes) for rows in self.tables.values()]
        features = torch.cat(
            [
                self._features(answers, embedded, rows)[order]
                for rows, order in zip(self.tables.values(), orders, strict=True)
            ]
        )
        truth = np.concatenate(
            [_numbers(rows, classes)[order] for rows, order in zip(self.tables.values(), orders, strict=True)]
        )
        rounds = self._rounds(truth)
        predicted = np.full(len(truth), -1)
        accuracies = []
        with _bar(self.corpus, sum(len(r.folds) * len(L2) + 1 for r in rounds)) as tell:
            for r, answer in zip(rounds, self._classify(features, torch.from_numpy(truth), rounds, tell), strict=True):
                predicted[r.test] = answer
                accuracies.append(float(np.mean(answer == truth[r.test])))
        # The last table is the one tested, whole: put back in the order of its file.
        back = len(truth) - len(orders[-1]) + np.argsort(orders[-1])
        predictions = {
            "row": list(range(len(back))),
            "label": [classes[number] for number in truth[back]],
            "prediction": [classes[number] for number in predicted[back]],
        }
        return TaskResult({self.metrics[0]: math.fsum(accuracies) / len(accuracies)}, predictions)

    def _features(self, answers: Answers, embedded: Embedded, rows: Rows) -> Tensor:
        sides = [self.ask(answers, "features", embedded[rows.column(column)]).float() for column in _sides(rows)]
        if len(sides) == 1:
            return sides[0]
        first, second = sides
        return torch.cat([(first - second).abs(), first * second], dim=1)

    def _rounds(self, truth: np.ndarray) -> list[Round]:
        """Return the tests; rows are numbered through all splits, each split in SentEval's order."""
        sizes = [len(rows) for rows in self.tables.values()]
        parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
        if len(parts) == 3:
            train, dev, test = parts
            return [Round([(train, dev)], train, test, dev)]
        if len(parts) == 2:
            train, test = parts
            return [Round(self._folds(train, truth), train, test)]
        return [Round(self._folds(train, truth), train, test) for train, test in self._folds(parts[0], truth)]

    def _folds(self, rows: logistic.Rows, truth: np.ndarray) -> list[tuple[logistic.Rows, logistic.Rows]]:
        from sklearn.model_selection import StratifiedKFold  # type: ignore[import-untyped, unused-ignore]  # a second

        folds = min(FOLDS, int(np.unique(truth[rows], return_counts=True)[1].min()))
        if folds < 2:
            raise DataError(
                f"{next(iter(self.tables.values())).files[0].path}: a class has one row left to choose L2 with, and at "
                "least 2 are needed, 3 where a corpus has one split: raise limits.test_pairs"
            )
        split = StratifiedKFold(n_splits=folds, shuffle=True, random_state=SEED).split(rows, truth[rows])
        return [(rows[train], rows[test]) for train, test in split]

    def _classify(
        self, features: Tensor, truth: Tensor, rounds: list[Round], tell: Callable[[int], None]
    ) -> Iterator[np.ndarray]:
        """Yield the classes predicted for the test rows of each round."""
        solve = SOLVERS[self.protocol]
        choices = [Fit(train, l2, dev) for r in rounds for l2 in L2 for train, dev in r.folds]
        classifiers = solve(features, truth, choices, tell)
        right = iter(_accuracy(classifiers, number, features, truth, fit.dev) for number, fit in enumerate(choices))
        final = []
        for r in rounds:
            scores = [round(100 * float(np.mean([next(right) for _ in r.folds])), 2) for _ in L2]
            final.append(Fit(r.train, L2[int(np.argmax(scores))], r.dev))
        classifiers = solve(features, truth, final, tell)
        for number, r in enumerate(rounds):
            yield classifiers.predict(number, features[torch.from_numpy(r.test)]).numpy()


def _accuracy(classifiers: Linear, number: int, features: Tensor, truth: Tensor, rows: logistic.Rows | None) -> float:
    assert rows is not None  # noqa: S101 - what L2 is chosen on always has a dev side
    chosen = torch.from_numpy(rows)
    return (classifiers.predict(number, features[chosen]) == truth[chosen]).double().mean().item()


def _sides(rows: Rows) -> tuple[str, ...]:
    return ("sentence1", "sentence2") if "sentence1" in rows.names else ("sentence",)


def _numbers(rows: Rows, classes: list[str]) -> logistic.Rows:
    """Return the number of each row's class."""
    return np.array([classes.index(label) for label in rows.column("label")])


def _senteval_order(rows: Rows, classes: list[str]) -> logistic.Rows:
    """Return row numbers by numbers of words, then class, as SentEval sorts before it draws folds."""
    words = [np.array([len(sentence.split()) for sentence in rows.column(column)]) for column in _sides(rows)]
    return np.lexsort([_numbers(rows, classes), *reversed(words)])


@contextmanager
def _bar(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many of the fits are done, in a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("fits"))
    console = Console(stderr=True)
    shown = sys.stderr.isatty()
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=not shown) as progress:
        bar = progress.add_task(name, total=total)
        yield lambda done: progress.advance(bar, done)
