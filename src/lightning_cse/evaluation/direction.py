"""The direction of entailment: which of two sentences entails the other?"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

from lightning_cse.data import Rows
from lightning_cse.errors import DataError
from lightning_cse.evaluation.nli import PairTask
from lightning_cse.evaluation.rte import HYPOTHESES, INLITask
from lightning_cse.evaluation.task import Answers, Embedded, Split, Task, TaskResult


class DirectionTask(Task):
    r"""Of an entailed pair, is the premise told from the hypothesis?

    Right iff score(premise, hypothesis) > score(hypothesis, premise) for the method's ``entailment_score`` (GaussCSE:
    sim(hyp || pre) > sim(pre || hyp)), or iff the method's ``direction`` is positive where it answers that instead
    (LENGTH: characters). Ties are wrong, so a symmetric score is always wrong. Metrics: ``accuracy``, and
    ``accuracy_determinant`` where the method knows how wide its Gaussians are: right iff
    :math:`\sum_d \log \sigma_d(\text{premise}) > \sum_d \log \sigma_d(\text{hypothesis})`.

    Source: GaussCSE, experiment on the direction of entailment; the determinant is from the authors' code.
    """

    needs = ("entailment_score",)
    metrics: tuple[str, ...] = ("accuracy",)

    @abstractmethod
    def rows(self, split: Split) -> Rows:
        """Return the entailed pairs of a split, with ``premise`` and ``hypothesis``."""

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


class Direction(PairTask, DirectionTask):
    """The direction of the entailed pairs of an NLI corpus.

    Only pairs that are entailed one way: where a corpus labels both ways (SICK), pairs that also hold backwards are
    left out.

    Source: GaussCSE, as `DirectionTask`.  Differs: nothing on SNLI and MNLI; on SICK the released code cannot see the
    backward label and keeps all 1,414 entailments of another edition, while the paper's exclusion (and this one) leaves
    794 of the 4,906 test pairs.
    """

    name = "direction"

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


class INLIDirection(INLITask, DirectionTask):
    """The direction of INLI's entailed pairs: each premise with its explicit and with its implied entailment.

    Metrics: ``accuracy`` over all, ``accuracy_explicit`` and ``accuracy_implied``. A premise of INLI is longer than its
    hypotheses nearly always, so LENGTH is near 100 here, and stands beside.

    Source: ours; GaussCSE measures direction on other corpora.
    """

    name = "inli_direction"
    metrics = ("accuracy", "accuracy_explicit", "accuracy_implied")

    def rows(self, split: Split) -> Rows:
        """Return the two entailed pairs of each premise, all explicit ones first."""
        rows = super().rows(split)
        kinds = {kind: rows.column(column) for kind, (column, entailed) in HYPOTHESES.items() if entailed}
        pairs = rows.select([*range(len(rows))] * len(kinds))
        return pairs.with_columns(
            premise=pairs.column("premise"),
            hypothesis=[sentence for column in kinds.values() for sentence in column],
            type=[kind for kind, column in kinds.items() for _ in column],
        )

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Compare each pair with its reverse, and count by the kind of entailment too."""
        result = super().evaluate(answers, embedded, split)
        kinds, correct = self.rows(split).column("type"), result.predictions["correct"]
        metrics = dict(result.metrics)
        for kind in dict.fromkeys(kinds):
            own = [right for right, of in zip(correct, kinds, strict=True) if of == kind]
            metrics[f"accuracy_{kind}"] = sum(own) / len(own)
        return TaskResult(metrics, {**result.predictions, "type": kinds})


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
