"""Whether two models differ on the same examples, over several seeds and in several comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from lightning_cse.metrics._arrays import as_column, as_columns

__all__ = [
    "McNemar",
    "PairedBootstrap",
    "bootstrap_statistics",
    "holm",
    "majority_vote",
    "mcnemar",
    "paired_bootstrap",
    "spearman_of_draws",
]

Statistic: TypeAlias = Callable[
    [NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    NDArray[np.float64],
]
"""What is computed of every draw: of gold values ``(n,)``, scores ``(S, n)`` and how often each pair was drawn,
``(n, D)``, the values ``(S, D)``."""

_CHUNK: Final = 16  # draws at a time: what belongs to them stays in the processor's cache


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


@dataclass(frozen=True)
class PairedBootstrap:
    """The paired bootstrap: would the two models differ on other examples of the same kind?

    Args:
        difference: by how much A exceeds B on the examples as they are.
        low: the lower end of the 95 % percentile interval of the difference.
        high: its upper end.
        pvalue: two-sided, at least ``2 / (draws + 1)``.
        draws: how often the examples were drawn.
    """

    difference: float
    low: float
    high: float
    pvalue: float
    draws: int

    @classmethod
    def of_draws(cls, difference: float, differences: ArrayLike | Tensor) -> PairedBootstrap:
        r"""Return the test of differences by draw.

        .. math:: p = \min \Bigl( 1, \; 2 \,
            \frac{1 + \min ( |\{ d : \delta_d \le 0 \}|, \; |\{ d : \delta_d \ge 0 \}| )}{D + 1} \Bigr)

        with the differences :math:`\delta_d` of :math:`D` draws, ``(D,)``.

        Source: Efron and Tibshirani 1993, chapters 13 and 15; 1 added to both counts: Davison and Hinkley 1997,
        section 4.2, so that no finite number of draws proves anything for certain.  Differs: nothing.

        Args:
            difference: the difference on the examples as they are.
            differences: those of the draws.

        Raises:
            ValueError: if there is no draw, or a difference is not finite.

        Example:
            >>> PairedBootstrap.of_draws(0.2, [0.1, 0.3, 0.2, -0.1]).pvalue
            0.8
        """
        drawn = as_column(differences, "differences")
        other_side = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
        low, high = np.quantile(drawn, (0.025, 0.975))
        pvalue = min(1.0, 2 * (1 + other_side) / (len(drawn) + 1))
        return cls(float(difference), float(low), float(high), pvalue, len(drawn))


def spearman_of_draws(
    gold: NDArray[np.float64], scores: NDArray[np.float64], counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Return the rank correlations of many draws, without drawing or sorting anything again.

    The rank of a value in a draw follows from how often the smaller ones were drawn: with :math:`t_k` pairs drawn of
    the :math:`k`-th smallest distinct value and :math:`N` of all, its mean rank less the mean of all ranks is

    .. math:: R_k = \sum_{j < k} t_j + \frac{t_k - N}{2}, \qquad \sum_k t_k R_k^2 = \frac{N^3 - \sum_k t_k^3}{12}

    and the correlation is the covariance of these ranks over the root of the two variances. A draw in which a side is
    constant has 0, as `STS` has it.

    Args:
        gold: gold values, ``(n,)``.
        scores: the scores of :math:`S` models, ``(S, n)``.
        counts: how often each pair was drawn, ``(n, D)``.

    Returns:
        The correlations, ``(S, D)``.

    Example:
        >>> gold, scores = np.array([1.0, 2, 3, 4]), np.array([[0.1, 0.2, 0.4, 0.3]])
        >>> counts = np.array([[1.0, 1], [1, 0], [1, 2], [1, 1]])
        >>> spearman_of_draws(gold, scores, counts).round(3).tolist()  # of the second: 1, 3, 3, 4
        [[0.8, 0.333]]
    """
    size = counts.sum(axis=0)
    order, starts = _ranking(gold)
    drawn = _by_value(counts[order], starts)
    centred = np.repeat(np.cumsum(drawn, axis=0) - (drawn + size) / 2, np.diff([*starts, len(gold)]), axis=0)
    weighted = np.empty_like(counts)
    weighted[order] = counts[order] * centred
    variance = size**3 - (drawn**3).sum(axis=0)
    found = np.zeros((len(scores), counts.shape[1]))
    for model, values in enumerate(scores):
        order, starts = _ranking(values)
        drawn, ranks = _by_value(counts[order], starts), _by_value(weighted[order], starts)
        # The ranks of gold sum to 0, so that what is the same for all of a draw drops out.
        covariance = np.einsum("nd,nd->d", ranks, np.cumsum(drawn, axis=0) - drawn / 2)
        both = variance * (size**3 - np.einsum("nd,nd,nd->d", drawn, drawn, drawn))
        np.divide(12 * covariance, np.sqrt(both), out=found[model], where=both > 0)
    return found


