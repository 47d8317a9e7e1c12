"""Two-way natural language inference: is the hypothesis entailed by the premise or not?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from lightning_cse.data import Rows
from lightning_cse.evaluation.task import Answers, CorpusTask, Embedded, Split, TaskResult, measure, texts
from lightning_cse.metrics import best_threshold


class NLI(CorpusTask):
    r"""Two-way NLI: a pair is entailed iff its score reaches a threshold :math:`\gamma`.

    The score is ``entailment_score(premise, hypothesis)`` (GaussCSE: sim(hypothesis || premise)); entailment is
    positive, everything else negative, also pairs without a gold label. :math:`\gamma` is scanned over 0, 0.001,
    ..., 1 on the dev split (the first of the best), and used on the test split. Metrics: ``accuracy``, ``auprc`` (exact
    precision-recall curve, trapezoids) and ``threshold``. ``dev_rows`` limits the evaluations during training; a
    threshold for the test is tuned on all of dev, which is required.

    Source: GaussCSE, NLI experiment, and the authors' code: one threshold, tuned on SNLI dev, for the test sets of
    SNLI, MNLI and SICK (the paper says "the development set").  Differs: the paper's AUPRC is over the 1,001
    thresholds, the code's is exact, as here.
    """

    needs = ("entailment_score",)
    metrics: tuple[str, ...] = ("accuracy", "auprc", "threshold")
    grid: ClassVar[Sequence[float] | None] = [k / 1000 for k in range(1001)]

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split; for test also those of dev, which the threshold is tuned on."""
        if split == "dev":
            return super().sentences(split)
        return (texts(self.table("dev")) if "dev" in self.sources else []) + texts(self.rows("test"))

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Tune the threshold on dev, and apply it to the split."""
        rows = self.rows(split)
        tuned = rows if split == "dev" else self.table("dev")
        tuned_scores = self.ask_pairs(answers, "entailment_score", embedded, tuned)
        threshold, _ = best_threshold(entailed(tuned), tuned_scores, grid=self.grid)
        scores = tuned_scores if split == "dev" else self.ask_pairs(answers, "entailment_score", embedded, rows)
        labels = entailed(rows)
        metrics = {
            "accuracy": measure("ThresholdAccuracy", labels, scores, threshold=threshold),
            "auprc": measure("AUPRC", labels, scores),
            "threshold": threshold,
        }
        predictions: dict[str, list[Any]] = {"row": list(range(len(rows))), "label": labels}
        predictions |= {"score": scores.tolist(), "prediction": (scores >= threshold).tolist()}
        return TaskResult(metrics, predictions)


def entailed(rows: Rows) -> list[bool]:
    """Return whether each pair is labelled as entailed; files of one's own may have 1 for it."""
    return [label in ("entailment", "1") for label in rows.column("label")]
