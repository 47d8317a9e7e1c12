"""The values of a table as one long frame, and its cells: one group each of the frame."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from lightning_cse.tables.nested import value_at
from lightning_cse.tables.spec import COMPUTED, Column, Spec

if TYPE_CHECKING:
    from lightning_cse.tables.records import FinishedRun, RunsTable
    from lightning_cse.tables.table import Table

STALE = "measured with another version of its method"
"""The remark on values whose records have another ``Method.version`` than today's."""
VALUES = [
    *("line", "row", "encoder", "column", "seed", "value"),
    *("error", "metric", "remark", "run", "baseline", "is_untrained"),
]
"""The columns of the long frame, one row for each seed of a cell.

``line`` is the number of the row with its encoder, ``value`` is in the unit of the column,
``error`` its standard error over the examples, if the run has one, ``metric`` the key of the
record's metrics (empty for other values), ``remark`` says how it was measured otherwise, and
``baseline`` names the baseline of the ``run`` that was measured; ``is_untrained`` is true for a
baseline or an evaluation alone.
"""
LEVELS = {"**": 0.01, "*": 0.05}
"""The marks of significant differences from the reference row and their levels, the strictest
first.
"""
_SYMBOLS = ("†", "‡", "§", "¶", "‖", "††", "‡‡", "§§")
_PATHS = {"metric": "metrics.", "field": "", "config": "decisive.config."}


def read_values(table: Table) -> pd.DataFrame:
    """Return the values of all finished runs of a table: `VALUES`, in the order of lines, columns
    and seeds.
    """
    lines = table.lines.rename(columns={"label": "row"})
    lines["is_untrained"] = lines["baseline"].notna() | lines["evaluate"].notna()
    lines = lines[["row", "encoder", "baseline", "is_untrained"]].fillna({"baseline": ""})
    filled = table.filling.dropna(subset=["run"])[["line", "column", "seed", "run"]]
    cells = dict(iter(filled.join(lines, on="line").groupby(["line", "column"], sort=False)))
    columns = [column for column in table.spec.columns if column.source not in COMPUTED]
    values = _frame(
        _measured(cells[number, column.title], column, table.runs)
        for number in table.lines.index
        for column in columns
        if (number, column.title) in cells
    )
    computed = (
        _computed(of_line, column)
        for _, of_line in values.groupby("line")
        for column in table.spec.columns
        if column.source in COMPUTED
    )

    return _frame([values, *computed])


