"""Copies to a device, and several devices for one batch: each encodes a share, and all get the
vectors of all sentences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor


def to_device(values: Tensor | np.ndarray, device: torch.device | str) -> Tensor:
    """Return values from main memory as a tensor on a device, without waiting for a GPU."""
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    # Elsewhere than on a GPU, a copy in the background may be read too early.
    if torch.device(device).type != "cuda":
        return tensor.to(device)

    if tensor.is_cpu and torch.cuda.is_available():
        tensor = tensor.pin_memory()

    return tensor.to(device, non_blocking=True)


def world() -> tuple[int, int]:
    """Return the rank of this process and the number of processes in torch's process group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()

    return 0, 1


def is_lost(error: BaseException) -> bool:
    """Whether an error says that another process of the group has ended or cannot be reached."""
    if world()[1] == 1:
        return False

    # gloo's errors have no class of their own.
    return isinstance(error, dist.DistError) or "gloo/transport" in str(error)


def share(rows: np.ndarray) -> np.ndarray:
    """Return this process's share of the row numbers (n,): every k-th of k processes.

    The last row fills shares up to the same length.
    """
    rank, count = world()
    numbers = np.arange(rank, rank + count * -(-len(rows) // count), count)

    chosen: np.ndarray = rows[numbers.clip(max=len(rows) - 1)]

    return chosen


def gather_rows(shared: Tensor) -> Tensor:
    """Return the tensors (k, d) of all processes as one, in the order before `share`.

    Every process computes the same loss from it. A gradient reaches only the rows of this process,
    times the number of processes. After DDP's average over processes, a parameter has the same
    gradient as with a single process.
    """
    if world()[1] == 1:
        return shared

    gathered: Tensor = _GatherRows.apply(shared)  # type: ignore[no-untyped-call]

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


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shared: Tensor) -> Tensor:
        parts = [
            torch.empty_like(shared, memory_format=torch.contiguous_format)
            for _ in range(world()[1])
        ]
        dist.all_gather(parts, shared.contiguous())
        return torch.stack(parts, dim=1).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        rank, count = world()
        return grad[rank::count] * count
