"""Relative fitting difficulty of a training set."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["relative_fitting_difficulty"]


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
