"""Sequences packed into windows almost without padding, and a fast dropout: what makes one pass on a CPU fast.

The backbone sees all tokens of a step as one long row, so its matrix products, norms and dropouts touch next to no
padding. Only attention needs to know where a sequence ends: the row is cut into windows of one width, each filled with
whole sequences, and a token attends to its own sequence in its window. So a layer is a handful of operations whatever
the lengths, and their shapes come back from step to step: oneDNN keeps some thousand compiled products, and with a
shape for each length of each step it compiled anew all the time (`docs/decisions.md`). `torch`'s own kernel is taken
where nothing is dropped; with dropout it has only a slow path on a CPU, so products, softmax and dropout are written
out here with their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

MODEL_TYPES = ("bert", "roberta", "xlm-roberta")
"""Backbones whose forward is known to hand ``windows`` through to attention, and to take ``inputs_embeds``."""

NARROWEST = 32
"""The narrowest window in tokens, and the step between widths: few widths, few shapes."""

TOKEN_COST = 96
"""What a token costs outside attention, in entries of its row of attention weights."""

_NAME = "lightning_cse"


def use_window_attention(backbone: PreTrainedModel) -> bool:
    """Let the backbone's attention understand ``windows=``; return whether it can."""
    if backbone.config.model_type not in MODEL_TYPES:
        return False
    backbone.set_attn_implementation(_NAME)
    for module in backbone.modules():
        if type(module).__name__.endswith("SelfAttention"):
            module.register_forward_pre_hook(_cast_once)
    return True


