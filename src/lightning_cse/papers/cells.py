"""The cells of a table: values read from the flat table of runs by line, column and seed, and
grouped into cells.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from lightning_cse.errors import DataError
from lightning_cse.papers.artefacts import Baseline, Column, Line, Published
from lightning_cse.papers.nested import setting_text

if TYPE_CHECKING:
    from lightning_cse.papers.plan import Plan
    from lightning_cse.papers.records import Found

NUMBERS: Final = (
    "n",
    "mean",
    "sd",
    "low",
    "high",
    "error",
    "published",
    "published_deviation",
    "difference",
)
"""The numbers in a cell: statistics of its values, and the paper's numbers."""


@dataclass(frozen=True)
class Reading:
    """The values of a cell by seed, and the runs and metrics that they were read from."""

    values: Mapping[int, float] = field(default_factory=dict)
    asked: int = 0  # the number of seeds that it should have
    metrics: tuple[str, ...] = ()
    runs: tuple[Found, ...] = ()
    marks: tuple[str, ...] = ()
    error: float = math.nan  # the mean standard error over the examples, where all runs have one


Readings = Mapping[tuple[int, str], Reading]
"""The readings by number of the line and title of the column."""


def is_quoted(plan: Plan, line: Line) -> bool:
    """Return whether a line has only the paper's numbers; finished runs are used, whatever the row
    needs.
    """
    if isinstance(line.way, Published):
        return True
    if line.needs is None:
        return False
    columns = [column for column in plan.artefact.columns if column.source != "mean"]
    return all(plan.runs(line, column).empty for column in columns)


def read_cells(plan: Plan, quoted: Sequence[bool]) -> dict[tuple[int, str], Reading]:
    """Read the values of all cells."""
    readings: dict[tuple[int, str], Reading] = {}
    columns = sorted(plan.artefact.columns, key=lambda column: column.source == "mean")
    for number, line in enumerate(plan.lines):
        for column in columns:
            if column.source == "mean":
                parts = [readings[number, title] for title in column.keys]
                reading = _mean(column, parts)
            elif column.source == "config" or quoted[number]:
                reading = Reading()
            else:
                reading = _read(plan, line, column)
            readings[number, column.title] = reading
    return readings


def _read(
    plan: Plan,
    line: Line,
    column: Column,
) -> Reading:
    rows = plan.runs(line, column)
    prefix = "" if column.source == "field" else "metrics."
    if isinstance(line.way, Baseline):
        prefix = f"baselines.{line.way.name}."
    metric, known = _first_known(
        rows,
        prefix,
        (*column.keys, *column.instead),
    )
    if known.empty:
        # A metric that no run has is not missing.
        return Reading(asked=len(plan.seeds(line, column)) if rows.empty else 0)
    found = tuple(rows.loc[known.index, "run"])
    errors = _numbers(rows, f"{prefix}{metric}_se").reindex(known.index)
    marks = [] if metric == column.keys[0] else [f"instead:{metric}"]
    hashes = {(run.evaluates or run.record)["config_hash"] for run in found}
    if len(hashes) > 1:
        marks.append("mixed")
    if any(plan.change_of(run) == "stale" for run in found):
        marks.append("stale")
    return Reading(
        values={int(seed): column.scale * value for seed, value in known.items()},
        asked=len(plan.seeds(line, column)),
        metrics=(metric,) if column.source == "metric" else (),
        runs=found,
        marks=tuple(marks),
        error=column.scale * float(errors.mean(skipna=False)),
    )


def _first_known(
    rows: pd.DataFrame,
    prefix: str,
    keys: Sequence[str],
) -> tuple[str, pd.Series]:
    """Return the first key for which any run has a value, and these values by seed."""
    for key in keys:
        known = _numbers(rows, f"{prefix}{key}")
        if not known.empty:
            return key, known
    return "", pd.Series(dtype=float)


def _numbers(rows: pd.DataFrame, path: str) -> pd.Series:
    """Return the values in a column of the runs, without missing ones; raise DataError for other
    than numbers.
    """
    if path not in rows:
        return pd.Series(dtype=float)
    known = rows[path].dropna()
    numbers = pd.to_numeric(known, errors="coerce").astype(float)
    for seed in known.index[~np.isfinite(numbers)]:
        source = rows.at[seed, "run"].source
        raise DataError(f"{source}: {path} is {known[seed]!r}, which is not a finite number")
    return numbers


