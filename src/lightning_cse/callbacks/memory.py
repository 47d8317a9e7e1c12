"""The memory that a training needs, estimated before its first step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from lightning_cse.methods.base import MakeOptimizer, Method
from lightning_cse.runs.machine import memory_of, return_freed_memory

log = logging.getLogger(__name__)

PROBE_ROWS = 8
"""The rows whose activations are counted; those of a batch are as many times as large."""

GIB = 2**30

# Of a process on a CPU, beyond its tensors; measured with glibc (benchmarks/README.md).
_LIBRARIES = 0.1 * GIB  # code and buffers that are loaded in the first step
# What the allocator keeps, as a multiple of what each step frees. Batches differ in size, so it
# grows for about a hundred steps; in the measured runs, it ended between 0.7 and 2.2.
_KEPT = 1.5


@dataclass(frozen=True)
class Memory:
    """The bytes that a training step needs at its peak, by their use.

    All tensors are needed at once when the loss is computed: Lightning drops the gradients of a
    step just before the backward pass of the next one. ``overhead`` is what a process takes beyond
    its tensors; on a GPU, it is not counted.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    overhead: int = 0

    @property
    def total(self) -> int:
        """The sum."""
        tensors = self.weights + self.gradients + self.optimizer + self.activations
        return tensors + self.overhead

    def text(self, optimizer: str, available: int) -> str:
        """Return one line with all numbers in GiB."""
        return (
            f"about {self.total / GIB:.2f} GiB (weights {self.weights / GIB:.2f}, "
            f"gradients {self.gradients / GIB:.2f}, {optimizer} {self.optimizer / GIB:.2f}, "
            f"activations {self.activations / GIB:.2f}, allocator and libraries "
            f"{self.overhead / GIB:.2f}) of {available / GIB:.1f} GiB"
        )


class MemoryEstimate(Callback):
    """Log the memory that a training needs, and warn if the device has less.

    Weights, gradients and the optimizer's state are counted. The activations are those that the
    backward pass of a few training rows would use, times the rows of a batch; with gradient
    checkpointing, those that are kept and one layer's. The probe computes no gradient, and leaves
    the random state as it was.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Estimate and log."""
        data: Any = getattr(trainer, "datamodule", None)
        if not isinstance(pl_module, Method) or data is None:
            return

        return_freed_memory()  # of loading; what is available is measured
        device = trainer.strategy.root_device
        rows = min(PROBE_ROWS, len(data.train))
        # From all of the corpus, whose rows may be sorted.
        chosen = torch.linspace(0, len(data.train) - 1, rows).long()
        with (
            torch.random.fork_rng([device] if device.type == "cuda" else []),
            trainer.precision_plugin.forward_context(),
        ):
            batch = trainer.strategy.batch_to_device(data.collate(chosen), device)
            memory = estimate(pl_module, batch, data.settings.batch_size / rows)

        self.report(trainer, memory)

    def report(self, trainer: pl.Trainer, memory: Memory) -> None:
        """Log the estimate in the first process."""
        device = trainer.strategy.root_device
        available = memory_of(device)
        if device.type == "cpu":
            available += memory.weights  # which are in memory already

        text = memory.text(type(trainer.optimizers[0]).__name__, available)
        if trainer.is_global_zero and memory.total > available:
            log.warning(
                "memory: %s; if training fails, set method.chunk_size or a smaller batch", text
            )
        elif trainer.is_global_zero:
            log.info("memory: %s", text)


def estimate(method: Method, batch: Mapping[str, Any], factor: float) -> Memory:
    """Return the memory of a step with ``factor`` times the rows of a batch."""
    parameters = list(method.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    gradients = _bytes(trained)
    activations = _activations(method, batch, factor)
    on_cpu = all(parameter.device.type == "cpu" for parameter in parameters)
    overhead = _LIBRARIES + _KEPT * (gradients + activations) if on_cpu else 0

    return Memory(
        weights=_bytes([*parameters, *method.buffers()]),
        gradients=gradients,
        optimizer=round(gradients * states_per_weight(method.make_optimizer)),
        activations=activations,
        overhead=round(overhead),
    )


def states_per_weight(make_optimizer: MakeOptimizer) -> float:
    """Return the size of an optimizer's state, as a multiple of its weights: 2 for AdamW."""
    weight = nn.Parameter(torch.zeros(64, 64))
    weight.grad = torch.zeros_like(weight)
    optimizer = make_optimizer([weight])
    optimizer.step()
    state = [value for value in optimizer.state[weight].values() if isinstance(value, Tensor)]

    return sum(value.numel() for value in state if value.dim()) / weight.numel()


def _activations(method: Method, batch: Mapping[str, Any], factor: float) -> int:
    """Return the bytes that the backward pass of ``factor`` batches would use."""
    encoder = method.model.encoder
    chunk = encoder.chunk_size
    encoder.chunk_size = None
    try:
        with torch.enable_grad(), _saved(method.parameters()) as saved:
            embedded = method.embed(batch)

        # The backward pass has the activations of one layer at a time, beside those that are kept.
        with torch.enable_grad(), _uncheckpointed(encoder) as layers:
            if layers:
                with _saved(method.parameters()) as whole:
                    method.embed(batch)

                for kind, size in whole.items():
                    saved[kind] += (size - saved[kind]) // len(layers)
    finally:
        encoder.chunk_size = chunk

    if chunk is not None:  # only one chunk has its activations in memory
        sentences = sum(map(len, embedded.values()))
        factor = min(factor, chunk / sentences)

    return round(saved["scaling"] * factor) + saved["fixed"]


@contextmanager
def _uncheckpointed(encoder: nn.Module) -> Iterator[list[Any]]:
    """Let the layers keep their activations; yield those that otherwise compute them again."""
    layers: list[Any] = []
    for module in encoder.modules():
        is_layer = isinstance(module, GradientCheckpointingLayer)
        if is_layer and module.gradient_checkpointing:
            layers.append(module)

    for layer in layers:
        layer.gradient_checkpointing = False

    try:
        yield layers
    finally:
        for layer in layers:
            layer.gradient_checkpointing = True


@contextmanager
def _saved(parameters: Iterable[nn.Parameter]) -> Iterator[dict[str, int]]:
    """Count the bytes that autograd saves: those that grow with the batch, and fixed ones.

    Fixed are copies of parameters in another dtype; parameters themselves are not counted.
    """
    own = set()
    shapes: set[torch.Size | tuple[int, ...]] = set()
    for parameter in parameters:
        own.add(parameter.untyped_storage().data_ptr())
        shapes.update((parameter.shape, parameter.shape[::-1]))

    seen: dict[int, Tensor] = {}  # kept, so that no place is used again
    counts = {"scaling": 0, "fixed": 0}

    def count(tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        place = storage.data_ptr()
        if place not in own and place not in seen:
            seen[place] = tensor.detach()
            is_copy = tensor.dtype == torch.bfloat16 and tensor.shape in shapes
            counts["fixed" if is_copy else "scaling"] += storage.nbytes()

        return place

    with torch.autograd.graph.saved_tensors_hooks(count, seen.__getitem__):
        yield counts


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
