"""Recognising textual entailment on INLI: does the hypothesis follow from the premise, said or implied?"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from lightning_cse.baselines import NO_VERDICT
from lightning_cse.data import Rows, read_corpus
from lightning_cse.evaluation.task import Answers, Embedded, Judge, Split, Task, TaskResult
from lightning_cse.metrics import best_threshold

HYPOTHESES = {
    "explicit": ("explicit_entailment", True),
    "implied": ("implied_entailment", True),
    "neutral": ("neutral", False),
    "contradiction": ("contradiction", False),
}
"""Type of hypothesis: its column in INLI, and whether it is entailed."""


class INLITask:
    """The rows of INLI's dev and test splits, read when first asked for.

    Args:
        data_dir: where the corpora are.
        dev_rows: use only the first so many dev rows.
        test_rows: use only the first so many test rows.
    """

    def __init__(self, *, data_dir: str, dev_rows: int | None = None, test_rows: int | None = None) -> None:
        self.data_dir = Path(data_dir)
        self.limits = {"dev": dev_rows, "test": test_rows}

    @cached_property
    def _dev(self) -> Rows:
        return read_corpus("inli", "val", self.data_dir)[: self.limits["dev"]]

    @cached_property
    def _test(self) -> Rows:
        return read_corpus("inli", "test", self.data_dir)[: self.limits["test"]]

    def rows(self, split: Split) -> Rows:
        """Return the rows of a split."""
        return self._dev if split == "dev" else self._test

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the two files."""
        return {file.name: file.sha256 for rows in (self._dev, self._test) for file in rows.files}


class RTE(INLITask, Task):
    r"""Two-way entailment: a pair is entailed iff its score is above a threshold :math:`\gamma`.

    Explicit and implied entailments are positive, neutral hypotheses and contradictions negative. :math:`\gamma` is
    tuned on dev (best accuracy over all dev pairs, midpoints between distinct scores) and used on test. Metrics:
    ``accuracy_explicit``, ``accuracy_implied``, ``accuracy_neutral``, ``accuracy_contradiction``, their mean
    ``accuracy_all``, and ``threshold``.

    A model that reads the pairs themselves gives verdicts, so there is no threshold, and dev is not asked about. A pair
    without a verdict counts as wrong. Metrics besides the accuracies: ``accuracy_four_way``, the share of pairs that
    were taken for the type they are, and the shares without a verdict: ``refused``, ``unparsable``, ``failed``.

    Source: DualCSE, RTE experiment.  Differs: the paper does not say over which candidates the threshold is searched.
    """

    name = "rte"
    needs = ("entailment_score",)
    metrics = (*(f"accuracy_{kind}" for kind in HYPOTHESES), "accuracy_all", "threshold")

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split, and those of dev, which the threshold is tuned on."""
        splits = [self._dev] if split == "dev" else [self._dev, self._test]
        columns = ("premise", *(column for column, _ in HYPOTHESES.values()))
        return [sentence for rows in splits for column in columns for sentence in rows.column(column)]

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Tune the threshold on dev, and count on the split what lies on the right side of it."""
        dev = self._scores(answers, embedded, self._dev)
        labels = [entailed for kind, (_, entailed) in HYPOTHESES.items() for _ in range(len(dev[kind]))]
        threshold, _ = best_threshold(
            labels, [score for kind in HYPOTHESES for score in dev[kind].tolist()], strict=True
        )
        scores = dev if split == "dev" else self._scores(answers, embedded, self._test)
        metrics: dict[str, float] = {}
        predictions: dict[str, list[object]] = {key: [] for key in ("row", "type", "label", "score", "prediction")}
        for kind, (_, entailed) in HYPOTHESES.items():
            predicted = scores[kind] > threshold
            metrics[f"accuracy_{kind}"] = (predicted == entailed).double().mean().item()
            predictions["row"] += range(len(predicted))
            predictions["type"] += [kind] * len(predicted)
            predictions["label"] += [entailed] * len(predicted)
            predictions["score"] += scores[kind].tolist()
            predictions["prediction"] += predicted.tolist()
        metrics["accuracy_all"] = sum(metrics.values()) / len(metrics)
        metrics["threshold"] = threshold
        return TaskResult(metrics, predictions)

    def judged(self, judge: Judge, split: Split) -> TaskResult:
        """Count which pairs of the split get the right verdict."""
        rows = self.rows(split)
        columns: dict[str, list[Any]] = {key: [] for key in ("row", "type", "label")}
        hypotheses: list[str] = []
        for kind, (column, entailed) in HYPOTHESES.items():
            hypotheses += rows.column(column)
            columns["row"] += range(len(rows))
            columns["type"] += [kind] * len(rows)
            columns["label"] += [entailed] * len(rows)
        verdicts = judge.judge(rows.column("premise") * len(HYPOTHESES), hypotheses)
        columns["answer"] = [verdict.answer for verdict in verdicts]
        columns["prediction"] = [verdict.entailed for verdict in verdicts]
        # A column of its own, since no verdict is wrong whatever the label.
        columns["correct"] = [a == b for a, b in zip(columns["prediction"], columns["label"], strict=True)]
        right = Counter(kind for kind, is_right in zip(columns["type"], columns["correct"], strict=True) if is_right)
        metrics = {f"accuracy_{kind}": right[kind] / len(rows) for kind in HYPOTHESES}
        metrics["accuracy_all"] = sum(metrics.values()) / len(metrics)
        taken = sum(kind == answer for kind, answer in zip(columns["type"], columns["answer"], strict=True))
        answers = Counter(columns["answer"])
        metrics["accuracy_four_way"] = taken / len(verdicts)
        metrics |= {reason: answers[reason] / len(verdicts) for reason in NO_VERDICT}
        return TaskResult(metrics, columns)

    def suits(self, answers: object) -> bool:
        """Whether the method scores pairs or gives verdicts on them."""
        return hasattr(answers, "judge") or super().suits(answers)

    def _scores(self, answers: Answers, embedded: Embedded, rows: Rows) -> dict[str, Tensor]:
        premise = embedded[rows.column("premise")]
        return {
            kind: self.ask(answers, "entailment_score", premise, embedded[rows.column(column)]).double()
            for kind, (column, _) in HYPOTHESES.items()
        }
