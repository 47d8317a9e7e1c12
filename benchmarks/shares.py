"""Split the time of a training step by kind of work, with torch's profiler."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, cast

import pytorch_lightning as pl
import torch
from measuring import ON_GPU, ROLES, now, seconds_of
from omegaconf import DictConfig
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from lightning_cse.engine.build import build

INSIDE = {
    "optimizer": ("aten::_foreach", "aten::_fused_adam", "aten::linalg_vector_norm"),
    "attention": (
        "Attention",
        "aten::scaled_dot_product",
        "aten::_scaled_dot_product",
        "aten::_softmax",
    ),
    "dropout": ("Dropout", "aten::native_dropout", "aten::dropout"),
}
"""Work inside an operation with one of these in its name (a class of our own, or its gradient) is
of this kind.
"""

MATRICES = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
OWN = {
    "casts and copies": (
        "aten::copy_",
        "aten::_to_copy",
        "aten::to",
        "aten::clone",
        "aten::contiguous",
    ),
    "gelu": ("aten::gelu", "aten::gelu_backward"),
    "layer norm": ("aten::native_layer_norm", "aten::native_layer_norm_backward"),
    "embedding": ("aten::embedding", "aten::embedding_dense_backward", "aten::index_select"),
    "sums and products": ("aten::add", "aten::add_", "aten::mul", "aten::mul_", "aten::sum"),
    "zeros": ("aten::fill_", "aten::zero_"),
}
LAST = ("rest", "Python")


class Profile(pl.Callback):
    """Profile one step in the middle of training, from the wait for its batch to its end."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.profile = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if ON_GPU else [])]
        )
        self.waited = self.computed = 0.0
        self._last = self._begun = now()

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Mark the work of the loss."""
        ranges: list[Any] = []
        loss = cast("nn.Module", pl_module.loss)
        loss.register_forward_pre_hook(
            lambda *_: ranges.append(record_function("loss").__enter__())
        )
        loss.register_forward_hook(lambda *_: ranges.pop().__exit__(None, None, None))

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, index: int
    ) -> None:
        """Start at the chosen step."""
        if index == self.step:
            self.waited = now() - self._last
            self.profile.start()
            self._begun = now()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        """Stop after the chosen step."""
        self._last = now()
        if index == self.step:
            self.computed = self._last - self._begun
            self.profile.stop()

    def shares(self) -> dict[str, float]:
        """Return the share of each kind of work, the largest first; Python is the time without
        computation.

        Tokens are the wait for the batch. Laying them out in the step counts as Python, as does the
        profiler itself.
        """
        events = [
            event
            for event in self.profile.events()
            # On the CPU; an optimizer's event is around the whole step.
            if event.device_type.name == "CPU" and not event.name.startswith("Optimizer.")
        ]
        steps_of_loss = {
            e.sequence_nr for e in events if e.sequence_nr >= 0 and "loss" in _names_above(e)
        }
        seconds = defaultdict[str, float](float, tokens=self.waited)
        for event in events:
            self_time = event.self_device_time_total if ON_GPU else event.self_cpu_time_total
            seconds[kind_of(event, steps_of_loss)] += self_time / 1e6
        seconds["Python"] = max(0.0, self.waited + self.computed - sum(seconds.values()))
        total = sum(seconds.values())
        return {
            operation: part / total
            for operation, part in sorted(seconds.items(), key=lambda x: (x[0] in LAST, -x[1]))
        }


def _names_above(event: Any) -> set[str]:
    names = set()
    while event is not None:
        names.add(event.name)
        event = event.cpu_parent
    return names


def kind_of(event: Any, steps_of_loss: set[int]) -> str:
    """Return the kind of work of a profiler event; a gradient has the sequence number of its
    operation.
    """
    names, above = _names_above(event), event
    while above is not None:
        if above.name == "loss" or (
            above.sequence_nr in steps_of_loss and above.name.startswith("autograd::engine")
        ):
            return "loss"
        above = above.cpu_parent
    if event.name in MATRICES:
        return "matrix products"
    for operation, parts in INSIDE.items():
        if any(part in name for part in parts for name in names):
            return operation
    return next((operation for operation, parts in OWN.items() if event.name in parts), "rest")


def matrix_rate(precision: str) -> float:
    """Return floating-point operations per second in large matrix products: the best of a few
    measurements.
    """
    dtype, width = (
        torch.bfloat16 if precision == "bf16" else torch.float32,
        8192 if ON_GPU else 2048,
    )
    a, b = (
        torch.randn(width, width, dtype=dtype, device="cuda" if ON_GPU else "cpu") for _ in range(2)
    )
    a @ b
    return 2 * width**3 / min(seconds_of(lambda: a @ b) for _ in range(8))


def operations(cfg: DictConfig) -> float:
    """Return operations per step in matrix products, for real tokens only.

    Each takes two operations per weight and token forward, as many for the gradient of its input,
    and as many again for that of its weight, if that is trained.
    """
    parts = build(cfg)
    encoder, rows = parts.encoder, parts.data.train
    frozen = trained = 0
    for module in encoder.backbone.modules():
        if isinstance(module, nn.Linear) and module.weight.requires_grad:
            trained += module.weight.numel()
        elif isinstance(module, nn.Linear):
            frozen += module.weight.numel()

    of_attention = 4 * encoder.width * encoder.backbone.config.num_hidden_layers
    total = 0.0
    for role in ROLES:
        for ids in encoder.tokenizer(rows[role][:]):
            tokens = min(len(ids) + len(encoder.template()), encoder.max_length)
            total += tokens * (6 * trained + 4 * frozen + 3 * of_attention * tokens)

    return total * int(cfg.data.batch_size) / len(rows)
