"""Linear layers whose weights stand in oneDNN's own layout while no gradients are computed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_ROWS = 1024
"""The rows of a product that oneDNN chooses the layout for; any other number is right, too."""


class PrepackedLinear(nn.Linear):
    """`torch.nn.Linear` that multiplies with a prepacked copy of its weights on a CPU.

    The copy is made for each dtype (under autocast, its own), and again after a weight was changed.
    With gradients and on other devices, it is the base class.
    """

    _prepacked: tuple[Any, Tensor, Tensor | None] | None = None

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name of the base class
        """Return ``x W^T + b``."""
        if torch.is_grad_enabled() or not input.is_cpu:
            return super().forward(input)

        dtype = self.weight.dtype
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")

        weight, bias = self._packed(dtype)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            input.to(dtype),
            weight,
            bias,
            "none",
            [],
            "",
        )

        return product

    def _packed(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Return the weight in oneDNN's layout, and the bias."""
        key: list[Any] = [dtype]
        for value in (self.weight, self.bias):
            if value is not None and not value.is_inference():  # whose changes are not counted
                key += [value.data_ptr(), value._version]

        if self._prepacked is None or self._prepacked[0] != key:
            packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.to(dtype), _ROWS)
            self._prepacked = (key, packed, None if self.bias is None else self.bias.to(dtype))

        _, weight, bias = self._prepacked

        return weight, bias

    def __getstate__(self) -> dict[str, Any]:
        """Leave the copy out, which cannot be copied or pickled."""
        return {name: value for name, value in vars(self).items() if name != "_prepacked"}


def prepack(root: nn.Module) -> None:
    """Make every `torch.nn.Linear` under ``root`` a `PrepackedLinear` where torch has oneDNN."""
    if not torch.backends.mkldnn.is_available():
        return

    for module in root.modules():
        if type(module) is nn.Linear:
            module.__class__ = PrepackedLinear
