"""Statistics of tests and figures: Holm's adjustment, majority votes, the paired bootstrap,
correlations.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Array = NDArray[np.float64]

_CHUNK: Final = 16  # draws at a time: their counts stay in the processor's cache


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


def bootstrap_pvalue(differences: Array) -> float:
    r"""Return the two-sided p-value of a paired bootstrap from the difference on every draw,
    ``(D,)``.

    .. math:: p = \min \Bigl( 1, \; 2 \,
        \frac{1 + \min ( |\{ d : \delta_d \le 0 \}|, \; |\{ d : \delta_d \ge 0 \}| )}{D + 1} \Bigr)

    Source: Efron and Tibshirani 1993, chapter 15; 1 added to both counts: Davison and Hinkley 1997,
    section 4.2.
    """
    below = int((differences <= 0).sum())
    above = int((differences >= 0).sum())
    return min(1.0, 2 * (1 + min(below, above)) / (len(differences) + 1))


def bootstrap_spearman(
    gold: Array,
    scores: Array,
    draws: int = 10_000,
    seed: int = 0,
) -> Array:
    """Return the rank correlation of every draw of the pairs, averaged over models: ``(n,)``, ``(S,
    n)`` to ``(D,)``.

    Calls with equal ``seed``, ``draws`` and number of pairs draw the same pairs.
    """
    generator = np.random.default_rng(seed)
    correlations = []
    for start in range(0, draws, _CHUNK):
        size = min(_CHUNK, draws - start)
        rows = generator.integers(0, len(gold), size=(len(gold), size))
        cells = rows * size + np.arange(size)
        counts = np.bincount(cells.ravel(), minlength=rows.size).reshape(rows.shape)
        correlations.append(spearman_of_draws(gold, scores, counts.astype(float)).mean(axis=0))
    return np.concatenate(correlations)


def spearman_of_draws(
    gold: Array,
    scores: Array,
    counts: Array,
) -> Array:
    """Return the rank correlations of many draws, ``(S, D)``, from how often each pair was drawn,
    ``(n, D)``.

    A correlation is 0 where one side is constant. Three times as fast as `scipy.stats.rankdata` on
    the drawn pairs, with the same values.
    """
    gold_ranks, gold_squares = _centred_ranks(gold, counts)
    correlations = np.zeros((len(scores), counts.shape[1]))
    for model, values in enumerate(scores):
        ranks, squares = _centred_ranks(values, counts)
        products = np.einsum("nd,nd,nd->d", counts, gold_ranks, ranks)
        scale = np.sqrt(gold_squares * squares)
        np.divide(products, scale, out=correlations[model], where=scale > 0)
    return correlations


def _centred_ranks(values: Array, counts: Array) -> tuple[Array, Array]:
    r"""Return each pair's rank in every draw less the mean rank, ``(n, D)``, and the sums of their
    squares, ``(D,)``.

    No draw is sorted: with :math:`t_k` pairs drawn of the :math:`k`-th smallest distinct value and
    :math:`N` pairs in all, the rank is :math:`R_k = \sum_{j < k} t_j + (t_k - N) / 2`, and the sum
    of squares :math:`\sum_k t_k R_k^2`.
    """
    _, places = np.unique(values, return_inverse=True)
    order = np.argsort(places, kind="stable")
    starts = np.flatnonzero(np.diff(places[order], prepend=-1))
    drawn = np.add.reduceat(counts[order], starts, axis=0)
    ranks = np.cumsum(drawn, axis=0) - (drawn + counts.sum(axis=0)) / 2
    return ranks[places], np.einsum("kd,kd,kd->d", drawn, ranks, ranks)


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
