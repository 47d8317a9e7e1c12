"""The contrastive loss of GaussCSE over Gaussians and the asymmetric similarity of two of them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from lightning_cse.embeddings import GaussianEmbedding
from lightning_cse.errors import did_you_mean
from lightning_cse.losses.info_nce import check_temperature, in_batch_cross_entropy
from lightning_cse.similarity import Reduce, check_reduce, gaussian_similarity_matrix

__all__ = ["GaussianContrastive"]

_SETS = ("ent", "con", "rev")


class GaussianContrastive(nn.Module):
    r"""In-batch contrastive loss of GaussCSE: entailments against contradictions and against pairs reversed.

    With :math:`v(a \Vert b) = e^{\mathrm{sim}(a \Vert b)/\tau}`, premises :math:`s`, entailments :math:`s^+` and
    contradictions :math:`s^-`, all Gaussians of shape ``(n, d)``, row :math:`i` costs

    .. math:: \ell_i = -\log \frac{v(s_i^+ \Vert s_i)}{\sum_{j=1}^{n} \left[ v(s_j^+ \Vert s_i) + v(s_j^- \Vert s_i)
              + v(s_j \Vert s_i^+) \right]}

    and the result is the mean over the ``n`` rows. The three terms of the sum are the sets ``ent``, ``con`` and
    ``rev``; those not in ``sets`` are absent. In ``rev`` the row fixes :math:`s_i^+` and :math:`j` runs over all
    premises: its diagonal is the pair reversed, which teaches that a premise is the wider of the two, and the rest are
    further negatives.

    Source: GaussCSE (Yoda et al. 2024), eq. 2 and 3, and the authors' code.  Differs from the paper, as the code does:
    the similarity is a mean over dimensions (``reduce="sim_of_sum"`` is the paper's), and the loss is the mean over the
    rows, not their sum. Differs from the code: nothing but rounding.

    Args:
        temperature: :math:`\tau`, positive and finite.
        sets: which terms there are, in any order: ``ent`` always, with ``con``, ``rev``, both or neither.
        reduce: how the dimensions become one similarity, see `gaussian_similarity_matrix`.

    Raises:
        ValueError: if the temperature is not positive and finite, a set is unknown, given twice, or ``ent`` is not
            among them, ``reduce`` is unknown, the shapes differ, ``n`` < 2, or the contradiction is missing while
            ``con`` is among the sets. (Where it is not, a contradiction handed over is not looked at.)

    Example:
        >>> import torch
        >>> same = GaussianEmbedding(torch.ones(2, 8), torch.zeros(2, 8))
        >>> loss = GaussianContrastive()(same, same, contradiction=same)
        >>> round(loss.item(), 4)  # every row of logits is flat: log 6
        1.7918
    """

    def __init__(
        self,
        temperature: float = 0.05,
        sets: Sequence[str] = _SETS,
        reduce: Reduce = "mean_of_sims",
    ) -> None:
        """Check and keep the options."""
        super().__init__()
        self.temperature = check_temperature(temperature)
        self.sets = _check_sets(sets)
        self.reduce = check_reduce(reduce)

    def forward(
        self,
        premise: GaussianEmbedding,
        entailment: GaussianEmbedding,
        contradiction: GaussianEmbedding | None = None,
    ) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64."""
        if "con" in self.sets and contradiction is None:
            raise ValueError(
                f"GaussianContrastive with sets {list(self.sets)} needs the contradiction of every row; "
                'leave "con" out of sets to train without'
            )
        hard_negative = contradiction if "con" in self.sets else None
        _check_shapes(premise=premise, entailment=entailment, contradiction=hard_negative)

        # One call for several blocks was measured and is no faster.
        blocks = [gaussian_similarity_matrix(entailment, premise, self.reduce).T]
        if hard_negative is not None:
            blocks.append(gaussian_similarity_matrix(hard_negative, premise, self.reduce).T)
        if "rev" in self.sets:
            blocks.append(gaussian_similarity_matrix(premise, entailment, self.reduce).T)
        return in_batch_cross_entropy(*blocks, temperature=self.temperature)

    def extra_repr(self) -> str:
        """Show the options when the module is printed."""
        return f"temperature={self.temperature}, sets={self.sets}, reduce={self.reduce}"


def _check_sets(sets: Sequence[str]) -> tuple[str, ...]:
    if isinstance(sets, str):
        raise ValueError(f"sets must be a list such as ['ent', 'rev'], got {sets!r}")
    for name in sets:
        if name not in _SETS:
            near = did_you_mean(str(name), _SETS)
            raise ValueError(f"sets has no {name!r}{near} (there are: {', '.join(_SETS)})")
    if len(set(sets)) < len(sets):
        raise ValueError(f"sets must name each set once, got {list(sets)}")
    if "ent" not in sets:
        raise ValueError(f"sets must have 'ent', which holds the positives, got {list(sets)}")
    return tuple(sets)


def _check_shapes(**roles: GaussianEmbedding | None) -> None:
    shapes = {role: tuple(embedding.mean.shape) for role, embedding in roles.items() if embedding is not None}
    if len(set(shapes.values())) > 1 or shapes["premise"][0] < 2:
        got = ", ".join(f"{role} {shape}" for role, shape in shapes.items())
        raise ValueError(f"need embeddings of one shape (n, d) with n >= 2, got {got}")
