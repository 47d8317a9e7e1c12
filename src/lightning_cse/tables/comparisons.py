"""Compares cells of the long frame over seeds and examples, where predictions exist.

Student's t gives intervals over the seeds, and the influences of the examples those over the
examples. Answers that are right or wrong have McNemar's exact test, and AUCs DeLong's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from lightning_cse.metrics import delong, mcnemar
from lightning_cse.tables.effects import is_constant, paired
from lightning_cse.tables.outcomes import Outcomes, measure_of, read_outcomes
from lightning_cse.tables.statistics import clustered_error, holm, majority_vote, two_way_interval

TEST_FIELDS = [
    *("row", "encoder", "column", "reference", "test", "seeds", "seeds_reference"),
    *("mean", "mean_reference", "p", "p_holm", "low", "high"),
]
"""The columns of the tests that are kept beside a table. ``low`` and ``high`` are the ends of the
95 % interval of the difference over seeds and examples, in the unit of the column.
"""
_LEAST_P = 1e-300  # a float cannot tell smaller values from 0, and no test is certain

Pair = tuple[int, int, str]
"""The numbers of two lines, the second of which is the reference, and the title of a column."""


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

        for outcomes_of_cell, base in read:
            outcomes_of_cell.check_same_examples(base.examples, base.source)

        cell, reference = cells[first, column], cells[second, column]
        voters = _voters(cell, reference)
        is_metric = [*weights[column]] == [column]
        test, p = _test(*read[0], *voters) if is_metric else ("interval", math.nan)
        interval = _interval(cell, reference, read, [*weights[column].values()])
        rows.append(
            {
                **cell[["row", "encoder", "column"]].iloc[0],
                "reference": reference["row"].iloc[0],
                "test": test,
                "seeds": " ".join(map(str, voters[0])),
                "seeds_reference": " ".join(map(str, voters[1])),
                "mean": cell["value"].mean(),
                "mean_reference": reference["value"].mean(),
                "p": p,
                **dict(zip(("difference", "low", "high"), interval, strict=True)),
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
    """Return the test of what a metric measures, and its p-value; other metrics than accuracies and
    AUCs have an interval alone.
    """
    sides = first.values[seeds], second.values[seeds_reference]
    if first.measure == "accuracy":
        p = mcnemar(*(majority_vote(side.T) for side in sides)).pvalue
        return "mcnemar", float(np.maximum(p, _LEAST_P))
    if first.measure == "auc":
        scores = ([side[seed] for seed in side] for side in sides)
        p = delong(first.examples["label"], *scores).pvalue
        return "delong", float(np.maximum(p, _LEAST_P))

    return "interval", math.nan


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
    influences = []
    for (first, second), weight in zip(parts, weights, strict=True):
        mean, mean_reference = (
            (
                outcomes.influences if is_constant(side) else outcomes.influences[differences.index]
            ).mean(axis=1)
            for side, outcomes in ((cell, first), (reference, second))
        )
        part = {"influence": weight * (mean - mean_reference), "cluster": first.clusters}
        influences.append(pd.DataFrame(part).assign(task=first.task))

    errors = [
        clustered_error(of_task["influence"], of_task["cluster"])
        for _, of_task in pd.concat(influences).groupby("task")
    ]

    return two_way_interval(differences, math.hypot(*errors))
