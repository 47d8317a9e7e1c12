"""Backbones of transformers that attend in windows (`lightning_cse.encoders.packing`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.mpnet.modeling_mpnet import (
    MPNetAttention,
    MPNetEncoder,
    MPNetSelfAttention,
)

from lightning_cse.encoders.packing import Windows, attend

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
        backbone.register_forward_pre_hook(_hand_over, with_kwargs=True)
    elif kind in MODEL_TYPES:
        backbone.set_attn_implementation(_NAME)
    else:
        return False

    for module in backbone.modules():
        module.__class__ = _MPNET.get(type(module), type(module))
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
        return sdpa_attention_forward(
            module,
            *states,
            dropout=dropout,
            **options,
        )  # type: ignore[misc]

    q, k, v = (tensor[0].transpose(0, 1) for tensor in states[:3])  # (tokens, heads, width)
    q, k = q.to(v.dtype), k.to(v.dtype)  # under autocast, rotary positions leave them in float32
    heads = q.shape[1]
    groups = heads // k.shape[1]
    if groups > 1:  # grouped queries: several heads share keys and values
        k, v = (tensor.repeat_interleave(groups, 1) for tensor in (k, v))

    reach = options.get("sliding_window")
    if reach is not None and windows.includes_bound:
        reach += 1

    mixed = attend(
        q,
        k,
        v,
        windows.bias_a_head(q.dtype, heads, reach),
        count=windows.count,
        dropout=dropout,
        scale=options.get("scaling") or q.shape[-1] ** -0.5,
    )

    return mixed[None], None


AttentionInterface.register(_NAME, window_attention)
AttentionMaskInterface.register(_NAME, sdpa_mask)


# MPNet, whose relative positions are a bias that it adds in an attention of its own


@dataclass(frozen=True)
class _WindowBias:
    """What MPNet's layers get in the place of their bias of positions."""

    windows: Windows
    bias: Tensor


def _hand_over(
    backbone: Any,
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give the windows to MPNet's encoder: the model does not pass on what it does not know."""
    backbone.encoder.windows = options.pop("windows", None)
    return args, options


class _WindowEncoder(MPNetEncoder):
    """MPNet's layers, whose bias of positions is that of windows.

    A sequence stands in one piece, so two of its tokens are as far apart as in a row of its own:
    one bias (1, heads, width, width) serves all windows.
    """

    windows: Windows | None = None

    def compute_position_bias(self, x: Tensor, *args: Any, **options: Any) -> Any:
        if self.windows is None:
            return super().compute_position_bias(x, *args, **options)  # type: ignore[no-untyped-call]

        windows = self.windows
        one = x[:, : windows.width]
        relative = super().compute_position_bias(one)  # type: ignore[no-untyped-call]
        dtype = x.dtype
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)

        return _WindowBias(windows, (windows.bias + relative).flatten(0, 1).to(dtype))


class _WindowSelfAttention(MPNetSelfAttention):
    """MPNet's attention in windows; for other rows, its own."""

    def forward(
        self,
        hidden_states: Any,
        attention_mask: Any = None,
        position_bias: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if not isinstance(position_bias, _WindowBias):
            return super().forward(
                hidden_states,
                attention_mask,
                position_bias,
                *args,
                **kwargs,
            )  # type: ignore[no-untyped-call]

        shape = (self.num_attention_heads, self.attention_head_size)
        q, k, v = (
            layer(hidden_states)[0].unflatten(1, shape) for layer in (self.q, self.k, self.v)
        )
        mixed = attend(
            q,
            k,
            v,
            position_bias.bias,
            count=position_bias.windows.count,
            dropout=self.dropout.p if self.training else 0.0,
            scale=self.attention_head_size**-0.5,
        )

        return (self.o(mixed.flatten(1))[None],)


class _WindowAttentionBlock(MPNetAttention):
    """``norm(dropout(attention(x)) + x)``, as in `FastOutput`."""

    def forward(self, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
        mixed, *others = self.attn(hidden_states, *args, **kwargs)
        mixed = self.dropout(mixed).to(hidden_states.dtype)
        return (self.LayerNorm(mixed.add_(hidden_states)), *others)


_MPNET: dict[type[nn.Module], type[nn.Module]] = {
    MPNetAttention: _WindowAttentionBlock,
    MPNetEncoder: _WindowEncoder,
    MPNetSelfAttention: _WindowSelfAttention,
}
