"""Several devices at one batch: each encodes a share of the sentences, and all have the vectors of all."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world() -> tuple[int, int]:
    """Return the rank of this process, and how many processes compute together."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def share(rows: Tensor) -> Tensor:
    """Return every so many-th of the row numbers (n,), those of this process; the last fills up what others lack."""
    rank, count = world()
    own = torch.arange(rank, rank + count * -(-len(rows) // count), count, device=rows.device)
    return rows[own.clamp(max=len(rows) - 1)]


def gather(own: Tensor) -> Tensor:
    """Return the tensors (k, d) of all processes as one (k * processes, d), in the order that `share` took them from.

    Every process computes the same loss from it. A gradient reaches the rows of this process alone, times the number of
    processes: averaged over them, as DDP does, a parameter has the gradient that one process has.
    """
    if world()[1] == 1:
        return own
    gathered: Tensor = _Gather.apply(own)  # type: ignore[no-untyped-call]
    return gathered


def largest(value: int) -> int:
    """Return the largest of the values of all processes."""
    if world()[1] == 1:
        return value
    shared = torch.tensor(value, device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return int(shared)


def from_all(value: Any) -> list[Any]:
    """Return a picklable value of every process, by rank."""
    values: list[Any] = [value] * world()[1]
    if len(values) > 1:
        dist.all_gather_object(values, value)
    return values


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        parts = [torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(world()[1])]
        dist.all_gather(parts, own.contiguous())
        return torch.stack(parts, dim=1).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        rank, count = world()
        return grad[rank::count] * count
