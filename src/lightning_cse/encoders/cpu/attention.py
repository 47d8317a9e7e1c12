"""Attention in windows, with its gradient: with dropout, torch has only a slow path on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from lightning_cse.encoders.architecture import padding_mask
from lightning_cse.encoders.cpu.dropout import dropout_scale, is_fast, keep_mask
from lightning_cse.encoders.cpu.windows import Windows

WINDOW_ATTENTION = "lightning_cse_windows"
"""The name of `window_attention` among transformers' implementations of attention."""


def _by_window(x: Tensor, count: int) -> Tensor:
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
        q, k, v = (_by_window(x, count) for x in (q, k, v * dropout_scale(dropout)))
        weights = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale).softmax(-1)
        mask = keep_mask(tuple(weights.shape), dropout)
        ctx.save_for_backward(q, k, v, weights, mask)
        ctx.count = count
        ctx.dropout = dropout
        ctx.scale = scale

        return _by_window(torch.bmm(mask.to(q.dtype).mul_(weights), v), count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, mask = ctx.saved_tensors
        g = _by_window(grad, ctx.count)
        keeps = mask.to(grad.dtype)
        weights_grad = torch.bmm(g, v.transpose(1, 2)).mul_(keeps)
        scores_grad = torch._softmax_backward_data(weights_grad, weights, -1, weights.dtype)
        q_grad = torch.bmm(scores_grad, k).mul_(ctx.scale)
        k_grad = torch.bmm(scores_grad.transpose(1, 2), q).mul_(ctx.scale)
        v_grad = torch.bmm(keeps.mul_(weights).transpose(1, 2), g).mul_(dropout_scale(ctx.dropout))
        gradients = (_by_window(x, ctx.count) for x in (q_grad, k_grad, v_grad))

        return *gradients, scores_grad if ctx.needs_input_grad[3] else None, None, None, None


def window_attention(
    module: nn.Module,
    *states: Any,
    windows: Windows | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend in windows, else as transformers does: three (1, heads, tokens, width) -> (1, tokens,
    heads, width).
    """
    if windows is None:
        return sdpa_attention_forward(module, *states, dropout=dropout, **options)  # type: ignore[misc]

    q, k, v = (tensor[0].transpose(0, 1) for tensor in states[:3])  # (tokens, heads, width)
    q, k = q.to(v.dtype), k.to(v.dtype)  # under autocast, rotary positions leave them in float32
    heads = q.shape[1]
    groups = heads // k.shape[1]
    if groups > 1:  # grouped queries: several heads share keys and values
        k, v = (tensor.repeat_interleave(groups, 1) for tensor in (k, v))

    reach = options.get("sliding_window")
    # Only the attention with dropout reads one bias per head; a long window's is large.
    bias = windows.bias_within(reach).to(q.dtype)
    if dropout > 0 and is_fast(q, dropout):
        bias = windows.bias_a_head(q.dtype, heads, reach)

    mixed = attend(
        q,
        k,
        v,
        bias,
        count=windows.count,
        dropout=dropout,
        scale=options.get("scaling") or q.shape[-1] ** -0.5,
    )

    return mixed[None], None


AttentionInterface.register(WINDOW_ATTENTION, window_attention)
AttentionMaskInterface.register(WINDOW_ATTENTION, padding_mask)


class FastOutput(nn.Module):
    """The output of a block of a BERT-like model: ``norm(dropout(dense(x)) + residual)``."""

    def __init__(self, output: nn.Module) -> None:
        super().__init__()
        self.dense = output.get_submodule("dense")
        self.dropout = output.get_submodule("dropout")
        self.LayerNorm = output.get_submodule("LayerNorm")

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """Add in place and in one dtype: a sum of two dtypes takes longer than a cast and a sum."""
        hidden = self.dropout(self.dense(hidden)).to(residual.dtype)
        normed: Tensor = self.LayerNorm(hidden.add_(residual))

        return normed
