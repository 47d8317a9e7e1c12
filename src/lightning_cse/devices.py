"""Several devices for one batch: each encodes a share, and all get the vectors of all sentences."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_together = False


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Share each batch between the processes of torch's process group."""
    global _together  # noqa: PLW0603 - a context variable would not reach the threads of the backward pass
    before, _together = _together, True
    try:
        yield
    finally:
        _together = before


def world() -> tuple[int, int]:
    """Return the rank of this process, and the number of processes that compute together."""
    if _together and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()

    return 0, 1


def is_lost(error: BaseException) -> bool:
    """Whether an error says that another process of the group has ended or cannot be reached."""
    if world()[1] == 1:
        return False

    # gloo's errors have no class of their own.
    return isinstance(error, dist.DistError) or "gloo/transport" in str(error)


def launched() -> tuple[int, int]:
    """Return the rank of this process, and the number of processes that torchrun started."""
    if "RANK" not in os.environ:  # as below a launcher that numbers processes otherwise
        return 0, 1

    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def wait_for_all() -> None:
    """Wait for the other processes, if there is a process group."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def share(rows: Tensor) -> Tensor:
    """Return this process's share of the row numbers (n,): every k-th of k processes.

    The last row fills shares up to the same length.
    """
    rank, count = world()
    own = torch.arange(rank, rank + count * -(-len(rows) // count), count, device=rows.device)

    return rows[own.clamp(max=len(rows) - 1)]


def gather(own: Tensor) -> Tensor:
    """Return the tensors (k, d) of all processes as one, in the order before `share`.

    Every process computes the same loss from it. A gradient reaches only the rows of this process,
    times the number of processes. After DDP's average over processes, a parameter has the same
    gradient as with a single process.
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
    """Return the values of all processes, by rank; a value must be picklable."""
    values: list[Any] = [value] * world()[1]
    if len(values) > 1:
        dist.all_gather_object(values, value)

    return values


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        parts = [
            torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(world()[1])
        ]
        dist.all_gather(parts, own.contiguous())
        return torch.stack(parts, dim=1).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        rank, count = world()
        return grad[rank::count] * count