def _mean(column: Column, parts: Sequence[Reading]) -> Reading:
    """Return the mean of other columns, for each seed that all of them have."""
    seeds = sorted(set.intersection(*(set(part.values) for part in parts)))
    values = {}
    for seed in seeds:
        values[seed] = column.scale * statistics.fmean(part.values[seed] for part in parts)
    runs: dict[Path, Found] = {}
    for part in parts:
        by_seed = zip(part.values, part.runs, strict=False)
        runs |= {run.source: run for seed, run in by_seed if seed in values}
    marks = dict.fromkeys(mark for part in parts for mark in part.marks)
    last = ("mixed", "stale")
    return Reading(
        values=values,
        asked=max(part.asked for part in parts),
        metrics=tuple(metric for part in parts for metric in part.metrics),
        runs=tuple(runs.values()),
        marks=(*(m for m in marks if m not in last), *(m for m in last if m in marks)),
    )


def summarise_cells(
    plan: Plan,
    readings: Readings,
    quoted: Sequence[bool],
) -> pd.DataFrame:
    """Group the values into cells: statistics over seeds, the paper's numbers, settings and
    marks.
    """
    over_seeds = _over_seeds(readings)
    papers = {(one.row, one.encoder, one.column): one for one in plan.artefact.published}
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for number, line in enumerate(plan.lines):
        for column in plan.artefact.columns:
            place = (number, column.title)
            row = _row(readings[place])
            if place in over_seeds.index:
                row |= over_seeds.loc[place].to_dict()
            if column.source == "config" and not quoted[number]:
                row |= _setting(plan, line, column)
            if paper := papers.get((line.name, line.paper_encoder, column.title)):
                row |= {"published": paper.value, "published_deviation": paper.deviation}
            if row["values"] or row["text"]:
                row["marks"] = (*_requested(plan, line), *row["marks"])
            rows[place] = row
    return _frame(rows)


def _frame(rows: Mapping[tuple[int, str], Mapping[str, Any]]) -> pd.DataFrame:
    index = pd.MultiIndex.from_tuples(list(rows))
    cells = pd.DataFrame(
        list(rows.values()),
        index,
        dtype=object,
    )
    cells = cells.reindex(
        columns=[
            *NUMBERS,
            "marks",
            "p",
            "p_holm",
            "asked",
            "values",
            "text",
        ]
    )
    cells = cells.astype(dict.fromkeys((*NUMBERS, "p", "p_holm"), float))
    cells = cells.astype({"n": int, "asked": int})
    cells["difference"] = cells["mean"] - cells["published"]
    return cells


def _over_seeds(readings: Readings) -> pd.DataFrame:
    """Return number, mean, standard deviation and range of the values of each cell that has any."""
    values = []
    for place, reading in readings.items():
        values += [(*place, value) for value in reading.values.values()]
    frame = pd.DataFrame(values, columns=["line", "column", "value"])
    cells = frame.astype({"value": float}).groupby(["line", "column"])["value"]
    return cells.agg(
        n="count",
        mean=statistics.fmean,
        sd="std",
        low="min",
        high="max",
    )


def _row(reading: Reading) -> dict[str, Any]:
    return {
        "n": 0,
        "text": "",
        "asked": reading.asked,
        "values": reading.values,
        "error": reading.error,
        "marks": reading.marks,
    }


def _setting(
    plan: Plan,
    line: Line,
    column: Column,
) -> dict[str, Any]:
    """Return a cell that shows a setting of the runs or, without runs, of the config that they
    would have.
    """
    rows = plan.runs(line, column)
    path = f"decisive.config.{column.keys[0]}"
    known: list[Any] = list(rows.get(path, ()))
    if rows.empty:
        known = [plan.setting(line, column)]
    known = [value for value in known if isinstance(value, list) or pd.notna(value)]
    texts = list(dict.fromkeys(map(setting_text, known)))
    is_one_number = len(texts) == 1 and is_number(known[0])
    return {
        "n": len(rows),
        "asked": len(rows),
        "mean": float(known[0]) if is_one_number else None,
        "text": " / ".join(texts),
    }


def _requested(plan: Plan, line: Line) -> list[str]:
    """Return the marks of a line that is measured otherwise than in the paper."""
    marks = ["profile"] if plan.request.profile else []
    if line.encoder and line.paper_encoder and line.encoder != line.paper_encoder:
        marks.append("encoder")
    return [*marks, "settings"] if plan.request.settings else marks


def is_number(value: object) -> bool:
    """Return whether a plain value is a number; true and false are not."""
    return isinstance(value, int | float | np.integer) and not isinstance(value, bool)
