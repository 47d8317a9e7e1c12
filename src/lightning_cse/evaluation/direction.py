"""The direction of entailment: which of two sentences entails the other?"""

from __future__ import annotations

from functools import cached_property

from lightning_cse.data import Rows
from lightning_cse.errors import DataError
from lightning_cse.evaluation.nli import PairTask
from lightning_cse.evaluation.task import Answers, Embedded, Split, Task, TaskResult


class Direction(PairTask, Task):
    r"""Of an entailed pair, is the premise told from the hypothesis?

    Right iff score(premise, hypothesis) > score(hypothesis, premise) for the method's ``entailment_score`` (GaussCSE:
    sim(hyp || pre) > sim(pre || hyp)), or iff the method's ``direction`` is positive where it answers that instead
    (LENGTH: characters). Ties are wrong, so a symmetric score is always wrong. Only pairs that are entailed one way:
    where a corpus labels both ways (SICK), pairs that also hold backwards are left out. Metrics: ``accuracy``, and
    ``accuracy_determinant`` where the method knows how wide its Gaussians are: right iff
    :math:`\sum_d \log \sigma_d(\text{premise}) > \sum_d \log \sigma_d(\text{hypothesis})`.

    Source: GaussCSE, experiment on the direction of entailment; the determinant is from the authors' code.  Differs:
    nothing on SNLI and MNLI; on SICK the released code cannot see the backward label and keeps all 1,414 entailments
    of another edition, while the paper's exclusion (and this one) leaves 794 of the 4,906 test pairs.
    """

    name = "direction"
    needs = ("entailment_score",)
    metrics = ("accuracy",)

    @cached_property
    def dev(self) -> Rows:
        """The entailed rows among the first of dev."""
        return _one_way(self._read("dev")[: self.limits["dev"]])

    @cached_property
    def test(self) -> Rows:
        """The entailed rows among the first of test."""
        return _one_way(self._read("test")[: self.limits["test"]])

    def rows(self, split: Split) -> Rows:
        """Return the entailed rows of a split."""
        return self.dev if split == "dev" else self.test

    def suits(self, answers: object) -> bool:
        """Whether the method scores entailment, or gives its direction outright."""
        return hasattr(answers, "direction") or super().suits(answers)

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split."""
        rows = self.rows(split)
        return [*rows.column("premise"), *rows.column("hypothesis")]

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Compare each pair with its reverse."""
        rows = self.rows(split)
        premise, hypothesis = (embedded[rows.column(column)] for column in ("premise", "hypothesis"))
        if hasattr(answers, "direction"):
            lead = self.ask(answers, "direction", premise, hypothesis).double()
        else:
            forward = self.ask(answers, "entailment_score", premise, hypothesis).double()
            lead = forward - self.ask(answers, "entailment_score", hypothesis, premise).double()
        correct = lead > 0
        metrics = {"accuracy": correct.double().mean().item()}
        predictions = {"row": list(range(len(rows))), "lead": lead.tolist(), "correct": correct.tolist()}
        if hasattr(answers, "log_determinant"):
            width = [self.ask(answers, "log_determinant", side).double() for side in (premise, hypothesis)]
            wider = width[0] > width[1]
            metrics["accuracy_determinant"] = wider.double().mean().item()
            predictions["correct_determinant"] = wider.tolist()
        return TaskResult(metrics, predictions)


def _one_way(rows: Rows) -> Rows:
    """Return the entailed rows, without those that the corpus labels as entailed backwards too.

    Raises:
        DataError: if none is left.
    """
    entailed = [row for row, label in enumerate(rows.column("label")) if label == "entailment"]
    if "entailment_ba" in rows.names:
        forward, backward = rows.column("entailment_ab"), rows.column("entailment_ba")
        entailed = [r for r in entailed if forward[r] == "A_entails_B" and backward[r] != "B_entails_A"]
    if not entailed:
        raise DataError(f"{rows.files[0].path}: no pair is entailed one way, so there is no direction to tell")
    return rows.select(entailed, reason="not entailed one way")
