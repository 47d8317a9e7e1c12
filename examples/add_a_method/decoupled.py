"""Decoupled contrastive learning: SimCSE's loss without the positive in its denominator."""

import torch
from torch import Tensor, nn

from lightning_cse.similarity import cosine_matrix


class Decoupled(nn.Module):
    r"""The loss of Yeh et al. 2022, equation 6, with hard negatives as further candidates.

    .. math:: \ell_i = -\cos(a_i, p_i)/\tau + \log \sum_{j \neq i} e^{\cos(a_i, p_j)/\tau} + \ldots
    """

    def __init__(self, temperature: float = 0.05) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor | None = None) -> Tensor:
        """Return the mean loss of anchors and positives (n, d) and negatives (k, d)."""
        logits = cosine_matrix(anchor, positive) / self.temperature
        others = logits.masked_fill(
            torch.eye(len(logits), dtype=torch.bool, device=logits.device), -torch.inf
        )
        if negative is not None:
            others = torch.cat([others, cosine_matrix(anchor, negative) / self.temperature], dim=1)
        return (others.logsumexp(dim=1) - logits.diagonal()).mean()
