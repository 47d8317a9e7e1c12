"""What methods put on the pooled vector of an encoder, where several have the same."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lightning_cse.embeddings import GaussianEmbedding


class GaussianHeads(nn.Module):
    r"""Two heads on a pooled vector v, the mean and the log variance of each dimension of a Gaussian.

    .. math:: \mu = \tanh(W_\mu v + b_\mu), \qquad \log \sigma^2 = W_\sigma v + b_\sigma

    with v of shape ``(n, width)`` and both results of the same shape, in float32 also under autocast, because a
    divergence divides by variances.

    Source: GaussCSE, the authors' code (the paper has no tanh, and calls the second head's output the variance).
    """

    def __init__(self, width: int) -> None:
        """Make the heads, which start as torch's linear layers do."""
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.log_variance = nn.Linear(width, width)

    def forward(self, vector: Tensor) -> GaussianEmbedding:
        """Return the Gaussians of some vectors."""
        with torch.autocast(vector.device.type, enabled=False):
            return GaussianEmbedding(self.mean(vector), self.log_variance(vector))
