"""Spearman correlation, over one set of pairs or over several subsets in the three ways of the STS literature."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from lightning_cse.metrics._arrays import as_columns

__all__ = ["spearman", "spearman_all", "spearman_mean", "spearman_wmean"]

Subsets: TypeAlias = Iterable[tuple[ArrayLike | Tensor, ArrayLike | Tensor]]
"""``[(gold, scores), ...]``, one entry a subset."""


def spearman(gold: ArrayLike | Tensor, scores: ArrayLike | Tensor, *, constant: float | None = None) -> float:
    r"""Return the rank correlation of scores with gold values.

    .. math:: \rho = \frac{\mathrm{cov}(R(g), R(s))}{\sigma_{R(g)} \, \sigma_{R(s)}}

    with gold values :math:`g` and scores :math:`s` of shape ``(n,)`` and :math:`R` their ranks, ties given their mean
    rank.

    Source: Spearman 1904, as `scipy.stats.spearmanr` computes it.  Differs: float64 whatever comes in, and a constant
    input is an error, or what the caller says, where scipy warns and gives NaN.

    Args:
        gold: gold values.
        scores: one a gold value.
        constant: what to return where a side is constant (one pair is); None makes it an error.

    Raises:
        ValueError: if an input is empty, not 1-d, not finite or, without ``constant``, constant, or the lengths differ.

    Example:
        >>> round(spearman([1, 2, 3, 4], [0.1, 0.2, 0.4, 0.3]), 6)
        0.8
    """
    gold_values, score_values = as_columns(gold, scores, names=("gold", "scores"))
    for name, values in (("gold", gold_values), ("scores", score_values)):
        if np.all(values == values[0]):
            if constant is not None:
                return constant
            raise ValueError(f"{name} must vary for a correlation, got {values[0]:g} in all {len(values)} rows")
    return float(stats.spearmanr(gold_values, score_values).statistic)


def spearman_all(subsets: Subsets, *, constant: float | None = None) -> float:
    r"""Return one correlation over all subsets put together ("all"), the setting of SimCSE's tables.

    .. math:: \rho ( g^{(1)} \Vert \dots \Vert g^{(K)}, \; s^{(1)} \Vert \dots \Vert s^{(K)} )

    with ``subsets = [(gold, scores), ...]`` and :math:`\Vert` concatenation. Scores of different subsets are compared
    with each other, so this is no mean of any kind. ``constant`` is as in `spearman`.

    Source: Gao et al. 2021 (SimCSE), appendix on STS evaluation settings.  Differs: nothing.

    Raises:
        ValueError: if there is no subset, or as `spearman`.

    Example:
        >>> subsets = [([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4]), ([1, 2], [0.9, 0.8])]
        >>> [round(average(subsets), 3) for average in (spearman_all, spearman_mean, spearman_wmean)]
        [0.029, 0.0, 0.333]
    """
    columns = _columns(subsets)
    gold, scores = (np.concatenate(side) for side in zip(*columns, strict=True))
    return spearman(gold, scores, constant=constant)


def spearman_mean(subsets: Subsets, *, constant: float | None = None) -> float:
    r"""Return the plain mean of the subsets' correlations ("mean").

    .. math:: \frac{1}{K} \sum_{k=1}^{K} \rho ( g^{(k)}, s^{(k)} )

    ``constant`` is what a subset with a constant side counts, as in `spearman`.

    Source: SentEval, ``all.spearman.mean``.  Differs: nothing.

    Raises:
        ValueError: if there is no subset, or as `spearman`, with the subset's number.

    Example:
        >>> round(spearman_mean([([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4]), ([1, 2], [0.9, 0.8])]), 6)
        0.0
    """
    correlations, _ = _correlations_and_sizes(subsets, constant)
    return float(np.mean(correlations))


def spearman_wmean(subsets: Subsets, *, constant: float | None = None) -> float:
    r"""Return the mean of the subsets' correlations, weighted by their numbers of pairs ("wmean").

    .. math:: \frac{\sum_k n_k \, \rho ( g^{(k)}, s^{(k)} )}{\sum_k n_k}

    ``constant`` is what a subset with a constant side counts, as in `spearman`.

    Source: SentEval, ``all.spearman.wmean``.  Differs: nothing.

    Raises:
        ValueError: if there is no subset, or as `spearman`, with the subset's number.

    Example:
        >>> round(spearman_wmean([([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4]), ([1, 2], [0.9, 0.8])]), 6)
        0.333333
    """
    correlations, sizes = _correlations_and_sizes(subsets, constant)
    return float(np.average(correlations, weights=sizes))


def _columns(subsets: Subsets) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    columns = [
        as_columns(gold, scores, names=(f"gold of subset {k}", f"scores of subset {k}"))
        for k, (gold, scores) in enumerate(subsets)
    ]
    if not columns:
        raise ValueError("need at least one subset (gold, scores), got none")
    return columns


def _correlations_and_sizes(subsets: Subsets, constant: float | None) -> tuple[list[float], list[int]]:
    columns = _columns(subsets)
    correlations = []
    for k, (gold, scores) in enumerate(columns):
        try:
            correlations.append(spearman(gold, scores, constant=constant))
        except ValueError as error:
            raise ValueError(f"subset {k}: {error}") from error
    return correlations, [len(gold) for gold, _ in columns]
