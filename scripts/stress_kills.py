"""Kill training runs at random moments, and check that resumed runs equal uninterrupted ones:
python scripts/stress_kills.py --kills 20.

Each run trains under ``+debug=tiny`` in a process that SIGKILL ends after a random time. The same
command is repeated until a process finishes the run. Its record, curves, predictions and best
checkpoint must then equal those of an uninterrupted run to the last bit. The script prints each
difference and a table, and exits with 1 if there is any difference.

The processes are forked by one that has imported the libraries: a start takes a second, not ten.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

EXPERIMENTS: Final = ("gausscse", "simcse_sup", "dualcse_cross", "ngcse_wiki_sts_ht")
OVERRIDES: Final = ("+debug=tiny", "trainer.max_epochs=4", "eval_every=2")
PRELOADED: Final = ("lightning_cse.engine.train", "lightning_cse.methods", "transformers")
BEFORE_TRAINING: Final = 0.15
"""The share of kills while a process composes, reads and tokenises."""
PHASES: Final = ("start", "training", "test")
COSTS: Final = {
    "seconds",
    "evaluation_share",
    "sentences_per_second",
    "peak_memory_mib",
    "environment",
    "overrides",
}
"""Entries of a record that depend on machine, command and time."""
NOT_COMPARED: Final = ("record.json", "config.yaml", "train.log")
"""Files that contain times and the names of folders; the record is compared by entry."""


def train(experiment: str, folder: Path, output: Path) -> None:
    """Run the command in this process; its runs and cache are in a folder, and its output in a
    file.
    """
    from lightning_cse.train import main

    os.environ["LIGHTNING_CSE_RUNS"] = str(folder / "runs")
    os.environ["LIGHTNING_CSE_CACHE"] = str(folder / "cache")
    sys.argv = ["train", f"+experiment={experiment}", *OVERRIDES]
    with output.open("w", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
        sys.exit(main())


class Process:
    """A process that trains, and what it prints."""

    def __init__(self, experiment: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.output_path = folder / "output"
        self.output_path.write_bytes(b"")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        self.process = context.Process(target=train, args=(experiment, folder, self.output_path))
        self.process.start()

    @property
    def output(self) -> str:
        """Everything that the process has printed."""
        return self.output_path.read_text(encoding="utf-8")

    def wait_for(self, text: str) -> float:
        """Wait until the process prints a text, or has ended; return the seconds."""
        begin = time.monotonic()
        while text not in self.output and self.process.is_alive():
            time.sleep(0.01)

        return time.monotonic() - begin

    def kill_after(self, seconds: float) -> bool:
        """Send SIGKILL after a time; return False if the process has ended before."""
        self.process.join(seconds)
        self.process.kill()

        return self.exit_code() == -signal.SIGKILL

    def exit_code(self) -> int | None:
        """Wait until the process ends."""
        self.process.join()
        return self.process.exitcode

    def phase(self) -> str:
        """Return how far the process has come."""
        output = self.output
        steps = re.findall(r"^step (\d+)/(\d+)", output, re.MULTILINE)
        if steps and steps[-1][0] == steps[-1][1]:
            return "test"

        return "training" if "everything is written to" in output else "start"


def outcome(folder: Path) -> dict[str, object]:
    """Return all that the run in a folder leaves, except costs: files and entries of the record."""
    (path,) = folder.rglob("record.json")
    files = [file for file in path.parent.rglob("*") if file.is_file()]
    record = json.loads(path.read_text(encoding="utf-8"))
    entries = {f"{key} of the record": json.dumps(record[key]) for key in record.keys() - COSTS}
    return entries | {
        str(file.relative_to(path.parent)): file.name in NOT_COMPARED or file.read_bytes()
        for file in files
    }


def differences(folder: Path, reference: dict[str, object]) -> list[str]:
    """Return the names of files and entries in which a run differs from the uninterrupted one."""
    actual = outcome(folder)
    return [name for name in actual | reference if actual.get(name) != reference.get(name)]


def stress(experiment: str, kills: int, folder: Path, generator: random.Random) -> Sequence[object]:
    """Make a number of kills; return the experiment's row of the table."""
    process = Process(experiment, folder / "reference")
    start = process.wait_for("everything is written to")
    seconds = process.wait_for("record: ")
    if process.exit_code() != 0:
        sys.exit(f"{experiment} fails without a kill:\n{process.output}")

    reference = outcome(folder / "reference")
    phases: Counter[str] = Counter()
    runs = different = 0
    while phases.total() < kills:
        runs += 1
        run_folder = folder / f"run{runs}"
        is_killed = True
        while is_killed:
            process = Process(experiment, run_folder)
            is_killed = phases.total() < kills
            if is_killed and generator.random() < BEFORE_TRAINING:
                is_killed = process.kill_after(generator.uniform(0, start))
            elif is_killed:
                process.wait_for("everything is written to")
                is_killed = process.kill_after(generator.uniform(0, seconds))
            if is_killed:
                phases[process.phase()] += 1

        if process.exit_code() == 0:
            messages = differences(run_folder, reference)
        else:
            messages = [f"exit code {process.exit_code()}: {process.output}"]

        different += bool(messages)
        for message in messages:
            print(f"{run_folder}: {message}", flush=True)

    return experiment, *(phases[phase] for phase in PHASES), phases.total(), runs, different


def main() -> int:
    """Kill runs of each experiment; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="the kills of all experiments")
    parser.add_argument("--experiments", nargs="+", default=EXPERIMENTS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # sums in one order, and no threads before a fork
    generator = random.Random(options.seed)  # noqa: S311 - not for secrets
    folder = Path(tempfile.mkdtemp(prefix="stress_kills"))
    heads = ("experiment", *PHASES, "kills", "runs", "different")
    rows = []
    for index, experiment in enumerate(options.experiments):
        kills = len(range(index, options.kills, len(options.experiments)))  # equal shares
        rows.append(stress(experiment, kills, folder / experiment, generator))

    for row in (heads, *rows):
        print(f"{row[0]:<24}" + "".join(f"{value:>10}" for value in row[1:]))

    if any(row[-1] for row in rows):
        print(f"the runs are in {folder}")
        return 1

    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
