"""The values of a table as one long frame, and its cells: one group each of the frame."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from lightning_cse.tables.nested import value_at
from lightning_cse.tables.spec import COMPUTED, Column, Line, Spec

if TYPE_CHECKING:
    from lightning_cse.tables.plan import Plan
    from lightning_cse.tables.records import FinishedRun

STALE = "measured with another version of its method"
"""The remark on values whose records have another ``Method.version`` than today's."""
VALUES = (
    *("line", "row", "encoder", "column", "seed", "value"),
    *("error", "metric", "remark", "run", "baseline", "is_untrained"),
)
"""The columns of the long frame, one row for each seed of a cell.

``line`` is the number of the row with its encoder, ``value`` is in the unit of the column,
``error`` its standard error over the examples, if the run has one, ``metric`` the key of the
record's metrics (empty for other values), ``remark`` says how it was measured otherwise, and
``baseline`` names the baseline of the ``run`` that was measured; ``is_untrained`` is true for a
baseline or an evaluation alone.
"""
_PATHS = {"metric": "metrics.", "field": "", "config": "decisive.config."}


def read_values(plan: Plan) -> pd.DataFrame:
    """Return the values of all finished runs of a table: `VALUES`, in the order of lines, columns
    and seeds.
    """
    rows = [
        row
        for number, line in enumerate(plan.lines)
        if not line.published
        for column in plan.spec.columns
        if column.source not in COMPUTED
        for row in _values_of(plan, number, line, column)
    ]
    values = _frame(rows)
    for _, of_line in values.groupby("line"):
        for column in plan.spec.columns:
            if column.source in COMPUTED:
                rows += _computed(of_line, column)

    return _frame(rows)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    values = pd.DataFrame(rows, columns=VALUES)
    return values.astype({"line": int, "seed": int, "value": float, "error": float})


def _values_of(plan: Plan, number: int, line: Line, column: Column) -> list[dict[str, Any]]:
    """Return the values of a cell that is read from the records, without missing ones."""
    runs = plan.runs(line, column)
    baseline = line.row.baseline or ""
    for key in (*column.keys, *column.instead):
        numbers = [_number(run, column, key, baseline) for run in runs]
        if not all(map(math.isnan, numbers)):
            break

    rows: list[dict[str, Any]] = []
    for run, number_of_run in zip(runs, numbers, strict=True):
        value = number_of_run
        if math.isnan(value) and column.absent is not None and _has_task(run, key):
            value = column.absent
        if not math.isnan(value):
            rows.append(
                {
                    "seed": run.record["seed"],
                    "value": column.scale * value,
                    "error": column.scale * _number(run, column, f"{key}_se", baseline),
                    "run": run,
                }
            )

    remarks = [column.instead[key].rstrip(".")] if key in column.instead else []
    if any(plan.table.is_stale(row["run"]) for row in rows):
        remarks.append(STALE)

    shared = {
        "line": number,
        "row": line.label,
        "encoder": line.encoder or "",
        "column": column.title,
        "metric": key if column.source == "metric" else "",
        "remark": tuple(remarks),
        "baseline": baseline,
        "is_untrained": bool(baseline) or line.row.evaluate is not None,
    }

    return [{**shared, **row} for row in rows]


def _number(run: FinishedRun, column: Column, key: str, baseline: str) -> float:
    """Return a number in a record; NaN without one."""
    prefix = f"baselines.{baseline}." if baseline else _PATHS[column.source]
    value = value_at(run.record, prefix + key)

    return math.nan if value is None else float(value)


def _has_task(run: FinishedRun, key: str) -> bool:
    """Return whether a record has another metric of the task of a key."""
    task = key.rpartition("/")[0]
    return any(name.startswith(f"{task}/") for name in run.record["metrics"])


def _computed(values: pd.DataFrame, column: Column) -> list[dict[Any, Any]]:
    """Return a mean or a difference of columns of a line, for each seed that all of them have."""
    parts = values[values["column"].isin(column.keys)]
    by_seed = parts.pivot(index="seed", columns="column", values="value")
    by_seed = by_seed.reindex(columns=column.keys).dropna()
    if column.source == "mean":
        numbers = by_seed.mean(axis=1)
    else:
        numbers = by_seed[column.keys[0]] - by_seed[column.keys[1]]

    first = parts[parts["column"] == column.keys[0]].set_index("seed", drop=False)
    remarks = dict.fromkeys(itertools.chain.from_iterable(parts["remark"]))
    rows = first.loc[numbers.index].assign(
        column=column.title, value=column.scale * numbers, error=math.nan, metric=""
    )

    return [{**row, "remark": tuple(remarks)} for row in rows.to_dict("records")]


