"""Estimating implicitness: which of two sentences implies more?"""

from __future__ import annotations

import logging

from lightning_cse.data import Rows
from lightning_cse.data.sources import lacking
from lightning_cse.evaluation.rte import INLITask
from lightning_cse.evaluation.task import Answers, CorpusTask, Embedded, Split, TaskResult, measure, sides

log = logging.getLogger(__name__)


class ImplicitnessTask(CorpusTask):
    """Is the implicit sentence of a pair recognised?

    A pair is right iff the implicitness of its first sentence is strictly larger, so ties are wrong. Metric:
    ``accuracy``, over all pairs of all types.
    """

    needs = ("implicitness",)
    metrics: tuple[str, ...] = ("accuracy",)

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Compare the two sentences of each pair."""
        rows = self.rows(split)
        pair = sides(rows)
        implicit, explicit = (answers.implicitness(embedded[rows.column(c)]).double() for c in pair)
        predictions = {
            "row": rows.column("row"),
            "type": rows.column("type"),
            f"{pair[0]}_score": implicit.tolist(),
            f"{pair[1]}_score": explicit.tolist(),
            "correct": (implicit > explicit).tolist(),
        }
        return TaskResult({"accuracy": measure("ImplicitnessAccuracy", implicit, explicit)}, predictions)


class EIS(INLITask, ImplicitnessTask):
    """Implicitness on INLI: a premise should be more implicit than each of its four hypotheses.

    Every (premise, hypothesis) pair counts once, so 1,000 premises make 4,000 pairs.

    Source: DualCSE, EIS experiment; that all four hypotheses count is inferred from the LENGTH baseline, which gives
    the printed 99.90 on INLI test this way.
    """

    name = "eis"


class PairEIS(ImplicitnessTask):
    """Implicitness on implicit/explicit pairs: the implicit sentence should be more implicit than the explicit one.

    Both pairs of a row count, ``positive`` (the explicit sentence says what the implicit one implies) and ``negative``
    (it does not belong to it), so 2,815 rows make 5,630 pairs.

    Source: ImpScore, authors' code; DualCSE, EIS experiment, whose 5,630 test pairs are these.

    Args: as `CorpusTask`, and ``optional``: whether a registered corpus may be missing; without test the task is left
        out, without dev it has no part in training. A missing file of your own is always an error.
    """

    name = "pair_eis"

    def __init__(
        self,
        *,
        data_dir: str,
        dev: str,
        test: str,
        optional: bool = False,
        dev_rows: int | None = None,
        test_rows: int | None = None,
    ) -> None:
        super().__init__(data_dir=data_dir, dev=dev, test=test, dev_rows=dev_rows, test_rows=test_rows)
        self.optional = optional

    def lacking(self) -> str | None:
        """Return which file of test is missing, if the task may be left out; without dev it is tested only."""
        if not self.optional:
            return None
        if reason := lacking(self.sources["test"], self.data_dir):
            return reason
        if "dev" in self.sources and (reason := lacking(self.sources["dev"], self.data_dir)):
            log.info("%s: no evaluation during training, %s is left out: %s", self.name, self.sources["dev"], reason)
            del self.sources["dev"]
            self.splits = ("test",)
        return None

    def select(self, rows: Rows, split: Split) -> Rows:
        """Return the positive pairs of the split, then the negative ones."""
        rows = super().select(rows, split)
        return rows.select([*range(len(rows))] * 2).with_columns(
            row=[*range(len(rows))] * 2,
            type=["positive"] * len(rows) + ["negative"] * len(rows),
            implicit=rows.column("pos_implicit") + rows.column("neg_implicit"),
            explicit=rows.column("pos_explicit") + rows.column("neg_explicit"),
        )
