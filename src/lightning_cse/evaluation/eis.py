"""Estimating implicitness: of two sentences, which one implies more?"""

from __future__ import annotations

from lightning_cse.evaluation.rte import HYPOTHESES, INLITask
from lightning_cse.evaluation.task import Answers, Embedded, Split, Task, TaskResult


class EIS(INLITask, Task):
    """Implicitness on INLI: a premise should be more implicit than each of its four hypotheses.

    Every (premise, hypothesis) pair counts once, so 1,000 premises make 4,000 pairs; a pair is right iff the premise's
    implicitness is strictly larger. Metric: ``accuracy``.

    Source: DualCSE, EIS experiment; that all four hypotheses count is inferred from the LENGTH baseline, which gives
    the printed 99.90 on INLI test this way.
    """

    name = "eis"
    needs = ("implicitness",)
    metrics = ("accuracy",)

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split."""
        columns = ("premise", *(column for column, _ in HYPOTHESES.values()))
        return [sentence for column in columns for sentence in self.rows(split).column(column)]

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Compare each premise with its four hypotheses."""
        rows = self.rows(split)
        premise = self.ask(answers, "implicitness", embedded[rows.column("premise")]).double()
        predictions: dict[str, list[object]] = {
            key: [] for key in ("row", "type", "premise_score", "hypothesis_score", "correct")
        }
        for kind, (column, _) in HYPOTHESES.items():
            hypothesis = self.ask(answers, "implicitness", embedded[rows.column(column)]).double()
            predictions["row"] += range(len(rows))
            predictions["type"] += [kind] * len(rows)
            predictions["premise_score"] += premise.tolist()
            predictions["hypothesis_score"] += hypothesis.tolist()
            predictions["correct"] += (premise > hypothesis).tolist()
        correct = predictions["correct"]
        return TaskResult({"accuracy": sum(map(bool, correct)) / len(correct)}, predictions)
