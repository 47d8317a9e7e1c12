"""Fast passes on a CPU: sequences packed into windows almost without padding, and a fast dropout.

The backbone sees all tokens of a step as one long row, cut into windows of one width. Each
window holds whole sequences, and a token attends only to its own sequence. A layer is then a
few operations whose shapes recur from step to step. oneDNN caches about a thousand compiled
products, and with one shape per length it would compile all the time. With dropout, torch has
only a slow path on a CPU, so attention and dropout are implemented here with their gradients
(`docs/decisions.md`).
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedConfig

from lightning_cse.errors import EncoderError


def cut_by_length(lengths: np.ndarray, overhead: int = 256, most: int | None = None) -> list[int]:
    """Cut sentences sorted by length into groups to pad, and return the ends of the groups.

    A group ends where one more sentence would bring its padding above ``overhead`` tokens, the cost
    of another group, or its padded size above ``most`` tokens. Lengths 5, 5, 6, 90 with overhead 10
    give 3, 4.
    """
    ends = []
    start = 0
    real = 0
    for end, length in enumerate(lengths.tolist()):
        padded = (end + 1 - start) * length
        is_wasteful = padded - real - length > overhead
        is_large = most is not None and padded > most
        if end > start and (is_wasteful or is_large):
            ends.append(end)
            start = end
            real = 0

        real += length

    return [*ends, len(lengths)]


def cut_evenly(lengths: np.ndarray, most: int | None) -> list[int]:
    """Cut sentences into groups of nearly equal numbers of tokens, about ``most``.

    Return their ends.
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1])
    pieces = -(-total // most) if most else 1
    # A sequence longer than a piece leaves some pieces empty, which unique() drops.
    _, sizes = np.unique((ends - 1) * pieces // total, return_counts=True)
    groups: list[int] = np.cumsum(sizes).tolist()

    return groups


FILLED = 0.86
"""The share of real tokens in windows of sequences of any lengths."""


def pads_little(lengths: np.ndarray, ends: Sequence[int], overhead: int) -> bool:
    """Return whether groups of sentences sorted by length cost less padded than packed: the padded
    tokens and the ``overhead`` of each group, compared with windows.
    """
    sizes = np.diff([0, *ends])
    padded = int((sizes * lengths[np.array(ends) - 1]).sum()) + overhead * len(ends)

    return padded * FILLED <= int(lengths.sum()) + overhead


WIDEST = 2048
"""Tokens of the longest sequence that is packed: the bias of a window is quadratic in its width."""

NARROWEST = 32
"""The narrowest window in tokens, and the step between widths: few widths make few shapes."""

TOKEN_COST = 96
"""The cost of a token outside attention, in entries of its row of attention weights."""

_TRIM_THRESHOLD = -1  # of malloc.h
_MMAP_THRESHOLD = -3


@functools.cache
def keep_freed_memory() -> None:
    """Keep the memory of freed CPU tensors in the process for later tensors, if the C library is
    glibc.

    Otherwise, it goes back to the system, which returns it page by page; this takes a tenth of
    a training step. If one of glibc's own ``MALLOC_*_`` variables is set, nothing is changed.
    """
    is_set = any(name.startswith("MALLOC_") for name in os.environ)
    if platform.libc_ver()[0] != "glibc" or is_set:
        return

    for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
        ctypes.CDLL(None).mallopt(option, 2**30)


@dataclass(frozen=True)
class Windows:
    """``count`` windows of ``width`` tokens; ``starts`` (n,) is where each sequence starts in the
    row of tokens.

    ``bias`` (count, 1, width, width) is 0 between tokens of one sequence, else -inf; with
    ``is_causal``, only for a token and those before it. Padding attends to padding, which avoids a
    division by 0.
    """

    count: int
    width: int
    starts: np.ndarray
    bias: Tensor
    includes_bound: bool = False
    """Whether a token sees those at the bound of a sliding window, as transformers' masks of both
    directions do for a decoder.
    """
    # Shared by all layers.
    _within: dict[int, Tensor] = field(default_factory=dict, repr=False)
    _biases: dict[tuple[torch.dtype, int | None], Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def pack(
        cls, lengths: np.ndarray, *, is_causal: bool = False, includes_bound: bool = False
    ) -> Windows:
        """Pack sequences, the longest first, each into the first window with room, at the cheapest
        of a few widths.
        """
        longest = -(-int(lengths.max()) // NARROWEST) * NARROWEST
        widths = [longest + NARROWEST * k for k in range(3)]
        packed = {width: _first_fit(lengths, width) for width in widths}
        # The first of the cheapest is the narrowest.
        width = min(widths, key=lambda width: packed[width][1] * width * (width + TOKEN_COST))
        starts, count = packed[width]
        sequence = np.full(count * width, -1)
        for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            sequence[start : start + length] = number

        owner = torch.from_numpy(sequence).view(count, 1, width)
        is_other = owner[..., None] != owner[..., None, :]
        if is_causal:
            is_other |= torch.ones(width, width, dtype=torch.bool).triu(1)

        bias = torch.zeros(count, 1, width, width).masked_fill_(is_other, -torch.inf)

        return cls(count, width, starts, bias, includes_bound)

    def bias_within(self, reach: int | None) -> Tensor:
        """Return the bias of a layer with a sliding window, whose tokens see those less than
        ``reach`` away; None for all.
        """
        if reach is None or reach >= self.width:
            return self.bias

        if reach not in self._within:
            place = torch.arange(self.width)
            is_far = (place[:, None] - place).abs() >= reach
            self._within[reach] = self.bias.masked_fill(is_far, -torch.inf)

        return self._within[reach]

    def bias_a_head(self, dtype: torch.dtype, heads: int, reach: int | None) -> Tensor:
        """Return the bias for every head: (count, heads, width, width), in memory of its own."""
        key = (dtype, reach)
        if key not in self._biases:
            bias = self.bias_within(reach).to(dtype).expand(-1, heads, -1, -1)
            self._biases[key] = bias.contiguous()

        return self._biases[key]


def _first_fit(lengths: np.ndarray, width: int) -> tuple[np.ndarray, int]:
    """Return where each sequence starts, and the number of windows."""
    starts = np.zeros(len(lengths), dtype=np.int64)
    room = np.full(len(lengths), width)
    for number in np.argsort(-lengths, kind="stable"):
        window = int(np.argmax(room >= lengths[number]))
        starts[number] = (window + 1) * width - room[window]
        room[window] -= lengths[number]

    return starts, int(np.count_nonzero(room < width))


def _swapped(x: Tensor, count: int) -> Tensor:
    """(tokens, heads, width) -> (windows * heads, tokens of a window, width), contiguous, and back
    again.
    """
    rows: Tensor = x.unflatten(0, (count, -1))
    return rows.transpose(1, 2).flatten(0, 1)


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *, count: int, dropout: float, scale: float
) -> Tensor:
    """Attend in each of ``count`` windows: tensors (tokens, heads, width), and a bias (count, heads
    or 1, tokens of a window, tokens of a window) that is added to the scaled products.
    """
    if dropout > 0 and is_fast(q, dropout):
        mixed: Tensor = _WindowAttention.apply(
            q, k, v, bias.expand(-1, q.shape[1], -1, -1).flatten(0, 1), count, dropout, scale
        )  # type: ignore[no-untyped-call]
        return mixed

    q, k, v = (tensor.unflatten(0, (count, -1)).transpose(1, 2) for tensor in (q, k, v))
    mixed = nn.functional.scaled_dot_product_attention(q, k, v, bias, dropout, scale=scale)

    return mixed.transpose(1, 2).flatten(0, 1)


class _WindowAttention(torch.autograd.Function):
    r"""``dropout(softmax(scale q k^T + bias)) v`` in each of ``count`` windows; tensors (tokens,
    heads, width), and a bias (count * heads, tokens of a window, tokens of a window).

    With weights :math:`P`, mask :math:`M` of 0 and 1, :math:`c = 1 / (1 - p)` and result
    :math:`O = (P \circ M) (c V)`:

    .. math:: \frac{\partial}{\partial P} = M \circ (\partial O\, (c V)^T)

    A pass over the weights costs as much as a product. So the product adds the bias, ``v``
    takes the scale of dropout, and softmax and its gradient are torch's, which round to
    bfloat16 only once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor,
        count: int,
        dropout: float,
        scale: float,
    ) -> Tensor:
        q, k, v = (_swapped(x, count) for x in (q, k, v * _scale(dropout)))
        weights = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale).softmax(-1)
        mask = keep_mask(tuple(weights.shape), dropout)
        ctx.save_for_backward(q, k, v, weights, mask)
        ctx.count = count
        ctx.dropout = dropout
        ctx.scale = scale

        return _swapped(torch.bmm(mask.to(q.dtype).mul_(weights), v), count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, mask = ctx.saved_tensors
        g = _swapped(grad, ctx.count)
        kept = mask.to(grad.dtype)
        weights_grad = torch.bmm(g, v.transpose(1, 2)).mul_(kept)
        scores_grad = torch._softmax_backward_data(weights_grad, weights, -1, weights.dtype)
        q_grad = torch.bmm(scores_grad, k).mul_(ctx.scale)
        k_grad = torch.bmm(scores_grad.transpose(1, 2), q).mul_(ctx.scale)
        v_grad = torch.bmm(kept.mul_(weights).transpose(1, 2), g).mul_(_scale(ctx.dropout))
        gradients = (_swapped(x, ctx.count) for x in (q_grad, k_grad, v_grad))

        return *gradients, scores_grad if ctx.needs_input_grad[3] else None, None, None, None


LANES = 65_536
"""Dropout draws 16 bits per element and rounds p.

Torch's own bits take a fifth of a training step on a CPU.
"""

_FAST = (torch.bfloat16, torch.float32)


def is_fast(x: Tensor, p: float) -> bool:
    """Whether `keep_mask` and `apply_mask` can stand in for torch's dropout."""
    return x.device.type == "cpu" and x.dtype in _FAST and 0 < round(p * LANES) < LANES


def keep_mask(shape: tuple[int, ...], p: float) -> Tensor:
    """Draw an int8 mask, 0 with probability ``p``, else 1, from torch's random state."""
    count = math.prod(shape)
    seed = int(torch.randint(2**63 - 1, ()))
    lanes = np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.uint16)[:count]

    return torch.from_numpy(np.greater_equal(lanes, round(p * LANES)).view(np.int8)).view(shape)


def _scale(p: float) -> float:
    """Return 1 / (1 - p), for the rounded p."""
    return LANES / (LANES - round(p * LANES))


def apply_mask(x: Tensor, mask: Tensor, p: float) -> Tensor:
    """Return ``x / (1 - p)`` where the mask keeps and 0 elsewhere, for the rounded ``p`` that it
    was drawn with.
    """
    # A product of two tensors of one dtype is several times as fast as one with a bool, torch.where
    # or a bitwise and.
    return mask.to(x.dtype).mul_(x).mul_(_scale(p))


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
    """`torch.nn.Dropout` with faster random bits on a CPU, for bfloat16 and float32.

    The distribution is the same.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name of the base class
        """Drop elements in training mode; scale the others so that the mean stays."""
        if self.training and not self.inplace and is_fast(input, self.p):
            dropped: Tensor = _Dropout.apply(input, self.p)  # type: ignore[no-untyped-call]
            return dropped

        return super().forward(input)


def make_dropout_fast(root: nn.Module) -> None:
    """Make every `torch.nn.Dropout` under ``root`` a `FastDropout` of the same probability."""
    for module in root.modules():
        if type(module) is nn.Dropout:
            module.__class__ = FastDropout


def set_dropout(config: PreTrainedConfig, p: float | None) -> None:
    """Set every dropout probability of a config, whatever keys its architecture has for them.

    None leaves them.
    """
    if p is None:
        return
    if type(p) not in (int, float) or not 0 <= p < 1:
        raise EncoderError(f"encoder.dropout: must be in [0, 1), got {p!r}")

    for key, value in config.to_dict().items():
        is_dropout = "dropout" in key or "_drop" in key
        if is_dropout and type(value) in (int, float):
            setattr(config, key, p)
