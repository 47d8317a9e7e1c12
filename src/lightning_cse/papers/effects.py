"""Effects of a table: the mean of each cell, and how much each row differs from each other one,
over the seeds that both have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lightning_cse.papers.cells import Cell, Place
from lightning_cse.papers.statistics import detectable_difference, mean_interval

if TYPE_CHECKING:
    from lightning_cse.papers.artefacts import Column, Line

FIELDS = ["row", "encoder", "column", "reference", "seeds", "value", "low", "high", "sd"]
"""The columns of the effects that are kept beside a table."""
POWER = 0.8
"""The power with which the smallest effect of a column is found."""


def effects(
    lines: Sequence[Line],
    columns: Sequence[Column],
    cells: Mapping[Place, Cell],
    reference: str | None,
) -> pd.DataFrame:
    """Return one row per cell and per pair of cells of a column: `FIELDS`, in the table's unit.

    A cell has an empty ``reference``, its mean and the 95 % interval of that mean over the seeds
    (Student's t). A pair has the mean difference, row minus reference, paired by seed, its interval
    and the standard deviation of the differences. Pairs have the same encoder, or one has none; a
    row that needs no seed, such as LENGTH, is the same for all seeds. The reference row of the
    table is always the second of a pair, and otherwise the earlier row is.
    """
    rows = []
    for column in columns:
        if column.source == "config":
            continue

        measured = [(line, cells[number, column.title]) for number, line in enumerate(lines)]
        known = [(line, cell) for line, cell in measured if cell.values]
        for line, cell in known:
            rows.append(_row(line, column, "", list(cell.values.values())))

        for first, second in itertools.combinations(known, 2):
            swapped = second[0].label == reference
            (theirs, base), (ours, cell) = (second, first) if swapped else (first, second)
            differences = _paired(ours, cell, theirs, base)
            if differences:
                rows.append(_row(ours, column, theirs.label, differences))

    return pd.DataFrame(rows, columns=FIELDS)


def _paired(ours: Line, cell: Cell, theirs: Line, base: Cell) -> list[float]:
    """Return the differences of two cells by seed; none if they cannot be compared."""
    encoders = {ours.encoder, theirs.encoder} - {None}
    if len(encoders) > 1 or ours.label == theirs.label or cell.metric != base.metric:
        return []

    if _is_constant(theirs, base):
        (constant,) = base.values.values()
        return [value - constant for value in cell.values.values()]

    if _is_constant(ours, cell):
        (constant,) = cell.values.values()
        return [constant - value for value in base.values.values()]

    return [value - base.values[seed] for seed, value in cell.values.items() if seed in base.values]


def _is_constant(line: Line, cell: Cell) -> bool:
    """Return whether a cell needs no seed: LENGTH, or a model of one evaluation."""
    return len(cell.values) == 1 and (line.row.baseline is not None or line.encoder is None)


def _row(
    line: Line,
    column: Column,
    reference: str,
    values: Sequence[float],
) -> list[Any]:
    mean, low, high = mean_interval(values)
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan

    return [
        line.label,
        line.encoder or "",
        column.title,
        reference,
        len(values),
        mean,
        math.nan if low is None else low,
        math.nan if high is None else high,
        deviation,
    ]


def smallest(found: pd.DataFrame, columns: Sequence[Column]) -> Iterator[str]:
    """Yield a sentence on the smallest effect that the seeds of a table can show, by column.

    The standard deviation of the paired differences is pooled over all pairs of rows of the column
    that have several seeds, and the number of pairs is that of most of them.
    """
    pairs = found[(found["reference"] != "") & found["sd"].notna()]
    once = found[(found["reference"] == "") & (found["seeds"] == 1)]
    texts = []
    counts = set()
    for column in columns:
        constant = once.loc[once["column"] == column.title, "row"]
        some = pairs[(pairs["column"] == column.title) & ~pairs["row"].isin(constant)]
        some = some[~some["reference"].isin(constant)]
        if some.empty:
            continue

        count = int(some["seeds"].mode().iloc[0])
        deviation = math.sqrt(float((some.loc[some["seeds"] == count, "sd"] ** 2).mean()))
        if deviation == 0:  # such as numbers of steps
            continue

        least = detectable_difference(deviation, count, power=POWER)
        counts.add(count)
        texts.append(f"{column.title} {least:.{column.decimals}f}")

    if texts:
        seeds = " or ".join(map(str, sorted(counts)))
        yield (
            f"Smallest difference between two rows that {seeds} seeds find with a power of "
            f"{100 * POWER:.0f} % (paired t test, level 5 %, deviation pooled over all pairs of rows): "
            f"{'; '.join(texts)}."
        )
