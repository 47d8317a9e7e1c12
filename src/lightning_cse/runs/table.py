"""The final table of one run, made from its record."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["print_run", "run_table"]

Rows = Mapping[str, Mapping[str, float]]
"""Values by key, by what a row is called; the method's come first."""

_STSB: Final = "test/stsb/spearman"  # in two tables: where there are more STS tasks, among them
_STS: Final = {
    **{f"test/sts{year}/spearman_all": f"\nSTS{year}" for year in range(12, 17)},
    _STSB: "\nSTS-B",
    "test/sickr/spearman": "\nSICK-R",
    "test/sts_avg/spearman_all": "\nAvg",
}
_TRANSFER_SETS: Final = {
    "mr": "MR",
    "cr": "CR",
    "subj": "SUBJ",
    "mpqa": "MPQA",
    "sst2": "SST2",
    "trec": "TREC",
    "mrpc": "MRPC",
    "transfer_avg": "Avg",
}
_PROTOCOLS: Final = ("lbfgs", "senteval")
_NLI_SETS: Final = {"snli": "SNLI", "mnli": "MNLI", "mnli_matched": "MNLI-m", "sick": "SICK"}

# Tables of blocks that are shown as a whole, a column by metric key: the order and the names of the papers' tables.
_TABLES: Final[tuple[tuple[dict[str, str], ...], ...]] = (
    (
        {
            "test/rte/accuracy_explicit": "RTE\nexplicit",
            "test/rte/accuracy_implied": "RTE\nimplied",
            "test/rte/accuracy_neutral": "RTE\nneutral",
            "test/rte/accuracy_contradiction": "RTE\ncontradiction",
            "test/rte/accuracy_all": "RTE\nAll",
        },
        {"test/eis/accuracy": "\nEIS"},
        {"test/eis_wang/accuracy": "EIS\nWang"},
    ),
    tuple(
        {f"test/{key}/accuracy": f"{title}\naccuracy", f"test/{key}/auprc": f"{title}\nAUPRC"}
        for key, title in _NLI_SETS.items()
    ),
    (
        *(
            {f"test/{key}_direction/accuracy": f"{title}\ndirection"}
            for key, title in ({"inli": "INLI"} | _NLI_SETS).items()
        ),
        {_STSB: "STS-B\nSpearman"},
    ),
    *(
        ({f"test/{key}/accuracy_{protocol}": f"{title}\n{protocol}" for key, title in _TRANSFER_SETS.items()},)
        for protocol in _PROTOCOLS
    ),
)
_SUBSETS: Final = {f"test/sts{year}/spearman": f"STS{year}" for year in range(12, 17)}  # and below, of their subsets
_AGGREGATES: Final = ("mean", "wmean")
_BASELINES: Final = {"untrained": "untrained encoder", "length": "LENGTH"}
_MISSING: Final = "-"
_NARROWEST: Final = 100


def run_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the final table of a run: the method and its baselines, then every other test metric, then a few facts.

    Accuracies and correlations of the known columns are percentages, rounded here and nowhere before; all else is shown
    as it was measured, with four decimals. A baseline that has no value in a table is not in it.

    Args:
        record: A run's record; ``metrics`` holds the method's values by key, ``baselines`` those of each baseline.
    """
    rows = {str(record.get("name", "this run")): _metrics(record.get("metrics"))}
    for name, metrics in (record.get("baselines") or {}).items():
        rows[_BASELINES.get(name, name)] = _metrics(metrics)
    present = {key for metrics in rows.values() for key in metrics if key.startswith("test/")}
    parts: list[RenderableType] = []
    shown: set[str] = set()
    for blocks in (((_STS,) if present & _STS.keys() - {_STSB} else ()), *_TABLES):
        left = present - shown
        columns = {key: title for block in blocks if left & block.keys() for key, title in block.items()}
        if columns:
            parts += [_known(_of(rows, columns), columns), ""]
            shown |= columns.keys()
    aggregated = {f"{stem}_{aggregate}" for stem in _SUBSETS for aggregate in _AGGREGATES} & present
    if aggregated:
        parts += [_aggregations(_of(rows, aggregated), aggregated), ""]
        shown |= aggregated
    rest = sorted(present - shown)
    if rest:
        parts += [_others(_of(rows, rest), rest), ""]
    parts.extend(_facts(record))
    return Group(*parts)


def print_run(record: Mapping[str, Any], path: Path) -> None:
    """Print the final table and, as the last line, the path of the record, to a terminal or to a pipe.

    Args:
        record: A run's record.
        path: Where the record lies.
    """
    console = Console(highlight=False)
    if console.width < _NARROWEST:
        console = Console(highlight=False, width=_NARROWEST)
    console.print(run_table(record))
    console.print(Text(f"record: {path}"), soft_wrap=True)


def _metrics(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """Return what is a number; a null stands for one that could not be measured."""
    found = (metrics or {}).items()
    return {key: float(v) for key, v in found if isinstance(v, int | float) and math.isfinite(v)}


def _of(rows: Rows, keys: Iterable[str]) -> Rows:
    """Return the method's row, and those of the baselines that have one of some values."""
    wanted = set(keys)
    return {name: row for place, (name, row) in enumerate(rows.items()) if place == 0 or wanted & row.keys()}


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)


