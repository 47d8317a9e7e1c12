"""The direction of entailment: which of two sentences entails the other?"""

import numpy as np
import torch
from datasets import Dataset

from lightning_cse.evaluation.inli import INLITask, accuracy_by_type
from lightning_cse.evaluation.task import CorpusTask, Embedded, Split, TaskResult, entailed
from lightning_cse.metrics import share_larger
from lightning_cse.similarity import is_same


class DirectionTask(CorpusTask):
    r"""Is the premise of an entailed pair recognised?

    A pair is right iff score(premise, hypothesis) > score(hypothesis, premise) for the model's
    ``entailment_score`` (GaussCSE: sim(hyp || pre) > sim(pre || hyp)), or iff the model's
    ``direction`` is positive, if it has one (LENGTH: characters). Metrics: ``accuracy``, in which
    ties are wrong; ``ties``, the share of them, if there are any (``accuracy + ties / 2`` counts a
    tie as half a hit); and ``accuracy_determinant`` if the model has Gaussians: right iff
    :math:`\sum_d \log \sigma_d(\text{premise}) > \sum_d \log \sigma_d(\text{hypothesis})`.

    A score that is the same in both directions gives no metrics: having no direction is not
    always being wrong.

    Source: GaussCSE, experiment on the direction of entailment; the determinant is from the
    authors' code.
    """

    needs = ("entailment_score",)
    metrics: tuple[str, ...] = ("accuracy",)

    def suits(self, answers: object) -> bool:
        """Whether the model scores entailment, or gives its direction."""
        return hasattr(answers, "direction") or super().suits(answers)

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Compare each pair with its reverse."""
        answers = embedded.answers
        rows = self.rows(split)
        premise = embedded[rows["premise"][:]]
        hypothesis = embedded[rows["hypothesis"][:]]
        if hasattr(answers, "direction"):
            lead = answers.direction(premise, hypothesis).double()
        else:
            score = answers.entailment_score
            # Tested on random embeddings: a score may tie on all pairs before training, but not
            # later (DualCSE-Bi).
            if is_same(score, lambda a, b: score(b, a), premise):
                reason = "its score is the same both ways, so it has no direction"
                return TaskResult({}, reason=reason)

            lead = score(premise, hypothesis).double() - score(hypothesis, premise).double()

        metrics = {"accuracy": share_larger(lead, torch.zeros_like(lead))}
        ties = float((lead == 0).double().mean())
        if ties:  # records that were made before ties were counted have none
            metrics["ties"] = ties

        predictions = {
            "row": list(range(len(rows))),
            "lead": lead.tolist(),
            "correct": (lead > 0).tolist(),
        }
        if hasattr(answers, "log_determinant"):
            wide = answers.log_determinant(premise).double()
            narrow = answers.log_determinant(hypothesis).double()
            metrics["accuracy_determinant"] = share_larger(wide, narrow)
            predictions["correct_determinant"] = (wide > narrow).tolist()

        return TaskResult(metrics, predictions)


class Direction(DirectionTask):
    """The direction of the entailed pairs among the first rows of an NLI corpus, or of a file of
    your own; without labels, all of its pairs are entailed.

    Only pairs that are entailed one way are used: if a corpus has labels for both directions
    (SICK), pairs that are also entailed backwards are left out.

    Source: GaussCSE, as `DirectionTask`.  Differs: nothing on SNLI and MNLI. On SICK, the
    released code cannot see the backward label and keeps all 1,414 entailments of another
    edition; the exclusion in the paper (and here) leaves 794 of the 4,906 test pairs.
    """

    reads = ("premise", "hypothesis")
    also_reads = ("label",)

    def select(self, rows: Dataset, split: Split) -> Dataset:
        """Return the pairs that are entailed one way."""
        rows = super().select(rows, split)
        if "label" not in rows.column_names:
            return rows

        one_way = np.array(entailed(rows))
        if "entailment_ba" in rows.column_names:
            one_way &= np.array(rows["entailment_ab"][:]) == "A_entails_B"
            one_way &= np.array(rows["entailment_ba"][:]) != "B_entails_A"

        if self.own is not None and not one_way.any():
            raise self.unmeasurable(rows, "no pair has the label entailment")

        return rows.select(np.flatnonzero(one_way))


class INLIDirection(INLITask, DirectionTask):
    """The direction of INLI's entailed pairs: each premise with its explicit and with its implied
    entailment.

    Metrics: ``accuracy`` over all, ``accuracy_explicit`` and ``accuracy_implied``. A premise of
    INLI is nearly always longer than its hypotheses, so LENGTH is near 100 here and should be
    reported, too.

    Source: ours; GaussCSE measures direction on other corpora.
    """

    types = ("explicit", "implied")
    metrics = ("accuracy", "accuracy_explicit", "accuracy_implied")

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Compare each pair with its reverse, also by type of entailment."""
        result = super().evaluate(embedded, split)
        if result.reason:
            return result

        rows = self.rows(split)
        metrics = result.metrics | accuracy_by_type(rows, result.predictions["correct"])

        return TaskResult(metrics, {**result.predictions, "type": rows["type"][:]})
