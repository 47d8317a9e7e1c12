"""From token vectors to one sentence vector."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def cls_pooling(hidden: Tensor, mask: Tensor) -> Tensor:
    """Take the first token's vector: (n, length, d), (n, length) -> (n, d)."""
    return hidden[:, 0]


def mean_pooling(hidden: Tensor, mask: Tensor) -> Tensor:
    """Average the vectors of all real tokens, special ones included: (n, length, d), (n, length) -> (n, d)."""
    weights = mask.to(hidden.dtype)[:, :, None]
    return torch.sum(hidden * weights, 1) / weights.sum(1).clamp(min=1)


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"cls": cls_pooling, "mean": mean_pooling}
