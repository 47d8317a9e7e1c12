"""Matryoshka: a loss on the first components of the vectors, too, so that vectors can be cut."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Matryoshka(nn.Module):
    r"""The mean of a loss over vectors that are cut after several lengths.

    .. math:: \frac{1}{|S|} \sum_{s \in S} \ell(a_{:sd}, p_{:sd}, g_{:sd})

    with a loss :math:`\ell` of anchors, positives and negatives of :math:`d` components, and the
    shares :math:`S` of the components that are kept.

    Source: Kusupati et al. 2022, eq. 1 with equal weights.
    """

    def __init__(self, loss: nn.Module, shares: Sequence[float]) -> None:
        super().__init__()
        self.loss = loss
        self.shares = shares

    def forward(self, **vectors: Tensor) -> Tensor:
        """Return the mean loss; ``vectors`` are those of the roles, (n, d)."""
        losses = []
        for share in self.shares:
            cut = {role: x[:, : round(share * x.shape[1])] for role, x in vectors.items()}
            losses.append(self.loss(**cut))

        return torch.stack(losses).mean()
