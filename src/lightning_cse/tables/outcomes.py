"""What the runs of a cell have for each example of its metric, and the influence of each example.

A metric has a value and an influence of each example on it. Standard errors over the examples,
paired differences and clusters of examples follow from the influences.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lightning_cse.errors import DataError
from lightning_cse.metrics import (
    auc_influences,
    auprc_influences,
    mean_influences,
    spearman_influences,
)
from lightning_cse.tables.predictions import EXAMPLE, read_task

_NEEDED = {"auc": "label", "auprc": "label", "spearman": "gold"}
"""The column of the predictions that a metric of scores needs beside the score."""
_INFLUENCES: dict[str, Callable[[pd.DataFrame, Any], NDArray[np.float64]]] = {
    "accuracy": lambda _, right: mean_influences(right),
    "auc": lambda examples, scores: auc_influences(examples["label"], scores),
    "auprc": lambda examples, scores: auprc_influences(examples["label"], scores),
    "spearman": lambda examples, scores: spearman_influences(examples["gold"], scores),
}
"""The influence of each example on a metric of a run, by what the metric measures."""


def measure_of(metric: str) -> str:
    """Return what a metric measures, such as ``accuracy``; nothing for one that is not computed
    from examples of the test split, such as the average of several tasks or a standard error.
    """
    task, _, name = metric.rpartition("/")
    is_elsewhere = task and (not task.startswith("test/") or task.endswith("_avg"))
    if is_elsewhere or name.endswith("_se"):
        return ""

    start = name.partition("_")[0]
    is_whole = start in ("accuracy", "auc") or name in ("auprc", "spearman", "spearman_all")

    return start if is_whole else ""


@dataclass(frozen=True)
class Outcomes:
    """What the runs of a cell have for each example of a metric.

    ``examples`` has the columns that identify them. ``values`` has a column for each seed: whether
    they are right or, for an area or a correlation, the ranks of their scores.
    """

    source: str
    task: str
    measure: str
    examples: pd.DataFrame
    values: pd.DataFrame

    @functools.cached_property
    def influences(self) -> pd.DataFrame:
        """The influence of each example on the metric of each run."""
        of_run = _INFLUENCES[self.measure]
        return pd.DataFrame({seed: of_run(self.examples, of) for seed, of in self.values.items()})

    @property
    def clusters(self) -> NDArray[Any]:
        """The cluster of each example: the number of the row that it comes from, which the
        hypotheses of a premise of INLI share; without such numbers, each is its own.
        """
        return np.asarray(self.examples.get("row", self.examples.index))

    def check_same_examples(self, examples: pd.DataFrame, source: str) -> None:
        """Raise DataError if the outcomes are of other examples than those of ``source``."""
        if not self.examples.equals(examples):
            raise DataError(
                f"{self.source} and {source} are of different examples: they cannot be compared"
            )


def read_outcomes(cell: pd.DataFrame) -> Outcomes | None:
    """Return what the runs of a cell have for its metric; None where predictions are missing.

    Raises:
        DataError: if the runs were evaluated on different examples.
    """
    metric = str(cell["metric"].iloc[0])
    _, task, name = metric.split("/")
    outcomes = None
    for seed, run, baseline in zip(cell["seed"], cell["run"], cell["baseline"], strict=True):
        predictions = read_task(run, task, baseline)
        if predictions is None:
            return None

        source = f"{run} ({task})"
        examples = values_of(predictions, name, source)
        values = examples.pop("value")
        if outcomes is None:
            outcomes = Outcomes(source, task, measure_of(metric), examples, pd.DataFrame())

        outcomes.check_same_examples(examples, source)
        outcomes.values[seed] = values

    return outcomes


def values_of(predictions: pd.DataFrame, metric: str, source: str) -> pd.DataFrame:
    """Return the examples that a metric is of: the columns that identify them, and ``value``,
    whether they are right or, for an area or a correlation, the rank of their score.

    The metric ``accuracy_NAME`` uses the column ``correct_NAME``, or only the examples of type
    NAME, if these exist; ``auc_NAME`` is of the examples of type NAME and of all with label 0.
    """
    variant = metric.partition("_")[2]
    measure = measure_of(metric)
    if "type" in predictions and (predictions["type"] == variant).any():
        is_chosen = predictions["type"] == variant
        if measure == "auc":
            is_chosen |= ~predictions["label"].astype(bool)

        predictions = predictions[is_chosen].reset_index(drop=True)

    examples = predictions[[name for name in EXAMPLE if name in predictions]]
    if measure == "accuracy":
        for name in (f"correct_{variant}", "correct"):
            if name in predictions:
                return examples.assign(value=predictions[name])

        return examples.assign(value=predictions["label"] == predictions["prediction"])

    if missing := sorted({"score", _NEEDED[measure]} - {*predictions}):
        raise DataError(f"{source} has no {' and '.join(missing)}, which {metric} needs")

    return examples.assign(value=predictions["score"])
