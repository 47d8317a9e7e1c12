"""Sequences through a backbone, padded in groups of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from lightning_cse.devices import gather_rows, share, to_device
from lightning_cse.encoders.architecture import (
    embedding_layer,
    first_position,
    has_segments,
    is_decoder,
)
from lightning_cse.encoders.pooling import EARLIER_STATES, pool
from lightning_cse.encoders.templates import Sequences

if TYPE_CHECKING:
    from lightning_cse.encoders.augmentation import Augmentation

PADDING_ON_GPU = 4096
"""Padding tokens of a group on a GPU: about the cost of another, smaller pass through BERT-base."""


@dataclass(frozen=True)
class Passes:
    """The passes of one call of an encoder: each takes a group of sequences of similar length.

    ``draws`` says that dropout may be drawn or gradients computed. ``most`` limits the padded
    tokens of a group. ``augment`` changes the sequences, and ``denoise`` leaves a gap in the
    positions of some. ``chunk_size`` is the number of sequences whose activations are kept at once
    while gradients are computed. ``is_shared`` says that all processes have these sequences, and
    each encodes a share of them.
    """

    name: ClassVar = "padded"
    """What a run's record calls these passes."""

    backbone: PreTrainedModel
    pooling: str
    pad_id: int
    is_causal: bool
    draws: bool
    most: int | None = None
    denoise: bool = False
    augment: Augmentation | None = None
    chunk_size: int | None = None
    is_shared: bool = False

    @cached_property
    def first_position(self) -> int:
        """The position of the first token."""
        return first_position(self.backbone)

    @cached_property
    def has_segments(self) -> bool:
        """Whether the backbone reads segment ids."""
        return has_segments(self.backbone.config)

    @cached_property
    def is_decoder(self) -> bool:
        """Whether the backbone is a causal language model."""
        return is_decoder(self.backbone.config)

    def encode(self, parts: Sequence[Sequences]) -> list[Tensor]:
        """Return one tensor of vectors (n, d) for each part, in float32."""
        sequences = Sequences.cat(parts, self.pad_id)
        device = sequences.ids.device
        order = np.argsort(sequences.lengths, kind="stable")

        def encoded(rows: np.ndarray, _ids: Tensor) -> Tensor:
            chosen = sequences.take(rows)
            if self.augment is not None:
                lengths = to_device(chosen.lengths, device)
                positions = self.augment.positions(chosen.positions, lengths)
                chosen = replace(chosen, positions=positions)

            vectors = torch.cat(list(self.vectors(chosen)))
            return self._through_pooler(vectors) if self.pooling == "cls_pooler" else vectors

        rows, ids = share(order) if self.is_shared else order, sequences.ids
        if self.chunk_size is None or not torch.is_grad_enabled():
            vectors = encoded(rows, ids)
        else:
            chunks = np.split(rows, range(self.chunk_size, len(rows), self.chunk_size))
            # `checkpoint` restores the random state of the devices that its tensors are on.
            vectors = torch.cat(
                [checkpoint(encoded, chunk, ids, use_reentrant=False) for chunk in chunks]
            )

        if self.is_shared:
            vectors = gather_rows(vectors)[: len(order)]

        sizes = [len(part.ids) for part in parts]

        return list(vectors[to_device(order.argsort(), device)].split(sizes))

    def _through_pooler(self, vectors: Tensor) -> Tensor:
        # Vectors rounded to bfloat16 make ties between scores.
        with torch.autocast(vectors.device.type, enabled=False):
            pooled: Tensor = self.backbone.get_submodule("pooler")(vectors[:, None])

        return pooled

    def vectors(self, sequences: Sequences) -> Iterator[Tensor]:
        """Yield the pooled vectors of groups of sequences, which are sorted by length."""
        lengths, device = sequences.lengths, sequences.ids.device
        ends = to_device(lengths, device)
        pooled = to_device(sequences.pooled, device)
        for start, end in pairwise([0, *self.groups(lengths)]):
            group = slice(start, end)
            part = sequences.take(group)
            width = int(lengths[end - 1])
            mask = torch.arange(width, device=device) < ends[group, None]
            inputs = {"input_ids": part.ids[:, :width]}
            # Without a mask, attention has faster kernels. A decoder would take a gap in positions
            # for the start of another sequence.
            if lengths[start] < width or (self.denoise and self.is_decoder):
                inputs["attention_mask"] = mask.long()
            if self.has_segments:
                inputs["token_type_ids"] = part.type_ids[:, :width]
            if self.denoise or self.augment is not None:  # others than 0, 1, 2, ...
                inputs["position_ids"] = part.positions[:, :width] + self.first_position

            if self.backbone.config.model_type == "bilstm":
                inputs["lengths"] = torch.from_numpy(part.lengths)

            change = partial(self.augment.embeddings, mask=mask) if self.augment else None
            yield pool(self.pooling, self.states(inputs, change), mask, pooled[group])

    def groups(self, lengths: np.ndarray) -> list[int]:
        """Return the ends of the groups that sequences sorted by length are padded in."""
        return cut_by_length(lengths, PADDING_ON_GPU, self.most)

    def states(
        self, inputs: dict[str, Any], change: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """Return the states of every token for pooling: the last layer's, or their average with an
        earlier layer's. ``change`` is applied to the embeddings.
        """
        earlier = EARLIER_STATES.get(self.pooling)
        inputs["output_hidden_states"] = earlier is not None
        if self.is_decoder:
            inputs["use_cache"] = False

        with _changed(embedding_layer(self.backbone), change):
            output = self.backbone(**inputs)

        if earlier is None:
            last: Tensor = output.last_hidden_state
            return last

        states: tuple[Tensor, ...] = output.hidden_states

        return (states[earlier].float() + states[-1].float()) / 2


def cut_by_length(lengths: np.ndarray, overhead: int = 256, most: int | None = None) -> list[int]:
    """Cut sentences sorted by length into groups to pad, and return the ends of the groups.

    A group ends where one more sentence would bring its padding above ``overhead`` tokens, the cost
    of another group, or its padded size above ``most`` tokens. Lengths 5, 5, 6, 90 with overhead 10
    give 3, 4.
    """
    ends = []
    start = 0
    real = 0
    for end, length in enumerate(lengths.tolist()):
        padded = (end + 1 - start) * length
        is_wasteful = padded - real - length > overhead
        is_large = most is not None and padded > most
        if end > start and (is_wasteful or is_large):
            ends.append(end)
            start = end
            real = 0

        real += length

    return [*ends, len(lengths)]


@contextmanager
def _changed(layer: nn.Module | None, change: Callable[[Tensor], Tensor] | None) -> Iterator[None]:
    """Replace what a layer returns, as long as the context lasts."""
    if layer is None or change is None:
        yield
        return

    handle = layer.register_forward_hook(lambda _layer, _inputs, output: change(output))
    try:
        yield
    finally:
        handle.remove()
