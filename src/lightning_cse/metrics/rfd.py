"""What the curves of a training run come to: relative fitting difficulty, and the mean of the best evaluations."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

from lightning_cse.metrics._arrays import as_column

__all__ = ["mean_of_best", "relative_fitting_difficulty"]


def relative_fitting_difficulty(held_out: Iterable[float], evaluation: Iterable[float]) -> float:
    r"""Return by how much a measure on held-out training data stays above the same measure on evaluation data.

    .. math:: \mathrm{RFD} = \frac{1}{S} \sum_{s=1}^{S} \left( h_s - e_s \right)

    with the held-out values :math:`h` and the evaluation values :math:`e` at the same :math:`S` steps of one training
    run; of `alignment` it gives :math:`\mathrm{RFD}_a`, of `uniformity` :math:`\mathrm{RFD}_u`. Nothing is filtered
    here: the caller leaves out step 0, as the paper does.

    Source: NGCSE, definition of relative fitting difficulty.  Differs: nothing; the nine released curves give the
    published values.

    Raises:
        ValueError: if the sequences are empty or differ in length.

    Example:
        >>> relative_fitting_difficulty(held_out=[0.5, 0.25], evaluation=[0.25, 0.25])
        0.125
    """
    held_out_values, evaluation_values = [float(h) for h in held_out], [float(e) for e in evaluation]
    if not held_out_values or len(held_out_values) != len(evaluation_values):
        raise ValueError(
            "held_out and evaluation must be equally long and not empty, "
            f"got {len(held_out_values)} and {len(evaluation_values)} values"
        )
    differences = [h - e for h, e in zip(held_out_values, evaluation_values, strict=True)]
    return math.fsum(differences) / len(differences)


def mean_of_best(values: Iterable[float], count: int = 5) -> float:
    r"""Return the mean of the highest values, the "final score" of a run's evaluations.

    .. math:: \frac{1}{c} \sum_{k=1}^{c} v_{(k)}

    with the values :math:`v_{(1)} \ge v_{(2)} \ge \dots` in falling order and :math:`c` = ``count``, or the number of
    values if that is smaller.

    Source: NGCSE, final score of a setting (the five best dev correlations of its run).  Differs: nothing; the nine
    released curves give the published values.

    Raises:
        ValueError: if there are no values, one of them is not finite, or ``count`` < 1.

    Example:
        >>> mean_of_best([0.25, 1.0, 0.5, 0.0], count=2)
        0.75
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    best = heapq.nlargest(count, as_column([float(value) for value in values], "values").tolist())
    return math.fsum(best) / len(best)
