"""How much each row influences a metric, from which the standard error over rows follows.

The functions accept what those of `lightning_cse.metrics.scores` accept, and raise the same errors.
"""

import numpy as np
from numpy.typing import NDArray

from lightning_cse.metrics.scores import (
    Column,
    Values,
    as_column,
    as_columns,
    labels_and_scores,
    placements,
)


def mean_influences(values: Values) -> Column:
    r"""Return the influence of each row on the mean, such as an accuracy, ``(n,)``.

    .. math:: h_i = \frac{x_i - \bar x}{n}
    """
    column = as_column(values, "values")
    return np.asarray((column - column.mean()) / len(column))


def auc_influences(labels: Values, scores: Values) -> Column:
    r"""Return the influence of each row on `auc`, ``(n,)``.

    .. math:: h_i = \frac{V_i - \bar V}{n_i}

    with DeLong's component :math:`V_i` (see `auc_error`), its mean over the :math:`n_i` rows of the
    same label. The sum of the influences is 0. It raises ValueError if a label is missing.

    Source: DeLong, DeLong and Clarke-Pearson 1988.  Differs: nothing.
    """
    is_positive = labels_and_scores(labels, scores)[0].astype(bool)
    influences = np.empty(len(is_positive))
    for mask, values in zip((is_positive, ~is_positive), placements(labels, scores), strict=True):
        influences[mask] = (values - values.mean()) / len(values)

    return influences


def auprc_influences(labels: Values, scores: Values) -> Column:
    r"""Return the influence of each row on `auprc` (without a grid), ``(n,)``.

    .. math:: h_i = \frac{\partial A(w)}{\partial w_i} \Big|_{w = 1}

    with the area :math:`A(w)` if row :math:`i` counts :math:`w_i` times. The sum of the influences
    is 0, and the root of the sum of their squares is the standard error over the rows. It raises
    ValueError if no label is 1.

    Source: the infinitesimal jackknife of Jaeckel 1972.  Differs: nothing.
    """
    positive, values = labels_and_scores(labels, scores)
    if not positive.any():
        raise ValueError("labels must have a 1")

    _, ranks = np.unique(-values, return_inverse=True)  # of the thresholds, the highest first
    accepted = np.cumsum(np.bincount(ranks))
    gained = np.bincount(ranks, positive)
    precision = np.cumsum(gained) / accepted
    heights = (precision + np.concatenate([[1.0], precision[:-1]])) / 2
    area = float(gained @ heights) / positive.sum()
    # A row changes the precision at its threshold and at all lower ones.
    weights = (gained + np.concatenate([gained[1:], [0.0]])) / (2 * accepted)
    of_positives = _from_here(weights)
    of_all = _from_here(weights * precision)
    changes = positive * (heights + of_positives)[ranks] - of_all[ranks]

    return np.asarray((changes - area * positive) / positive.sum())


def spearman_influences(gold: Values, scores: Values) -> Column:
    r"""Return the influence of each row on `spearman`, ``(n,)``.

    .. math:: h_i = \frac{\partial \rho(w)}{\partial w_i} \Big|_{w = 1}

    with the correlation :math:`\rho(w)` if row :math:`i` counts :math:`w_i` times, also in the
    ranks of the other rows. The sum of the influences is 0, and the root of the sum of their
    squares is the standard error over the rows. They are 0 if a side is constant or both orders
    are the same.

    Source: the infinitesimal jackknife of Jaeckel 1972.  Differs: nothing.
    """
    (x, x_ranks), (y, y_ranks) = (
        _centred_ranks(values) for values in as_columns(gold, scores, ("gold", "scores"))
    )
    product, of_x, of_y = float(x @ y), float(x @ x), float(y @ y)
    if of_x == 0 or of_y == 0:
        return np.zeros(len(x))

    length = np.sqrt(of_x * of_y)
    # A row adds its own term, and one to the ranks of all rows above it.
    products = x * y + _sum_above(x_ranks, y) + _sum_above(y_ranks, x)
    squares = (x * x + 2 * _sum_above(x_ranks, x)) / of_x
    squares += (y * y + 2 * _sum_above(y_ranks, y)) / of_y

    return np.asarray((products - product * squares / 2) / length)


def _centred_ranks(values: Column) -> tuple[Column, NDArray[np.intp]]:
    """Return ranks, ties with their mean rank, minus their mean; and the places of the distinct
    values.
    """
    _, ranks, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - counts / 2

    return middles[ranks] - len(values) / 2, ranks


def _sum_above(ranks: NDArray[np.intp], values: Column) -> Column:
    """Return for each row the sum of the values in higher places, and half of those in its own."""
    totals: Column = np.asarray(np.bincount(ranks, values), np.float64)
    return np.asarray((_from_here(totals) - totals / 2)[ranks])


def _from_here(values: Column) -> Column:
    """Return the sum of each value and of all that follow."""
    return np.cumsum(values[::-1])[::-1]
