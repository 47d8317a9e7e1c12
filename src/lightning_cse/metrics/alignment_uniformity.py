"""Alignment of positive pairs and uniformity on the sphere."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

__all__ = ["alignment", "uniformity"]

_BLOCK_ELEMENTS = 2**22
"""Largest number of pairs held at once (32 MiB of float64)."""


@torch.no_grad()
def alignment(x: Tensor, y: Tensor, alpha: float = 2) -> float:
    r"""Return how far the two sentences of a positive pair lie apart on the unit sphere; smaller is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n}
              \left\lVert \frac{x_i}{\lVert x_i \rVert} - \frac{y_i}{\lVert y_i \rVert} \right\rVert^{\alpha}

    with ``x`` and ``y`` of shape ``(n, d)``, row ``i`` of one paired with row ``i`` of the other.

    Source: Wang and Isola 2020, :math:`\mathcal{L}_{align}`; Gao et al. 2021 (SimCSE), eq. 2.  Differs: normalised
    inside; float64.

    Raises:
        ValueError: if the inputs are not two matrices of one shape with at least one row, or ``alpha`` is not positive.

    Example:
        >>> alignment(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        2.0
    """
    if x.ndim != 2 or x.shape != y.shape or len(x) < 1:
        raise ValueError(f"need two (n, d) tensors of one shape with n >= 1, got {tuple(x.shape)} and {tuple(y.shape)}")
    if not alpha > 0:
        raise ValueError(f"alpha must be positive, got {alpha}")
    squares = (_unit(x) - _unit(y)).square().sum(dim=1)
    return float(squares.pow(alpha / 2).mean())


@torch.no_grad()
def uniformity(x: Tensor, t: float = 2) -> float:
    r"""Return how evenly sentences spread over the unit sphere; smaller is better.

    .. math:: \log \frac{2}{n (n - 1)} \sum_{i < j} e^{-t \, \lVert z_i - z_j \rVert^2},
              \qquad z_i = \frac{x_i}{\lVert x_i \rVert}

    with ``x`` of shape ``(n, d)``: the log of the mean over unordered pairs of distinct rows, so equal sentences in
    different rows are a pair, a sentence with itself is none. The pairs are visited in blocks of rows; the full
    ``(n, n)`` matrix never exists.

    Source: Wang and Isola 2020, :math:`\mathcal{L}_{uniform}`; Gao et al. 2021 (SimCSE), eq. 3.  Differs: normalised
    inside; float64; summed in the log domain, so that no ``t`` underflows.

    Raises:
        ValueError: if the input is not a matrix of at least two rows, or ``t`` is not positive.

    Example:
        >>> uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        -8.0
    """
    if x.ndim != 2 or len(x) < 2:
        raise ValueError(f"need an (n, d) tensor with n >= 2, got {tuple(x.shape)}")
    if not t > 0:
        raise ValueError(f"t must be positive, got {t}")
    z = _unit(x)
    squares = z.square().sum(dim=1)  # 1, but 0 for a zero vector
    rows_at_once = max(1, _BLOCK_ELEMENTS // len(z))
    log_sums = []
    for start in range(0, len(z) - 1, rows_at_once):
        stop = min(start + rows_at_once, len(z) - 1)
        # Rows start..stop-1 against columns start+1..n-1: entry (i, j) is the pair (start + i, start + 1 + j).
        distances = squares[start:stop, None] + squares[None, start + 1 :] - 2 * z[start:stop] @ z[start + 1 :].T
        below = torch.ones_like(distances, dtype=torch.bool).tril(diagonal=-1)
        log_sums.append(distances.mul_(-t).masked_fill_(below, -math.inf).flatten().logsumexp(dim=0))
    pairs = len(z) * (len(z) - 1) // 2
    return float(torch.stack(log_sums).logsumexp(dim=0)) - math.log(pairs)


def _unit(x: Tensor) -> Tensor:
    x = x.cpu() if x.device.type == "mps" else x  # Apple's GPUs have no float64
    return nn.functional.normalize(x.double(), dim=1)