def _frame(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    values = pd.concat([pd.DataFrame(columns=VALUES), *parts], ignore_index=True)
    return values.astype({"line": int, "seed": int, "value": float, "error": float})


def _measured(cell: pd.DataFrame, column: Column, runs: RunsTable) -> pd.DataFrame:
    """Return the values of a cell that is read from the records, without missing ones."""
    for key in (*column.keys, *column.instead):
        numbers = _numbers(cell, column, key)
        if numbers.notna().any():
            break

    if column.absent is not None:
        has_task = cell["run"].map(lambda run: _has_task(run, key)).astype(bool)
        numbers = numbers.mask(numbers.isna() & has_task, column.absent)

    values = cell.assign(
        value=column.scale * numbers,
        error=column.scale * _numbers(cell, column, f"{key}_se"),
        metric=key if column.source == "metric" else "",
    ).dropna(subset=["value"])
    remarks = [column.instead[key].rstrip(".")] if key in column.instead else []
    if any(map(runs.is_stale, values["run"])):
        remarks.append(STALE)

    return values.assign(remark=[tuple(remarks)] * len(values))


def _numbers(cell: pd.DataFrame, column: Column, key: str) -> pd.Series:
    """Return a number of each record; NaN without one."""
    baseline = cell["baseline"].iloc[0]
    path = f"baselines.{baseline}.{key}" if baseline else _PATHS[column.source] + key

    return pd.Series([value_at(run.record, path) for run in cell["run"]], cell.index, dtype=float)


def _has_task(run: FinishedRun, key: str) -> bool:
    """Return whether a record has another metric of the task of a key."""
    task = key.rpartition("/")[0]
    return any(name.startswith(f"{task}/") for name in run.record["metrics"])


def _computed(values: pd.DataFrame, column: Column) -> pd.DataFrame:
    """Return a mean or a difference of columns of a line, for each seed that all of them have."""
    parts = values[values["column"].isin(column.keys)]
    by_seed = parts.pivot(index="seed", columns="column", values="value")
    by_seed = by_seed.reindex(columns=column.keys).dropna()
    if column.source == "mean":
        numbers = by_seed.mean(axis=1)
    else:
        numbers = by_seed[column.keys[0]] - by_seed[column.keys[1]]

    remarks = tuple(dict.fromkeys(itertools.chain.from_iterable(parts["remark"])))
    first = parts[parts["column"] == column.keys[0]].set_index("seed", drop=False)

    return first.loc[numbers.index].assign(
        column=column.title,
        value=column.scale * numbers,
        error=math.nan,
        metric="",
        remark=[remarks] * len(numbers),
    )


def values_of_runs(groups: Mapping[str, Sequence[FinishedRun]]) -> pd.DataFrame:
    """Return the test metrics of runs by setting, times 100, as `VALUES`: a line for each setting,
    a column for each metric.
    """
    rows = [
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

    return _frame([pd.DataFrame(rows)])


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


def read_cells(table: Table) -> pd.DataFrame:
    """Return one row for each line and column, with their numbers and titles as index.

    ``n``, ``mean``, ``sd``, ``low``, ``high`` are over the seeds, ``error`` is the mean of the
    standard errors over the examples, if all runs have one, ``asked`` the number of seeds that the
    cell should have, ``published`` and ``published_deviation`` the paper's numbers, ``difference``
    the mean minus the published value, and ``seeds`` the seeds. The comparison with the reference
    row is in ``p``, ``p_holm``, ``against_low`` and ``against_high``. ``marks`` has the stars and
    the remarks.
    """
    titles = [column.title for column in table.spec.columns]
    index = pd.MultiIndex.from_product([table.lines.index, titles], names=["line", "column"])
    by_cell = table.values.groupby(["line", "column"])
    value = by_cell["value"]
    cells = pd.DataFrame(
        {
            "n": value.size(),
            "mean": value.agg(lambda values: values.mean()),
            "sd": value.agg(lambda values: values.std()),
            "low": value.min(),
            "high": value.max(),
            "error": by_cell["error"].agg(lambda errors: errors.mean(skipna=False)),
            "seeds": by_cell["seed"].agg(tuple),
            "remarks": by_cell["remark"].first(),
        }
    ).reindex(index)
    cells["n"] = cells["n"].fillna(0).astype(int)
    for name in ("seeds", "remarks"):  # of a cell without values
        cells[name] = [of_cell if isinstance(of_cell, tuple) else () for of_cell in cells[name]]

    cells = _with_published(cells, table)
    cells["asked"] = _asked(cells["n"], table)

    return _with_marks(cells, table.comparisons, table.spec.reference)


def _with_published(cells: pd.DataFrame, table: Table) -> pd.DataFrame:
    published = table.spec.published.drop_duplicates(["row", "encoder", "column"])
    published = published.set_index(["row", "encoder", "column"])
    names = table.lines[["name", "paper_encoder"]].reindex(cells.index, level="line")
    names["column"] = names.index.get_level_values("column")
    numbers = published.reindex(pd.MultiIndex.from_frame(names))[["value", "deviation"]]
    cells[["published", "published_deviation"]] = numbers.to_numpy(float)
    cells["difference"] = cells["mean"] - cells["published"]

    return cells


def _asked(counts: pd.Series, table: Table) -> pd.Series:
    """Return the number of seeds that each cell should have.

    A metric that no run has is not missing, and neither is a run that waits for a variable.
    """
    jobs = table.filling
    by_cell = jobs.assign(given_up=jobs["run"].notna() | jobs["needs"].notna()).groupby(
        ["line", "column"]
    )
    asked = by_cell.size().reindex(counts.index, fill_value=0)
    is_absent = (counts == 0) & by_cell["given_up"].any().reindex(counts.index, fill_value=False)
    asked[is_absent] = 0
    for column in table.spec.columns:
        if column.source in COMPUTED:
            parts = asked.unstack()[[*column.keys]]
            asked.loc[(slice(None), column.title)] = parts.max(axis=1).to_numpy()

    return asked


def _with_marks(
    cells: pd.DataFrame, comparisons: pd.DataFrame, reference: str | None
) -> pd.DataFrame:
    """Return the cells with the comparisons with the reference row, and with their marks.

    There is no star where the interval over seeds and examples has 0.
    """
    columns = {"p": "p", "p_holm": "p_holm", "low": "against_low", "high": "against_high"}
    against = comparisons[comparisons["reference"] == reference].set_index(["line", "column"])
    cells = cells.join(against[list(columns)].rename(columns=columns).astype(float))
    marks = []
    for cell in cells.itertuples():
        stars = [sign for sign, level in LEVELS.items() if cell.p_holm < level]
        is_open = cell.against_low <= 0 <= cell.against_high  # False without a seed in common
        marks.append((*(() if is_open else stars[:1]), *cell.remarks))

    cells["marks"] = marks

    return cells


def symbols_of(marks: Iterable[tuple[str, ...]]) -> dict[str, str]:
    """Return the symbol of each mark: a star stands for itself, and each remark gets a sign."""
    remarks = dict.fromkeys(mark for of_cell in marks for mark in of_cell if mark not in LEVELS)

    return dict(zip(LEVELS, LEVELS, strict=True)) | dict(zip(remarks, _SYMBOLS, strict=False))