def values_of_runs(groups: Mapping[str, Sequence[FinishedRun]]) -> pd.DataFrame:
    """Return the test metrics of runs by setting, times 100, as `VALUES`: a line for each setting,
    a column for each metric.
    """
    return _frame(
        [
            {
                "line": number,
                "row": label,
                "encoder": "",
                "column": metric,
                "seed": run.record["seed"],
                "value": 100 * value,
                "error": math.nan,
                "metric": metric,
                "remark": (),
                "run": run,
                "baseline": "",
                "is_untrained": run.is_untrained,
            }
            for number, (label, runs) in enumerate(groups.items())
            for run in runs
            for metric, value in run.record["metrics"].items()
            if metric.startswith("test/") and isinstance(value, int | float)
        ]
    )


def weights_of(spec: Spec) -> dict[str, dict[str, float]]:
    """Return for each column the columns of metrics that it is computed from, with their weights;
    a metric has the scale in which it is shown.
    """
    scales = {column.title: column.scale for column in spec.columns}
    weights = {}
    for column in spec.columns:
        signs = {column.title: 1.0}
        if column.source == "mean":
            signs = dict.fromkeys(column.keys, column.scale / len(column.keys))
        elif column.source == "difference":
            first, second = column.keys
            signs = {first: column.scale, second: -column.scale}

        weights[column.title] = {title: sign * scales[title] for title, sign in signs.items()}

    return weights


def read_cells(plan: Plan, values: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each line and column, with their numbers and titles as index.

    ``n``, ``mean``, ``sd``, ``low``, ``high`` are over the seeds, ``error`` is the mean of the
    standard errors over the examples, if all runs have one, ``asked`` the number of seeds that the
    cell should have, ``published`` and ``published_deviation`` the paper's numbers, ``difference``
    the mean minus the published value, ``remarks`` those of the values, and ``seeds`` the seeds.
    """
    groups = dict(iter(values.groupby(["line", "column"])))
    empty = values.iloc[:0]
    rows = [
        _cell(plan, line, column, groups.get((number, column.title), empty))
        for number, line in enumerate(plan.lines)
        for column in plan.spec.columns
    ]
    titles = [column.title for column in plan.spec.columns]
    numbers = range(len(plan.lines))
    index = pd.MultiIndex.from_product([numbers, titles], names=["line", "column"])
    cells = pd.DataFrame(rows, index=index)
    for column in plan.spec.columns:
        if column.source in COMPUTED:
            parts = cells["asked"].unstack()[[*column.keys]]
            cells.loc[(slice(None), column.title), "asked"] = parts.max(axis=1).to_numpy()

    return cells


def _cell(plan: Plan, line: Line, column: Column, values: pd.DataFrame) -> dict[str, Any]:
    numbers = values["value"]
    published = _published(plan.spec, line, column)

    return {
        "n": len(numbers),
        "mean": numbers.mean(),
        "sd": numbers.std(),
        "low": numbers.min(),
        "high": numbers.max(),
        "error": values["error"].mean(skipna=False),
        **published,
        "difference": numbers.mean() - published["published"],
        "remarks": values["remark"].iloc[0] if len(values) else (),
        "seeds": tuple(values["seed"]),
        "asked": _asked(plan, line, column, has_values=len(values) > 0),
    }


def _asked(plan: Plan, line: Line, column: Column, *, has_values: bool) -> int:
    """Return the number of seeds that a cell should have.

    A metric that no run has is not missing, and neither is a run that waits for a variable.
    """
    if column.source in COMPUTED or line.published:
        return 0
    if not has_values and (line.needs or plan.runs(line, column)):
        return 0

    return len(plan.seeds(line, column))


def _published(spec: Spec, line: Line, column: Column) -> dict[str, float]:
    key = (line.name, line.paper_encoder, column.title)
    for number in spec.published:
        if (number.row, number.encoder, number.column) == key:
            deviation = number.deviation
            return {
                "published": number.value,
                "published_deviation": math.nan if deviation is None else deviation,
            }

    return dict.fromkeys(("published", "published_deviation"), math.nan)
