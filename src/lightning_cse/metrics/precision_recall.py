"""Area under the precision-recall curve."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from lightning_cse.metrics.threshold import _labels_and_scores

__all__ = ["auprc"]


def auprc(labels: ArrayLike | Tensor, scores: ArrayLike | Tensor) -> float:
    r"""Return the area under the precision-recall curve of a score, a fraction between 0 and 1; larger is better.

    .. math:: \sum_{k=1}^{K} (R_k - R_{k-1}) \, \frac{P_k + P_{k-1}}{2}, \qquad R_0 = 0, \; P_0 = 1

    with labels :math:`l` in {0, 1} and scores :math:`s`, both of shape ``(n,)``; :math:`P_k` and :math:`R_k` are
    precision and recall of "yes" for :math:`s_i \ge \gamma_k`, and :math:`\gamma_1 > \dots > \gamma_K` are the distinct
    scores, so that equal scores are one threshold. The area under straight lines between these points is not average
    precision, which is a sum of rectangles.

    Source: GaussCSE, the authors' evaluation (`sklearn.metrics.precision_recall_curve` and `auc`); the paper itself
    names a grid of thresholds, 0 to 1 in steps of 0.001.  Differs: nothing; where no label is positive, scikit-learn
    warns and takes recall for 1, here it is an error. Where all labels are positive, the area is 1.

    Raises:
        ValueError: if an input is empty, not 1-d or not finite, the lengths differ, a label is neither 0 nor 1, or no
            label is 1 (recall is undefined then).

    Example:
        >>> auprc([1, 0, 1], [0.9, 0.9, 0.1])
        0.6666666666666666
    """
    positive, values = _labels_and_scores(labels, scores)
    if not positive.any():
        raise ValueError(f"labels must have a 1 for recall to be defined, got 0 in all {len(positive)} rows")
    order = np.argsort(-values, kind="stable")
    positive, values = positive[order], values[order]
    last = np.append(np.flatnonzero(values[1:] != values[:-1]), len(values) - 1)  # the last row of each distinct score
    true_positives = np.cumsum(positive)[last]
    precision = np.concatenate([[1.0], true_positives / (last + 1)])
    # Over counts, divided once: recall's roundings would make a perfect score 0.9999999999999999.
    return float(np.trapezoid(precision, np.concatenate([[0], true_positives])) / true_positives[-1])
