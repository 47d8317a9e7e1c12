"""Whether two classifiers differ on the same examples, over several seeds and in several comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from lightning_cse.metrics._arrays import as_column, as_columns

__all__ = ["McNemar", "holm", "majority_vote", "mcnemar"]


@dataclass(frozen=True)
class McNemar:
    r"""McNemar's test: do two classifiers differ in what they get right?

    With :math:`b` and :math:`c` the numbers of examples that only A and only B gets right, under the hypothesis of no
    difference :math:`b` is binomial with :math:`b + c` trials of probability 1/2; examples that both get right, or
    both wrong, say nothing.

    Source: McNemar 1947; correction: Edwards 1948.  Differs: nothing.

    Args:
        both: number of examples that both get right.
        only_a: number of examples that only A gets right.
        only_b: number of examples that only B gets right.
        neither: number of examples that both get wrong.

    Raises:
        ValueError: if a number is negative.

    Example:
        >>> test = McNemar(both=12, only_a=1, only_b=7, neither=1)
        >>> test.pvalue, test.statistic, round(test.pvalue_asymptotic, 4)
        (0.0703125, 3.125, 0.0771)
    """

    both: int
    only_a: int
    only_b: int
    neither: int

    def __post_init__(self) -> None:
        for name in ("both", "only_a", "only_b", "neither"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")

    @property
    def examples(self) -> int:
        """The number of all examples."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def pvalue(self) -> float:
        r"""The exact two-sided p-value; 1 where the two never differ.

        .. math:: \min \Bigl( 1, \; 2 \sum_{k=0}^{\min(b, c)} \binom{b + c}{k} 2^{-(b + c)} \Bigr)
        """
        if (
            abs(self.only_a - self.only_b) <= 1
        ):  # both tails together are everything, which the sum misses by a rounding
            return 1.0
        return 2 * float(stats.binom.cdf(min(self.only_a, self.only_b), self.only_a + self.only_b, 0.5))

    @property
    def statistic(self) -> float:
        r"""The chi-squared statistic with continuity correction; 0 where the two never differ.

        .. math:: \frac{(|b - c| - 1)^2}{b + c}

        For :math:`b = c` this is :math:`1 / (b + c)`, where R leaves the correction out and gives 0.
        """
        differing = self.only_a + self.only_b
        return (abs(self.only_a - self.only_b) - 1) ** 2 / differing if differing else 0.0

    @property
    def pvalue_asymptotic(self) -> float:
        """The p-value of `statistic` under chi-squared with one degree of freedom."""
        return float(stats.chi2.sf(self.statistic, df=1))


def mcnemar(correct_a: ArrayLike | Tensor, correct_b: ArrayLike | Tensor) -> McNemar:
    """Return McNemar's test of two classifiers from what each gets right.

    Args:
        correct_a: 1 (or True) where A is right, one an example, ``(n,)``.
        correct_b: the same of B, for the same examples in the same order.

    Raises:
        ValueError: if an input is empty, not 1-d, or holds other values than 0 and 1, or the lengths differ.

    Example:
        >>> mcnemar([1, 1, 1, 0], [1, 0, 0, 1])
        McNemar(both=1, only_a=2, only_b=1, neither=0)
    """
    columns = as_columns(correct_a, correct_b, names=("correct_a", "correct_b"))
    a, b = (_flags(column, name) for column, name in zip(columns, ("correct_a", "correct_b"), strict=True))
    return McNemar(
        both=int((a & b).sum()), only_a=int((a & ~b).sum()), only_b=int((~a & b).sum()), neither=int((~a & ~b).sum())
    )


def holm(pvalues: ArrayLike | Tensor) -> NDArray[np.float64]:
    r"""Return p-values adjusted for being several, in the order they came in: compare them with the level itself.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min \bigl( 1, \; (m - j + 1) \, p_{(j)} \bigr)

    with :math:`p_{(1)} \le \dots \le p_{(m)}` the sorted p-values of ``(m,)``. Rejecting what lies below a level keeps
    the probability of any false rejection below it, whatever the dependence between the tests.

    Source: Holm 1979.  Differs: nothing.

    Raises:
        ValueError: if the input is empty, not 1-d, or a value is not between 0 and 1.

    Example:
        >>> holm([0.01, 0.04, 0.03, 0.005]).round(6).tolist()
        [0.03, 0.06, 0.06, 0.02]
    """
    values = as_column(pvalues, "pvalues")
    outside = np.flatnonzero((values < 0) | (values > 1))
    if outside.size:
        raise ValueError(f"pvalues must be between 0 and 1, got {values[outside[0]]:g} at row {outside[0]}")
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    factors = np.arange(len(values), 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, factors * values[order]))
    return adjusted


def majority_vote(correct_by_seed: Sequence[ArrayLike | Tensor] | NDArray[np.bool_] | Tensor) -> NDArray[np.bool_]:
    r"""Return which examples more than half of the seeds get right, ``(n,)``.

    .. math:: v_i = \Bigl[ \sum_{s=1}^{S} c_{s i} > S / 2 \Bigr]

    with :math:`c_{s i}` in {0, 1} telling whether seed :math:`s` gets example :math:`i` right, ``(S, n)``. A tie of an
    even number of seeds counts as wrong.

    Source: ours. GaussCSE reports McNemar's test over five seeds and does not say how they are merged.

    Raises:
        ValueError: if there is no seed, the seeds' lengths differ, or one of them is no row of zeros and ones.

    Example:
        >>> majority_vote([[1, 1, 0], [1, 0, 0], [0, 1, 1]]).tolist()
        [True, True, False]
    """
    seeds = [_flags(as_column(seed, f"seed {s}"), f"seed {s}") for s, seed in enumerate(correct_by_seed)]
    if not seeds:
        raise ValueError("need at least one seed, got none")
    lengths = [len(seed) for seed in seeds]
    if len(set(lengths)) > 1:
        raise ValueError(f"all seeds must have the same examples, got {', '.join(map(str, lengths))} of them")
    return np.asarray(2 * np.sum(seeds, axis=0) > len(seeds))


def _flags(values: NDArray[np.float64], name: str) -> NDArray[np.bool_]:
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if wrong.size:
        raise ValueError(f"{name} must be 0 or 1, got {values[wrong[0]]:g} at row {wrong[0]}")
    return np.asarray(values == 1)
