"""Statistics of values by seed and of influences by example: adjustment, power, intervals."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

Array = NDArray[np.float64]

_QUANTILES = 20_000  # of a distribution, as the points of an integral
_LARGEST_SHIFT = 1_000  # in standard errors: far above what two pairs need


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
    return np.asarray(np.mean(np.asarray(correct_by_seed), axis=0) > 0.5)


def mean_interval(values: ArrayLike) -> tuple[float, float, float]:
    """Return a mean and the ends of its 95 % interval (Student's t); the ends are NaN for fewer
    than two values.
    """
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    count = len(array)
    if count < 2:
        return mean, math.nan, math.nan

    half = float(stats.t.ppf(0.975, count - 1) * stats.sem(array))

    return mean, mean - half, mean + half


def detectable_difference(deviation: float, pairs: int, *, power: float = 0.8) -> float:
    r"""Return the smallest mean difference that a two-sided paired t test finds with a given power.

    .. math:: P(|T| > t_{0.975, n - 1}) = \text{power}, \qquad
              T \sim t_{n - 1}(\delta \sqrt{n} / s)

    solved for the difference :math:`\delta`, with the standard deviation :math:`s` of the
    differences of :math:`n` pairs and a non-central t.

    Source: the power of the t test, as in Cohen 1988.  Differs: nothing.
    """
    # The mean over the distribution of the standard error: scipy's non-central t fails for one
    # degree of freedom.
    middles = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    spread = np.sqrt(stats.chi2.ppf(middles, pairs - 1) / (pairs - 1))
    critical = stats.t.ppf(0.975, pairs - 1) * spread

    def lacking(shift: float) -> float:
        power_by_spread = stats.norm.cdf(shift - critical) + stats.norm.cdf(-shift - critical)
        return float(power_by_spread.mean()) - power

    shift = float(optimize.brentq(lacking, 0, _LARGEST_SHIFT))

    return shift * deviation / math.sqrt(pairs)


def clustered_error(influences: ArrayLike, clusters: ArrayLike) -> float:
    r"""Return the standard error of an estimate whose examples come in clusters.

    .. math:: \sqrt{ \frac{K}{K - 1} \sum_{k=1}^{K} \Bigl( \sum_{i \in k} h_i \Bigr)^2 }

    with the influence :math:`h_i` of each example on the estimate, of which the sum is 0:
    :math:`(x_i - \bar x) / n` for a mean. It is NaN for one cluster.

    Source: Obuchowski 1997, for AUCs; with clusters of one example, it is the standard error of a
    mean.  Differs: one factor :math:`K / (K - 1)` for both labels of an AUC.

    Args:
        influences: (examples,).
        clusters: the cluster of each example.
    """
    numbers, names = pd.factorize(np.asarray(clusters))
    sums = np.bincount(numbers, np.asarray(influences, dtype=np.float64))
    count = len(names)
    if count < 2:
        return math.nan

    return math.sqrt(count / (count - 1) * float((sums**2).sum()))


def two_way_interval(by_seed: ArrayLike, error: float) -> tuple[float, float, float]:
    r"""Return a mean difference and the ends of its 95 % interval over seeds and examples.

    .. math:: \bar d \pm \sqrt{\left( t_{0.975, S - 1} \frac{s}{\sqrt S} \right)^2
              + \left( z_{0.975} \, e \right)^2}

    with the differences of :math:`S` seeds, their mean and standard deviation :math:`s`, and the
    standard error :math:`e` of that mean over the examples. With one seed, it is the interval over
    the examples alone; without a seed, all are NaN.

    The interval is at least as wide as that over the seeds and that over the examples. A
    percentile bootstrap of seeds and examples is not: where only three seeds vary, it stays in
    their range, which has the true difference in :math:`1 - 2 \cdot 2^{-3}` = 75 % of cases.

    Source: the rule of Zou and Donner 2008 (MOVER), which adds the squares of half widths.
    Differs: there they belong to two parameters, here to two sources of the variance of one mean.
    The interaction of seeds and examples counts twice, so the interval is rather too wide.
    """
    if not np.size(by_seed):
        return math.nan, math.nan, math.nan

    mean, low, high = mean_interval(by_seed)
    half = float(stats.norm.ppf(0.975)) * error
    if not math.isnan(low):
        half = math.hypot(half, (high - low) / 2)

    return mean, mean - half, mean + half
