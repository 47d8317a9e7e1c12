"""Effects over the seeds: means and paired differences of cells, with Student's t."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from lightning_cse.tables.spec import Column
from lightning_cse.tables.statistics import detectable_difference, mean_interval

EFFECT_FIELDS = ["row", "encoder", "column", "reference", "seeds", "value", "low", "high", "sd"]
"""The columns of the effects that are kept beside a table."""
POWER = 0.8
"""The power with which the smallest effect of a column is found."""
_PERCENT = 100
_ROUNDING = 1e-9  # a standard deviation of differences that are rounding errors


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
