"""What the metrics over scores accept: lists, arrays, series and tensors of any precision and device."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor


def as_column(values: ArrayLike | Tensor, name: str) -> NDArray[np.float64]:
    """Return a non-empty 1-d float64 array of finite values.

    Raises:
        ValueError: if there are none, they are not 1-d, or one of them is not finite; the message says which.
    """
    if isinstance(values, Tensor):  # numpy knows neither bfloat16 nor other devices
        values = values.detach().cpu().double().numpy()
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or column.size == 0:
        raise ValueError(f"{name} must be a non-empty 1-d sequence, got shape {column.shape}")
    if not np.isfinite(column).all():
        row = int(np.flatnonzero(~np.isfinite(column))[0])
        raise ValueError(f"{name} must be finite, got {column[row]} at row {row}")
    return column


def as_columns(
    first: ArrayLike | Tensor, second: ArrayLike | Tensor, names: tuple[str, str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two arrays as `as_column` does.

    Raises:
        ValueError: as there, or if their lengths differ.
    """
    columns = as_column(first, names[0]), as_column(second, names[1])
    if len(columns[0]) != len(columns[1]):
        lengths = f"{len(columns[0])} and {len(columns[1])}"
        raise ValueError(f"{names[0]} and {names[1]} must be equally long, got {lengths}")
    return columns
