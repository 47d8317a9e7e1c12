"""Print which share of training time evaluations take in the kept runs, had they been made every
125 steps.

    python benchmarks/evaluation.py
    python benchmarks/evaluation.py --every 100

The kept runs are shorter than the papers' and are evaluated more often. So the share is computed
from the seconds per evaluation and per step in their records. Medians over the runs of one
experiment, encoder and batch size.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lightning_cse.runs import Curves

RECORDS = Path(__file__).parents[1] / "experiments"


def main() -> None:
    """Read the records and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=125, help="steps between evaluations")
    every = parser.parse_args().every
    found = defaultdict(list)
    for file in sorted(RECORDS.glob("*/results/records/*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        if "steps" not in record:  # an evaluation alone
            continue
        evaluations = len(Curves(file.with_suffix(".curves.csv")).read()[record["best"]["monitor"]])
        seconds = record["seconds"]
        evaluation, step = (
            seconds["evaluation"] / evaluations,
            seconds["training"] / record["steps"],
        )
        machine, data = (
            record["environment"]["machine"]["cpu"],
            record["decisive"]["config"]["data"],
        )
        key = (record["name"], record["encoder"]["name"], data["batch_size"], machine)
        found[key].append((evaluation, step, evaluation / (evaluation + every * step)))
    table = Table(
        "run",
        "encoder",
        "batch",
        "machine",
        "runs",
        "s per evaluation",
        "s per step",
        f"share, every {every}",
    )
    for key, values in sorted(found.items()):
        seconds, step, share = map(statistics.median, zip(*values, strict=True))
        table.add_row(
            *map(str, key), str(len(values)), f"{seconds:.1f}", f"{step:.2f}", f"{share:.1%}"
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
