"""Estimating implicitness: of two sentences, which one implies more?"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from lightning_cse.data.sources import lacking
from lightning_cse.evaluation.nli import PairTask
from lightning_cse.evaluation.rte import HYPOTHESES, INLITask
from lightning_cse.evaluation.task import Answers, Embedded, Split, Task, TaskResult

log = logging.getLogger(__name__)


class ImplicitnessTask(Task):
    """Is the implicit sentence of a pair told from the explicit one?

    A pair is right iff the implicitness of its first sentence is strictly larger, so ties are wrong. Metric:
    ``accuracy``, over all pairs of all types.

    ``sides`` is what the predictions call the two sentences.
    """

    needs = ("implicitness",)
    metrics: tuple[str, ...] = ("accuracy",)
    sides: ClassVar[tuple[str, str]]

    @abstractmethod
    def pairs(self, split: Split) -> Mapping[str, tuple[list[str], list[str]]]:
        """Return the implicit and the explicit sentences, one a row of the split, by type of pair."""

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split."""
        return [sentence for sides in self.pairs(split).values() for side in sides for sentence in side]

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Compare the two sentences of each pair."""
        columns = [f"{side}_score" for side in self.sides]
        predictions: dict[str, list[object]] = {key: [] for key in ("row", "type", *columns, "correct")}
        for kind, sides in self.pairs(split).items():
            implicit, explicit = (self.ask(answers, "implicitness", embedded[side]).double() for side in sides)
            predictions["row"] += range(len(implicit))
            predictions["type"] += [kind] * len(implicit)
            predictions[columns[0]] += implicit.tolist()
            predictions[columns[1]] += explicit.tolist()
            predictions["correct"] += (implicit > explicit).tolist()
        correct = predictions["correct"]
        return TaskResult({"accuracy": sum(map(bool, correct)) / len(correct)}, predictions)


class EIS(INLITask, ImplicitnessTask):
    """Implicitness on INLI: a premise should be more implicit than each of its four hypotheses.

    Every (premise, hypothesis) pair counts once, so 1,000 premises make 4,000 pairs.

    Source: DualCSE, EIS experiment; that all four hypotheses count is inferred from the LENGTH baseline, which gives
    the printed 99.90 on INLI test this way.
    """

    name = "eis"
    sides = ("premise", "hypothesis")

    def pairs(self, split: Split) -> Mapping[str, tuple[list[str], list[str]]]:
        """Return the premises with the hypotheses of each type."""
        rows = self.rows(split)
        return {kind: (rows.column("premise"), rows.column(column)) for kind, (column, _) in HYPOTHESES.items()}


class PairEIS(PairTask, ImplicitnessTask):
    """Implicitness on implicit/explicit pairs: the implicit sentence should be more implicit than the explicit one.

    Both pairs of a row count, ``positive`` (the explicit sentence says what the implicit one implies) and ``negative``
    (it does not belong to it), so 2,815 rows make 5,630 pairs.

    Source: ImpScore, authors' code; DualCSE, EIS experiment, whose 5,630 test pairs are these.

    Args:
        data_dir: where the corpora are.
        dev: ``corpus/split`` or a pair file of one's own that training is watched on.
        test: the same that is tested on.
        optional: whether a registered corpus may be absent: without test the task is left out, and without dev it is
            tested only, as is told. A file of one's own that is not there is an error all the same.
        dev_rows: use only the first so many dev rows.
        test_rows: use only the first so many test rows.
    """

    name = "pair_eis"
    sides = ("implicit", "explicit")

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
        """Return which file of test is not there, if the task may be left out.

        Where it is dev that is not there, the task is one of test only from here on.
        """
        if not self.optional:
            return None
        if reason := lacking(self.sources["test"], self.data_dir):
            return reason
        if reason := lacking(self.sources["dev"], self.data_dir):
            log.info("%s is tested on, and %s is left out: %s", self.sources["test"], self.sources["dev"], reason)
            self.splits = ("test",)
        return None

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the files of the splits that are evaluated; no threshold is tuned on dev."""
        tables = (self.dev if split == "dev" else self.test for split in self.splits)
        return {file.name: file.sha256 for rows in tables for file in rows.files}

    def pairs(self, split: Split) -> Mapping[str, tuple[list[str], list[str]]]:
        """Return the implicit sentences with those that say the same, and with those that do not."""
        rows = self.rows(split)
        return {
            "positive": (rows.column("pos_implicit"), rows.column("pos_explicit")),
            "negative": (rows.column("neg_implicit"), rows.column("neg_explicit")),
        }
