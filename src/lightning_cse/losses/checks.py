"""Checks of what losses are given."""

import math

from torch import Tensor


def check_temperature(temperature: float) -> float:
    """Return the temperature, or raise ValueError if it is not positive and finite."""
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive and finite, got {temperature}")

    return temperature


def check_margin(name: str, value: float) -> float:
    """Return a margin or weight, or raise ValueError if it is negative or not finite."""
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value}")

    return value


def check_shapes(
    *tensors: Tensor,
    shape: str,
    least: int = 1,
) -> None:
    """Raise ValueError unless all tensors have one shape, ``(n, d)`` or ``(n,)``, n >= least."""
    first, *others = (tuple(tensor.shape) for tensor in tensors)
    dimensions = len(shape.strip("(,)").split(","))
    if any(other != first for other in others) or len(first) != dimensions or first[0] < least:
        got = ", ".join(map(str, (first, *others)))
        raise ValueError(f"need tensors of one shape {shape} with n >= {least}, got {got}")
