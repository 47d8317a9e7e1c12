"""MPNet in windows: its relative positions are a bias, which it adds in an attention of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder, MPNetSelfAttention

from lightning_cse.encoders.cpu.attention import attend
from lightning_cse.encoders.cpu.windows import Windows


@dataclass(frozen=True)
class _WindowBias:
    """What MPNet's layers get in the place of their bias of positions."""

    windows: Windows
    bias: Tensor


def accept_windows(backbone: PreTrainedModel) -> None:
    """Make MPNet accept ``windows=``: the model does not pass on what it does not know."""
    backbone.register_forward_pre_hook(_hand_over, with_kwargs=True)


def _hand_over(
    backbone: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    backbone.encoder.windows = options.pop("windows", None)
    return args, options


class WindowEncoder(MPNetEncoder):
    """MPNet's layers, whose bias of positions is that of windows.

    A sequence stands in one piece, so two of its tokens are as far apart as in a row of its own:
    one bias (1, heads, width, width) serves all windows.
    """

    def __init__(self, encoder: MPNetEncoder) -> None:
        nn.Module.__init__(self)
        self.config = encoder.config
        self.n_heads = encoder.n_heads
        self.layer = encoder.layer
        self.relative_attention_bias = encoder.relative_attention_bias
        self.windows: Windows | None = None

    def compute_position_bias(self, x: Tensor, *args: Any, **options: Any) -> Any:
        """Return the bias of positions, or a `_WindowBias` for a row of windows."""
        if self.windows is None:
            return super().compute_position_bias(x, *args, **options)  # type: ignore[no-untyped-call]

        windows = self.windows
        window = x[:, : windows.width]
        relative = super().compute_position_bias(window)  # type: ignore[no-untyped-call]
        dtype = x.dtype
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)

        return _WindowBias(windows, (windows.bias + relative).to(dtype))


class WindowSelfAttention(MPNetSelfAttention):
    """MPNet's attention in windows; for other rows, its own."""

    def __init__(self, attention: MPNetSelfAttention) -> None:
        nn.Module.__init__(self)
        self.num_attention_heads = attention.num_attention_heads
        self.attention_head_size = attention.attention_head_size
        self.all_head_size = attention.all_head_size
        self.q = attention.q
        self.k = attention.k
        self.v = attention.v
        self.o = attention.o
        self.dropout = attention.dropout

    def forward(
        self,
        hidden_states: Any,
        attention_mask: Any = None,
        position_bias: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Attend in windows if the bias of positions is that of windows."""
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


class WindowAttentionBlock(nn.Module):
    """``norm(dropout(attention(x)) + x)``, added in place as in `FastOutput`."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.attn = block.get_submodule("attn")
        self.LayerNorm = block.get_submodule("LayerNorm")
        self.dropout = block.get_submodule("dropout")

    def forward(self, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the block, and what else the attention returns."""
        mixed, *weights = self.attn(hidden_states, *args, **kwargs)
        mixed = self.dropout(mixed).to(hidden_states.dtype)
        return (self.LayerNorm(mixed.add_(hidden_states)), *weights)


ATTENTION: Mapping[str, Callable[[Any], nn.Module]] = {
    "MPNetAttention": WindowAttentionBlock,
    "MPNetEncoder": WindowEncoder,
    "MPNetSelfAttention": WindowSelfAttention,
}
