"""A task from outside: does a model order the hypotheses of a premise by how directly they follow?

python hierarchy.py inli/test FOLDER > hierarchy.csv

writes the pairs as a set of scored sentence pairs, from INLI in FOLDER or in the packaged sample.
"""

import csv
import sys
from dataclasses import dataclass
from typing import ClassVar

from datasets import Dataset

from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.evaluation import CorpusTask, Embedded, Split, TaskResult
from lightning_cse.metrics import spearman

LEVELS = {"explicit_entailment": 2, "implied_entailment": 1, "neutral": 0}
"""INLI's hypotheses, from what a premise says to what does not follow from it: column and level."""


def pairs_of(rows: Dataset) -> Dataset:
    """Return each premise with its three hypotheses, one level after the other.

    The columns are ``premise``, ``hypothesis`` and ``score``, the level.
    """
    hypotheses: list[str] = []
    scores: list[int] = []
    for column, level in LEVELS.items():
        hypotheses += rows[column]
        scores += [level] * len(rows)

    premises = rows["premise"][:] * len(LEVELS)

    return Dataset.from_dict({"premise": premises, "hypothesis": hypotheses, "score": scores})


@dataclass(kw_only=True, eq=False)
class Hierarchy(CorpusTask):
    r"""A premise of INLI is nearest to what it says, then to what it implies, then to the rest.

    .. math:: s(p, \text{explicit}) > s(p, \text{implied}) > s(p, \text{neutral})

    for the model's ``entailment_score`` :math:`s`, or its ``similarity``, as ``question`` says.
    LENGTH answers neither: there, a hypothesis is the nearer, the fewer characters it differs by.
    Metrics: ``ordered``, the share of premises with both inequalities (by chance a sixth);
    ``explicit_first`` and ``implied_first``, the shares with each of them (by chance a half);
    ``spearman`` of the scores and the levels 2, 1 and 0 over all pairs. Ties are wrong. The limits
    count premises.
    """

    corpora: ClassVar = {"dev": "inli/val", "test": "inli/test"}
    needs = ("similarity",)
    metrics = ("ordered", "explicit_first", "implied_first", "spearman")
    question: str = "entailment_score"

    def suits(self, answers: object) -> bool:
        """Whether the model answers the question, or is LENGTH."""
        return hasattr(answers, self.question) or hasattr(answers, "direction")

    def select(self, rows: Dataset, split: Split) -> Dataset:
        """Return the pairs of the split."""
        return pairs_of(super().select(rows, split))

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Compare the scores of the three hypotheses of each premise."""
        rows = self.rows(split)
        if hasattr(embedded.answers, self.question):
            scores = embedded.ask(self.question, rows)
        else:
            scores = -embedded.ask("direction", rows).abs()

        explicit, implied, neutral = scores.chunk(len(LEVELS))
        explicit_first = explicit > implied
        implied_first = implied > neutral
        levels = rows["score"][:]
        metrics = {
            "ordered": float((explicit_first & implied_first).double().mean()),
            "explicit_first": float(explicit_first.double().mean()),
            "implied_first": float(implied_first.double().mean()),
            "spearman": spearman(levels, scores),
        }
        predictions = {"row": [*range(len(rows))], "level": levels, "score": scores.tolist()}

        return TaskResult(metrics, predictions)


def main(corpus: str, folder: str | None = None) -> None:
    """Write the pairs of a split of INLI as CSV."""
    pairs = pairs_of(read_corpus(*corpus.split("/"), folder or sample_dir()))
    table = csv.writer(sys.stdout)
    table.writerow(["sentence1", "sentence2", "score"])
    for pair in pairs:
        table.writerow([pair["premise"], pair["hypothesis"], pair["score"]])


if __name__ == "__main__":
    main(*sys.argv[1:])
