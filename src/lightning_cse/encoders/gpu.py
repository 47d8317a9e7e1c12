"""Sequences on a GPU: one row of tokens without padding, and attention that knows where each sequence ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import PreTrainedModel

from lightning_cse.encoders.templates import Sequences

log = logging.getLogger(__name__)

BLOCK = (
    128  # tokens that a kernel reads at once; rounding a bound on the length up to it costs nothing
)


@dataclass(frozen=True)
class Row:
    """Concatenated sequences: where each starts and the last ends (n + 1,), and an upper bound on their length."""

    starts: Tensor
    longest: int
    kernel: Kernel

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, *, dropout: float, **options: Any
    ) -> tuple[Tensor, None]:
        """Attend in each sequence: three tensors (1, heads, tokens, width) -> (1, tokens, heads, width)."""
        q, k, v = (tensor[0].transpose(0, 1) for tensor in (q, k, v))
        return self.kernel(q, k, v, self, dropout, options.get("scaling") or q.shape[-1] ** -0.5)[
            None
        ], None


Kernel = Callable[[Tensor, Tensor, Tensor, Row, float, float], Tensor]
"""Attention of queries, keys and values (tokens, heads, width) in a row, with dropout probability and score scale."""


def rows(
    sequences: Sequences, most: int | None, kernel: Kernel, rounded: bool
) -> Iterator[tuple[Sequences, int, Any]]:
    """Yield rows of about ``most`` tokens: the sequences, sorted by length, their number of tokens, a model's inputs.

    ``rounded`` fills a row up with sequences of padding to one of a few shapes, each of which is compiled once.
    """
    ends = np.cumsum(
        lengths := sequences.lengths.cpu().numpy()
    )  # nothing after this waits for the GPU
    pieces = -(-int(ends[-1]) // most) if most else 1
    _, sizes = np.unique((ends - 1) * pieces // ends[-1], return_counts=True)
    for start, end in pairwise([0, *np.cumsum(sizes).tolist()]):
        part, total, longest = (
            sequences.take(slice(start, end)),
            int(lengths[start:end].sum()),
            int(lengths[end - 1]),
        )
        starts, numbers = (
            pad(part.lengths.cumsum(0), (1, 0)),
            torch.arange(total + 64, device=part.ids.device),
        )
        owner = numbers[: end - start].repeat_interleave(part.lengths, output_size=total)
        places, more = (owner, numbers[:total] - starts[owner]), 0
        if rounded:
            step, longest = (
                max(64, 1 << max(0, total.bit_length() - 4)),
                -(-longest // BLOCK) * BLOCK,
            )
            more = -total % step
            starts = torch.cat(
                [starts, total + (numbers[1 : -(-step // longest) + 1] * longest).clamp(max=more)]
            )
        columns = {
            "input_ids": part.ids,
            "token_type_ids": part.type_ids,
            "position_ids": part.positions,
        }
        inputs = {name: pad(column[places], (0, more))[None] for name, column in columns.items()}
        yield part, total, inputs | {"windows": Row(starts.int(), longest, kernel)}


def pool_row(pooling: str, hidden: Tensor, part: Sequences) -> Tensor:
    """Pool the vectors of all sequences' tokens (tokens, d) to (n, d), as `encoder.pool` does."""
    if pooling in ("cls", "cls_pooler", "prompt"):
        return hidden[
            part.lengths.cumsum(0) - part.lengths + part.pooled
        ].float()  # without a prompt, the first
    return torch.segment_reduce(
        hidden.float(), "mean", lengths=part.lengths, unsafe=True
    )  # a check would wait


