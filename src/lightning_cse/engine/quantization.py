"""Vectors in fewer bits, as sentence-transformers writes them."""

from typing import Literal, get_args

import numpy as np

from lightning_cse.errors import ConfigError

Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]


def quantized(vectors: np.ndarray, precision: Precision) -> np.ndarray:
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
        steps = np.packbits(vectors > 0, axis=1)
    elif len(vectors) == 1:
        fault = f"{precision} counts steps between several vectors, and there is one"
        raise ConfigError([f"precision: {fault}"])
    else:
        least = vectors.min(axis=0, initial=np.inf)
        step = (vectors.max(axis=0, initial=-np.inf) - least) / 255
        step[step == 0] = 1
        steps = np.floor((vectors - least) / step).clip(0, 255).astype(np.uint8)

    is_signed = precision in ("int8", "binary")

    return (steps.astype(np.int16) - 128).astype(np.int8) if is_signed else steps
