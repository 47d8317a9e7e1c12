"""Implicitness: which sentence of a pair implies more than it says?"""

from dataclasses import dataclass

from datasets import Dataset

from lightning_cse.data.corpora import missing_file
from lightning_cse.data.rows import FILE, LINE, with_columns
from lightning_cse.evaluation.inli import INLITask
from lightning_cse.evaluation.task import CorpusTask, Embedded, Split, TaskResult, sides
from lightning_cse.metrics import share_larger


class ImplicitnessTask(CorpusTask):
    """Is the implicit sentence of a pair recognised?

    A pair is right iff the implicitness of its first sentence is strictly larger, so ties are
    wrong. Metric: ``accuracy``, over all pairs of all types.
    """

    needs = ("implicitness",)
    metrics: tuple[str, ...] = ("accuracy",)

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Compare the two sentences of each pair."""
        rows = self.rows(split)
        answers = embedded.answers
        first, second = sides(rows)
        implicit = answers.implicitness(embedded[rows[first][:]]).double()
        explicit = answers.implicitness(embedded[rows[second][:]]).double()
        predictions = {
            "row": rows["row"][:],
            "type": rows["type"][:],
            f"{first}_score": implicit.tolist(),
            f"{second}_score": explicit.tolist(),
            "correct": (implicit > explicit).tolist(),
        }

        return TaskResult({"accuracy": share_larger(implicit, explicit)}, predictions)


class EIS(INLITask, ImplicitnessTask):
    """Implicitness on INLI: a premise should be more implicit than each of its four hypotheses.

    Every (premise, hypothesis) pair counts once, so 1,000 premises make 4,000 pairs.

    Source: DualCSE, EIS experiment; that all four hypotheses count is inferred from the LENGTH
    baseline, which gives the printed 99.90 on INLI test this way.
    """


@dataclass(kw_only=True, eq=False)
class PairEIS(ImplicitnessTask):
    """Implicitness on implicit/explicit pairs: the implicit sentence should be more implicit than
    the explicit one.

    Both pairs of a row count, ``positive`` (the explicit sentence says what the implicit one
    implies) and ``negative`` (it does not belong to it), so 2,815 rows make 5,630 pairs.

    If it is ``optional``, it is left out without one of its registered corpora. A missing file of
    your own is always an error.

    Source: ImpScore, authors' code; DualCSE, EIS experiment, whose 5,630 test pairs are these.
    """

    optional: bool = False

    def lacking(self) -> str | None:
        """Return which file is missing, if the task is optional."""
        if not self.optional:
            return None

        reasons = [missing_file(source, self.data_dir) for source in self.sources.values()]

        return next(filter(None, reasons), None)

    def select(self, rows: Dataset, split: Split) -> Dataset:
        """Return the positive pairs of the split, then the negative ones."""
        rows = super().select(rows, split)
        numbers = [*range(len(rows))] * 2

        return with_columns(
            rows.select(numbers).select_columns([FILE, LINE]),
            row=numbers,
            type=["positive"] * len(rows) + ["negative"] * len(rows),
            implicit=rows["pos_implicit"][:] + rows["neg_implicit"][:],
            explicit=rows["pos_explicit"][:] + rows["neg_explicit"][:],
        )
