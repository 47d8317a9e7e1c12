"""The contrastive loss of DualCSE over explicit and implicit vectors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lightning_cse.embeddings import DualEmbedding, DualGaussianEmbedding
from lightning_cse.losses.info_nce import check_temperature, in_batch_cross_entropy
from lightning_cse.similarity import CosineSimilarity, Similarity

__all__ = ["DualContrastive"]

Dual = DualEmbedding | DualGaussianEmbedding


class DualContrastive(nn.Module):
    r"""Inter-sentence and intra-sentence contrastive loss of DualCSE.

    With :math:`v(a, b) = e^{s(a, b)/\tau}`, where :math:`s(a, b)` is the similarity of a candidate :math:`b` to an
    anchor :math:`a`, the cosine, and with explicit vectors :math:`r` and implicit vectors :math:`u` of the premise (p),
    the explicit entailment (e), the implied entailment (m) and the contradiction (c), row :math:`i` costs
    :math:`T_1 + T_2 + T_3 + T_4 + T_5`, unweighted, where sums run over :math:`j = 1 \dots n`:

    .. math::
        T_1 &= -\log \frac{v(r_{p,i}, r_{e,i})}
               {\sum_j \left[ v(r_{p,i}, r_{e,j}) + v(r_{p,i}, r_{c,j}) + v(r_{p,i}, u_{p,j}) \right]} \\
        T_2 &= -\log \frac{v(u_{p,i}, r_{m,i})}
               {\sum_j \left[ v(u_{p,i}, r_{m,j}) + v(u_{p,i}, r_{c,j}) + v(u_{p,i}, r_{p,j}) \right]} \\
        T_3 &= -\log \frac{v(r_{e,i}, u_{e,i})}{\sum_j v(r_{e,i}, u_{e,j})}, \quad
        T_4 \text{ the same with } m, \quad T_5 \text{ the same with } c.

    Every embedding has two tensors of shape ``(n, d)``; the result is the mean over the ``n`` rows. Note that the
    positive of :math:`T_2` is the *explicit* vector of the implied entailment, and that explicit and implicit vectors
    of premises repel each other across all rows, not only within one.

    The two ablations of the paper:

    - ``contradiction=False`` drops the :math:`r_c` sums from :math:`T_1` and :math:`T_2`, and drops :math:`T_5`.
    - ``intra_sentence=False`` drops the :math:`u_p` sum from :math:`T_1`, the :math:`r_p` sum from :math:`T_2`, and
      drops :math:`T_3, T_4, T_5`.

    Rows may lack a hypothesis, as in corpora other than INLI. A row that lacks :math:`e` costs no
    :math:`T_1` and no :math:`T_3`, one that lacks :math:`m` no :math:`T_2` and no :math:`T_4`, one that lacks :math:`c`
    no :math:`T_5`; sums over a hypothesis run over the rows that have it. The loss stays the mean over all ``n`` rows
    of what each of them costs, so that a term weighs as much in a row with few terms as in one with all.

    Source: DualCSE (arXiv 2510.09293), training objective and ablation study.  Differs: the paper leaves the reduction
    over the batch open; here it is the mean, as in SimCSE. Rows that lack a hypothesis, and other similarities than the
    cosine (see ``DualGauss``), are ours.

    Args:
        temperature: :math:`\tau`, positive and finite.
        contradiction: whether contradictions are negatives; if not, a contradiction handed over is not looked at.
        intra_sentence: whether the two vectors of one sentence meet in the loss.
        similarity: :math:`s`; whatever the two views of an embedding are, it is what compares them.

    Raises:
        ValueError: if the temperature is not positive and finite, ``n`` < 2, widths differ, a hypothesis does not have
            one sentence for each of its rows, or the contradiction is missing while ``contradiction=True`` and ``rows``
            does not say that some rows have none.

    Example:
        >>> same = DualEmbedding(torch.ones(2, 8), torch.ones(2, 8))
        >>> loss = DualContrastive()(same, same, same, contradiction=same)
        >>> round(loss.item(), 4)  # every row of logits is flat: 2 log 6 + 3 log 2
        5.663
    """

    def __init__(
        self,
        temperature: float = 0.05,
        *,
        contradiction: bool = True,
        intra_sentence: bool = True,
        similarity: Similarity | None = None,
    ) -> None:
        """Check and keep the options."""
        super().__init__()
        self.temperature = check_temperature(temperature)
        self.contradiction = contradiction
        self.intra_sentence = intra_sentence
        self.similarity: Similarity = CosineSimilarity() if similarity is None else similarity

    def forward(
        self,
        premise: Dual,
        explicit_entailment: Dual | None = None,
        implied_entailment: Dual | None = None,
        contradiction: Dual | None = None,
        *,
        rows: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64.

        Args:
            premise: of every row.
            explicit_entailment: of some rows or all; None if no row has one.
            implied_entailment: the same.
            contradiction: the same.
            rows: for each hypothesis that not every row has, by the argument's name, the row of each of its sentences.
        """
        if self.contradiction and contradiction is None and rows is None:
            raise ValueError(
                "DualContrastive needs the contradiction of every row; "
                "set contradiction=False to train without (the paper's ablation)"
            )
        negative = contradiction if self.contradiction else None
        hypotheses = {
            "explicit_entailment": explicit_entailment,
            "implied_entailment": implied_entailment,
            "contradiction": negative,
        }
        there = {role: hypothesis for role, hypothesis in hypotheses.items() if hypothesis is not None}
        places = _places(premise, there, rows or {})

        said, implied = premise.explicit, premise.implicit
        terms = []  # T1 and T2, then T3 to T5, each with the number of rows that have it
        for role, anchor, other in (("explicit_entailment", said, implied), ("implied_entailment", implied, said)):
            if role in there:
                own = anchor[places[role]]
                blocks = [self.similarity.matrix(own, there[role].explicit)]
                if negative is not None:
                    blocks.append(self.similarity.matrix(own, negative.explicit))
                if self.intra_sentence:
                    blocks.append(self.similarity.matrix(own, other))
                terms.append((self._cross_entropy(*blocks), len(own)))
        if self.intra_sentence:
            for hypothesis in there.values():
                block = self.similarity.matrix(hypothesis.explicit, hypothesis.implicit)
                terms.append((self._cross_entropy(block), len(hypothesis)))
        if not terms:  # a batch of which no row has an entailment
            return 0.0 * sum(field.float().sum() for field in premise.fields().values())  # type: ignore[return-value]
        # What they are means over differs; the loss is the mean over all rows.
        return torch.stack([term * (count / len(premise)) for term, count in terms]).sum()

    def _cross_entropy(self, *blocks: Tensor) -> Tensor:
        return in_batch_cross_entropy(*blocks, temperature=self.temperature)

    def extra_repr(self) -> str:
        """Show the options when the module is printed."""
        return (
            f"temperature={self.temperature}, contradiction={self.contradiction}, "
            f"intra_sentence={self.intra_sentence}, similarity={self.similarity}"
        )


def _places(premise: Dual, there: Mapping[str, Dual], rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the row of each sentence of each hypothesis."""
    shapes = {role: _shape(embedding) for role, embedding in {"premise": premise, **there}.items()}
    got = ", ".join(f"{role} {shape}" for role, shape in shapes.items())
    n, width = shapes["premise"]
    if n < 2 or any(shape[1] != width for shape in shapes.values()):
        raise ValueError(f"need premises (n, d) with n >= 2 and hypotheses of their width, got {got}")
    places, device = {}, next(iter(premise.fields().values())).device
    for role, hypothesis in there.items():
        place = rows.get(role)
        if place is None:
            place = torch.arange(len(hypothesis), device=device)
            fits = len(hypothesis) == n
        else:
            fits = len(place) == len(hypothesis) and len(place.unique()) == len(place)
        if not fits:
            raise ValueError(
                f"need one {role} for each premise, or the rows of those there are in rows[{role!r}], got {got}"
            )
        places[role] = place
    return places


def _shape(embedding: Dual) -> tuple[int, ...]:
    return tuple(next(iter(embedding.fields().values())).shape)
