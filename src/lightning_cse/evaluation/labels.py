"""The label of a sentence pair, as predicted by the classifier that a model was trained with."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from lightning_cse.data.columns import NLI_LABELS
from lightning_cse.evaluation.nli import pair_predictions
from lightning_cse.evaluation.task import CorpusTask, Embedded, Split, TaskResult, first_rows


@dataclass(kw_only=True, eq=False)
class PairLabels(CorpusTask):
    r"""Accuracy of a model's classifier of pairs: NLI with all three labels.

    The prediction is the label of the largest of ``label_scores(premise, hypothesis)``. ``labels``
    are the classes in the order of training; pairs with another label, such as those without a gold
    label, are left out. The metric is ``accuracy``.

    Source: InferSent (Conneau et al. 2017), authors' code, where this accuracy on SNLI dev decides
    the learning rate and the checkpoint.  Differs: nothing.
    """

    needs = ("label_scores",)
    metrics: tuple[str, ...] = ("accuracy",)
    labels: Sequence[str] = NLI_LABELS[:3]

    def select(self, rows: Dataset, split: Split) -> Dataset:
        """Return the rows that have one of the labels, the first ones."""
        has_label = np.isin(rows["label"][:], list(self.labels))
        return first_rows(rows.select(np.flatnonzero(has_label)), self.limits[split])

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Compare the predicted labels with those of the pairs."""
        rows = self.rows(split)
        scores = embedded.ask("label_scores", rows)
        best = scores.max(dim=1)
        predicted = [self.labels[number] for number in best.indices.tolist()]
        labels = rows["label"][:]
        hits = [label == prediction for label, prediction in zip(labels, predicted, strict=True)]

        return TaskResult(
            {"accuracy": float(np.mean(hits))}, pair_predictions(labels, best.values, predicted)
        )
