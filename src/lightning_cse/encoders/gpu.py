"""Sequences on a GPU: one row of tokens without padding, and attention that knows where each
sequence ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import PreTrainedModel

from lightning_cse.encoders.batching import cut_evenly
from lightning_cse.encoders.templates import Sequences

log = logging.getLogger(__name__)

BLOCK = 128
"""The tokens that a kernel reads at once; rounding a bound on the length up to it costs nothing."""


@dataclass(frozen=True)
class Row:
    """Concatenated sequences: where each starts and the last ends (n + 1,), and an upper bound on
    their length.
    """

    starts: Tensor
    longest: int
    kernel: Kernel

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        dropout: float,
        **options: Any,
    ) -> tuple[Tensor, None]:
        """Attend in each sequence: (1, heads, tokens, width) each -> (1, tokens, heads, width)."""
        q, k, v = (tensor[0].transpose(0, 1) for tensor in (q, k, v))
        scale = options.get("scaling") or q.shape[-1] ** -0.5
        return self.kernel(q, k, v, self, dropout, scale)[None], None


Kernel = Callable[
    [
        Tensor,
        Tensor,
        Tensor,
        Row,
        float,
        float,
    ],
    Tensor,
]
"""Attention of queries, keys and values (tokens, heads, width) in a row, with dropout probability
and score scale.
"""


def rows(
    sequences: Sequences,
    most: int | None,
    kernel: Kernel,
    rounded: bool,
) -> Iterator[tuple[Sequences, int, dict[str, Any]]]:
    """Yield rows of about ``most`` tokens: the sequences, sorted by length, their number of tokens,
    a model's inputs.

    ``rounded`` fills a row up with sequences of padding to one of a few shapes, each of which
    is compiled once.
    """
    lengths = sequences.lengths.cpu().numpy()  # nothing after this waits for the GPU
    for start, end in pairwise([0, *cut_evenly(lengths, most)]):
        part = sequences.take(slice(start, end))
        total = int(lengths[start:end].sum())
        longest = int(lengths[end - 1])
        starts, places = _layout(part.lengths, total)
        padding = 0
        if rounded:
            longest = -(-longest // BLOCK) * BLOCK
            step = max(64, 1 << max(0, total.bit_length() - 4))
            padding = -total % step
            starts = torch.cat([starts, total + _padding_ends(padding, step, longest, starts)])

        columns = {
            "input_ids": part.ids,
            "token_type_ids": part.type_ids,
            "position_ids": part.positions,
        }
        inputs: dict[str, Any] = {"windows": Row(starts.int(), longest, kernel)}
        for name, column in columns.items():
            inputs[name] = pad(column[places], (0, padding))[None]
        yield part, total, inputs


def _layout(lengths: Tensor, total: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return where each sequence starts (n + 1,), and the sequence and position of each token."""
    starts = pad(lengths.cumsum(0), (1, 0))
    numbers = torch.arange(total, device=lengths.device)
    owner = numbers[: len(lengths)].repeat_interleave(lengths, output_size=total)
    return starts, (owner, numbers - starts[owner])


