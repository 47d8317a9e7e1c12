"""Alignment, uniformity and RFD as `torchmetrics.Metric`: updated by batch, over all processes."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from lightning_cse.metrics.representation import (
    pair_distances,
    relative_fitting_difficulty,
    uniformity,
)


class Alignment(Metric):
    """`alignment` of all pairs."""

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    distances: list[Tensor]

    def __init__(self, alpha: float = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha
        self.add_state("distances", [], "cat")

    def update(self, x: Tensor, y: Tensor) -> None:
        """Add pairs: two tensors of shape ``(n, d)``."""
        self.distances.append(pair_distances(x, y, self.alpha))

    def compute(self) -> Tensor:
        """Return the value of all pairs of all processes, a float64 scalar."""
        return dim_zero_cat(self.distances).mean()


class Uniformity(Metric):
    """`uniformity` of all sentences; it keeps their vectors in float64."""

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    vectors: list[Tensor]

    def __init__(self, t: float = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.t = t
        self.add_state("vectors", [], "cat")

    def update(self, x: Tensor) -> None:
        """Add sentences: a tensor of shape ``(n, d)``."""
        self.vectors.append(x.detach().to(torch.float64, copy=True))

    def compute(self) -> Tensor:
        """Return the value of all sentences of all processes, a float64 scalar."""
        vectors = dim_zero_cat(self.vectors)
        return vectors.new_tensor(uniformity(vectors, self.t))


class RelativeFittingDifficulty(Metric):
    """`relative_fitting_difficulty` of a run: update it once per evaluation, and never reset it.

    Leave out step 0. Log the value of ``compute()``, not the metric, which Lightning would reset at
    the end of an epoch. Its values are part of a checkpoint.
    """

    is_differentiable = False
    full_state_update = False
    held_out: list[Tensor]
    evaluation: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("held_out", [], "cat", persistent=True)
        self.add_state("evaluation", [], "cat", persistent=True)

    def update(self, held_out: float | Tensor, evaluation: float | Tensor) -> None:
        """Add the values of one evaluation, or of several in two tensors."""
        for state, values in ((self.held_out, held_out), (self.evaluation, evaluation)):
            rows = torch.as_tensor(values, dtype=torch.float64, device=self.device)
            state.append(rows.detach().reshape(-1))

    def compute(self) -> Tensor:
        """Return the value of all evaluations, a float64 scalar."""
        held_out = dim_zero_cat(self.held_out)
        evaluation = dim_zero_cat(self.evaluation)
        value = relative_fitting_difficulty(held_out.tolist(), evaluation.tolist())

        return held_out.new_tensor(value)
