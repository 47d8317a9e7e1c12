"""The final table of one run, made from its record."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightning_cse.runs.curves import mean_of_text

_BASELINES: Final = {"untrained": "untrained encoder", "length": "LENGTH"}


def run_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the final table of a run: one row per test metric, one column for the method and for
    each baseline, in percent except for thresholds; then a few facts.
    """
    models = {str(record.get("name", "this run")): record.get("metrics") or {}}
    for name, metrics in (record.get("baselines") or {}).items():
        models[_BASELINES.get(name, name)] = metrics
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("test, %", overflow="fold")
    for name in models:
        table.add_column(Text(name), justify="right", overflow="fold")
    for key in dict.fromkeys(key for metrics in models.values() for key in metrics):
        cells = [_cell(key, metrics.get(key)) for metrics in models.values()]
        table.add_row(Text(key.removeprefix("test/")), *cells)
    return Group(table, "", *map(Text, _facts(record)))


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if key.endswith("threshold") else f"{100 * value:.2f}"


def print_run(record: Mapping[str, Any], path: Path) -> None:
    """Print the final table of a record and, as the last line, the record's path."""
    console = Console(highlight=False)
    console.width = max(console.width, 100)
    console.print(run_table(record))
    console.print(Text(f"record: {path}"), soft_wrap=True)


def _facts(record: Mapping[str, Any]) -> Iterator[str]:
    if record.get("encoder"):
        yield f"encoder: {record['encoder']['name']}"
    best = record.get("best") or {}
    if best.get("score") is not None:
        steps = f"step {best.get('step')} of {record.get('steps')}"
        yield f"best checkpoint: {steps}, {best.get('monitor')} {best['score']:.4f}"
    if record.get("stopped_early"):
        yield f"stopped early: {record['stopped_early']}"
    summary = record.get("summary") or {}
    final = summary.get("final_score")
    if final not in (None, summary.get("best_score")):  # after one evaluation it is the best score
        yield f"final score ({mean_of_text(summary.get('evaluations'))}): {final:.4f}"
    if record.get("seconds"):
        spent = ", ".join(f"{what} {value:.1f} s" for what, value in record["seconds"].items())
        where = ", ".join(str(record[key]) for key in ("device", "precision") if record.get(key))
        yield f"time: {spent} ({where})" if where else f"time: {spent}"