def bootstrap_statistics(
    gold: ArrayLike | Tensor,
    scores: ArrayLike | Tensor | Sequence[ArrayLike | Tensor],
    statistic: Statistic = spearman_of_draws,
    draws: int = 10_000,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Return a statistic of every draw of the examples with replacement, averaged over the seeds of a model, ``(D,)``.

    Equal ``seed``, ``draws`` and number of examples draw the same examples, so that what two calls return can be
    subtracted draw by draw.

    Args:
        gold: gold values, ``(n,)``.
        scores: one a gold value, ``(n,)``, or so for each seed of the model, ``(S, n)``.
        statistic: what is computed.
        draws: how many draws.
        seed: of the draws.

    Raises:
        ValueError: if a side is empty or not finite, the lengths differ, or ``draws`` is below 1.
    """
    truth, models = _gold_and_scores(gold, scores, "scores")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    generator = np.random.default_rng(seed)
    found = np.empty(draws)
    for start in range(0, draws, _CHUNK):
        size = min(_CHUNK, draws - start)
        rows = generator.integers(0, len(truth), size=(len(truth), size))
        counts = np.bincount((rows * size + np.arange(size)).ravel(), minlength=len(truth) * size)
        values = statistic(truth, models, counts.reshape(len(truth), size).astype(np.float64))
        found[start : start + size] = values.mean(axis=0)
    return found


def paired_bootstrap(
    gold: ArrayLike | Tensor,
    scores_a: ArrayLike | Tensor | Sequence[ArrayLike | Tensor],
    scores_b: ArrayLike | Tensor | Sequence[ArrayLike | Tensor],
    statistic: Statistic = spearman_of_draws,
    draws: int = 10_000,
    seed: int = 0,
) -> PairedBootstrap:
    r"""Return the paired bootstrap of two models' scores on the same examples.

    .. math:: \delta_d = \frac{1}{S_a} \sum_s T ( g_{(d)}, a_{s (d)} ) - \frac{1}{S_b} \sum_s T ( g_{(d)}, b_{s (d)} )

    with :math:`g_{(d)}` the gold values of the pairs of draw :math:`d` (as many as there are pairs, with replacement,
    the same ones for both models and all their seeds) and :math:`T` the statistic. What differs between draws are the
    pairs; the seeds' own scatter is averaged out, not tested.

    Source: Efron and Tibshirani 1993; for models of language: Koehn 2004, Berg-Kirkpatrick et al. 2012.  Differs:
    two-sided, as `PairedBootstrap.of_draws` has it, and several seeds.

    Args:
        gold: gold values, ``(n,)``.
        scores_a: A's scores, ``(n,)``, or ``(S, n)`` for several seeds.
        scores_b: B's; the number of seeds may be another.
        statistic: :math:`T`, of many draws at once.
        draws: :math:`D`.
        seed: of the draws.

    Raises:
        ValueError: as `bootstrap_statistics`.

    Example:
        >>> gold = np.arange(40.0)
        >>> test = paired_bootstrap(gold, gold, np.where(gold < 4, 40 - gold, gold), draws=200)
        >>> round(test.difference, 3), test.pvalue < 0.05
        (0.512, True)
    """
    observed = []
    for name, scores in (("scores_a", scores_a), ("scores_b", scores_b)):
        truth, models = _gold_and_scores(gold, scores, name)
        observed.append(float(statistic(truth, models, np.ones((len(truth), 1))).mean()))
    drawn_a, drawn_b = (bootstrap_statistics(gold, s, statistic, draws, seed) for s in (scores_a, scores_b))
    return PairedBootstrap.of_draws(observed[0] - observed[1], drawn_a - drawn_b)


def _gold_and_scores(
    gold: ArrayLike | Tensor, scores: ArrayLike | Tensor | Sequence[ArrayLike | Tensor], name: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    given: Any = scores
    several = list(given) if len(given) and np.ndim(given[0]) else [given]
    columns = [as_columns(gold, seed, names=("gold", name)) for seed in several]
    return columns[0][0], np.stack([column for _, column in columns])


def _ranking(values: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the order of values, and where in it each distinct one starts."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    return order, np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))


def _by_value(ordered: NDArray[np.float64], starts: NDArray[np.intp]) -> NDArray[np.float64]:
    """Sum rows that belong to the same value."""
    return ordered if len(starts) == len(ordered) else np.add.reduceat(ordered, starts, axis=0)
