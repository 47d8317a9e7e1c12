"""The contrastive loss of DualCSE over explicit and implicit vectors."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from lightning_cse.devices import to_device
from lightning_cse.embeddings import DualEmbedding, DualGaussianEmbedding
from lightning_cse.losses.checks import check_embedding, check_temperature
from lightning_cse.losses.info_nce import in_batch_cross_entropy
from lightning_cse.similarity import CosineSimilarity, Similarity

Dual = DualEmbedding | DualGaussianEmbedding


class DualContrastive(nn.Module):
    r"""Inter-sentence and intra-sentence contrastive loss of DualCSE.

    Let :math:`v(a, b) = e^{s(a, b)/\tau}`, where :math:`s(a, b)` is the similarity of a candidate
    :math:`b` to an anchor :math:`a` (the cosine, unless ``similarity`` is given). With explicit
    vectors :math:`r` and implicit vectors :math:`u` of the premise (p), explicit entailment (e),
    implied entailment (m) and contradiction (c), the loss of row :math:`i` is
    :math:`T_1 + T_2 + T_3 + T_4 + T_5`, unweighted, with sums over :math:`j = 1 \dots n`:

    .. math::
        T_1 &= -\log \frac{v(r_{p,i}, r_{e,i})}
               {\sum_j \left[ v(r_{p,i}, r_{e,j}) + v(r_{p,i}, r_{c,j})
               + v(r_{p,i}, u_{p,j}) \right]} \\
        T_2 &= -\log \frac{v(u_{p,i}, r_{m,i})}
               {\sum_j \left[ v(u_{p,i}, r_{m,j}) + v(u_{p,i}, r_{c,j})
               + v(u_{p,i}, r_{p,j}) \right]} \\
        T_3 &= -\log \frac{v(r_{e,i}, u_{e,i})}{\sum_j v(r_{e,i}, u_{e,j})}, \quad
        T_4 \text{ the same with } m, \quad T_5 \text{ the same with } c.

    Vectors have shape ``(n, d)``; the result is the mean over the ``n`` rows. Note that the
    positive of :math:`T_2` is the *explicit* vector of the implied entailment, and that explicit
    and implicit vectors of premises repel each other across all rows, not only within one.

    Ablations of the paper: ``contradiction=False`` drops the :math:`r_c` sums and :math:`T_5`;
    ``intra_sentence=False`` drops the :math:`u_p` sum, the :math:`r_p` sum, and
    :math:`T_3, T_4, T_5`.

    Rows may lack a hypothesis, as in corpora other than INLI. A row without :math:`e` has no
    :math:`T_1` and no :math:`T_3`, one without :math:`m` no :math:`T_2` and no :math:`T_4`, one
    without :math:`c` no :math:`T_5`. Sums over a hypothesis run over the rows that have it. The
    loss is still the mean over all ``n`` rows.

    Source: DualCSE (arXiv 2510.09293), training objective and ablation study.  Differs: the paper
    does not specify the reduction over the batch; here it is the mean, as in SimCSE. Rows that lack
    a hypothesis, and similarities other than the cosine (see ``DualGauss``), are ours.

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
        rows: Mapping[str, np.ndarray] | None = None,
    ) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64.

        If a hypothesis has fewer rows than the premise, ``rows`` has its row numbers under the
        argument's name, in main memory.
        """
        if self.contradiction and contradiction is None and rows is None:
            raise ValueError(
                "DualContrastive: no contradiction; set contradiction=False to train without any"
            )

        by_role = {
            "explicit_entailment": explicit_entailment,
            "implied_entailment": implied_entailment,
            "contradiction": contradiction if self.contradiction else None,
        }
        hypotheses = {role: dual for role, dual in by_role.items() if dual is not None}
        for role, dual in {"premise": premise, **hypotheses}.items():
            check_embedding(role, dual, DualEmbedding, "explicit", "implicit")

        terms = self._inter_sentence(
            premise, hypotheses, _check_rows(premise, hypotheses, rows or {})
        )
        if self.intra_sentence:
            terms += self._intra_sentence(hypotheses)

        if not terms:  # no row of the batch has any term: a loss of 0 with a gradient of 0
            sums = [field.float().sum() for field in premise.fields().values()]
            return 0.0 * torch.stack(sums).sum()

        # A term is the mean over its own rows; the loss is the mean over all rows.
        weighted = []
        for blocks in terms:
            mean = in_batch_cross_entropy(*blocks, temperature=self.temperature)
            weighted.append(mean * (len(blocks[0]) / len(premise)))

        return torch.stack(weighted).sum()

    def _inter_sentence(
        self, premise: Dual, hypotheses: Mapping[str, Dual], rows: Mapping[str, Tensor]
    ) -> list[list[Tensor]]:
        """Return the blocks of similarities of T1 and T2, for the rows that have the term."""
        compare = self.similarity.matrix
        views = {
            "explicit_entailment": (premise.explicit, premise.implicit),
            "implied_entailment": (premise.implicit, premise.explicit),
        }
        negative = hypotheses.get("contradiction")
        terms = []
        for role, (view, other_view) in views.items():
            if role not in hypotheses:
                continue

            anchor = view[rows[role]]
            blocks = [compare(anchor, hypotheses[role].explicit)]
            if negative is not None:
                blocks.append(compare(anchor, negative.explicit))
            if self.intra_sentence:
                blocks.append(compare(anchor, other_view))

            terms.append(blocks)

        return terms

    def _intra_sentence(self, hypotheses: Mapping[str, Dual]) -> list[list[Tensor]]:
        """Return the blocks of similarities of T3, T4 and T5."""
        compare = self.similarity.matrix
        return [[compare(dual.explicit, dual.implicit)] for dual in hypotheses.values()]


def _check_rows(
    premise: Dual, hypotheses: Mapping[str, Dual], rows: Mapping[str, np.ndarray]
) -> dict[str, Tensor]:
    """Return the row number of each sentence of each hypothesis, on the device of the premises."""
    if len(premise) < 2:
        raise ValueError(f"need premises (n, d) with n >= 2, got n = {len(premise)}")

    device = next(iter(premise.fields().values())).device
    checked = {}
    for role, hypothesis in hypotheses.items():
        numbers = np.asarray(rows.get(role, range(len(premise))))
        if len(numbers) != len(hypothesis) or len(np.unique(numbers)) != len(numbers):
            raise ValueError(
                f"need one {role} for each premise, or their rows in rows[{role!r}], got "
                f"{len(numbers)} rows for {len(hypothesis)}"
            )

        checked[role] = to_device(numbers, device)

    return checked
