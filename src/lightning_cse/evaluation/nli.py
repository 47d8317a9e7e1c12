"""Two-way natural language inference: is the hypothesis entailed by the premise or not?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from lightning_cse.evaluation.task import CorpusTask, Embedded, Split, TaskResult, entailed, texts
from lightning_cse.metrics import auprc, threshold_accuracy


@dataclass(kw_only=True, eq=False)
class NLI(CorpusTask):
    r"""Two-way NLI: a pair is entailed iff its score reaches a threshold :math:`\gamma`.

    The score is ``entailment_score(premise, hypothesis)`` (GaussCSE: sim(hypothesis ||
    premise)). Entailment is positive, everything else negative, including pairs without a gold
    label. :math:`\gamma` is scanned over 0, 0.001, ..., 1 on the dev split (the first of the
    best), and used on the test split. Metrics: ``accuracy``, ``auprc`` (exact precision-recall
    curve, trapezoids) and ``threshold``. ``dev_rows`` limits the evaluations during training;
    the threshold for test is tuned on all of dev, which is required. ``auprc_thresholds=1001``
    adds ``auprc_1001``, over as many thresholds from 0 to 1.

    Source: GaussCSE, NLI experiment, and the authors' code: one threshold, tuned on SNLI dev,
    for the test sets of SNLI, MNLI and SICK (the paper says "the development set"). The code's
    AUPRC is the exact one, the paper's the one over 1,001 thresholds.  Differs: nothing.
    """

    needs = ("entailment_score",)
    grid: ClassVar[Sequence[float] | None] = [k / 1000 for k in range(1001)]
    auprc_thresholds: Annotated[int, Field(ge=2)] | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of its metrics."""
        names = ("accuracy", "auprc", "threshold")
        count = self.auprc_thresholds

        return names if count is None else (*names, f"auprc_{count}")

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split.

        For test also those of dev, on which the threshold is tuned.
        """
        if split == "dev":
            return super().sentences(split)

        tuned = texts(self.table("dev")) if "dev" in self.sources else []

        return tuned + texts(self.rows("test"))

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Tune the threshold on dev, and apply it to the split."""
        rows = self.rows(split)
        dev = rows if split == "dev" else self.table("dev")
        threshold, scores = self.tune(embedded, dev, rows, grid=self.grid)
        labels = entailed(rows)
        metrics = {
            "accuracy": threshold_accuracy(labels, scores, threshold),
            "auprc": auprc(labels, scores),
            "threshold": threshold,
        }
        count = self.auprc_thresholds
        if count is not None:
            grid = [k / (count - 1) for k in range(count)]
            metrics[f"auprc_{count}"] = auprc(labels, scores, grid)

        return TaskResult(metrics, pair_predictions(labels, scores, scores >= threshold))


def pair_predictions(labels: Any, scores: Any, predicted: Any) -> dict[str, list[Any]]:
    """Return the predictions of pairs, by column."""
    columns = {"label": labels, "score": scores, "prediction": predicted}
    return {"row": list(range(len(labels)))} | {
        name: np.asarray(values).tolist() for name, values in columns.items()
    }
