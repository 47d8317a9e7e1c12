"""Tests of two models on the same examples, over several seeds and in several comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["PairedBootstrap", "bootstrap_spearman", "count_draws", "holm", "majority_vote", "spearman_of_draws"]

_CHUNK: Final = 16  # draws at a time: their counts stay in the processor's cache


def holm(pvalues: ArrayLike) -> NDArray[np.float64]:
    r"""Return p-values adjusted for being several, in the order they came in: compare them with the level itself.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min \bigl( 1, \; (m - j + 1) \, p_{(j)} \bigr)

    with :math:`p_{(1)} \le \dots \le p_{(m)}` the sorted p-values, ``(m,)``. Rejecting what lies below a level keeps
    the probability of any false rejection below it, whatever the dependence between the tests.

    Source: Holm 1979.  Differs: nothing.

    Raises:
        ValueError: if the input is empty, not 1-d, or a value is not between 0 and 1.

    Example:
        >>> holm([0.01, 0.04, 0.03, 0.005]).round(6).tolist()
        [0.03, 0.06, 0.06, 0.02]
    """
    values = np.asarray(pvalues, dtype=np.float64)
    if values.ndim != 1 or not values.size or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"pvalues must be a non-empty row of numbers between 0 and 1, got {values.tolist()}")
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, np.arange(len(values), 0, -1) * values[order]))
    return adjusted


def majority_vote(correct_by_seed: Sequence[ArrayLike] | NDArray[np.bool_]) -> NDArray[np.bool_]:
    r"""Return which examples more than half of the seeds get right, ``(n,)``.

    .. math:: v_i = \Bigl[ \sum_{s=1}^{S} c_{s i} > S / 2 \Bigr]

    with :math:`c_{s i}` in {0, 1}, ``(S, n)``: whether seed :math:`s` gets example :math:`i` right. A tie of an even
    number of seeds counts as wrong.

    Source: ours. GaussCSE reports McNemar's test over five seeds and does not say how they are merged.

    Raises:
        ValueError: if there is no seed, or the seeds have different numbers of examples.

    Example:
        >>> majority_vote([[1, 1, 0], [1, 0, 0], [0, 1, 1]]).tolist()
        [True, True, False]
    """
    seeds = [np.asarray(seed, dtype=np.bool_) for seed in correct_by_seed]
    if not seeds or len({len(seed) for seed in seeds}) > 1:
        raise ValueError(f"need seeds with the same examples, got {[len(seed) for seed in seeds]} of them")
    return np.asarray(2 * np.sum(seeds, axis=0) > len(seeds))


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
    def of_draws(cls, difference: float, differences: ArrayLike) -> PairedBootstrap:
        r"""Return the test of the differences of :math:`D` draws, ``(D,)``.

        .. math:: p = \min \Bigl( 1, \; 2 \,
            \frac{1 + \min ( |\{ d : \delta_d \le 0 \}|, \; |\{ d : \delta_d \ge 0 \}| )}{D + 1} \Bigr)

        with the difference :math:`\delta_d` of A and B on draw :math:`d`: as many examples as there are, with
        replacement, the same ones for both models and all their seeds. The seeds' own scatter is averaged out.

        Source: Efron and Tibshirani 1993, chapters 13 and 15; for models of language: Koehn 2004, Berg-Kirkpatrick et
        al. 2012; 1 added to both counts: Davison and Hinkley 1997, section 4.2, so that no finite number of draws
        proves anything for certain.  Differs: several seeds are averaged.

        Example:
            >>> PairedBootstrap.of_draws(0.2, [0.1, 0.3, 0.2, -0.1]).pvalue
            0.8
        """
        drawn = np.asarray(differences, dtype=np.float64)
        other_side = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
        low, high = np.quantile(drawn, (0.025, 0.975))
        pvalue = min(1.0, 2 * (1 + other_side) / (len(drawn) + 1))
        return cls(float(difference), float(low), float(high), pvalue, len(drawn))


def count_draws(n: int, draws: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield how often each of n examples was drawn: ``(n, some draws)`` at a time, the same for the same arguments."""
    generator = np.random.default_rng(seed)
    for start in range(0, draws, _CHUNK):
        size = min(_CHUNK, draws - start)
        rows = generator.integers(0, n, size=(n, size))
        counts = np.bincount((rows * size + np.arange(size)).ravel(), minlength=n * size)
        yield counts.reshape(n, size).astype(np.float64)


def bootstrap_spearman(
    gold: NDArray[np.float64], scores: Sequence[NDArray[np.float64]], draws: int = 10_000, seed: int = 0
) -> NDArray[np.float64]:
    """Return the rank correlation of every draw of the pairs, averaged over the seeds of a model: ``(D,)``.

    Calls with equal ``seed``, ``draws`` and number of pairs draw the same pairs, so their results can be subtracted.

    Args:
        gold: gold values, ``(n,)``.
        scores: the scores of each seed, ``(S, n)``.
        draws: how many draws.
        seed: of the draws.
    """
    models = np.stack(scores)
    found = [spearman_of_draws(gold, models, counts).mean(axis=0) for counts in count_draws(len(gold), draws, seed)]
    return np.concatenate(found)


def spearman_of_draws(
    gold: NDArray[np.float64], scores: NDArray[np.float64], counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Return the rank correlations of many draws, without drawing or sorting anything again: ``(S, D)``.

    The rank of a value in a draw follows from how often the smaller ones were drawn: with :math:`t_k` pairs drawn of
    the :math:`k`-th smallest distinct value and :math:`N` of all, its mean rank less the mean of all ranks is

    .. math:: R_k = \sum_{j < k} t_j + \frac{t_k - N}{2}, \qquad \sum_k t_k R_k^2 = \frac{N^3 - \sum_k t_k^3}{12}

    and the correlation is the covariance of these ranks over the root of the two variances. A draw in which a side is
    constant has 0, as in the task STS.

    Args:
        gold: gold values, ``(n,)``.
        scores: the scores of :math:`S` models, ``(S, n)``.
        counts: how often each pair was drawn, ``(n, D)``.

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


def _ranking(values: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the order of values, and where in it each distinct one starts."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    return order, np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))


def _by_value(ordered: NDArray[np.float64], starts: NDArray[np.intp]) -> NDArray[np.float64]:
    """Sum rows that belong to the same value."""
    return ordered if len(starts) == len(ordered) else np.add.reduceat(ordered, starts, axis=0)
