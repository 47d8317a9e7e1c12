"""Dropout on a CPU without torch's serial random bits, which are a fifth of a training step there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LANES = 65_536
"""A mask is drawn 16 bits an element, so a probability is rounded to a multiple of 1 / 65,536."""

_BITS = {torch.bfloat16: torch.int16, torch.float32: torch.int32}


def is_fast(x: Tensor, p: float) -> bool:
    """Whether `keep_mask` and `apply_mask` can stand in for torch's dropout."""
    return x.device.type == "cpu" and x.dtype in _BITS and 0 < round(p * LANES) < LANES


def keep_mask(shape: tuple[int, ...], p: float) -> Tensor:
    """Draw an int8 mask: 0 with probability ``p``, else -1 (all bits set).

    One number from torch's global generator seeds a fast generator, so torch's random state decides the mask.
    """
    count = math.prod(shape)
    seed = int(torch.randint(2**63 - 1, ()))
    lanes = np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.uint16)[:count]
    keep = np.greater_equal(lanes, round(p * LANES)).view(np.int8)
    return torch.from_numpy(np.negative(keep, out=keep)).view(shape)


def apply_mask(x: Tensor, mask: Tensor, p: float) -> Tensor:
    """Return ``x / (1 - p)`` where the mask keeps and 0 elsewhere, with the ``p`` the mask was really drawn with."""
    # A bitwise and with 0 or -1 is several times as fast as a product with a bool or torch.where.
    bits = _BITS[x.dtype]
    return (x.contiguous().view(bits) & mask.to(bits)).view(x.dtype).mul_(LANES / (LANES - round(p * LANES)))


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask = keep_mask(tuple(x.shape), p)
        ctx.save_for_backward(mask)
        ctx.p = p
        return apply_mask(x, mask, p)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return apply_mask(grad, ctx.saved_tensors[0], ctx.p), None


class FastDropout(nn.Dropout):
    """`torch.nn.Dropout` whose CPU masks come from a vectorised generator seeded by torch's own.

    Same distribution, other bits; on other devices and for other dtypes than bfloat16 and float32 it is torch's.

    Example:
        >>> FastDropout(0.5).eval()(torch.ones(3))
        tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name of the base class
        """Drop elements in training mode; scale the others so that the mean stays."""
        if self.training and not self.inplace and is_fast(input, self.p):
            dropped: Tensor = _Dropout.apply(input, self.p)  # type: ignore[no-untyped-call]
            return dropped
        return super().forward(input)


def make_dropout_fast(root: nn.Module) -> None:
    """Replace every `torch.nn.Dropout` under ``root`` by a `FastDropout` of the same probability."""
    for module in root.modules():
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, FastDropout(child.p, child.inplace).train(child.training))
