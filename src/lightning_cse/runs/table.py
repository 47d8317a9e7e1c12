"""The final table of one run, made from its record."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lightning_cse.runs.curves import mean_of_text
from lightning_cse.runs.untrained import comparison

_BASELINES = {"untrained": "untrained encoder", "length": "LENGTH"}


def run_table(record: Mapping[str, Any]) -> str:
    """Return the final table of a run: one row per test metric, one column for the method and for
    each baseline, in percent except for thresholds; then a few facts.
    """
    import pandas as pd

    models = {str(record.get("name", "this run")): record.get("metrics") or {}}
    for name, metrics in (record.get("baselines") or {}).items():
        models[_BASELINES.get(name, name)] = metrics

    keys = list(dict.fromkeys(key for metrics in models.values() for key in metrics))
    cells = {}
    for name, metrics in models.items():
        cells[name] = [_cell(key, metrics.get(key)) for key in keys]

    index = [key.removeprefix("test/") for key in keys]
    table = pd.DataFrame(cells, index).rename_axis("test, %", axis=1)

    return "\n".join([table.to_string(), "", *_facts(record)])


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return "-"

    return f"{value:.4f}" if key.endswith("threshold") else f"{100 * value:.2f}"


def print_run(record: Mapping[str, Any], path: Path) -> None:
    """Print the final table of a record and, as the last line, the record's path."""
    sys.stdout.write(f"{run_table(record)}\nrecord: {path}\n")


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

    yield from comparison(record)
