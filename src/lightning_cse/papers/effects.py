"""Effects of a table: the mean of each cell, and how much each row differs from each other one,
over the seeds that both have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from lightning_cse.papers.cells import Cell, Place
from lightning_cse.papers.statistics import detectable_difference, mean_interval

if TYPE_CHECKING:
    from lightning_cse.papers.artefacts import Column, Line

FIELDS = ["row", "encoder", "column", "reference", "seeds", "value", "low", "high", "sd"]
"""The columns of the effects that are kept beside a table."""
POWER = 0.8
"""The power with which the smallest effect of a column is found."""
_PERCENT = 100
_SAME = 1e-9  # a standard deviation of differences that are rounding errors


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
        known = [(line, cell) for line, cell in measured if cell.n]
        for line, cell in known:
            rows.append(_row(line, column, "", cell.values))

        for first, second in itertools.combinations(known, 2):
            swapped = second[0].label == reference
            (theirs, base), (ours, cell) = (second, first) if swapped else (first, second)
            differences = _paired(ours, cell, theirs, base)
            if len(differences):
                rows.append(_row(ours, column, theirs.label, differences))

    return pd.DataFrame(rows, columns=FIELDS)


def _paired(ours: Line, cell: Cell, theirs: Line, base: Cell) -> pd.Series:
    """Return the differences of two cells by seed; none if they cannot be compared."""
    encoders = {ours.encoder, theirs.encoder} - {None}
    if len(encoders) > 1 or ours.label == theirs.label or cell.metric != base.metric:
        return pd.Series(dtype=float)

    return by_seed(ours, cell, theirs, base)


def by_seed(ours: Line, cell: Cell, theirs: Line, base: Cell) -> pd.Series:
    """Return the differences of two cells for the seeds that both have; a cell that needs no seed
    is the same for all.
    """
    if needs_no_seed(theirs, base):
        return cell.values - base.values.iloc[0]
    if needs_no_seed(ours, cell):
        return cell.values.iloc[0] - base.values

    return (cell.values - base.values).dropna()


def needs_no_seed(line: Line, cell: Cell) -> bool:
    """Return whether a cell is of a model that is not trained: a baseline, or one evaluation."""
    is_untrained = line.row.baseline is not None or line.row.evaluate is not None
    return cell.n == 1 and is_untrained


def _row(line: Line, column: Column, reference: str, values: pd.Series) -> list[Any]:
    name = [line.label, line.encoder or "", column.title, reference]
    return [*name, len(values), *mean_interval(values), float(values.std())]


def smallest(found: pd.DataFrame, columns: Sequence[Column]) -> Iterator[str]:
    """Yield a sentence on the smallest effect that the seeds of a table can show, by column.

    The standard deviation of the paired differences is pooled over all pairs of rows of the column
    that have several seeds, as many as most of them have; the quartiles of the deviations of the
    pairs give a range, since some rows are steadier than others.
    """
    once = found[(found["reference"] == "") & (found["seeds"] == 1)]
    constants = pd.MultiIndex.from_frame(once[["column", "row"]])
    # Rows of the same runs do not differ at all.
    pairs = found[(found["reference"] != "") & (found["sd"] > _SAME)]
    for side in ("row", "reference"):
        pairs = pairs[~pd.MultiIndex.from_frame(pairs[["column", side]]).isin(constants)]

    texts = []
    counts = set()
    ranged = ""
    for column in columns:
        some = pairs[pairs["column"] == column.title]
        if some.empty:  # such as numbers of steps
            continue

        count = int(some["seeds"].mode().iloc[0])
        deviations = some.loc[some["seeds"] == count, "sd"]
        pooled = float((deviations**2).mean() ** 0.5)
        sizes = [pooled, *deviations.quantile([0.25, 0.75])]
        least, low, high = (detectable_difference(size, count, power=POWER) for size in sizes)
        counts.add(count)
        texts.append(f"{column.title} {_size(column, least)}")
        if len(deviations) > 1:
            texts[-1] += f" ({_size(column, low)} to {_size(column, high)})"
            ranged = "; in parentheses, with the quartiles of the pairs' deviations"

    if texts:
        seeds = " or ".join(map(str, sorted(counts)))
        yield (
            f"Smallest difference between two rows that {seeds} seeds find with a power of "
            f"{100 * POWER:.0f} % (paired t test, level 5 %, deviation pooled over all pairs of rows"
            f"{ranged}): {'; '.join(texts)}."
        )


def _size(column: Column, least: float) -> str:
    is_percentage = column.scale == _PERCENT
    return "none" if is_percentage and least > _PERCENT else f"{least:.{column.decimals}f}"
