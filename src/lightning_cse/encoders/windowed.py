"""Backbones of transformers that attend in windows (`lightning_cse.encoders.packing`)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from lightning_cse.encoders.packing import Windows, attend, is_fast

MODEL_TYPES = (
    "albert",
    "bert",
    "camembert",
    "distilbert",
    "electra",
    "gemma3_text",
    "llama",
    "mistral",
    "modernbert",
    "qwen2",
    "qwen3",
    "roberta",
    "xlm-roberta",
)
"""Backbones whose forward passes ``windows`` on to attention, and takes ``inputs_embeds`` and
``position_ids``.
"""

_NAME = "lightning_cse"


def use_window_attention(backbone: PreTrainedModel) -> bool:
    """Make the backbone's attention accept ``windows=``; return whether it can."""
    kind = backbone.config.model_type
    if kind == "mpnet":
        from lightning_cse.encoders.mpnet import use_windows  # loads transformers' own module

        use_windows(backbone)
    elif kind in MODEL_TYPES:
        backbone.set_attn_implementation(_NAME)
    else:
        return False

    for module in backbone.modules():
        if {"dense", "dropout", "LayerNorm"} == {name for name, _ in module.named_children()}:
            module.__class__ = FastOutput

    return True


class FastOutput(nn.Module):
    """The output of a block of a BERT-like model: ``norm(dropout(dense(x)) + residual)``."""

    dense: nn.Module
    dropout: nn.Module
    LayerNorm: nn.Module

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """Add in place and in one dtype: a sum of two dtypes takes longer than a cast and a sum."""
        hidden = self.dropout(self.dense(hidden)).to(residual.dtype)
        normed: Tensor = self.LayerNorm(hidden.add_(residual))

        return normed


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
    if reach is not None and windows.includes_bound:
        reach += 1

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


def padding_mask(**options: Any) -> Tensor | None:
    """Return transformers' mask; its search for a mask without padding would wait for a GPU."""
    if options["attention_mask"] is not None:
        options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}

    return sdpa_mask(**options)


AttentionInterface.register(_NAME, window_attention)
AttentionMaskInterface.register(_NAME, padding_mask)
