"""Self-attention over sequences laid end to end, without padding: what makes one pass on a CPU fast.

The backbone sees all tokens of a step as one long row, so its matrix products, norms and dropouts touch no padding.
Only attention needs to know where a sequence ends. Sequences are sorted by length; those of one length are a block
that needs no mask. `torch`'s own kernel is taken where nothing is dropped; with dropout it has only a slow path on a
CPU, so products, softmax and dropout are written out here with their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from lightning_cse.encoders.dropout import apply_mask, is_fast, keep_mask

Blocks = Sequence[tuple[int, int]]
"""Blocks of sequences that follow each other: (number of sequences, their length)."""

MODEL_TYPES = ("bert", "roberta", "xlm-roberta")
"""Backbones whose forward is known to hand ``blocks`` through to attention, and to take ``inputs_embeds``."""

_NAME = "lightning_cse"


def use_block_attention(backbone: PreTrainedModel) -> bool:
    """Let the backbone's attention understand ``blocks=``; return whether it can."""
    if backbone.config.model_type not in MODEL_TYPES:
        return False
    backbone.set_attn_implementation(_NAME)
    for module in backbone.modules():
        if type(module).__name__.endswith("SelfAttention"):
            module.register_forward_pre_hook(_cast_once)
    return True


def block_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    blocks: Blocks | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend inside each sequence: (1, heads, tokens, width) thrice -> (1, tokens, heads, width).

    Without ``blocks`` this is transformers' own scaled dot-product attention over padded sequences.
    """
    if blocks is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))  # (tokens, heads, width)
    if dropout > 0 and is_fast(q, dropout):
        mixed: Tensor = _BlockAttention.apply(q * scale, k, v, blocks, dropout)  # type: ignore[no-untyped-call]
        return mixed[None], None
    sizes = [count * length for count, length in blocks]
    parts = []
    for (count, length), *qkv in zip(blocks, *(tensor.split(sizes) for tensor in (q, k, v)), strict=True):
        q_block, k_block, v_block = (tensor.unflatten(0, (count, length)).transpose(1, 2) for tensor in qkv)
        part = nn.functional.scaled_dot_product_attention(q_block, k_block, v_block, dropout_p=dropout, scale=scale)
        parts.append(part.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts)[None], None


def _cast_once(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Cast the hidden states before query, key and value, which under autocast would each cast them again."""
    hidden: Tensor = args[0]
    kind = hidden.device.type
    if torch.is_autocast_enabled(kind):
        hidden = hidden.to(torch.get_autocast_dtype(kind))
    return (hidden, *args[1:])


def _heads_first(x: Tensor, count: int, length: int) -> Tensor:
    """(count * length, heads, width) -> (count * heads, length, width), contiguous."""
    rows: Tensor = x.unflatten(0, (count, length))
    return rows.transpose(1, 2).flatten(0, 1)


def _put_back(target: Tensor, x: Tensor, count: int, length: int) -> None:
    """Undo `_heads_first`, into ``target``."""
    rows: Tensor = target.unflatten(0, (count, length))
    rows.copy_(x.unflatten(0, (count, -1)).transpose(1, 2))


def _softmax(scores: Tensor) -> Tensor:
    """Softmax over short rows, in float32, which may overwrite float32 scores.

    torch's own is several times slower where a row does not fill its vector registers.
    """
    raised = scores.float()
    raised = raised.sub_(raised.amax(-1, keepdim=True)).exp_()
    return raised.mul_(raised.sum(-1, keepdim=True).reciprocal_()).to(scores.dtype)


class _BlockAttention(torch.autograd.Function):
    r"""``dropout(softmax(q k^T)) v`` in each sequence, for ``q`` already scaled; tensors (tokens, heads, width).

    With weights :math:`P`, mask :math:`M`, :math:`D = P \circ M` and result :math:`O = D V`:

    .. math:: \frac{\partial}{\partial (qk^T)_{ij}} = P_{ij} (M_{ij} (\partial O_i \cdot V_j) - \partial O_i \cdot O_i)
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, blocks: Blocks, dropout: float) -> Tensor:
        out = torch.empty(v.shape, dtype=v.dtype)
        sizes = [count * length for count, length in blocks]
        entries = [count * q.shape[1] * length * length for count, length in blocks]
        masks = keep_mask((sum(entries),), dropout).split(entries)
        saved: list[Tensor] = []
        parts = zip(blocks, masks, out.split(sizes), *(x.split(sizes) for x in (q, k, v)), strict=True)
        for (count, length), mask, out_block, *qkv in parts:
            q_block, k_block, v_block = (_heads_first(x, count, length) for x in qkv)
            weights = _softmax(torch.bmm(q_block, k_block.transpose(1, 2)))
            mask = mask.view(weights.shape)
            _put_back(out_block, torch.bmm(apply_mask(weights, mask, dropout), v_block), count, length)
            saved += [q_block, k_block, v_block, weights, mask]
        ctx.save_for_backward(out, *saved)
        ctx.blocks, ctx.dropout = blocks, dropout
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        blocks, dropout = ctx.blocks, ctx.dropout
        out, *rest = ctx.saved_tensors
        saved = iter(rest)
        q_grad, k_grad, v_grad = (torch.empty(grad.shape, dtype=grad.dtype) for _ in range(3))
        inner = (grad.float() * out).sum(-1, keepdim=True)
        sizes = [count * length for count, length in blocks]
        parts = zip(blocks, *(x.split(sizes) for x in (grad, inner, q_grad, k_grad, v_grad)), strict=True)
        for (count, length), grad_block, inner_block, *targets in parts:
            q, k, v, weights, mask = (next(saved) for _ in range(5))
            g, inner_rows = _heads_first(grad_block, count, length), _heads_first(inner_block, count, length)
            dropped_grad = apply_mask(torch.bmm(g, v.transpose(1, 2)), mask, dropout)
            scores_grad = dropped_grad.float().sub_(inner_rows).mul_(weights).to(grad.dtype)
            q_back = torch.bmm(scores_grad, k)
            k_back = torch.bmm(scores_grad.transpose(1, 2), q)
            v_back = torch.bmm(apply_mask(weights, mask, dropout).transpose(1, 2), g)
            for target, back in zip(targets, (q_back, k_back, v_back), strict=True):
                _put_back(target, back, count, length)
        return q_grad, k_grad, v_grad, None, None


AttentionInterface.register(_NAME, block_attention)
AttentionMaskInterface.register(_NAME, sdpa_mask)
