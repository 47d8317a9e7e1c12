"""Sequences packed into windows, almost without padding."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

NARROWEST = 32
"""The narrowest window in tokens, and the step between widths: few widths make few shapes."""

TOKEN_COST = 96
"""The cost of a token outside attention, in entries of its row of attention weights."""


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
    # Shared by all layers.
    _within: dict[int, Tensor] = field(default_factory=dict, repr=False)
    _biases: dict[tuple[torch.dtype, int | None], Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def pack(cls, lengths: np.ndarray, *, is_causal: bool = False) -> Windows:
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

        return cls(count, width, starts, bias)

    def bias_within(self, reach: int | None) -> Tensor:
        """Return the bias of a layer with a sliding window, whose tokens see those less than
        ``reach`` away; None for all.
        """
        if reach is None or reach >= self.width:
            return self.bias

        if reach not in self._within:
            position = torch.arange(self.width)
            is_far = (position[:, None] - position).abs() >= reach
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