def kernel_for(backbone: PreTrainedModel, device: torch.device) -> Kernel | None:
    """Return the attention kernel for a backbone's rows on a device; None if there is none: on a CPU, in ModernBERT."""
    if device.type != "cuda" or getattr(backbone.config, "layer_types", None):
        return None
    dtype = (
        torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else backbone.dtype
    )
    return _found(device, dtype, backbone.config.hidden_size // backbone.config.num_attention_heads)


@cache  # the first kernel that agrees with plain attention on a small example
def _found(device: torch.device, dtype: torch.dtype, width: int) -> Kernel | None:
    for kernel in (flash, efficient):
        try:
            if agrees(kernel, device, dtype, width):
                return kernel
        except Exception as error:  # noqa: BLE001 - builds and GPUs report in many ways that a kernel is missing
            log.debug("%s attention: %s", kernel.__name__, error)
    log.info(
        "%s has no attention kernel for packed sequences in %s: they are padded in groups",
        device,
        dtype,
    )
    return None


def agrees(kernel: Kernel, device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether a kernel matches plain attention in values and gradients, and its dropout drops and keeps the mean."""
    row = Row(
        torch.tensor([0, 1, 8, 8, 48, 198, 198], dtype=torch.int32, device=device), 150, kernel
    )
    drawn = torch.randn(4, 198, 2, width, generator=torch.Generator().manual_seed(0)).to(
        device, dtype
    )
    q, k, v, weight = drawn.requires_grad_()
    random = torch.random.fork_rng([device] if device.type == "cuda" else [])
    with random, torch.enable_grad(), torch.autocast(device.type, enabled=False):
        results = (one(q, k, v, row, 0.0, width**-0.5) for one in (kernel, plain))
        found = ((mixed, *torch.autograd.grad(mixed, (q, k, v), weight)) for mixed in results)
        bound = (
            2e-3 if dtype == torch.float32 else 2e-2
        )  # products of float32 may be rounded to TF32
        near = all(torch.dist(a, b) <= bound * b.norm() for a, b in zip(*found, strict=True))
        std, mean = torch.std_mean(
            kernel(q, k, torch.ones_like(v), row, 0.5, width**-0.5).detach().float()
        )
    return near and abs(float(mean) - 1) < 0.2 and float(std) > 0.01


def flash(q: Tensor, k: Tensor, v: Tensor, row: Row, dropout: float, scale: float) -> Tensor:
    """Attend with torch's flash attention, in 16 bits; `torch.nn.attention.varlen` also calls it, without dropout."""
    bounds = (row.starts, row.starts, row.longest, row.longest)
    mixed: Tensor = torch.ops.aten._flash_attention_forward(
        q, k, v, *bounds, dropout, False, False, scale=scale
    )[0]
    return mixed


def efficient(q: Tensor, k: Tensor, v: Tensor, row: Row, dropout: float, scale: float) -> Tensor:
    """Attend with torch's memory-efficient attention, which also takes float32."""
    given = (
        q[None],
        k[None],
        v[None],
        None,
        row.starts,
        row.starts,
        row.longest,
        row.longest,
        dropout,
        0,
        True,
    )
    mixed: Tensor = torch.ops.aten._efficient_attention_forward(*given, scale=scale)[0][0]
    return mixed


def plain(q: Tensor, k: Tensor, v: Tensor, row: Row, dropout: float, scale: float) -> Tensor:
    """Attend with a mask over all pairs of tokens; the reference for the other kernels."""
    owner = torch.bucketize(torch.arange(len(q), device=q.device), row.starts[1:], right=True)
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v, owner[:, None] == owner, dropout, scale=scale)[
        0
    ].transpose(0, 1)


@cache
def compiled(kernel: Kernel | None) -> Callable[[PreTrainedModel, dict[str, Any]], Any] | None:
    """Return a function that calls a backbone compiled by torch; where this is not possible, warn and return None."""
    if kernel in (None, efficient) or find_spec("triton") is None:
        log.warning(
            "encoder.compile: not compiled; this needs a BERT-like encoder, a GPU, 16 bits and triton"
        )
        return None
    torch.compiler.config.recompile_limit = 64  # further shapes are computed without compiling
    return torch.compile(lambda backbone, inputs: backbone(**inputs), dynamic=False)
