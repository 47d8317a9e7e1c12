"""The contrastive loss of DualCSE over explicit and implicit vectors."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lightning_cse.embeddings import DualEmbedding, DualGaussianEmbedding
from lightning_cse.losses.info_nce import check_temperature, in_batch_cross_entropy
from lightning_cse.similarity import CosineSimilarity, Similarity

Dual = DualEmbedding | DualGaussianEmbedding


class DualContrastive(nn.Module):
    r"""Inter-sentence and intra-sentence contrastive loss of DualCSE.

    Let :math:`v(a, b) = e^{s(a, b)/\tau}`, where :math:`s(a, b)` is the similarity of a candidate :math:`b` to an
    anchor :math:`a` (the cosine, unless ``similarity`` is given). With explicit vectors :math:`r` and implicit vectors
    :math:`u` of the premise (p), explicit entailment (e), implied entailment (m) and contradiction (c), the loss of row
    :math:`i` is :math:`T_1 + T_2 + T_3 + T_4 + T_5`, unweighted, with sums over :math:`j = 1 \dots n`:

    .. math::
        T_1 &= -\log \frac{v(r_{p,i}, r_{e,i})}
               {\sum_j \left[ v(r_{p,i}, r_{e,j}) + v(r_{p,i}, r_{c,j}) + v(r_{p,i}, u_{p,j}) \right]} \\
        T_2 &= -\log \frac{v(u_{p,i}, r_{m,i})}
               {\sum_j \left[ v(u_{p,i}, r_{m,j}) + v(u_{p,i}, r_{c,j}) + v(u_{p,i}, r_{p,j}) \right]} \\
        T_3 &= -\log \frac{v(r_{e,i}, u_{e,i})}{\sum_j v(r_{e,i}, u_{e,j})}, \quad
        T_4 \text{ the same with } m, \quad T_5 \text{ the same with } c.

    Vectors have shape ``(n, d)``; the result is the mean over the ``n`` rows. Note that the positive of :math:`T_2` is
    the *explicit* vector of the implied entailment, and that explicit and implicit vectors of premises repel each other
    across all rows, not only within one.

    Ablations of the paper: ``contradiction=False`` drops the :math:`r_c` sums and :math:`T_5`;
    ``intra_sentence=False`` drops the :math:`u_p` sum, the :math:`r_p` sum, and :math:`T_3, T_4, T_5`.

    Rows may lack a hypothesis, as in corpora other than INLI. A row without :math:`e` has no :math:`T_1` and no
    :math:`T_3`, one without :math:`m` no :math:`T_2` and no :math:`T_4`, one without :math:`c` no :math:`T_5`. Sums
    over a hypothesis run over the rows that have it. The loss is still the mean over all ``n`` rows.

    Source: DualCSE (arXiv 2510.09293), training objective and ablation study.  Differs: the paper does not specify the
    reduction over the batch; here it is the mean, as in SimCSE. Rows that lack a hypothesis, and similarities other
    than the cosine (see ``DualGauss``), are ours.

    Args:
        temperature: :math:`\tau`, positive and finite.
        contradiction: whether contradictions are negatives; if not, they are ignored.
        intra_sentence: whether the loss compares explicit with implicit vectors of the same role.
        similarity: :math:`s`, which compares two views of embeddings; None is the cosine.

    Examples:
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

        If a hypothesis has fewer rows than the premise, ``rows`` has its row numbers under the argument's name.
        """
        if self.contradiction and contradiction is None and rows is None:
            raise ValueError(
                "DualContrastive: no contradiction; set contradiction=False to train without any"
            )
        hypotheses = {
            "explicit_entailment": explicit_entailment,
            "implied_entailment": implied_entailment,
            "contradiction": contradiction if self.contradiction else None,
        }
        there = {
            role: hypothesis for role, hypothesis in hypotheses.items() if hypothesis is not None
        }
        places = _places(premise, there, rows or {})

        compare, negative = self.similarity.matrix, there.get("contradiction")
        said, implied = premise.explicit, premise.implicit
        terms = []  # the blocks of T1 and T2, then of T3 to T5; their rows are those that have the term
        for role, anchor, other in (
            ("explicit_entailment", said, implied),
            ("implied_entailment", implied, said),
        ):
            if role in there:
                own = anchor[places[role]]
                blocks = [compare(own, there[role].explicit)]
                blocks += [] if negative is None else [compare(own, negative.explicit)]
                blocks += [compare(own, other)] if self.intra_sentence else []
                terms.append(blocks)
        if self.intra_sentence:
            terms += [
                [compare(hypothesis.explicit, hypothesis.implicit)] for hypothesis in there.values()
            ]
        if not terms:  # no row of the batch has any term
            return 0.0 * sum(field.float().sum() for field in premise.fields().values())  # type: ignore[return-value]
        # A term is the mean over its own rows; the loss is the mean over all rows.
        means = [in_batch_cross_entropy(*blocks, temperature=self.temperature) for blocks in terms]
        weights = [len(blocks[0]) / len(premise) for blocks in terms]
        return torch.stack(
            [mean * weight for mean, weight in zip(means, weights, strict=True)]
        ).sum()


def _places(
    premise: Dual, there: Mapping[str, Dual], rows: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Check the shapes, and return the row number of each sentence of each hypothesis."""
    given = {"premise": premise, **there}
    fields = {role: next(iter(embedding.fields().values())) for role, embedding in given.items()}
    got = ", ".join(f"{role} {tuple(field.shape)}" for role, field in fields.items())
    if len(premise) < 2 or len({field.shape[1] for field in fields.values()}) > 1:
        raise ValueError(
            f"need premises (n, d) with n >= 2 and hypotheses of their width, got {got}"
        )
    every = torch.arange(len(premise), device=fields["premise"].device)
    places = {role: rows.get(role, every) for role in there}
    for role, place in places.items():
        if len(place) != len(there[role]) or len(place.unique()) != len(place):
            raise ValueError(
                f"need one {role} for each premise, or their rows in rows[{role!r}], got {got}"
            )
    return places
