"""Checks of what losses are given."""

import math
from typing import Any

from torch import Tensor

from lightning_cse.embeddings import Embedding, PointEmbedding

Vectors = Tensor | PointEmbedding
"""One vector of each sentence: (n, d)."""


def vector_of(name: str, value: Any) -> Tensor:
    """Return a tensor as it is and the vectors of points; raise TypeError for anything else."""
    if isinstance(value, PointEmbedding):
        return value.vector
    if isinstance(value, Tensor):
        return value

    raise TypeError(f"{name} must be a tensor (n, d) or a PointEmbedding, got {_type_name(value)}")


def check_embedding(name: str, value: Any, embedding_class: type[Embedding], *fields: str) -> None:
    """Raise TypeError if a value lacks tensors of these names, those of a kind of embedding."""
    if not all(hasattr(value, field) for field in fields):
        raise TypeError(
            f"{name} must be a {embedding_class.__name__} ({', '.join(fields)}), got {_type_name(value)}"
        )


def _type_name(value: Any) -> str:
    return "a tensor" if isinstance(value, Tensor) else type(value).__name__


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


def check_shapes(*tensors: Tensor, shape: str, least: int = 1) -> None:
    """Raise ValueError unless all tensors have one shape, ``(n, d)`` or ``(n,)``, n >= least."""
    shapes = [tuple(tensor.shape) for tensor in tensors]
    dimensions = len(shape.strip("(,)").split(","))
    if len(set(shapes)) > 1 or len(shapes[0]) != dimensions or shapes[0][0] < least:
        got = ", ".join(map(str, shapes))
        raise ValueError(f"need tensors of one shape {shape} with n >= {least}, got {got}")


def check_targets(targets: Tensor, rows: int) -> None:
    """Raise ValueError unless there is one label or score for each row."""
    if targets.shape != (rows,):
        raise ValueError(f"need a label or score for each of {rows} rows, got {(*targets.shape,)}")
