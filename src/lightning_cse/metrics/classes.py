"""Alignment, uniformity and RFD as `torchmetrics.Metric`: updated by batch, over all processes."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from lightning_cse.metrics.representation import (
    pair_distances,
    relative_fitting_difficulty,
    uniformity,
)


class RowMetric(Metric):
    """A metric that keeps all its rows, in float64 on the CPU, and computes the exact value.

    ``.to(...)``, ``.half()`` or ``.cuda()`` of a parent module does not change the rows. The
    processes of a distributed run may have different numbers of rows, or none: in each of them,
    ``compute`` returns the value that one process with all rows would return. ``forward`` returns
    NaN if a batch alone has no value (uniformity of one sentence).

    Keyword arguments are those of `torchmetrics.Metric`. A checkpoint contains the rows if
    ``in_checkpoint`` is True.
    """

    is_differentiable = False
    full_state_update = False
    states: ClassVar[tuple[str, ...]]
    in_checkpoint: ClassVar[bool] = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._one_batch = False
        for name in self.states:
            self.add_state(
                name,
                default=[],
                dist_reduce_fx="cat",
                persistent=self.in_checkpoint,
            )

    @abstractmethod
    def _value(self) -> float:
        """Return the value of all rows, or raise ValueError if it is undefined."""

    def compute(self) -> Tensor:
        """Return the value of all rows of all processes, a float64 scalar on the CPU."""
        try:
            value = self._value()
        except ValueError:
            if not self._one_batch:
                raise
            value = math.nan
        return torch.tensor(value, dtype=torch.float64)

    def forward(
        self,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Add a batch, and return its own value."""
        self._one_batch = True
        try:
            return super().forward(*args, **kwargs)
        finally:
            self._one_batch = False

    def _keep(
        self,
        name: str,
        rows: Tensor,
    ) -> None:
        getattr(self, name).append(rows.detach().cpu().to(torch.float64, copy=True))

    def _rows(self, name: str) -> Tensor:
        parts = getattr(self, name)
        if len(parts) == 0:
            raise ValueError(f"{type(self).__name__} has no rows: call update before compute")
        return parts if isinstance(parts, Tensor) else torch.cat(parts)

    def _apply(
        self,
        fn: Callable[[Tensor], Tensor],
        exclude_state: Sequence[str] = (),
    ) -> Self:
        nn.Module._apply(self, fn)  # torchmetrics' method would move and convert the states
        return self

    def _sync_dist(
        self,
        dist_sync_fn: Callable[..., Any] = gather_all_tensors,
        process_group: Any = None,
    ) -> None:
        """Gather the states as objects: NCCL cannot gather CPU tensors, and shards differ."""
        if dist_sync_fn is not gather_all_tensors:  # given by the caller
            super()._sync_dist(dist_sync_fn, process_group)
            return
        group = process_group or self.process_group
        own = {name: getattr(self, name) for name in self.states}
        shards: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(
            shards,
            own,
            group,
        )
        for name in self.states:
            setattr(
                self,
                name,
                [part for shard in shards for part in shard[name]],
            )


class Alignment(RowMetric):
    """`alignment` of all pairs."""

    higher_is_better = False
    states = ("distances",)

    def __init__(
        self,
        alpha: float = 2,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha

    def update(
        self,
        x: Tensor,
        y: Tensor,
    ) -> None:
        """Add pairs: two tensors of shape ``(n, d)``."""
        if len(x) or len(y):
            self._keep("distances", pair_distances(x, y, self.alpha))

    def _value(self) -> float:
        return float(self._rows("distances").mean())


class Uniformity(RowMetric):
    """`uniformity` of all sentences; it keeps their vectors, 8 bytes per number."""

    higher_is_better = False
    states = ("vectors",)

    def __init__(
        self,
        t: float = 2,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.t = t

    def update(self, x: Tensor) -> None:
        """Add sentences: a tensor of shape ``(n, d)``."""
        self._keep("vectors", x)

    def _value(self) -> float:
        return uniformity(self._rows("vectors"), self.t)


class RelativeFittingDifficulty(RowMetric):
    """`relative_fitting_difficulty` of a run: update it once per evaluation, and never reset it.

    Leave out step 0. Log the value of ``compute()``, not the metric, which Lightning would reset at
    the end of an epoch.
    """

    states = ("held_out", "evaluation")
    in_checkpoint = True

    def update(
        self,
        held_out: float | Tensor,
        evaluation: float | Tensor,
    ) -> None:
        """Add the values of one evaluation, or of several in two tensors."""
        for name, value in (("held_out", held_out), ("evaluation", evaluation)):
            if isinstance(value, Tensor):
                self._keep(name, value.reshape(-1))
            else:
                self._keep(name, torch.tensor([value], dtype=torch.float64))

    def _value(self) -> float:
        held_out = self._rows("held_out")
        evaluation = self._rows("evaluation")
        return relative_fitting_difficulty(held_out.tolist(), evaluation.tolist())
