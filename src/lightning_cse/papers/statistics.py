"""Statistics of tests and figures: Holm's adjustment, majority votes, correlations."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Array = NDArray[np.float64]


def holm(pvalues: ArrayLike) -> Array:
    r"""Return p-values adjusted for their number (Holm 1979), in the order given.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min \bigl( 1, \; (m - j + 1) \, p_{(j)} \bigr)
    """
    values = np.asarray(pvalues, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    factors = np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, factors * values[order]))

    return adjusted


def majority_vote(correct_by_seed: Sequence[ArrayLike]) -> NDArray[np.bool_]:
    """Return which examples more than half of the seeds get right.

    Ours: GaussCSE does not say how it merges seeds.
    """
    return np.asarray(np.mean(np.asarray(correct_by_seed, dtype=float), axis=0) > 0.5)


def correlation(
    x: Sequence[float],
    y: Sequence[float],
    *,
    ranks: bool,
) -> tuple[float | None, float | None, float | None]:
    """Return Pearson's correlation or, with ``ranks``, Spearman's, and the ends of its 95 %
    interval.

    The ends are tanh(artanh r ± 1.96 se) with se = 1 / √(n - 3) or, for ranks, √((1 + r² / 2) / (n
    - 3)). For fewer than three points or a constant, all are None; for three points or |r| = 1, the
    ends are None.

    Source: Fisher 1921; for ranks Bonett and Wright 2000.  Differs: nothing.
    """
    if len(x) < 3 or len(set(x)) == 1 or len(set(y)) == 1:
        return None, None, None

    r = float((stats.spearmanr if ranks else stats.pearsonr)(x, y).statistic)
    if len(x) == 3 or 1 - abs(r) < 1e-12:
        return r, None, None

    variance = (1 + ranks * r * r / 2) / (len(x) - 3)
    half = float(stats.norm.ppf(0.975)) * math.sqrt(variance)

    return r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)
