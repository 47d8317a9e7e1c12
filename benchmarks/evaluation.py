"""Print which share of training time evaluations take, in the kept runs or in one made now.

    python benchmarks/evaluation.py
    python benchmarks/evaluation.py +experiment=gausscse +profile=small trainer.max_steps=200
    python benchmarks/evaluation.py --every 100

The kept runs are shorter than the papers' and are evaluated more often. So the share is computed
from the seconds per evaluation and per step in their records, for one evaluation every
``eval_every`` steps. Medians over the runs of one experiment, encoder and batch size. With
overrides, the run is trained in a temporary folder and only its row is printed; its first
evaluation and step, which also warm up, count as the others do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lightning_cse import train
from lightning_cse.runs import Curves

RECORDS = Path(__file__).parents[1] / "experiments"
COLUMNS = ("run", "encoder", "batch", "machine", "runs", "every")
MEASURED = ("s per evaluation", "s per step", "share")


def main() -> None:
    """Read the records and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, help="steps between evaluations (default: eval_every)")
    parser.add_argument("overrides", nargs="*", help="a run to train now, as for the command train")
    options = parser.parse_args()
    found = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        runs = _trained(options.overrides, folder) if options.overrides else _kept()
        for file, curves in runs:
            record = json.loads(file.read_text(encoding="utf-8"))
            if "steps" not in record:  # an evaluation alone
                continue

            evaluations = len(Curves(curves).read()[record["best"]["monitor"]])
            seconds = record["seconds"]
            evaluation = seconds["evaluation"] / evaluations
            step = seconds["training"] / record["steps"]
            config = record["decisive"]["config"]
            every = options.every or config["eval_every"]
            machine = record["environment"]["machine"]["cpu"]
            batch = config["data"]["batch_size"]
            key = (record["name"], record["encoder"]["name"], batch, machine, every)
            found[key].append((evaluation, step, evaluation / (evaluation + every * step)))

    table = Table(*COLUMNS, *MEASURED)
    for (*key, every), values in sorted(found.items()):
        seconds, step, share = map(statistics.median, zip(*values, strict=True))
        cells = (*key, len(values), every, f"{seconds:.3g}", f"{step:.3g}", f"{share:.1%}")
        table.add_row(*map(str, cells))

    Console(width=140).print(table)


def _kept() -> Iterator[tuple[Path, Path]]:
    """Yield the records and the curves in the repository."""
    for file in sorted(RECORDS.glob("*/results/records/*.json")):
        yield file, file.with_suffix(".curves.csv")


def _trained(overrides: list[str], folder: str) -> Iterator[tuple[Path, Path]]:
    """Train a run in a folder, and yield its record and curves."""
    quiet = ("baselines=none", "logger=csv", "figures=false", f"paths.runs_dir={folder}")
    run = train([*quiet, *overrides])
    yield run.record_path, run.curves_path


if __name__ == "__main__":
    main()
