"""Transfer: how well does a linear classifier on frozen embeddings do SentEval's classification
tasks?
"""

import logging
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor

from lightning_cse.data import read_corpus
from lightning_cse.data.rows import digests_of
from lightning_cse.evaluation.senteval import SEED, Fold, Numbers, fit_classifiers, with_ones
from lightning_cse.evaluation.task import (
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

SPLITS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("mr", "cr", "subj", "mpqa"), ("all",)),
    "sst2": ("train", "dev", "test"),
    **dict.fromkeys(("trec", "mrpc"), ("train", "test")),
}
"""The corpora and their splits, which decide how L2 is chosen."""

L2 = (1e-5, 1e-4, 1e-3, 1e-2)
"""The weight decays to choose from, in SentEval's order."""

FOLDS = 10


@dataclass(frozen=True)
class Round:
    """One test: L2 is chosen on the folds, then used to fit on ``train`` (early stopping is by
    ``dev``).
    """

    folds: list[Fold]
    train: Numbers
    test: Numbers
    dev: Numbers | None = None


@dataclass(kw_only=True, eq=False)
class Transfer(Task):
    r"""Accuracy of a linear classifier on frozen embeddings, for one of MR, CR, SUBJ, MPQA, SST2,
    TREC and MRPC.

    Features are the model's ``features``: (n, d), the primary view; for MRPC's pairs
    :math:`[\lvert a - b \rvert, \; a \odot b]`. The weight decay is the one of {1e-5, 1e-4,
    1e-3, 1e-2} with the best mean accuracy (the smallest of the best, to two decimals of a
    percent):

    - MR, CR, SUBJ, MPQA, which have one split: 10 folds. For each fold, the decay is chosen by 10
      folds within the other nine, and the classifier is fitted on all nine and tested on the fold.
      The accuracy is the mean over folds;
    - TREC, MRPC: the decay is chosen by 10 folds of train, and the classifier is fitted again on
      all of train;
    - SST2: the decay is chosen on dev.

    Folds are stratified and shuffled with seed 1111; rows are first sorted by number of words,
    as in SentEval.

    A classifier is fitted by Adam with early stopping (`fit_classifiers`).

    Source: Conneau and Kiela 2018 and SentEval's code, with the settings of SimCSE's full
    mode.  Differs: accuracies are not rounded before they are averaged; the blank lines of CR (4)
    and MPQA (3) are not sentences.

    ``rows`` is the maximum number of rows per class and split, the first ones of the file; None
    uses all.
    """

    needs = ("features",)
    splits = ("test",)
    metrics = ("accuracy",)
    data_dir: str
    corpus: Corpus
    rows: int | None = None

    @cached_property
    def tables(self) -> dict[str, Dataset]:
        """The rows of the corpus by its own splits, in the order of the files."""
        tables = {}
        for split in SPLITS[self.corpus]:
            rows = read_corpus(self.corpus, split, self.data_dir)
            tables[split] = first_rows(rows, self.rows, column="label")

        return tables

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the corpus's files."""
        return digests_of(self.tables.values())

    def sentences(self, split: Split) -> list[str]:
        """Return all sentences of the corpus, for training and test."""
        if split not in self.splits:
            return []

        return [sentence for rows in self.tables.values() for sentence in texts(rows)]

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Choose L2, fit and test, round by round."""
        tables = list(self.tables.values())
        classes = self._classes()
        features = []
        truths = []
        for rows in tables:
            labels = np.array([classes.index(label) for label in rows["label"][:]])
            order = _senteval_order(rows, labels)
            features.append(self._features(embedded, rows)[order])
            truths.append(labels[order])

        truth = np.concatenate(truths)

        rounds = self._rounds(truth, [len(rows) for rows in tables])
        predicted = np.full(len(truth), -1)
        accuracies = []
        by_round = self._predict(rounds, torch.cat(features), torch.from_numpy(truth))
        for fold_round, classified in zip(rounds, by_round, strict=True):
            predicted[fold_round.test] = classified
            accuracies.append(float(np.mean(classified == truth[fold_round.test])))

        # The last table is tested as a whole: restore the order of its file.
        tested = len(truth) - len(order) + np.argsort(order)
        predictions = {
            "row": list(range(len(tested))),
            "label": [classes[number] for number in truth[tested]],
            "prediction": [classes[number] for number in predicted[tested]],
        }

        return TaskResult({"accuracy": math.fsum(accuracies) / len(accuracies)}, predictions)

    def _classes(self) -> list[str]:
        """Return the labels in SentEval's order, in which SUBJ's objective is the second."""
        names = {label for rows in self.tables.values() for label in rows["label"][:]}
        return sorted(names, reverse=self.corpus == "subj")

    def _features(self, embedded: Embedded, rows: Dataset) -> Tensor:
        features = embedded.answers.features
        parts: list[Tensor] = [
            features(embedded[rows[column][:]]).float() for column in sides(rows)
        ]
        if len(parts) == 1:
            return parts[0]

        first, second = parts

        return torch.cat([(first - second).abs(), first * second], dim=1)

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

        _, counts = np.unique(truth[rows], return_counts=True)
        count = min(FOLDS, int(counts.min()))
        folds = StratifiedKFold(n_splits=count, shuffle=True, random_state=SEED)

        return [(rows[train], rows[test]) for train, test in folds.split(rows, truth[rows])]

    def _predict(self, rounds: list[Round], features: Tensor, truth: Tensor) -> list[Numbers]:
        """Return the classes predicted for the test rows of each round, with the best L2 of its
        folds.
        """
        folds = [fold for fold_round in rounds for fold in fold_round.folds]
        log.info(
            "%s: fitting %d classifiers to choose L2, then %d",
            self.corpus,
            len(folds) * len(L2),
            len(rounds),
        )
        decays = torch.tensor(L2)
        _, accuracies = fit_classifiers(features, truth, folds, decays.expand(len(folds), -1))
        means = accuracies.view(len(rounds), -1, len(L2)).mean(dim=1).numpy()
        # The first of the best, to two decimals of a percent.
        best = decays[np.argmax(np.round(100 * means, 2), axis=1)]

        tests = [(fold_round.train, fold_round.dev) for fold_round in rounds]
        weights, _ = fit_classifiers(features, truth, tests, best[:, None])
        predicted = []
        for fold_round, (classifier,) in zip(rounds, weights, strict=True):
            logits = with_ones(features[fold_round.test]) @ classifier.T
            predicted.append(logits.argmax(dim=1).numpy())

        return predicted


def _senteval_order(rows: Dataset, labels: Numbers) -> Numbers:
    """Return row numbers sorted by number of words, then class, as SentEval sorts before it draws
    folds.
    """
    words = [[len(sentence.split()) for sentence in rows[column][:]] for column in sides(rows)]
    return np.lexsort([labels.tolist(), *reversed(words)])
