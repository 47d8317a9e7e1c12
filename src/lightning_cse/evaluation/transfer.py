"""Transfer: how well does a linear classifier on frozen embeddings do SentEval's classification tasks?"""

import logging
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor

from lightning_cse.data import Rows, read_corpus
from lightning_cse.errors import DataError
from lightning_cse.evaluation.logistic import SEED, Fold, Numbers, Solver, fit_lbfgs, fit_senteval
from lightning_cse.evaluation.task import (
    Answers,
    Embedded,
    Split,
    Task,
    TaskResult,
    first_rows,
    sides,
    texts,
)

log = logging.getLogger(__name__)

Corpus = Literal["mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc"]
Protocol = Literal["lbfgs", "senteval"]

SPLITS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("mr", "cr", "subj", "mpqa"), ("all",)),
    "sst2": ("train", "dev", "test"),
    **dict.fromkeys(("trec", "mrpc"), ("train", "test")),
}
"""The corpora and their splits, which decide how L2 is chosen."""

SOLVERS: Final[dict[str, Solver]] = {"lbfgs": fit_lbfgs, "senteval": fit_senteval}

L2: Final = (1e-5, 1e-4, 1e-3, 1e-2)
"""The weight decays to choose from, in SentEval's order."""

FOLDS: Final = 10


@dataclass(frozen=True)
class Round:
    """One test: L2 is chosen on the folds, then used to fit on ``train`` (SentEval stops early by ``dev``)."""

    folds: list[Fold]
    train: Numbers
    test: Numbers
    dev: Numbers | None = None


