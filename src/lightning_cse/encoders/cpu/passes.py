"""Passes on a CPU: sequences packed into windows, or padded where their lengths are alike.

The backbone sees the tokens of a pass as one long row, cut into windows of one width. Each window
holds whole sequences, and a token attends only to its own sequence. A layer is then a few
operations whose shapes recur from step to step. oneDNN caches about a thousand compiled products,
and with one shape per length it would compile all the time (`docs/decisions.md`).
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lightning_cse.encoders.cpu.windows import Windows
from lightning_cse.encoders.passes import Passes, cut_by_length
from lightning_cse.encoders.pooling import pool
from lightning_cse.encoders.templates import Sequences

if TYPE_CHECKING:
    from lightning_cse.encoders.augmentation import Augmentation

TOKENS_AT_ONCE = 4096
"""Enough tokens for the matrix products, few enough for the cache."""

PASSED_AT_ONCE = 2048
"""The same where there are neither gradients nor dropout: half the memory, and no slower."""

PADDING = 64
"""There, padding tokens of a group: about the cost of another group."""

FILLED = 0.86
"""The share of real tokens in windows of sequences of any lengths."""

WIDEST = 2048
"""Tokens of the longest sequence that is packed: the bias of a window is quadratic in its width."""

_TRIM_THRESHOLD = -1  # of malloc.h
_MMAP_THRESHOLD = -3


class PaddedPasses(Passes):
    """Padded passes on a CPU, for backbones whose attention takes no windows."""

    def groups(self, lengths: np.ndarray) -> list[int]:
        """Return the ends of the groups that sequences sorted by length are padded in."""
        if self.draws:
            return cut_by_length(lengths, 256, self.most)

        most = min(PASSED_AT_ONCE, self.most or PASSED_AT_ONCE)

        return cut_by_length(lengths, PADDING, most)


class PackedPasses(PaddedPasses):
    """Passes that pack sequences into windows, unless padding them costs less."""

    name: ClassVar = "packed"

    def vectors(self, sequences: Sequences) -> Iterator[Tensor]:
        """Yield the pooled vectors of groups of sequences, which are sorted by length."""
        lengths = sequences.lengths
        # While dropout is drawn or gradients are computed, the shapes of rows stay as they are.
        may_pad = not self.draws
        if lengths.max() > WIDEST or (
            may_pad and pads_little(lengths, self.groups(lengths), PADDING)
        ):
            yield from super().vectors(sequences)
            return

        if self.draws:
            keep_freed_memory()  # not before: reading a corpus would keep half as much memory again

        at_once = TOKENS_AT_ONCE if self.draws else PASSED_AT_ONCE
        ends = cut_evenly(lengths, min(at_once, self.most or at_once))
        parts = [sequences.take(slice(start, end)) for start, end in pairwise([0, *ends])]
        rows = [self._row(part) for part in parts]
        embedded = self._embedded([ids for ids, *_ in rows])
        for part, (_, inputs, indices, mask), vectors in zip(parts, rows, embedded, strict=True):
            change = None
            if self.augment is not None:
                change = partial(_augmented_row, augment=self.augment, indices=indices, mask=mask)

            hidden = self.states({"inputs_embeds": vectors[None], **inputs}, change)[0]
            hidden = hidden.index_select(0, indices.flatten()).unflatten(0, indices.shape)
            yield pool(self.pooling, hidden, mask, torch.from_numpy(part.pooled))

    def _embedded(self, ids: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the word embeddings of each row of tokens."""
        table = self.backbone.get_input_embeddings()
        if torch.is_grad_enabled():
            # One look-up for all rows, since the gradient of each is as large as the whole table.
            sizes = [len(row) for row in ids]
            yield from table(torch.cat(list(ids))).split(sizes)
        else:
            yield from map(table, ids)

    def _row(self, part: Sequences) -> tuple[Tensor, dict[str, Any], Tensor, Tensor]:
        """Lay sequences out in one row of windows.

        Return the ids, a model's inputs, and the index in the row and the mask (n, length) of each
        token.
        """
        windows = Windows.pack(part.lengths, is_causal=self.is_causal)
        width = int(part.lengths.max())
        position = torch.arange(width).expand(len(part.lengths), -1)
        mask = position < torch.from_numpy(part.lengths)[:, None]
        indices = torch.from_numpy(windows.starts)[:, None] + position
        inside = indices[mask]

        def laid_out(values: Tensor, padding: int) -> Tensor:
            row = torch.full((windows.count * windows.width,), padding)
            return row.index_copy_(0, inside, values[:, :width][mask])

        first = self.first_position
        inputs: dict[str, Any] = {
            "position_ids": laid_out(part.positions + first, first)[None],
            "windows": windows,
            # A mask of four dimensions is taken as it is: without one, some architectures would
            # make a mask of tokens x tokens. Attention in windows ignores it.
            "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool),
        }
        if self.has_segments:
            inputs["token_type_ids"] = laid_out(part.type_ids, 0)[None]

        ids = laid_out(part.ids, self.pad_id)

        return ids, inputs, indices.where(mask, 0), mask


def _augmented_row(row: Tensor, *, augment: Augmentation, indices: Tensor, mask: Tensor) -> Tensor:
    """Augment the sequences that are laid out in one row of embeddings: (1, tokens, d)."""
    tokens = row[0]
    matrices = tokens.index_select(0, indices.flatten()).unflatten(0, indices.shape)
    augmented = augment.embeddings(matrices, mask)[mask]

    return tokens.index_copy(0, indices[mask], augmented)[None]


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


def pads_little(lengths: np.ndarray, ends: Sequence[int], overhead: int) -> bool:
    """Return whether groups of sentences sorted by length cost less padded than packed: the padded
    tokens and the ``overhead`` of each group, compared with windows.
    """
    sizes = np.diff([0, *ends])
    padded = int((sizes * lengths[np.array(ends) - 1]).sum()) + overhead * len(ends)

    return padded * FILLED <= int(lengths.sum()) + overhead


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
