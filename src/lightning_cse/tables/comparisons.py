"""Compares cells of the long frame: effects over the seeds, and, where predictions exist, tests and
intervals over seeds and examples.

A metric has a value and an influence of each example on it. Standard errors over the examples,
paired differences and clusters of examples follow from the influences. Student's t gives intervals
over the seeds. Answers that are right or wrong have McNemar's exact test, and AUCs DeLong's.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lightning_cse.errors import DataError
from lightning_cse.metrics import (
    auc_influences,
    auprc_influences,
    delong,
    mcnemar,
    mean_influences,
    spearman_influences,
)
from lightning_cse.tables.predictions import EXAMPLE, read_task
from lightning_cse.tables.spec import Column
from lightning_cse.tables.statistics import (
    clustered_error,
    detectable_difference,
    holm,
    majority_vote,
    mean_interval,
    two_way_interval,
)

EFFECT_FIELDS = ["row", "encoder", "column", "reference", "seeds", "value", "low", "high", "sd"]
"""The columns of the effects that are kept beside a table."""
TEST_FIELDS = [
    *("row", "encoder", "column", "reference", "test", "seeds", "seeds_reference"),
    *("mean", "mean_reference", "p", "p_holm", "low", "high"),
]
"""The columns of the tests that are kept beside a table. ``low`` and ``high`` are the ends of the
95 % interval of the difference over seeds and examples, in the unit of the column.
"""
POWER = 0.8
"""The power with which the smallest effect of a column is found."""
TESTS = {"accuracy": "mcnemar", "auc": "delong"}
"""The tests by what a metric measures; the others have an interval alone."""
_LEAST_P = 1e-300  # a float cannot tell smaller values from 0, and no test is certain
_PERCENT = 100
_ROUNDING = 1e-9  # a standard deviation of differences that are rounding errors
_NEEDED = {"auc": "label", "auprc": "label", "spearman": "gold"}
"""The column of the predictions that a metric of scores needs beside the score."""

Array = NDArray[Any]
Pair = tuple[int, int, str]
"""The numbers of two lines, the second of which is the reference, and the title of a column."""


# Effects over the seeds


def paired(cell: pd.DataFrame, reference: pd.DataFrame) -> pd.Series:
    """Return the differences of two cells by seed, for the seeds that both have; a model that is
    not trained has one value, which is that of all seeds.
    """
    values, baselines = (side.set_index("seed")["value"] for side in (cell, reference))
    if is_constant(reference):
        return values - baselines.iloc[0]
    if is_constant(cell):
        return values.iloc[0] - baselines

    return (values - baselines).dropna()


def is_constant(cell: pd.DataFrame) -> bool:
    """Return whether a cell is of a model that is not trained: a baseline, or one evaluation."""
    return len(cell) == 1 and bool(cell["is_untrained"].iloc[0])


def effects(values: pd.DataFrame, columns: Sequence[Column], reference: str | None) -> pd.DataFrame:
    """Return one row for each cell and each pair of cells of a column: `EFFECT_FIELDS`.

    A cell has an empty ``reference``, its mean and the 95 % interval of that mean over the seeds
    (Student's t). A pair has the mean difference, row minus reference, paired by seed, its interval
    and the standard deviation of the differences. Pairs have the same encoder, or one has none. The
    reference row of the table is always the second of a pair, and otherwise the earlier row is.
    """
    rows = []
    for column in columns:
        if column.source == "config":
            continue

        of_column = values[values["column"] == column.title]
        cells = [cell for _, cell in of_column.groupby("line")]
        rows += [_effect(cell, "", cell["value"]) for cell in cells]
        for first, second in itertools.combinations(cells, 2):
            is_swapped = second["row"].iloc[0] == reference
            base, cell = (second, first) if is_swapped else (first, second)
            if _is_paired(cell, base) and len(differences := paired(cell, base)):
                rows.append(_effect(cell, base["row"].iloc[0], differences))

    return pd.DataFrame(rows, columns=EFFECT_FIELDS)


def _is_paired(cell: pd.DataFrame, reference: pd.DataFrame) -> bool:
    (row, encoder, metric), (other_row, other_encoder, other_metric) = (
        side[["row", "encoder", "metric"]].iloc[0] for side in (cell, reference)
    )
    encoders = {encoder, other_encoder} - {""}

    return len(encoders) < 2 and row != other_row and metric == other_metric


def _effect(cell: pd.DataFrame, reference: str, values: pd.Series) -> list[Any]:
    row, encoder, column = cell[["row", "encoder", "column"]].iloc[0]
    count = len(values)
    return [row, encoder, column, reference, count, *mean_interval(values), values.std()]


def smallest(table_effects: pd.DataFrame, columns: Sequence[Column]) -> Iterator[str]:
    """Yield a sentence on the smallest effect that the seeds of a table can show, by column.

    The standard deviation of the paired differences is pooled over all pairs of rows of the column
    that have several seeds, as many as most of them have.
    """
    is_cell = table_effects["reference"] == ""
    once = table_effects[is_cell & (table_effects["seeds"] == 1)]
    constants = pd.MultiIndex.from_frame(once[["column", "row"]])
    # Rows of the same runs do not differ at all.
    pairs = table_effects[~is_cell & (table_effects["sd"] > _ROUNDING)]
    for side in ("row", "reference"):
        pairs = pairs[~pd.MultiIndex.from_frame(pairs[["column", side]]).isin(constants)]

    texts = []
    counts = set()
    for column in columns:
        of_column = pairs[pairs["column"] == column.title]
        if of_column.empty:  # such as numbers of steps
            continue

        count = int(of_column["seeds"].mode().iloc[0])
        deviations = of_column.loc[of_column["seeds"] == count, "sd"]
        pooled = float((deviations**2).mean() ** 0.5)
        least = detectable_difference(pooled, count, power=POWER)
        is_impossible = column.scale == _PERCENT and least > _PERCENT
        texts.append(
            f"{column.title} {'none' if is_impossible else f'{least:.{column.decimals}f}'}"
        )
        counts.add(count)

    if texts:
        seeds = " or ".join(map(str, sorted(counts)))
        yield (
            f"Smallest difference between two rows that {seeds} seeds find with a power of "
            f"{100 * POWER:.0f} % (paired t test, level 5 %, deviation pooled over all pairs of "
            f"rows): {'; '.join(texts)}."
        )


# Tests and intervals over seeds and examples


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


def is_comparable(
    values: pd.DataFrame, pair: Pair, weights: Mapping[str, Mapping[str, float]]
) -> bool:
    """Return whether two cells can be compared over the examples: they are of the same metrics,
    which are computed from examples.
    """
    first, second, column = pair
    of_pair = values[values["line"].isin([first, second])]
    metrics = of_pair.groupby(["line", "column"])["metric"].first().unstack()
    if column not in metrics or metrics[column].isna().any() or len(metrics) < 2:
        return False

    parts = metrics[[*weights[column]]]

    return parts.loc[first].equals(parts.loc[second]) and all(map(measure_of, parts.loc[first]))


def compare(
    values: pd.DataFrame, pairs: Iterable[Pair], weights: Mapping[str, Mapping[str, float]]
) -> pd.DataFrame:
    """Compare pairs of cells whose predictions exist, with Holm's adjustment over all p-values.

    The tests take as many runs of both sides, and an odd number, beginning with the seeds that both
    have, as a majority of several is right more often than one. The interval is over the seeds that
    both have, and over the examples.

    Args:
        values: the long frame (`lightning_cse.tables.frame`).
        pairs: the lines and columns to compare; see `is_comparable`.
        weights: for each column, the columns of metrics that it is computed from, with the factor
            by which their influences enter it.

    Returns:
        `TEST_FIELDS`, the mean ``difference`` over the seeds that both have, and the numbers of the
        lines as ``line`` and ``line_reference``.

    Raises:
        DataError: if the runs of a pair were evaluated on different examples.
    """
    cells = dict(iter(values.groupby(["line", "column"])))

    @functools.cache
    def outcomes(line: int, title: str) -> Outcomes | None:
        return read_outcomes(cells[line, title])

    rows = []
    for first, second, column in pairs:
        parts = [(outcomes(first, title), outcomes(second, title)) for title in weights[column]]
        read = [(cell, base) for cell, base in parts if cell is not None and base is not None]
        if len(read) < len(parts):
            continue

        for outcomes_of_cell, outcomes_of_reference in read:
            check_same_examples(outcomes_of_cell, outcomes_of_reference)

        cell, reference = cells[first, column], cells[second, column]
        voters = _voters(cell, reference)
        test, p = "interval", math.nan
        if [*weights[column]] == [column]:
            test, p = _test(*read[0], *voters)

        difference, low, high = _interval(cell, reference, read, [*weights[column].values()])
        rows.append(
            {
                "row": cell["row"].iloc[0],
                "encoder": cell["encoder"].iloc[0],
                "column": column,
                "reference": reference["row"].iloc[0],
                "test": test,
                "seeds": " ".join(map(str, voters[0])),
                "seeds_reference": " ".join(map(str, voters[1])),
                "mean": cell["value"].mean(),
                "mean_reference": reference["value"].mean(),
                "p": p,
                "difference": difference,
                "low": low,
                "high": high,
                "line": first,
                "line_reference": second,
            }
        )

    frame = pd.DataFrame(rows, columns=[*TEST_FIELDS, "difference", "line", "line_reference"])
    pvalues = frame["p"].astype(float).dropna()
    frame["p_holm"] = pd.Series(holm(pvalues), index=pvalues.index, dtype=float)

    return frame


def _voters(cell: pd.DataFrame, reference: pd.DataFrame) -> tuple[list[int], list[int]]:
    """Return the seeds of both sides whose runs are tested."""
    counts = [len(side) for side in (cell, reference) if not is_constant(side)]
    odd = (min(counts, default=1) - 1) // 2 * 2 + 1
    common = {*cell["seed"]} & {*reference["seed"]}
    first, second = (
        sorted(sorted(side["seed"], key=lambda seed: (seed not in common, seed))[:odd])
        for side in (cell, reference)
    )

    return first, second


def _test(
    first: Outcomes, second: Outcomes, seeds: list[int], seeds_reference: list[int]
) -> tuple[str, float]:
    """Return the test of what a metric measures, and its p-value."""
    test = TESTS.get(first.measure, "interval")
    votes, votes_reference = first.values[seeds], second.values[seeds_reference]
    if test == "mcnemar":
        p = mcnemar(majority_vote(votes.T), majority_vote(votes_reference.T)).pvalue
    elif test == "delong":
        labels = first.examples["label"]
        scores = [[runs[seed] for seed in runs] for runs in (votes, votes_reference)]
        p = delong(labels, *scores).pvalue
    else:
        return test, math.nan

    return test, float(np.maximum(p, _LEAST_P))


def _interval(
    cell: pd.DataFrame,
    reference: pd.DataFrame,
    parts: Sequence[tuple[Outcomes, Outcomes]],
    weights: Sequence[float],
) -> tuple[float, float, float]:
    """Return the mean difference over the seeds that both cells have, and the ends of its interval.

    Parts of different tasks are independent; those of one task have the examples of one row as a
    cluster.
    """
    differences = paired(cell, reference)
    if differences.empty:
        return two_way_interval(differences, math.nan)

    influences = []
    for (first, second), weight in zip(parts, weights, strict=True):
        mean, mean_reference = (
            (
                outcomes.influences if is_constant(side) else outcomes.influences[differences.index]
            ).mean(axis=1)
            for side, outcomes in ((cell, first), (reference, second))
        )
        part = {
            "influence": weight * (mean - mean_reference),
            "cluster": clusters_of(first.examples),
        }
        influences.append(pd.DataFrame(part).assign(task=first.task))

    errors = [
        clustered_error(of_task["influence"], of_task["cluster"])
        for _, of_task in pd.concat(influences).groupby("task")
    ]

    return two_way_interval(differences, math.hypot(*errors))


def clusters_of(examples: pd.DataFrame) -> Array:
    """Return the cluster of each example: the number of the row that it comes from, which the
    hypotheses of a premise of INLI share; without such numbers, each is its own.
    """
    return np.asarray(examples.get("row", examples.index))


# Predictions


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


_INFLUENCES: dict[str, Callable[[pd.DataFrame, Any], NDArray[np.float64]]] = {
    "accuracy": lambda _, right: mean_influences(right),
    "auc": lambda examples, scores: auc_influences(examples["label"], scores),
    "auprc": lambda examples, scores: auprc_influences(examples["label"], scores),
    "spearman": lambda examples, scores: spearman_influences(examples["gold"], scores),
}
"""The influence of each example on a metric of a run, by what the metric measures."""


def read_outcomes(cell: pd.DataFrame) -> Outcomes | None:
    """Return what the runs of a cell have for its metric; None where predictions are missing.

    Raises:
        DataError: if the runs were evaluated on different examples.
    """
    metric = str(cell["metric"].iloc[0])
    _, task, name = metric.split("/")
    by_seed = []
    for seed, run, baseline in zip(cell["seed"], cell["run"], cell["baseline"], strict=True):
        predictions = read_task(run, task, baseline)
        if predictions is None:
            return None

        source = f"{run} ({task})"
        frame = values_of(predictions, name, source)
        values = pd.DataFrame({seed: frame.pop("value")})
        by_seed.append(Outcomes(source, task, measure_of(metric), frame, values))
        check_same_examples(by_seed[0], by_seed[-1])

    values = pd.concat([outcomes.values for outcomes in by_seed], axis=1)

    return replace(by_seed[0], values=values)


def check_same_examples(first: Outcomes, second: Outcomes) -> None:
    """Raise DataError if the outcomes are of different examples."""
    if not first.examples.equals(second.examples):
        raise DataError(
            f"{first.source} and {second.source} are of different examples: they cannot be compared"
        )


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
