"""Statistics of tests and figures: Holm's adjustment, majority votes, correlations, pairs."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

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
    groups: Sequence[Any] | None = None,
) -> tuple[float | None, float | None, float | None]:
    """Return Pearson's correlation or, with ``ranks``, Spearman's, and the ends of its 95 %
    interval.

    With ``groups``, the group of each point, it is the partial correlation given the group: that of
    the differences from the group's means, of values or of ranks.

    The ends are tanh(artanh r ± 1.96 se) with se = 1 / √m or, for ranks, √((1 + r² / 2) / m), where
    m is the number of points minus 3, and minus 1 for each group after the first. For fewer than
    three points or a constant, all are None; for m < 1 or |r| = 1, the ends are None.

    Source: Fisher 1921 and 1924 (partial); for ranks Bonett and Wright 2000.  Differs: nothing.
    """
    points = np.array([x, y], dtype=np.float64)
    if ranks:
        points = stats.rankdata(points, axis=1)

    names = np.asarray(groups if groups is not None else [0] * len(x))
    distinct = np.unique(names)
    for name in distinct:
        inside = names == name
        points[:, inside] -= points[:, inside].mean(axis=1, keepdims=True)

    if len(x) < 3 or np.ptp(points, axis=1).min() < 1e-12:
        return None, None, None

    r = float(stats.pearsonr(*points).statistic)
    left = len(x) - 3 - (len(distinct) - 1)
    if left < 1 or 1 - abs(r) < 1e-12:
        return r, None, None

    variance = (1 + ranks * r * r / 2) / left
    half = float(stats.norm.ppf(0.975)) * math.sqrt(variance)

    return r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def mean_difference(
    x: ArrayLike,
    y: ArrayLike,
) -> tuple[float, float | None, float | None]:
    """Return the mean of paired differences x - y and the ends of its 95 % interval (Student's t);
    the ends are None for fewer than two pairs.
    """
    differences = np.asarray(x, dtype=np.float64) - np.asarray(y, dtype=np.float64)
    mean = float(differences.mean())
    count = len(differences)
    if count < 2:
        return mean, None, None

    error = float(differences.std(ddof=1)) / math.sqrt(count)
    half = float(stats.t.ppf(0.975, count - 1)) * error

    return mean, mean - half, mean + half


class Ordered(NamedTuple):
    """How many pairs of points are ordered by all measures, how many of them the score orders
    likewise, and the p-value of so many or more.
    """

    pairs: int
    agreeing: int
    pvalue: float


def ordered_pairs(
    measures: ArrayLike,
    score: ArrayLike,
    groups: Sequence[Any],
    *,
    draws: int = 10_000,
    seed: int = 0,
) -> Ordered:
    """Test whether the point of a pair that is lower in all measures also has the lower score.

    Pairs are those of points of one group. The p-value is the share of ``draws`` permutations of
    the scores within the groups, and of the scores as they are, in which as many pairs or more
    agree; it is one-sided.

    Args:
        measures: (points, measures).
        score: (points,).
        groups: the group of each point.
        draws: the number of permutations.
        seed: of the permutations.
    """
    values = np.asarray(measures, dtype=np.float64)
    scores = np.asarray(score, dtype=np.float64)
    names = np.asarray(groups)
    is_lower = (values[:, None] < values[None, :]).all(axis=2)
    lower, higher = np.nonzero(is_lower & (names[:, None] == names[None, :]))
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(names == name) for name in np.unique(names)]
    agreeing = int((scores[lower] < scores[higher]).sum())
    as_many = 1

    for _ in range(draws):
        drawn = scores.copy()
        for inside in members:
            drawn[inside] = rng.permutation(scores[inside])

        as_many += int((drawn[lower] < drawn[higher]).sum()) >= agreeing

    return Ordered(len(lower), agreeing, as_many / (draws + 1))
