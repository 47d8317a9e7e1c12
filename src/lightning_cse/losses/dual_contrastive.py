"""The contrastive loss of DualCSE over explicit and implicit vectors."""

from __future__ import annotations

from torch import Tensor, nn

from lightning_cse.embeddings import DualEmbedding
from lightning_cse.losses.info_nce import check_temperature, in_batch_cross_entropy
from lightning_cse.similarity import cosine_matrix

__all__ = ["DualContrastive"]


class DualContrastive(nn.Module):
    r"""Inter-sentence and intra-sentence contrastive loss of DualCSE.

    With :math:`v(a, b) = e^{\cos(a, b)/\tau}`, explicit vectors :math:`r` and implicit vectors :math:`u` of the premise
    (p), the explicit entailment (e), the implied entailment (m) and the contradiction (c), row :math:`i` costs
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

    Source: DualCSE (arXiv 2510.09293), training objective and ablation study.  Differs: the paper leaves the reduction
    over the batch open; here it is the mean, as in SimCSE.

    Args:
        temperature: :math:`\tau`, positive and finite.
        contradiction: whether contradictions are negatives; if not, a contradiction handed over is not looked at.
        intra_sentence: whether the two vectors of one sentence meet in the loss.

    Raises:
        ValueError: if the temperature is not positive and finite, the shapes differ, ``n`` < 2, or the contradiction is
            missing while ``contradiction=True``.

    Example:
        >>> import torch
        >>> same = DualEmbedding(torch.ones(2, 8), torch.ones(2, 8))
        >>> loss = DualContrastive()(same, same, same, contradiction=same)
        >>> round(loss.item(), 4)  # every row of logits is flat: 2 log 6 + 3 log 2
        5.663
    """

    def __init__(self, temperature: float = 0.05, *, contradiction: bool = True, intra_sentence: bool = True) -> None:
        """Check and keep the options."""
        super().__init__()
        self.temperature = check_temperature(temperature)
        self.contradiction = contradiction
        self.intra_sentence = intra_sentence

    def forward(
        self,
        premise: DualEmbedding,
        explicit_entailment: DualEmbedding,
        implied_entailment: DualEmbedding,
        contradiction: DualEmbedding | None = None,
    ) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64."""
        if self.contradiction and contradiction is None:
            raise ValueError(
                "DualContrastive needs the contradiction of every row; "
                "set contradiction=False to train without (the paper's ablation)"
            )
        hard_negative = contradiction if self.contradiction else None
        _check_shapes(
            premise=premise,
            explicit_entailment=explicit_entailment,
            implied_entailment=implied_entailment,
            contradiction=hard_negative,
        )

        explicit_blocks = [cosine_matrix(premise.explicit, explicit_entailment.explicit)]
        implicit_blocks = [cosine_matrix(premise.implicit, implied_entailment.explicit)]
        if hard_negative is not None:
            explicit_blocks.append(cosine_matrix(premise.explicit, hard_negative.explicit))
            implicit_blocks.append(cosine_matrix(premise.implicit, hard_negative.explicit))
        if self.intra_sentence:
            repulsion = cosine_matrix(premise.explicit, premise.implicit)
            explicit_blocks.append(repulsion)
            implicit_blocks.append(repulsion.T)
        loss = self._cross_entropy(*explicit_blocks) + self._cross_entropy(*implicit_blocks)  # T1 + T2

        if self.intra_sentence:
            for hypothesis in (explicit_entailment, implied_entailment, hard_negative):  # T3, T4, T5
                if hypothesis is not None:
                    loss = loss + self._cross_entropy(cosine_matrix(hypothesis.explicit, hypothesis.implicit))
        return loss

    def _cross_entropy(self, *blocks: Tensor) -> Tensor:
        return in_batch_cross_entropy(*blocks, temperature=self.temperature)

    def extra_repr(self) -> str:
        """Show the options when the module is printed."""
        return (
            f"temperature={self.temperature}, contradiction={self.contradiction}, intra_sentence={self.intra_sentence}"
        )


def _check_shapes(**roles: DualEmbedding | None) -> None:
    shapes = {role: tuple(embedding.explicit.shape) for role, embedding in roles.items() if embedding is not None}
    if len(set(shapes.values())) > 1 or shapes["premise"][0] < 2:
        got = ", ".join(f"{role} {shape}" for role, shape in shapes.items())
        raise ValueError(f"need embeddings of one shape (n, d) with n >= 2, got {got}")
