"""MPNet in windows: its relative positions are a bias, which it adds in an attention of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.mpnet.modeling_mpnet import (
    MPNetAttention,
    MPNetEncoder,
    MPNetSelfAttention,
)

from lightning_cse.encoders.packing import Windows, attend


@dataclass(frozen=True)
class _WindowBias:
    """What MPNet's layers get in the place of their bias of positions."""

    windows: Windows
    bias: Tensor


def use_windows(backbone: PreTrainedModel) -> None:
    """Make MPNet accept ``windows=``."""
    backbone.register_forward_pre_hook(_hand_over, with_kwargs=True)
    for module in backbone.modules():
        module.__class__ = _WINDOWED.get(type(module), type(module))


def _hand_over(
    backbone: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give the windows to MPNet's encoder: the model does not pass on what it does not know.

    A mask of padding becomes a bias: transformers' search for one without would wait for a GPU.
    """
    backbone.encoder.windows = options.pop("windows", None)
    mask = options.get("attention_mask")
    if mask is not None and mask.ndim == 2:
        bias = torch.zeros(mask.shape, dtype=backbone.dtype, device=mask.device)
        bias.masked_fill_(mask == 0, torch.finfo(bias.dtype).min)
        options["attention_mask"] = bias[:, None, None]

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

        return _WindowBias(windows, (windows.bias + relative).to(dtype))


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
            return super().forward(hidden_states, attention_mask, position_bias, *args, **kwargs)  # type: ignore[no-untyped-call]

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


_WINDOWED: dict[type[nn.Module], type[nn.Module]] = {
    MPNetAttention: _WindowAttentionBlock,
    MPNetEncoder: _WindowEncoder,
    MPNetSelfAttention: _WindowSelfAttention,
}