@dataclass(frozen=True)
class Windows:
    """Where sequences lie in a row of tokens that is cut into windows.

    Attributes:
        count: the number of windows.
        width: tokens a window.
        starts: the place of each sequence's first token in the row: (n,).
        bias: 0 where a token may attend to another of its window, -inf elsewhere: (count, 1, width, width). The padding
            at a window's end attends to itself, so that nothing is divided by 0; no gradient comes back from there.
    """

    count: int
    width: int
    starts: np.ndarray
    bias: Tensor

    @classmethod
    def pack(cls, lengths: np.ndarray) -> Windows:
        """Pack sequences of these lengths into windows, the longest first, each into the first that has room.

        Of a few widths the one is taken that costs least: padding and the entries of attention weights weighed against
        each other.
        """
        longest = -(-int(lengths.max()) // NARROWEST) * NARROWEST
        packed = {width: _first_fit(lengths, width) for width in (longest + NARROWEST * k for k in range(3))}
        width = min(packed, key=lambda w: (packed[w][1] * w * (w + TOKEN_COST), w))
        starts, count = packed[width]
        sequence = np.full(count * width, -1)
        for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            sequence[start : start + length] = number
        owner = torch.from_numpy(sequence).view(count, 1, width)
        bias = torch.zeros(count, 1, width, width).masked_fill_(owner[..., None] != owner[..., None, :], -torch.inf)
        return cls(count, width, starts, bias)


def _first_fit(lengths: np.ndarray, width: int) -> tuple[np.ndarray, int]:
    """Return where each sequence starts, and how many windows there are."""
    starts = np.zeros(len(lengths), dtype=np.int64)
    room = np.full(len(lengths), width)
    for number in np.argsort(-lengths, kind="stable"):
        window = int(np.argmax(room >= lengths[number]))
        starts[number] = (window + 1) * width - room[window]
        room[window] -= lengths[number]
    return starts, int(np.count_nonzero(room < width))


def window_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    windows: Windows | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend inside each sequence: (1, heads, tokens, width) thrice -> (1, tokens, heads, width).

    Without ``windows`` this is transformers' own scaled dot-product attention over padded sequences.
    """
    if windows is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))  # (tokens, heads, width)
    if dropout > 0 and is_fast(q, dropout):
        mixed: Tensor = _WindowAttention.apply(q * scale, k, v, windows, dropout)  # type: ignore[no-untyped-call]
        return mixed[None], None
    q, k, v = (tensor.unflatten(0, (windows.count, windows.width)).transpose(1, 2) for tensor in (q, k, v))
    bias = windows.bias.to(q.dtype)
    mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, scale=scale)
    return mixed.transpose(1, 2).flatten(0, 1)[None], None


def _cast_once(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Cast the hidden states before query, key and value, which under autocast would each cast them again."""
    hidden: Tensor = args[0]
    kind = hidden.device.type
    if torch.is_autocast_enabled(kind):
        hidden = hidden.to(torch.get_autocast_dtype(kind))
    return (hidden, *args[1:])


def _heads_first(x: Tensor, windows: Windows) -> Tensor:
    """(tokens, heads, width) -> (windows * heads, tokens of a window, width), contiguous."""
    rows: Tensor = x.unflatten(0, (windows.count, windows.width))
    return rows.transpose(1, 2).flatten(0, 1)


def _put_back(x: Tensor, windows: Windows) -> Tensor:
    """Undo `_heads_first`."""
    rows: Tensor = x.unflatten(0, (windows.count, -1))
    return rows.transpose(1, 2).flatten(0, 1)


def _softmax(scores: Tensor, bias: Tensor) -> Tensor:
    """Softmax over short rows of scores + bias, in float32, which may overwrite float32 scores.

    torch's own is several times slower where a row does not fill its vector registers.
    """
    raised = scores.float()
    raised.unflatten(0, (len(bias), -1)).add_(bias)
    raised = raised.sub_(raised.amax(-1, keepdim=True)).exp_()
    return raised.mul_(raised.sum(-1, keepdim=True).reciprocal_()).to(scores.dtype)


class _WindowAttention(torch.autograd.Function):
    r"""``dropout(softmax(q k^T + bias)) v`` in each window, for ``q`` already scaled; tensors (tokens, heads, width).

    With weights :math:`P`, mask :math:`M`, :math:`D = P \circ M` and result :math:`O = D V`:

    .. math:: \frac{\partial}{\partial (qk^T)_{ij}} = P_{ij} (M_{ij} (\partial O_i \cdot V_j) - \partial O_i \cdot O_i)
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, windows: Windows, dropout: float) -> Tensor:
        q, k, v = (_heads_first(x, windows) for x in (q, k, v))
        weights = _softmax(torch.bmm(q, k.transpose(1, 2)), windows.bias)
        mask = keep_mask(tuple(weights.shape), dropout)
        out = torch.bmm(apply_mask(weights, mask, dropout), v)
        ctx.save_for_backward(out, q, k, v, weights, mask)
        ctx.windows, ctx.dropout = windows, dropout
        return _put_back(out, windows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        windows, dropout = ctx.windows, ctx.dropout
        out, q, k, v, weights, mask = ctx.saved_tensors
        g = _heads_first(grad, windows)
        inner = (g.float() * out).sum(-1, keepdim=True)
        dropped_grad = apply_mask(torch.bmm(g, v.transpose(1, 2)), mask, dropout)
        scores_grad = dropped_grad.float().sub_(inner).mul_(weights).to(grad.dtype)
        q_grad = torch.bmm(scores_grad, k)
        k_grad = torch.bmm(scores_grad.transpose(1, 2), q)
        v_grad = torch.bmm(apply_mask(weights, mask, dropout).transpose(1, 2), g)
        q_grad, k_grad, v_grad = (_put_back(x, windows) for x in (q_grad, k_grad, v_grad))
        return q_grad, k_grad, v_grad, None, None


AttentionInterface.register(_NAME, window_attention)
AttentionMaskInterface.register(_NAME, sdpa_mask)


# Dropout without torch's serial random bits, which are a fifth of a training step on a CPU.

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


# Where sequences are padded: few groups that waste little.


def cut_by_length(lengths: Sequence[int] | np.ndarray, overhead: int = 256, most: int | None = None) -> list[int]:
    r"""Cut sentences sorted by length into groups with the least total cost, and return the ends of the groups.

    .. math:: \text{cost} = \sum_{\text{groups}} (n_g \cdot \max_{i \in g} \ell_i + \text{overhead})

    with :math:`n_g` sentences of length :math:`\ell_i` in group g; ``overhead`` is what one more group costs, in
    tokens, and ``most`` the most padded tokens a group may hold (a single sentence may exceed it). Solved exactly by
    dynamic programming over the distinct lengths; groups over ``most`` are cut evenly into as few as fit.

    Example:
        >>> cut_by_length([5, 5, 6, 90], overhead=10)
        [3, 4]
        >>> cut_by_length([4, 4, 4, 4], most=8)
        [2, 4]
    """
    lengths = np.asarray(lengths)
    if len(lengths) == 0:
        return []
    distinct, counts = np.unique(lengths, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(counts)])
    best = np.zeros(len(distinct) + 1)
    previous = np.zeros(len(distinct) + 1, dtype=int)
    for k in range(1, len(distinct) + 1):
        costs = best[:k] + (ends[k] - ends[:k]) * distinct[k - 1] + overhead
        previous[k] = int(np.argmin(costs))
        best[k] = costs[previous[k]]
    cuts = []
    k = len(distinct)
    while k > 0:
        cuts.append((int(ends[previous[k]]), int(ends[k])))
        k = int(previous[k])
    groups: list[int] = []
    for start, end in reversed(cuts):
        room = end - start if most is None else max(1, most // int(lengths[end - 1]))
        pieces = -(-(end - start) // room)
        groups += [start + (end - start) * piece // pieces for piece in range(1, pieces + 1)]
    return groups
