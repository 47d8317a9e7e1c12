"""The mean of several tasks: the last column of most tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lightning_cse.evaluation.task import Split, Summary, TaskResult


class Average(Summary):
    r"""The mean of metrics of other tasks on the test split.

    .. math:: \frac{1}{K} \sum_{k=1}^{K} m_k

    of the unrounded metrics :math:`m_k`. Where a method lacks one of the parts there is no mean.

    Source: SimCSE, evaluation.py: the last column of its STS and transfer tables.  Differs: SimCSE averages values that
    were rounded to two decimals of a percent, which can change the last decimal.

    Args:
        of: what is averaged, ``<task>/<metric>`` each, such as ``sts12/spearman_all``.
        metric: what the mean is called.

    Raises:
        ValueError: if there is nothing to average, or something twice.
    """

    name = "average"
    splits: tuple[Split, ...] = ("test",)

    def __init__(self, *, of: Sequence[str], metric: str) -> None:
        self.parts = tuple(of)
        if not self.parts or len(set(self.parts)) < len(self.parts):
            raise ValueError(f"of: a mean needs at least one part and each once, got {list(self.parts)}")
        self.metric = metric

    @property
    def metrics(self) -> tuple[str, ...]:
        """The mean."""
        return (self.metric,)

    def summarize(self, values: Sequence[float]) -> TaskResult:
        """Return the mean."""
        return TaskResult({self.metric: math.fsum(values) / len(values)})
