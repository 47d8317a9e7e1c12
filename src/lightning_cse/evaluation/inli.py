"""INLI: does the hypothesis follow from the premise, and do its vectors find it?"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from datasets import Dataset

from lightning_cse.data.rows import FILE, LINE, with_columns
from lightning_cse.evaluation.task import CorpusTask, Embedded, Split, TaskResult, texts
from lightning_cse.metrics import auc, auc_error
from lightning_cse.similarity import cosine_matrix

HYPOTHESES = {
    "explicit": ("explicit_entailment", True),
    "implied": ("implied_entailment", True),
    "neutral": ("neutral", False),
    "contradiction": ("contradiction", False),
}
"""For each type of hypothesis, its column in INLI and whether it is entailed."""


class INLITask(CorpusTask):
    """A task on pairs of an INLI premise and one of its hypotheses: all pairs of one type, then all
    of the next.

    ``types`` are the types of hypotheses it uses. Its rows have the columns ``row`` (of INLI),
    ``type``, ``label`` (entailed or not), ``premise`` and ``hypothesis``. The limits count
    premises.
    """

    corpora: ClassVar = {"dev": "inli/val", "test": "inli/test"}
    types: ClassVar[tuple[str, ...]] = tuple(HYPOTHESES)

    def select(self, rows: Dataset, split: Split) -> Dataset:
        """Return the pairs of the split."""
        rows = super().select(rows, split)
        count = len(rows)
        numbers = [*range(count)] * len(self.types)
        types = []
        labels = []
        hypotheses = []
        for hypothesis_type in self.types:
            column, is_entailed = HYPOTHESES[hypothesis_type]
            types += [hypothesis_type] * count
            labels += [is_entailed] * count
            hypotheses += rows[column][:]

        pairs = rows.select(numbers)

        return with_columns(
            pairs.select_columns([FILE, LINE]),
            row=numbers,
            type=types,
            label=labels,
            premise=pairs["premise"][:],
            hypothesis=hypotheses,
        )


class RTE(INLITask):
    r"""Two-way entailment: a pair is entailed iff its score is above a threshold :math:`\gamma`.

    Explicit and implied entailments are positive, neutral hypotheses and contradictions
    negative. :math:`\gamma` is tuned on dev (best accuracy over all dev pairs, midpoints
    between distinct scores) and used on test. Metrics: ``accuracy_explicit``,
    ``accuracy_implied``, ``accuracy_neutral``, ``accuracy_contradiction``, their mean
    ``accuracy_all``, and ``threshold``. ``auc_explicit`` and ``auc_implied`` need no threshold:
    the `auc` of a type against neutral hypotheses and contradictions, on test with its standard
    error ``auc_<type>_se`` (`auc_error`).

    A model that judges pairs of sentences names the type of each hypothesis, so it needs
    neither a threshold nor dev. A pair without a type counts as wrong. Its other metrics are
    ``accuracy_four_way``, the share of pairs whose type is recognised, and the shares of pairs
    without a type: ``refused``, ``unparsable``, ``failed``.

    Source: DualCSE, RTE experiment.  Differs: the paper does not say over which candidates the
    threshold is searched. The AUCs are ours: thresholds with nearly the same accuracy on dev
    change the accuracy of a type by ten points.
    """

    needs = ("entailment_score",)
    metrics = (
        *(f"accuracy_{hypothesis_type}" for hypothesis_type in HYPOTHESES),
        "accuracy_all",
        "threshold",
        "auc_explicit",
        "auc_implied",
    )

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split, and those of dev, on which the threshold is tuned."""
        sentences = texts(self.rows("dev"))
        if split == "test":
            sentences += texts(self.rows("test"))

        return sentences

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Tune the threshold on dev, and apply it to the split."""
        rows = self.rows(split)
        threshold, scores = self.tune(embedded, self.rows("dev"), rows, strict=True)
        predictions = {
            **_described(rows),
            "score": scores.tolist(),
            "prediction": (scores > threshold).tolist(),
        }
        correct = _equal(predictions["prediction"], predictions["label"])
        metrics = {
            **_accuracies(rows, correct),
            "threshold": threshold,
            **_areas(predictions, split),
        }

        return TaskResult(metrics, predictions)

    def judged(self, judge: Any, split: Split) -> TaskResult:
        """Compare the types that the model names with those of the pairs of the split."""
        rows = self.rows(split)
        predictions = _described(rows)
        named = judge.judge(rows["premise"][:], rows["hypothesis"][:])
        predictions["answer"] = named
        predictions["prediction"] = [
            HYPOTHESES.get(hypothesis_type, (None, None))[1] for hypothesis_type in named
        ]
        # A separate column, since a pair without a type is wrong whatever the label.
        predictions["correct"] = _equal(predictions["prediction"], predictions["label"])
        predictions["correct_four_way"] = _equal(predictions["type"], named)
        metrics = _accuracies(rows, predictions["correct"])
        metrics["accuracy_four_way"] = sum(predictions["correct_four_way"]) / len(rows)
        for reason in ("refused", "unparsable", "failed"):
            metrics[reason] = named.count(reason) / len(rows)

        return TaskResult(metrics, predictions)

    def suits(self, answers: object) -> bool:
        """Whether the model scores pairs or judges them."""
        return hasattr(answers, "judge") or super().suits(answers)


def _described(rows: Dataset) -> dict[str, list[Any]]:
    return {column: rows[column][:] for column in ("row", "type", "label")}


def _equal(a: Sequence[object], b: Sequence[object]) -> list[bool]:
    return [x == y for x, y in zip(a, b, strict=True)]


def _areas(predictions: Mapping[str, Sequence[Any]], split: Split) -> dict[str, float]:
    """Return the AUC of each entailed type against all pairs not entailed.

    On test with its standard error.
    """
    types = np.asarray(predictions["type"])
    labels = np.asarray(predictions["label"])
    scores = np.asarray(predictions["score"])
    areas = {}
    for hypothesis_type in ("explicit", "implied"):
        chosen = (types == hypothesis_type) | ~labels
        areas[f"auc_{hypothesis_type}"] = auc(labels[chosen], scores[chosen])
        if split == "test" and labels[chosen].sum() > 1:
            areas[f"auc_{hypothesis_type}_se"] = auc_error(labels[chosen], scores[chosen])

    return areas


def _accuracies(rows: Dataset, correct: Sequence[bool]) -> dict[str, float]:
    """Return the accuracy of each type of hypothesis, and their mean."""
    metrics = accuracy_by_type(rows, correct)
    return metrics | {"accuracy_all": sum(metrics.values()) / len(metrics)}


def accuracy_by_type(rows: Dataset, correct: Sequence[bool]) -> dict[str, float]:
    """Return ``accuracy_<type>`` of each type, in the order of the rows."""
    frame = pd.DataFrame({"type": rows["type"][:], "correct": correct})
    shares = frame.groupby("type", sort=False)["correct"].mean()

    return {f"accuracy_{name}": float(share) for name, share in shares.items()}


class Retrieval(INLITask):
    r"""Do the vectors of a premise find what it says and what it implies?

    The distinct hypotheses of the split are ranked by the cosine of their first view to a view of
    the premise. Metrics: ``accuracy_<kind>_by_<view>``, the share of premises whose own hypothesis
    of that kind (``explicit``, ``implied``) is among the three nearest (accuracy@3). The views are
    the model's first one (``explicit``) and its last one (``implicit``); a model with one vector
    has the same value for both. A hypothesis that is as near as another one ranks after it.

    Source: DualCSE, table 3, which shows the three nearest sentences of some premises.  Differs:
    the paper has no number. It searches the hypotheses of the training split, where a premise of
    another split has none; here, those of the premise's own split are searched.
    """

    needs = ("similarity",)
    metrics = tuple(
        f"accuracy_{hypothesis_type}_by_{view}"
        for hypothesis_type in ("explicit", "implied")
        for view in ("explicit", "implicit")
    )
    nearest: ClassVar[int] = 3

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Rank the hypotheses by each view of each premise."""
        rows = self.rows(split)
        hypotheses = rows["hypothesis"][:]
        indices = {sentence: index for index, sentence in enumerate(dict.fromkeys(hypotheses))}
        searched, *_ = embedded[list(indices)].views().values()
        targets = torch.tensor(
            [indices[sentence] for sentence in hypotheses], device=searched.device
        )
        premises = rows["premise"][:][: len(rows) // len(self.types)]
        views = [*embedded[premises].views().values()]
        cosines = {
            "explicit": cosine_matrix(views[0], searched),
            "implicit": cosine_matrix(views[-1], searched),
        }
        predictions: dict[str, list[Any]] = {"row": [*range(len(premises))]}
        for metric in self.metrics:
            hypothesis_type, view = metric.removeprefix("accuracy_").split("_by_")
            of_type = targets.chunk(len(self.types))[self.types.index(hypothesis_type)]
            scores = cosines[view].gather(1, of_type[:, None])
            as_near = (cosines[view] >= scores).sum(dim=1)  # with itself
            predictions[f"correct_{hypothesis_type}_by_{view}"] = (as_near <= self.nearest).tolist()

        metrics = {
            metric: sum(predictions[metric.replace("accuracy", "correct")]) / len(premises)
            for metric in self.metrics
        }

        return TaskResult(metrics, predictions)