def _padding_ends(
    padding: int,
    step: int,
    longest: int,
    like: Tensor,
) -> Tensor:
    """Return the ends of the sequences of padding, whose number depends on the shape alone."""
    count = -(-step // longest)
    ends = (
        torch.arange(
            1,
            count + 1,
            device=like.device,
            dtype=like.dtype,
        )
        * longest
    )
    return ends.clamp(max=padding)


def kernel_for(backbone: PreTrainedModel, device: torch.device) -> Kernel | None:
    """Return the attention kernel for a backbone's rows on a device.

    None if there is none: on a CPU, in ModernBERT.
    """
    if device.type != "cuda" or getattr(backbone.config, "layer_types", None):
        return None
    is_autocast = torch.is_autocast_enabled("cuda")
    dtype = torch.get_autocast_dtype("cuda") if is_autocast else backbone.dtype
    width = backbone.config.hidden_size // backbone.config.num_attention_heads
    return _first_fitting(device, dtype, width)


@cache
def _first_fitting(
    device: torch.device,
    dtype: torch.dtype,
    width: int,
) -> Kernel | None:
    """Return the first kernel that agrees with plain attention on a small example."""
    for kernel in (flash, efficient):
        try:
            if agrees(kernel, device, dtype, width):
                return kernel
        except Exception as error:  # noqa: BLE001 - builds and GPUs report in many ways that a kernel is missing
            log.debug(
                "%s attention: %s",
                kernel.__name__,
                error,
            )
    log.info(
        "%s has no attention kernel for packed sequences in %s: they are padded in groups",
        device,
        dtype,
    )
    return None


def agrees(
    kernel: Kernel,
    device: torch.device,
    dtype: torch.dtype,
    width: int,
) -> bool:
    """Whether a kernel matches plain attention in values and gradients, and its dropout drops and
    keeps the mean.
    """
    starts = torch.tensor(
        [0, 1, 8, 8, 48, 198, 198],
        dtype=torch.int32,
        device=device,
    )
    row = Row(starts, 150, kernel)
    draws = torch.randn(
        4,
        198,
        2,
        width,
        generator=torch.Generator().manual_seed(0),
    )
    q, k, v, weight = draws.to(device, dtype).requires_grad_()
    scale = width**-0.5

    def results(attend: Kernel) -> tuple[Tensor, ...]:
        mixed = attend(q, k, v, row, 0.0, scale)
        return mixed, *torch.autograd.grad(mixed, (q, k, v), weight)

    random = torch.random.fork_rng([device] if device.type == "cuda" else [])
    with random, torch.enable_grad(), torch.autocast(device.type, enabled=False):
        pairs = zip(results(kernel), results(plain), strict=True)
        is_near = all(_is_near(ours, theirs) for ours, theirs in pairs)
        dropped = kernel(q, k, torch.ones_like(v), row, 0.5, scale).detach().float()
    std, mean = torch.std_mean(dropped)
    return is_near and abs(float(mean) - 1) < 0.2 and float(std) > 0.01


def _is_near(ours: Tensor, theirs: Tensor) -> bool:
    bound = 2e-3 if ours.dtype == torch.float32 else 2e-2  # float32 may be rounded to TF32
    return bool(torch.dist(ours, theirs) <= bound * theirs.norm())


def flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    row: Row,
    dropout: float,
    scale: float,
) -> Tensor:
    """Attend with torch's flash attention, in 16 bits.

    `torch.nn.attention.varlen` also calls it, without dropout.
    """
    mixed: Tensor = torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        row.starts,
        row.starts,
        row.longest,
        row.longest,
        dropout,
        False,
        False,
        scale=scale,
    )[0]
    return mixed


def efficient(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    row: Row,
    dropout: float,
    scale: float,
) -> Tensor:
    """Attend with torch's memory-efficient attention, which also takes float32."""
    mixed: Tensor = torch.ops.aten._efficient_attention_forward(
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
        scale=scale,
    )[0]
    return mixed[0]


def plain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    row: Row,
    dropout: float,
    scale: float,
) -> Tensor:
    """Attend with a mask over all pairs of tokens; the reference for the other kernels."""
    owner = torch.bucketize(
        torch.arange(len(q), device=q.device),
        row.starts[1:],
        right=True,
    )
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    mask = owner[:, None] == owner
    mixed = scaled_dot_product_attention(
        q,
        k,
        v,
        mask,
        dropout,
        scale=scale,
    )
    return mixed[0].transpose(0, 1)


@cache
def compiled(kernel: Kernel | None) -> Callable[[PreTrainedModel, dict[str, Any]], Any] | None:
    """Return a function that calls a backbone compiled by torch.

    Where this is not possible, warn and return None.
    """
    if kernel in (None, efficient) or find_spec("triton") is None:
        log.warning(
            "encoder.compile: not compiled; this needs a BERT-like encoder, a GPU, 16 bits and triton"
        )
        return None
    torch.compiler.config.recompile_limit = 64  # further shapes are computed without compiling
    return torch.compile(lambda backbone, inputs: backbone(**inputs), dynamic=False)