class Transfer(Task):
    r"""Accuracy of a logistic regression on frozen embeddings, for one of MR, CR, SUBJ, MPQA, SST2, TREC and MRPC.

    Features are the model's ``features``: (n, d), the primary view; for MRPC's pairs
    :math:`[\lvert a - b \rvert, \; a \odot b]`. The weight decay is the one of {1e-5, 1e-4, 1e-3, 1e-2} with the best
    mean accuracy (the smallest of the best, to two decimals of a percent):

    - MR, CR, SUBJ, MPQA, which have one split: 10 folds. For each fold, the decay is chosen by 10 folds within the
      other nine, and the classifier is fitted on all nine and tested on the fold. The accuracy is the mean over folds;
    - TREC, MRPC: the decay is chosen by 10 folds of train, and the classifier is fitted again on all of train;
    - SST2: the decay is chosen on dev.

    Folds are stratified and shuffled with seed 1111; rows are first sorted by number of words, as in SentEval.

    ``protocol`` is how a classifier is fitted, and part of the metric's name: ``accuracy_lbfgs`` to the optimum
    (`fit_lbfgs`, which has no seed), ``accuracy_senteval`` by Adam with early stopping (`fit_senteval`), as for the
    numbers in papers.

    Source: Conneau and Kiela 2018 and SentEval's code, with the settings of SimCSE's full mode.  Differs: ``lbfgs`` is
    ours; accuracies are not rounded before they are averaged; the blank lines of CR (4) and MPQA (3) are not sentences.

    ``rows`` is the maximum number of rows per class and split, the first ones of the file; None uses all.
    """

    needs = ("features",)
    metrics: tuple[str, ...] = ()
    splits: tuple[Split, ...] = ("test",)

    def __init__(
        self,
        *,
        data_dir: str,
        corpus: Corpus,
        protocol: Protocol = "lbfgs",
        rows: int | None = None,
    ) -> None:
        self.data_dir = Path(data_dir)
        self.corpus = corpus
        self.protocol = protocol
        self.limit = rows
        self.metrics = (f"accuracy_{protocol}",)

    @cached_property
    def tables(self) -> dict[str, Rows]:
        """The rows of the corpus by its own splits, in the order of the files."""
        tables = {
            split: read_corpus(self.corpus, split, self.data_dir) for split in SPLITS[self.corpus]
        }
        return {split: first_rows(rows, self.limit, each="label") for split, rows in tables.items()}

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the corpus's files."""
        return {file.name: file.sha256 for rows in self.tables.values() for file in rows.files}

    def sentences(self, split: Split) -> list[str]:
        """Return all sentences of the corpus, for training and test."""
        return (
            [s for rows in self.tables.values() for s in texts(rows)]
            if split in self.splits
            else []
        )

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Choose L2, fit and test, round by round."""
        tables = list(self.tables.values())
        names = {label for rows in tables for label in rows.column("label")}
        classes = sorted(
            names, reverse=self.corpus == "subj"
        )  # SentEval's order, in which objective is the second
        labels = [
            np.array([classes.index(label) for label in rows.column("label")]) for rows in tables
        ]
        orders = [_senteval_order(rows, own) for rows, own in zip(tables, labels, strict=True)]
        vectors = [
            self._features(answers, embedded, rows)[order]
            for rows, order in zip(tables, orders, strict=True)
        ]
        truth = np.concatenate([own[order] for own, order in zip(labels, orders, strict=True)])
        rounds = self._rounds(truth, [len(order) for order in orders])
        predicted = np.full(len(truth), -1)
        found = self._predict(rounds, torch.cat(vectors), torch.from_numpy(truth))
        for each, answer in zip(rounds, found, strict=True):
            predicted[each.test] = answer
        accuracies = [float(np.mean(predicted[each.test] == truth[each.test])) for each in rounds]
        # The last table is tested, as a whole: restore the order of its file.
        back = len(truth) - len(orders[-1]) + np.argsort(orders[-1])
        predictions = {
            "row": list(range(len(back))),
            "label": [classes[number] for number in truth[back]],
            "prediction": [classes[number] for number in predicted[back]],
        }
        return TaskResult({self.metrics[0]: math.fsum(accuracies) / len(accuracies)}, predictions)

    def _features(self, answers: Answers, embedded: Embedded, rows: Rows) -> Tensor:
        parts = [answers.features(embedded[rows.column(column)]).float() for column in sides(rows)]
        return (
            parts[0]
            if len(parts) == 1
            else torch.cat([(parts[0] - parts[1]).abs(), parts[0] * parts[1]], dim=1)
        )

    def _rounds(self, truth: Numbers, sizes: list[int]) -> list[Round]:
        """Return the rounds; rows are numbered through all splits."""
        parts = np.split(np.arange(len(truth)), np.cumsum(sizes)[:-1])
        if len(parts) == 3:
            train, dev, test = parts
            return [Round([(train, dev)], train, test, dev)]
        tests = [(parts[0], parts[1])] if len(parts) == 2 else self._folds(parts[0], truth)
        return [Round([*self._folds(train, truth)], train, test) for train, test in tests]

    def _folds(self, rows: Numbers, truth: Numbers) -> list[tuple[Numbers, Numbers]]:
        from sklearn.model_selection import StratifiedKFold  # type: ignore[import-untyped, unused-ignore]  # slow

        if (folds := min(FOLDS, int(np.unique(truth[rows], return_counts=True)[1].min()))) < 2:
            raise DataError(
                f"transfer: a class has only one of {len(rows)} training rows: raise limits.test_pairs"
            )
        split = StratifiedKFold(n_splits=folds, shuffle=True, random_state=SEED).split(
            rows, truth[rows]
        )
        return [(rows[train], rows[test]) for train, test in split]

    def _predict(self, rounds: list[Round], features: Tensor, truth: Tensor) -> list[Numbers]:
        """Return the classes predicted for the test rows of each round, with the best L2 of its folds."""
        solve = SOLVERS[self.protocol]
        folds = [fold for each in rounds for fold in each.folds]
        log.info(
            "%s: fitting %d classifiers to choose L2, then %d",
            self.corpus,
            len(folds) * len(L2),
            len(rounds),
        )
        tried = solve(features, truth, folds, torch.tensor(L2).expand(len(folds), -1))
        accuracy = [
            [
                (tried.predict(k, decay, features[dev]) == truth[dev]).double().mean().item()
                for decay in range(len(L2))
            ]
            for k, (_, dev) in enumerate(folds)
        ]
        scores = np.reshape(accuracy, (len(rounds), -1, len(L2))).mean(axis=1)
        best = torch.tensor(L2)[
            [int(np.argmax([round(100 * score, 2) for score in own])) for own in scores]
        ]
        final = solve(features, truth, [(each.train, each.dev) for each in rounds], best[:, None])
        return [final.predict(k, 0, features[each.test]).numpy() for k, each in enumerate(rounds)]


def _senteval_order(rows: Rows, labels: Numbers) -> Numbers:
    """Return row numbers sorted by number of words, then class, as SentEval sorts before it draws folds."""
    words = [
        np.array([len(sentence.split()) for sentence in rows.column(column)])
        for column in sides(rows)
    ]
    return np.lexsort([labels, *reversed(words)])
