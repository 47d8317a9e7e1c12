"""Print which share of training time evaluations take, in the kept runs or in one made now.

    python benchmarks/evaluation.py
    python benchmarks/evaluation.py +experiment=gausscse +profile=small trainer.max_steps=200
    python benchmarks/evaluation.py --every 100

The share is that of one evaluation and the steps between two of them (``eval_every``, since the
kept runs are shorter than the papers' and are evaluated more often). Seconds per evaluation and
step are means from the records, and medians over the runs of one experiment, encoder and batch
size. With overrides, a run is trained in a temporary folder: the first evaluation, in which a
frozen encoder encodes the dev sentences, stands apart, and the median of the later ones counts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import console, table_of

from lightning_cse import train
from lightning_cse.callbacks import Timing
from lightning_cse.tables.records import read_runs

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
COLUMNS = ("run", "encoder", "batch", "machine", "every")
MEASURED = ("s first evaluation", "s per evaluation", "s per step", "share")


def main() -> None:
    """Read the records, or train, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, help="steps between evaluations (default: eval_every)")
    parser.add_argument("overrides", nargs="*", help="a run to train now, as for the command train")
    options = parser.parse_args()
    timings = defaultdict(list)
    for record, first, evaluation in _trained(options.overrides) if options.overrides else _kept():
        step = record["seconds"]["training"] / record["steps"]
        config = record["decisive"]["config"]
        every = options.every or config.get("eval_every")
        if every is None:  # it evaluates after each epoch
            continue

        machine = record["environment"]["machine"]["cpu"]
        batch = config["data"]["batch_size"]
        case = (record["name"], record["encoder"]["name"], batch, machine, every)
        share = evaluation / (evaluation + every * step)
        timings[case].append((first, evaluation, step, share))

    columns = (*COLUMNS, "runs", *MEASURED)
    rows = []
    for case, values in sorted(timings.items()):
        *seconds, share = [statistics.median(column) for column in zip(*values, strict=True)]
        cells = [*case, len(values), *(f"{number:.3g}" for number in seconds), f"{share:.1%}"]
        rows.append(dict(zip(columns, map(str, cells), strict=True)))

    console().print(table_of(rows))


def _kept() -> Iterator[tuple[dict[str, Any], float, float]]:
    """Yield the trained runs in the repository, with their mean seconds per evaluation."""
    for run in read_runs([EXPERIMENTS]):
        record = dict(run.record)
        if run.kept is None or "steps" not in record:  # an evaluation alone
            continue

        evaluations = len(run.curves[record["best"]["monitor"]])
        yield record, float("nan"), record["seconds"]["evaluation"] / evaluations


def _trained(overrides: list[str]) -> Iterator[tuple[dict[str, Any], float, float]]:
    """Train a run, and yield it with the seconds of its first evaluation and of a later one."""
    seconds = []
    end_validation = Timing.on_validation_end

    def timed(self: Timing, *args: Any) -> None:
        before = self.evaluation
        end_validation(self, *args)
        seconds.append(self.evaluation - before)

    Timing.on_validation_end = timed  # type: ignore[method-assign]
    quiet = ("baselines=none", "logger=csv", "figures=false")
    with tempfile.TemporaryDirectory() as folder:
        run = train([*quiet, f"paths.runs_dir={folder}", *overrides])
        assert run is not None  # noqa: S101 - without fast_dev_run
        record = run.read()

    yield record, seconds[0], statistics.median(seconds[1:])


if __name__ == "__main__":
    main()
