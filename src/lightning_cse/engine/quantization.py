"""Vectors in fewer bits, as sentence-transformers writes them."""

from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_cse.errors import ConfigError

Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]


def quantized(vectors: Tensor, precision: Precision) -> Tensor:
    r"""Return vectors (n, d) in a precision: (n, d) of bytes, or (n, d / 8) of eight signs each.

    ``uint8`` counts 255 steps between the least and the largest number of each dimension, ``int8``
    the same minus 128. ``ubinary`` packs whether numbers are positive, ``binary`` the same minus
    128.

    .. math:: \lfloor (x - \min_i x_i) / s \rfloor, \qquad s = (\max_i x_i - \min_i x_i) / 255

    Source: ``sentence_transformers.util.quantize_embeddings``.  Raises ConfigError for another
    precision, or a single vector, which has no range.
    """
    if precision not in get_args(Precision):
        names = ", ".join(get_args(Precision))
        raise ConfigError([f"precision: must be one of {names}, got {precision!r}"])
    if precision == "float32":
        return vectors

    if precision in ("binary", "ubinary"):
        steps = _packed(vectors > 0)
    elif len(vectors) == 1:
        raise ConfigError(
            [f"precision: {precision} counts steps between several vectors, and there is one"]
        )
    elif len(vectors) == 0:
        steps = vectors
    else:
        least = vectors.amin(0)
        step = (vectors.amax(0) - least) / 255
        step = torch.where(step == 0, 1, step)
        steps = ((vectors - least) / step).floor().clamp(0, 255)

    is_signed = precision in ("int8", "binary")

    return (steps - 128).to(torch.int8) if is_signed else steps.to(torch.uint8)


def _packed(bits: Tensor) -> Tensor:
    """Return eight bits a number, the first one highest: (n, d / 8), rounded up."""
    padded = torch.nn.functional.pad(bits.int(), (0, -bits.shape[1] % 8))
    values = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.int32)

    eights = padded.reshape(len(bits), padded.shape[1] // 8, 8)

    return torch.sum(eights * values, -1)
