"""The contrastive loss of GaussCSE, over Gaussians and their asymmetric similarity."""

from collections.abc import Sequence

from torch import Tensor, nn

from lightning_cse.embeddings import GaussianEmbedding
from lightning_cse.losses.checks import check_embedding, check_shapes, check_temperature
from lightning_cse.losses.info_nce import in_batch_cross_entropy
from lightning_cse.similarity import Reduce, check_reduce, gaussian_similarity_matrix

_SETS = ("ent", "con", "rev")


class GaussianContrastive(nn.Module):
    r"""In-batch contrastive loss of GaussCSE over entailments, contradictions and reversed pairs.

    With :math:`v(a \Vert b) = e^{\mathrm{sim}(a \Vert b)/\tau}`, premises :math:`s`, entailments
    :math:`s^+` and contradictions :math:`s^-`, all Gaussians of shape ``(n, d)``, the loss of row
    :math:`i` is

    .. math:: \ell_i = -\log \frac{v(s_i^+ \Vert s_i)}{\sum_{j=1}^{n} \left[ v(s_j^+ \Vert s_i)
              + v(s_j^- \Vert s_i) + v(s_j \Vert s_i^+) \right]}

    and the result is the mean over the ``n`` rows. The three terms of the sum are the sets ``ent``,
    ``con`` and ``rev``; terms that are not in ``sets`` are left out. In ``rev``, :math:`s_i^+` is
    fixed and :math:`j` runs over all premises. Its diagonal is the reversed pair, which teaches
    that a premise is the wider of the two.

    Source: GaussCSE (Yoda et al. 2024), eq. 2 and 3, and the authors' code.  Differs from the
    paper, as the code does: the similarity is a mean over dimensions (``reduce="sim_of_sum"`` is
    the paper's), and the loss is the mean over the rows, not their sum. Differs from the code: only
    in rounding.

    Args:
        temperature: :math:`\tau`, positive and finite.
        sets: the terms, in any order: ``ent`` is required, ``con`` and ``rev`` are optional.
            Without ``con`` the contradiction is ignored.
        reduce: how the dimensions become one similarity; see `gaussian_similarity_matrix`.

    Examples:
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
        super().__init__()
        self.temperature = check_temperature(temperature)
        if isinstance(sets, str) or not {"ent"} <= set(sets) <= set(_SETS):
            choices = ", ".join(_SETS)
            raise ValueError(
                f"sets must be a list of {choices} with 'ent' among them, got {sets!r}"
            )

        self.sets = tuple(sets)
        self.reduce = check_reduce(reduce)

    def forward(
        self,
        premise: GaussianEmbedding,
        entailment: GaussianEmbedding,
        contradiction: GaussianEmbedding | None = None,
    ) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64."""
        by_role = {"premise": premise, "entailment": entailment, "contradiction": contradiction}
        for name, value in by_role.items():
            if value is not None:
                check_embedding(name, value, GaussianEmbedding, "mean", "log_variance")

        pairs = [(entailment, premise)]
        if "con" in self.sets:
            if contradiction is None:
                raise ValueError("the set 'con' needs the contradiction of every row")

            pairs.append((contradiction, premise))

        if "rev" in self.sets:
            pairs.append((premise, entailment))

        means = [premise.mean, *(first.mean for first, _ in pairs)]
        check_shapes(*means, shape="(n, d)", least=2)
        blocks = [gaussian_similarity_matrix(a, b, self.reduce).T for a, b in pairs]

        return in_batch_cross_entropy(*blocks, temperature=self.temperature)
