"""Measures of embeddings (alignment, uniformity) and of curves (RFD, mean of the best)."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

_BLOCK_ELEMENTS = 2**17
"""Largest number of pairs held at once: 1 MiB of float64, which stays in the cache of a core, and
few pairs below the diagonal.
"""


def alignment(x: Tensor, y: Tensor, alpha: float = 2) -> float:
    r"""Return the mean distance of positive pairs on the unit sphere; smaller is better.

    .. math:: \frac{1}{n} \sum_{i=1}^{n}
              \left\lVert \frac{x_i}{\lVert x_i \rVert} - \frac{y_i}{\lVert y_i \rVert}
              \right\rVert^{\alpha}

    with ``x`` and ``y`` of shape ``(n, d)``; row ``i`` of one is paired with row ``i`` of the
    other.

    Source: Wang and Isola 2020, :math:`\mathcal{L}_{align}`; Gao et al. 2021 (SimCSE), eq.
    2.  Differs: normalised inside; float64.

    Examples:
        >>> alignment(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        2.0
    """
    return float(pair_distances(x, y, alpha).mean())


@torch.no_grad()
def pair_distances(x: Tensor, y: Tensor, alpha: float = 2) -> Tensor:
    """Return the terms of `alignment`, one per pair: ``(n,)`` float64."""
    if x.ndim != 2 or x.shape != y.shape or len(x) < 1:
        got = f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise ValueError(f"need two (n, d) tensors of the same shape with n >= 1, got {got}")

    return (_unit(x) - _unit(y)).square().sum(dim=1).pow(alpha / 2)


@torch.no_grad()
def uniformity(x: Tensor, t: float = 2) -> float:
    r"""Return how evenly sentences spread over the unit sphere; smaller is better.

    .. math:: \log \frac{2}{n (n - 1)} \sum_{i < j} e^{-t \, \lVert z_i - z_j \rVert^2},
              \qquad z_i = \frac{x_i}{\lVert x_i \rVert}

    with ``x`` of shape ``(n, d)``: the log of the mean over unordered pairs of distinct rows. Equal
    sentences in different rows are a pair. The pairs are visited in blocks of rows; the full ``(n,
    n)`` matrix never exists.

    Source: Wang and Isola 2020, :math:`\mathcal{L}_{uniform}`; Gao et al. 2021 (SimCSE), eq.
    3.  Differs: normalised inside; float64; summed in the log domain, so that no ``t`` underflows.

    Examples:
        >>> uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        -8.0
    """
    if x.ndim != 2 or len(x) < 2:
        raise ValueError(f"need an (n, d) tensor with n >= 2, got {tuple(x.shape)}")

    z = _unit(x)
    squares = z.square().sum(dim=1)  # 1, but 0 for a zero vector
    rows_at_once = max(1, _BLOCK_ELEMENTS // len(z))
    log_sums = []
    for start in range(0, len(z) - 1, rows_at_once):
        stop = min(start + rows_at_once, len(z) - 1)
        # Entry (i, j) is the pair of the rows start + i and start + 1 + j.
        products = 2 * z[start:stop] @ z[start + 1 :].T
        distances = squares[start:stop, None] + squares[None, start + 1 :] - products
        below = torch.ones_like(distances, dtype=torch.bool).tril(diagonal=-1)
        exponents = distances.mul_(-t).masked_fill_(below, -math.inf)
        log_sums.append(exponents.flatten().logsumexp(dim=0))

    pairs = len(z) * (len(z) - 1) // 2

    return float(torch.stack(log_sums).logsumexp(dim=0)) - math.log(pairs)


def relative_fitting_difficulty(held_out: Iterable[float], evaluation: Iterable[float]) -> float:
    r"""Return by how much a measure on held-out training data exceeds it on evaluation data.

    .. math:: \mathrm{RFD} = \frac{1}{S} \sum_{s=1}^{S} \left( h_s - e_s \right)

    with the held-out values :math:`h` and the evaluation values :math:`e` at the same :math:`S`
    steps of one training run. `alignment` gives :math:`\mathrm{RFD}_a`, `uniformity` gives
    :math:`\mathrm{RFD}_u`. The caller leaves out step 0, as the paper does.

    Source: NGCSE, definition of relative fitting difficulty.  Differs: nothing; the nine released
    curves give the published values.
    """
    held_out = [float(value) for value in held_out]
    evaluation = [float(value) for value in evaluation]
    if not held_out or len(held_out) != len(evaluation):
        got = f"{len(held_out)} and {len(evaluation)} values"
        raise ValueError(f"held_out and evaluation must be equally long and not empty, got {got}")

    differences = [h - e for h, e in zip(held_out, evaluation, strict=True)]

    return math.fsum(differences) / len(differences)


def mean_of_best(values: Iterable[float], count: int = 5) -> float:
    r"""Return the mean of the ``count`` highest values, or of all if there are fewer.

    .. math:: \frac{1}{c} \sum_{k=1}^{c} v_{(k)}, \qquad v_{(1)} \ge v_{(2)} \ge \dots

    Source: NGCSE, final score of a run (its five best dev correlations).  Differs: nothing; the
    nine released curves give the published values.
    """
    scores = [float(value) for value in values]
    if count < 1 or not scores or not all(map(math.isfinite, scores)):
        raise ValueError(f"need finite values and count >= 1, got {scores} and {count}")

    best = sorted(scores)[-count:]

    return math.fsum(best) / len(best)


def _unit(x: Tensor) -> Tensor:
    x = x.cpu() if x.device.type == "mps" else x  # Apple's GPUs have no float64
    return nn.functional.normalize(x.double(), dim=1)
