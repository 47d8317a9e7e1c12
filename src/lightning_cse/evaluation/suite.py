"""A suite of tasks: which of them suit a model, their results, and averages of their metrics."""

import math
from collections.abc import Mapping, Sequence

from lightning_cse.errors import ConfigError, LightningCSEError
from lightning_cse.evaluation.task import Answers, Embedded, Split, Task, TaskResult


class Average(Task):
    r"""The mean of metrics of other tasks on the test split.

    .. math:: \frac{1}{K} \sum_{k=1}^{K} m_k

    of the unrounded metrics :math:`m_k`. There is no mean if a model lacks one of the parts.

    Source: SimCSE, evaluation.py: the last column of its STS and transfer tables.  Differs:
    SimCSE averages values that were rounded to two decimals of a percent, which can change the
    last decimal.

    ``of`` lists the metrics as ``<task>/<metric>``, such as ``sts12/spearman_all``; ``metric``
    names the mean.
    """

    needs = ()
    splits: tuple[Split, ...] = ("test",)
    metrics: tuple[str, ...] = ()

    def __init__(self, *, of: Sequence[str], metric: str) -> None:
        self.parts = tuple(of)
        self.metrics = (metric,)

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Raise TypeError: `summarize_tasks` computes it from the metrics of its parts."""
        raise TypeError("an average is computed by summarize_tasks")


def check_parts(tasks: Mapping[str, Task]) -> None:
    """Raise ConfigError if a part of an average is not a metric of the suite."""
    metric_keys = [f"{name}/{metric}" for name, task in tasks.items() for metric in task.metrics]
    for name, task in tasks.items():
        for part in getattr(task, "parts", ()):
            if part not in metric_keys:
                raise ConfigError([f"suite.{name}.of: {part!r} is not a metric of this suite"])


def summarize_tasks(
    tasks: Mapping[str, Task], metrics: Mapping[str, Mapping[str, float]], split: Split
) -> dict[str, TaskResult]:
    """Return the averages of a suite from metrics by task, without those that lack the split or a
    part.
    """
    values = keyed(metrics)
    results = {}
    for name, task in tasks.items():
        if not isinstance(task, Average) or split not in task.splits:
            continue

        if values.keys() >= {*task.parts}:
            mean = math.fsum(values[part] for part in task.parts) / len(task.parts)
            results[name] = TaskResult({task.metrics[0]: mean})

    return results


def suiting_tasks(tasks: Mapping[str, Task], answers: Answers, split: Split) -> dict[str, Task]:
    """Return the tasks that have the split and suit the model, averages apart."""
    return {
        name: task
        for name, task in tasks.items()
        if not isinstance(task, Average) and split in task.splits and task.suits(answers)
    }


def evaluate_tasks(
    tasks: Mapping[str, Task], embedded: Embedded, split: Split
) -> dict[str, TaskResult]:
    """Return the result of every task that has the split and suits the model, then the averages.

    A task whose sentences are not all embedded, as under ``limit_val_batches``, is evaluated on the
    rows whose sentences are; without enough of these, its result is a reason.
    """
    results = {}
    for name, task in suiting_tasks(tasks, embedded.answers, split).items():
        if all(sentence in embedded for sentence in task.sentences(split)):
            results[name] = task.evaluate(embedded, split)
            continue

        try:
            results[name] = task.limited_to(embedded).evaluate(embedded, split)
        except (ArithmeticError, LookupError, LightningCSEError, ValueError) as error:
            reason = f"too few of its sentences are embedded ({error})"
            results[name] = TaskResult({}, reason=reason)

    metrics = {name: result.metrics for name, result in results.items()}

    return results | summarize_tasks(tasks, metrics, split)


def run_tasks(tasks: Mapping[str, Task], answers: Answers, split: Split) -> dict[str, TaskResult]:
    """Embed the sentences of a split in one pass, and return what `evaluate_tasks` does."""
    suiting = suiting_tasks(tasks, answers, split)
    sentences = [sentence for task in suiting.values() for sentence in task.sentences(split)]

    return evaluate_tasks(tasks, Embedded(answers, sentences), split) if suiting else {}


def keyed(metrics: Mapping[str, Mapping[str, float]], stage: str = "") -> dict[str, float]:
    """Return metrics by task under their keys, such as ``test/stsb/spearman``."""
    values = {}
    for task, measured in metrics.items():
        for name, value in measured.items():
            values[f"{stage}{task}/{name}"] = value

    return values
