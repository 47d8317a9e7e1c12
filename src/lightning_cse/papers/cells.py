"""The cells of a table, read from the flat table of runs by line, column and seed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from lightning_cse.papers.artefacts import COMPUTED, Column, Line

if TYPE_CHECKING:
    from lightning_cse.papers.plan import Plan
    from lightning_cse.papers.records import FinishedRun

STALE = "measured with another version of its method"
"""The mark of cells whose records have another ``Method.version`` than today's."""
_PATHS = {"metric": "metrics.", "field": "", "config": "decisive.config."}

Place = tuple[int, str]
"""The number of a line, and the title of a column."""


@dataclass
class Cell:
    """The values of a cell by seed, their runs, and the number of the paper beside them."""

    values: pd.Series = field(default_factory=lambda: pd.Series(dtype=float))
    runs: tuple[FinishedRun, ...] = ()
    asked: int = 0  # the number of seeds that it should have
    metric: str = ""
    scale: float = 100.0  # of the metric
    parts: tuple[Cell, ...] = ()  # the cells that a mean or a difference is of
    weights: tuple[float, ...] = (1.0,)  # of the parts
    marks: tuple[str, ...] = ()  # of significance, and texts that say how it was measured
    error: float = math.nan  # the mean standard error over the examples, where all runs have one
    published: float = math.nan
    published_deviation: float = math.nan
    p: float = math.nan
    p_holm: float = math.nan
    ends: tuple[float, float] = (math.nan, math.nan)  # of the difference from the reference row

    @property
    def n(self) -> int:
        """The number of runs."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return float(self.values.mean())

    @property
    def sd(self) -> float:
        """The standard deviation over the seeds; NaN for fewer than two."""
        return float(self.values.std())

    @property
    def low(self) -> float:
        """The lowest value."""
        return float(self.values.min())

    @property
    def high(self) -> float:
        """The highest value."""
        return float(self.values.max())

    @property
    def difference(self) -> float:
        """The mean minus the paper's number."""
        return self.mean - self.published


def reason(line: Line, cells: Iterable[Cell]) -> str:
    """Return why a line has only the paper's numbers; finished runs are used, whatever it needs."""
    if line.needs and not any(cell.n for cell in cells):
        return str(line.needs)

    return line.published


def read_cells(plan: Plan) -> dict[Place, Cell]:
    """Read all cells of a table, line by line."""
    papers = {(one.row, one.encoder, one.column): one for one in plan.artefact.published}
    cells: dict[Place, Cell] = {}
    for number, line in enumerate(plan.lines):
        for column in plan.artefact.columns:
            is_measured = column.source not in COMPUTED and not line.published
            cell = _measured(plan, line, column) if is_measured else Cell()
            if paper := papers.get((line.name, line.paper_encoder, column.title)):
                cell.published = paper.value
                if paper.deviation is not None:
                    cell.published_deviation = paper.deviation

            cells[number, column.title] = cell

        for column in plan.artefact.columns:
            if column.source in COMPUTED:
                parts = [cells[number, title] for title in column.keys]
                _compute(cells[number, column.title], column, parts)

    return cells


def _measured(plan: Plan, line: Line, column: Column) -> Cell:
    rows = plan.runs(line, column)
    prefix = _PATHS[column.source]
    if line.row.baseline:
        prefix = f"baselines.{line.row.baseline}."

    for key in (*column.keys, *column.instead):
        values = _numbers(rows, f"{prefix}{key}")
        if len(values):
            break

    if column.absent is not None:
        task = key.rpartition("/")[0]
        has_task = rows.filter(like=f"{prefix}{task}/").notna().any(axis=1)
        values = values.reindex(rows.index[has_task], fill_value=column.absent)

    asked = len(plan.seeds(line, column))
    if values.empty:
        # A metric that no run has is not missing, and neither is a run that waits for a variable.
        return Cell(asked=asked if rows.empty and not line.needs else 0)

    found = tuple(rows.loc[values.index, "run"])
    errors = _numbers(rows, f"{prefix}{key}_se").reindex(values.index)
    marks = [column.instead[key].rstrip(".")] if key in column.instead else []
    if any(plan.table.is_stale(run) for run in found):
        marks.append(STALE)

    return Cell(
        values=column.scale * values,
        runs=found,
        asked=asked,
        metric=key if column.source == "metric" else "",
        scale=column.scale,
        marks=tuple(marks),
        error=column.scale * float(errors.mean(skipna=False)),
    )


def _numbers(rows: pd.DataFrame, path: str) -> pd.Series:
    """Return the values in a column of the runs, without missing ones."""
    return rows[path].dropna().astype(float) if path in rows else pd.Series(dtype=float)


def _compute(cell: Cell, column: Column, parts: list[Cell]) -> None:
    """Fill a cell from others, for each seed that all of them have."""
    values = pd.concat([part.values for part in parts], axis=1, join="inner")
    if column.source == "mean":
        cell.values = column.scale * values.mean(axis=1)
        cell.weights = (column.scale / len(parts),) * len(parts)
    else:
        cell.values = column.scale * (values.iloc[:, 0] - values.iloc[:, 1])
        cell.weights = (column.scale, -column.scale)

    cell.parts = tuple(parts)
    cell.runs = tuple(run for run in parts[0].runs if run.record["seed"] in values.index)
    cell.asked = max(part.asked for part in parts)
    if cell.n:
        cell.marks = tuple(dict.fromkeys(mark for part in parts for mark in part.marks))