def _known(rows: Rows, columns: Mapping[str, str]) -> Table:
    table = _table()
    table.add_column("\ntest, %", overflow="fold")
    for title in columns.values():
        table.add_column(title, justify="right", no_wrap=True)
    for name, metrics in rows.items():
        cells = [f"{100 * metrics[key]:.2f}" if key in metrics else _MISSING for key in columns]
        table.add_row(Text(name), *cells)
    return table


def _aggregations(rows: Rows, keys: Collection[str]) -> Table:
    """Return the correlations that were not taken over all subsets put together: a row a model and aggregate."""
    stems = {stem: title for stem, title in _SUBSETS.items() if any(f"{stem}_{a}" in keys for a in _AGGREGATES)}
    table = _table()
    table.add_column("other aggregations, %", overflow="fold")
    table.add_column("of subsets")
    for title in stems.values():
        table.add_column(title, justify="right", no_wrap=True)
    for name, metrics in rows.items():
        for aggregate in _AGGREGATES:
            values = [metrics.get(f"{stem}_{aggregate}") for stem in stems]
            if any(value is not None for value in values):
                cells = [_MISSING if value is None else f"{100 * value:.2f}" for value in values]
                table.add_row(Text(name), aggregate, *cells)
    return table


def _others(rows: Rows, keys: list[str]) -> Table:
    table = _table()
    table.add_column("other test values", overflow="fold")
    for name in rows:
        table.add_column(Text(name), justify="right", overflow="fold")
    for key in keys:
        cells = [f"{metrics[key]:.4f}" if key in metrics else _MISSING for metrics in rows.values()]
        table.add_row(Text(key), *cells)
    return table


def _facts(record: Mapping[str, Any]) -> list[Text]:
    lines = []
    best = record.get("best") or {}
    if best.get("step") is not None:
        score = best.get("score")
        told = f", {best.get('monitor', 'dev score')} {score:.4f}" if isinstance(score, int | float) else ""
        of = f" of {record['steps']}" if record.get("steps") is not None else ""
        lines.append(Text(f"best checkpoint: step {best['step']}{of}{told}"))
    summary = record.get("summary") or {}
    final = summary.get("final_score")
    # Of one evaluation it is the best score, told already.
    if isinstance(final, int | float) and final != summary.get("best_score"):
        lines.append(Text(f"final score (mean of the five best dev scores): {final:.4f}"))
    seconds = record.get("seconds") or {}
    if seconds:
        told = ", ".join(f"{what} {value:.1f} s" for what, value in seconds.items() if isinstance(value, int | float))
        where = ", ".join(str(record[key]) for key in ("device", "precision") if record.get(key))
        lines.append(Text(f"time: {told}" + (f" ({where})" if where else "")))
    share = record.get("evaluation_share")
    if isinstance(share, float):
        lines.append(Text(f"evaluation's share of the training: {share:.0%}"))
    return lines
