"""Accuracy of a score cut at a threshold, and the threshold that makes it best."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lightning_cse.metrics._arrays import as_column, as_columns

__all__ = ["best_threshold", "threshold_accuracy"]


def best_threshold(
    labels: ArrayLike | Tensor,
    scores: ArrayLike | Tensor,
    grid: ArrayLike | Tensor | None = None,
    strict: bool = False,
) -> tuple[float, float]:
    r"""Return the threshold with the highest accuracy, and that accuracy.

    .. math:: \gamma^* = \arg\max_{\gamma} \frac{1}{n} \sum_{i=1}^{n} [ (s_i \ge \gamma) = l_i ]

    with labels :math:`l` in {0, 1} and scores :math:`s`, both of shape ``(n,)``; ``strict`` puts :math:`>` for
    :math:`\ge`. Of equally good thresholds the first one wins.

    Source: RTE of DualCSE (no grid, ``strict=True``); two-way NLI of GaussCSE
    (``grid = [k / 1000 for k in range(1001)]``).  Differs: nothing; one sort instead of one pass a threshold.

    Args:
        labels: 1 where the answer is yes, 0 (or False) where it is no.
        scores: one a label, bigger means yes.
        grid: the thresholds to try, in this order; None tries one below all scores, the midpoints of neighbouring
            distinct scores, and one above all scores, which is every way the scores can be cut, lowest first.
        strict: whether a score must exceed the threshold, not only reach it.

    Raises:
        ValueError: if an input is empty, not 1-d or not finite, the lengths differ, or a label is neither 0 nor 1.

    Example:
        >>> best_threshold([0, 1, 1], [0.25, 0.75, 1.0])
        (0.5, 1.0)
        >>> best_threshold([0, 1, 1], [0.25, 0.75, 1.0], grid=[0.0, 0.3, 0.6])
        (0.3, 1.0)
    """
    positive, values = _labels_and_scores(labels, scores)
    order = np.argsort(values, kind="stable")
    positive, values = positive[order], values[order]
    thresholds = _candidates(values, strict) if grid is None else as_column(grid, "grid")
    accuracies = _accuracies(positive, values, thresholds, strict)
    best = int(np.argmax(accuracies))  # the first of equals
    return float(thresholds[best]), float(accuracies[best])


def threshold_accuracy(
    labels: ArrayLike | Tensor, scores: ArrayLike | Tensor, threshold: float, strict: bool = False
) -> float:
    r"""Return the share of labels that a score cut at a threshold gets right.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} [ (s_i \ge \gamma) = l_i ]

    with symbols, ``strict`` and sources as in `best_threshold`; there the threshold is tuned on a development set, here
    it is applied to a test set.

    Raises:
        ValueError: as `best_threshold`.

    Example:
        >>> threshold_accuracy([0, 1, 1], [0.25, 0.5, 1.0], threshold=0.5)
        1.0
        >>> threshold_accuracy([0, 1, 0, 1], [0.25, 0.5, 0.0, 1.0], threshold=0.5, strict=True)
        0.75
    """
    positive, values = _labels_and_scores(labels, scores)
    predicted = values > threshold if strict else values >= threshold
    return float(np.mean(predicted == positive))


def _labels_and_scores(
    labels: ArrayLike | Tensor, scores: ArrayLike | Tensor
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    label_values, values = as_columns(labels, scores, names=("labels", "scores"))
    wrong = np.flatnonzero((label_values != 0) & (label_values != 1))
    if wrong.size:
        raise ValueError(f"labels must be 0 or 1, got {label_values[wrong[0]]:g} at row {wrong[0]}")
    return label_values == 1, values


def _candidates(ascending: NDArray[np.float64], strict: bool) -> NDArray[np.float64]:
    distinct = np.unique(ascending)
    low, high = distinct[:-1], distinct[1:]
    middle = 0.5 * low + 0.5 * high
    # Between neighbouring floats the midpoint rounds to one of the two; take the one that still cuts between them.
    middle = np.where(middle < high, middle, low) if strict else np.where(middle > low, middle, high)
    below = min(distinct[0] - 1, np.nextafter(distinct[0], -np.inf))
    above = max(distinct[-1] + 1, np.nextafter(distinct[-1], np.inf))
    return np.concatenate([[below], middle, [above]])


def _accuracies(
    positive: NDArray[np.bool_], ascending: NDArray[np.float64], thresholds: NDArray[np.float64], strict: bool
) -> NDArray[np.float64]:
    refused = np.searchsorted(ascending, thresholds, side="right" if strict else "left")  # scores below the cut
    positives_before = np.concatenate([[0], np.cumsum(positive)])  # among the k lowest scores, k = 0..n
    true_negatives = refused - positives_before[refused]
    true_positives = positives_before[-1] - positives_before[refused]
    accuracies: NDArray[np.float64] = (true_negatives + true_positives) / len(ascending)
    return accuracies
