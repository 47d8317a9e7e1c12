"""Two-way natural language inference: is the hypothesis entailed by the premise or not?"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from pydantic import Field

from lightning_cse.evaluation.task import CorpusTask, Embedded, Split, TaskResult, entailed, texts
from lightning_cse.metrics import auc, auprc, best_threshold, threshold_accuracy

GRID = [k / 1000 for k in range(1001)]
"""The thresholds that the authors of GaussCSE try."""


@dataclass(kw_only=True, eq=False)
class NLI(CorpusTask):
    r"""Two-way NLI: a pair is entailed iff its score reaches a threshold :math:`\gamma`.

    The score is ``entailment_score(premise, hypothesis)`` (GaussCSE: sim(hypothesis ||
    premise)). Entailment is positive, everything else negative, including pairs without a gold
    label. :math:`\gamma` is scanned over 0, 0.001, ..., 1 on the dev split (the first of the
    best), and used on the test split. Metrics: ``accuracy``, ``auprc`` (exact precision-recall
    curve, trapezoids) and ``threshold``. ``dev_rows`` limits the evaluations during training;
    the threshold for test is tuned on all of dev.

    Source: GaussCSE, NLI experiment, and the authors' code: one threshold, tuned on SNLI dev,
    for the test sets of SNLI, MNLI and SICK (the paper says "the development set"). The code's
    AUPRC is the exact one, the paper's the one over 1,001 thresholds.  Differs: nothing with
    a dev split and the defaults. Without dev, :math:`\gamma` is tuned on every second row of each
    label for the rows in between, and vice versa, and the metric is ``accuracy_two_fold``.

    Args:
        grid: scan those thresholds; otherwise, those between neighbouring scores.
        with_auc: also measure ``auc``, which needs no threshold.
        auprc_thresholds: with 1001, also measure ``auprc_1001``, over as many thresholds from 0 to
            1.
    """

    needs = ("entailment_score",)
    reads = ("premise", "hypothesis", "label")
    grid: bool = True
    with_auc: bool = False
    auprc_thresholds: Annotated[int, Field(ge=2)] | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of its metrics."""
        names = ["auc"] if self.with_auc else []
        if "dev" in self.sources:
            names += ["accuracy", "auprc", "threshold"]
        else:
            names += ["accuracy_two_fold", "auprc"]

        if self.auprc_thresholds is not None:
            names.append(f"auprc_{self.auprc_thresholds}")

        return tuple(names)

    def select(self, rows: Dataset, split: Split) -> Dataset:
        """Return the rows of a split; those of your own files must have two entailed pairs, and two
        others.
        """
        rows = super().select(rows, split)
        if self.own is not None:
            count = sum(entailed(rows))
            if min(count, len(rows) - count) < 2:
                reason = "two entailed pairs and two others are needed"
                raise self.unmeasurable(rows, f"{count} of {len(rows)} are entailed; {reason}")

        return rows

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split.

        For test also those of dev, on which the threshold is tuned.
        """
        if split == "dev":
            return super().sentences(split)

        tuned = texts(self.table("dev")) if "dev" in self.sources else []

        return tuned + texts(self.rows("test"))

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Tune the threshold, and apply it to the split."""
        rows = self.rows(split)
        labels = np.array(entailed(rows))
        metrics: dict[str, float] = {}
        if "dev" in self.sources:
            dev = rows if split == "dev" else self.table("dev")
            grid = GRID if self.grid else None
            threshold, answers = self.tune(embedded, dev, rows, grid=grid)
            scores = answers.numpy()
            predicted = scores >= threshold
            metrics["accuracy"] = threshold_accuracy(labels, scores, threshold)
        else:
            scores = embedded.ask("entailment_score", rows).numpy()
            predicted = two_fold_predictions(labels, scores)
            metrics["accuracy_two_fold"] = float(np.mean(predicted == labels))

        metrics["auprc"] = auprc(labels, scores)
        if "dev" in self.sources:
            metrics["threshold"] = threshold

        if self.with_auc:
            metrics["auc"] = auc(labels, scores)

        count = self.auprc_thresholds
        if count is not None:
            thresholds = [k / (count - 1) for k in range(count)]
            metrics[f"auprc_{count}"] = auprc(labels, scores, thresholds)

        return TaskResult(metrics, pair_predictions(labels, scores, predicted))


def two_fold_predictions(
    labels: NDArray[np.bool_], scores: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Classify each of two folds by the threshold tuned on the other one."""
    # Every second row of each label: with every second row of all, rows in turn would put one label
    # in a fold.
    fold = np.where(labels, np.cumsum(labels), np.cumsum(~labels)) % 2
    predicted = np.empty(len(labels), dtype=bool)
    for number in (0, 1):
        is_tested = fold == number
        threshold, _ = best_threshold(labels[~is_tested], scores[~is_tested])
        predicted[is_tested] = scores[is_tested] >= threshold

    return predicted


def pair_predictions(labels: Any, scores: Any, predicted: Any) -> dict[str, list[Any]]:
    """Return the predictions of pairs, by column."""
    columns = {"label": labels, "score": scores, "prediction": predicted}
    return {"row": list(range(len(labels)))} | {
        name: np.asarray(values).tolist() for name, values in columns.items()
    }
