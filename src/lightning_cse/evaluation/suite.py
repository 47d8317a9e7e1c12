"""A suite of tasks: its averages, and all of its tasks with one pass over their sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from lightning_cse.errors import ConfigError, did_you_mean
from lightning_cse.evaluation.task import Answers, Embedded, Split, Task, TaskResult


class Average(Task):
    r"""The mean of metrics of other tasks on the test split.

    .. math:: \frac{1}{K} \sum_{k=1}^{K} m_k

    of the unrounded metrics :math:`m_k`. There is no mean where a model lacks one of the parts.

    Source: SimCSE, evaluation.py: the last column of its STS and transfer tables.  Differs: SimCSE averages values that
    were rounded to two decimals of a percent, which can change the last decimal.

    ``of`` is what is averaged, ``<task>/<metric>`` each, such as ``sts12/spearman_all``; ``metric`` names the mean.
    """

    name = "average"
    needs = ()
    splits: tuple[Split, ...] = ("test",)
    metrics: tuple[str, ...] = ()

    def __init__(self, *, of: Sequence[str], metric: str) -> None:
        self.parts = tuple(of)
        if not self.parts or len(set(self.parts)) < len(self.parts):
            raise ValueError(f"of: a mean needs at least one part and each only once, got {list(self.parts)}")
        self.metrics = (metric,)

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Raise TypeError: `summarize_tasks` computes it from the metrics of its parts."""
        raise TypeError("an average is computed by summarize_tasks")


def check_parts(tasks: Mapping[str, Task]) -> None:
    """Raise ConfigError with every part of an average that is not a metric of the suite."""
    known = [f"{name}/{metric}" for name, task in tasks.items() for metric in task.metrics]
    faults = [
        f"suite.{name}.of: {part!r} is not a metric of this suite{did_you_mean(part, known)} (has {', '.join(known)})"
        for name, task in tasks.items()
        if isinstance(task, Average)
        for part in task.parts
        if part not in known
    ]
    if faults:
        raise ConfigError(faults)


def summarize_tasks(
    tasks: Mapping[str, Task], metrics: Mapping[str, Mapping[str, float]], split: Split
) -> dict[str, TaskResult]:
    """Return the averages of a suite that have the split and all their parts, from metrics by task."""
    values = {f"{name}/{metric}": value for name, found in metrics.items() for metric, value in found.items()}
    return {
        name: TaskResult({task.metrics[0]: math.fsum(values[part] for part in task.parts) / len(task.parts)})
        for name, task in tasks.items()
        if isinstance(task, Average) and split in task.splits and all(part in values for part in task.parts)
    }


def run_tasks(tasks: Mapping[str, Task], answers: Answers, split: Split) -> dict[str, TaskResult]:
    """Run every task that has the split and suits the model, with one pass over all their sentences."""
    check_parts(tasks)
    suiting = {
        name: task
        for name, task in tasks.items()
        if not isinstance(task, Average) and split in task.splits and task.suits(answers)
    }
    if not suiting:
        return {}
    embedded = Embedded(answers, (sentence for task in suiting.values() for sentence in task.sentences(split)))
    results = {name: task.evaluate(answers, embedded, split) for name, task in suiting.items()}
    return results | summarize_tasks(tasks, {name: result.metrics for name, result in results.items()}, split)
