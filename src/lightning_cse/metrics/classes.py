"""The metrics as `torchmetrics.Metric`: updated batch by batch, computed once, over all processes."""

import math
import zlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from lightning_cse.metrics.representation import (
    pair_distances,
    relative_fitting_difficulty,
    uniformity,
)
from lightning_cse.metrics.scores import (
    AGGREGATIONS,
    Values,
    as_columns,
    auprc,
    best_threshold,
    labels_and_scores,
    threshold_accuracy,
)


class RowMetric(Metric):
    """A metric that keeps every row it is given, in float64 on the CPU, and computes the exact value from all of them.

    ``.to(...)``, ``.half()`` or ``.cuda()`` of a parent module does not change the rows. The processes of a distributed
    run may have different numbers of rows, or none: in each of them, ``compute`` returns the value that one process
    with all rows would return. ``forward`` returns NaN if a batch alone has no value (uniformity of one sentence).

    Keyword arguments are those of `torchmetrics.Metric`. A checkpoint contains the rows if ``in_checkpoint`` is True.
    """

    is_differentiable = False
    full_state_update = False
    states: ClassVar[tuple[str, ...]]
    in_checkpoint: ClassVar[bool] = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._one_batch = False
        for name in self.states:
            self.add_state(name, default=[], dist_reduce_fx="cat", persistent=self.in_checkpoint)

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

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch, and return its own value."""
        self._one_batch = True
        try:
            return super().forward(*args, **kwargs)
        finally:
            self._one_batch = False

    def _any(self, *columns: Any) -> bool:
        return any(len(column) for column in columns)  # a batch without rows adds nothing

    def _keep(self, **rows: Any) -> None:
        for name, values in rows.items():
            tensor = values if isinstance(values, Tensor) else torch.tensor(values)
            dtype = None if tensor.dtype == torch.int64 else torch.float64
            getattr(self, name).append(tensor.detach().cpu().to(dtype, copy=True))

    def _rows(self, name: str) -> Tensor:
        parts = getattr(self, name)
        if len(parts) == 0:
            raise ValueError(f"{type(self).__name__} has no rows: call update before compute")
        return parts if isinstance(parts, Tensor) else torch.cat(parts)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ()) -> Self:
        nn.Module._apply(self, fn)  # torchmetrics' method would move and convert the states
        return self

    def _sync_dist(
        self, dist_sync_fn: Callable[..., Any] = gather_all_tensors, process_group: Any = None
    ) -> None:
        """Gather the states as objects: NCCL cannot gather CPU tensors, and shards differ in length."""
        if dist_sync_fn is not gather_all_tensors:  # given by the caller
            super()._sync_dist(dist_sync_fn, process_group)
            return
        group = process_group or self.process_group
        shards: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(
            shards, {name: getattr(self, name) for name in self.states}, group
        )
        for name in self.states:
            setattr(self, name, [part for shard in shards for part in shard[name]])


class Alignment(RowMetric):
    """`alignment` of all pairs."""

    higher_is_better = False
    states = ("distances",)

    def __init__(self, alpha: float = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha

    def update(self, x: Tensor, y: Tensor) -> None:
        """Add pairs: two tensors of shape ``(n, d)``."""
        if self._any(x, y):
            self._keep(distances=pair_distances(x, y, self.alpha))

    def _value(self) -> float:
        return float(self._rows("distances").mean())


class Uniformity(RowMetric):
    """`uniformity` of all sentences; it keeps their vectors, 8 bytes per number."""

    higher_is_better = False
    states = ("vectors",)

    def __init__(self, t: float = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.t = t

    def update(self, x: Tensor) -> None:
        """Add sentences: a tensor of shape ``(n, d)``."""
        self._keep(vectors=x)

    def _value(self) -> float:
        return uniformity(self._rows("vectors"), self.t)


class RelativeFittingDifficulty(RowMetric):
    """`relative_fitting_difficulty` of a training run: update it once per evaluation, after step 0, and never reset it.

    Log the value of ``compute()``, not the metric, which Lightning would reset at the end of an epoch.
    """

    states = ("held_out", "evaluation")
    in_checkpoint = True

    def update(self, held_out: float | Values, evaluation: float | Values) -> None:
        """Add the values of one evaluation, or of several in two sequences."""
        given = [
            side.cpu() if isinstance(side, Tensor) else side for side in (held_out, evaluation)
        ]
        first, second = (torch.as_tensor(side, dtype=torch.float64).reshape(-1) for side in given)
        self._keep(held_out=first, evaluation=second)

    def _value(self) -> float:
        return relative_fitting_difficulty(
            self._rows("held_out").tolist(), self._rows("evaluation").tolist()
        )


class _LabelMetric(RowMetric):
    higher_is_better = True
    states = ("labels", "scores")

    def update(self, labels: Values, scores: Values) -> None:
        """Add rows: labels, 1 (or True) for yes and 0 for no, and scores, bigger for yes; both of shape ``(n,)``."""
        if self._any(labels, scores):
            flags, values = labels_and_scores(labels, scores)
            self._keep(labels=flags, scores=values)


class ThresholdAccuracy(_LabelMetric):
    """`threshold_accuracy` at a given threshold, or at the `best_threshold` of the rows themselves.

    Without ``threshold``, each ``compute`` tunes the threshold on the rows. ``tuned`` is the threshold that was used.
    """

    def __init__(
        self,
        threshold: float | None = None,
        *,
        grid: Values | None = None,
        strict: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.threshold, self.tuned = threshold, threshold
        self.grid, self.strict = grid, strict

    def _value(self) -> float:
        labels, scores = self._rows("labels"), self._rows("scores")
        if self.threshold is not None:
            return threshold_accuracy(labels, scores, self.threshold, self.strict)
        self.tuned, accuracy = best_threshold(labels, scores, self.grid, self.strict)
        return accuracy


class AUPRC(_LabelMetric):
    """`auprc` of all rows: the area under the precision-recall curve by trapezoids, not average precision.

    The curve is exact, or has one point per threshold of ``grid``.
    """

    def __init__(self, *, grid: Values | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grid = grid

    def _value(self) -> float:
        return auprc(self._rows("labels"), self._rows("scores"), self.grid)


class Spearman(RowMetric):
    """Rank correlation of all rows (`spearman_all`), or the mean of the correlations of subsets (`spearman_mean`).

    ``constant`` is the value if one side is constant, as in `spearman`; if it is None, a constant side is an error.
    """

    higher_is_better = True
    states = ("gold", "scores", "subsets")

    def __init__(
        self,
        aggregation: Literal["all", "mean", "wmean"] = "all",
        *,
        constant: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if aggregation not in AGGREGATIONS:
            raise ValueError(
                f"aggregation must be one of {', '.join(AGGREGATIONS)}, got {aggregation!r}"
            )
        self.aggregation, self.constant = aggregation, constant

    def update(self, gold: Values, scores: Values, subsets: str | Sequence[str] = "") -> None:
        """Add rows: gold values and scores ``(n,)``, and their subset, one name for all rows or one per row."""
        if not self._any(gold, scores):
            return
        gold, scores = as_columns(gold, scores, names=("gold", "scores"))
        names = [subsets] * len(gold) if isinstance(subsets, str) else list(subsets)
        if len(names) != len(gold):
            raise ValueError(f"need one subset per row, got {len(names)} for {len(gold)} rows")
        numbers = [zlib.crc32(name.encode()) for name in names]  # the same in every process
        self._keep(gold=gold, scores=scores, subsets=np.array(numbers))

    def _value(self) -> float:
        gold, scores, subsets = (self._rows(name) for name in self.states)
        of = [subsets == number for number in dict.fromkeys(subsets.tolist())]
        return AGGREGATIONS[self.aggregation](
            ((gold[own], scores[own]) for own in of), constant=self.constant
        )


class _ShareLarger(RowMetric):
    higher_is_better = True
    states = ("correct",)

    def update(self, first: Values, second: Values) -> None:
        """Add pairs of scores, both ``(n,)``; a pair is correct if the first score is larger."""
        if self._any(first, second):
            larger, smaller = as_columns(first, second, names=("first", "second"))
            self._keep(correct=larger > smaller)

    def _value(self) -> float:
        return float(self._rows("correct").mean())


class ImplicitnessAccuracy(_ShareLarger):
    """Estimating implicitness (EIS): the share of pairs whose implicit sentence has the larger score; ties are wrong.

    ``update`` takes the implicitness of each implicit and of each explicit sentence.

    Source: ImpScore, authors' code; DualCSE, EIS experiment.
    """


class DirectionAccuracy(_ShareLarger):
    """The share of entailed pairs whose score is larger forward than backward; ties are wrong.

    ``update`` takes score(premise, hypothesis) and score(hypothesis, premise) of each pair.

    Source: GaussCSE, experiment on the direction of entailment.
    """
