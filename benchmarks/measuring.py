"""Shared parts of the benchmarks: clocks, repetitions, processes, the machine, and its results."""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lightning_cse.runs import environment

ON_GPU = torch.cuda.is_available()
ROLES = ("anchor", "positive", "negative")
DEFAULT = "minilm_l6"
MIB = 2**20


@dataclass(frozen=True)
class Size:
    """The size of a measurement: precision, steps per repetition, triplets per batch, sentences per
    chunk; and what is trained.
    """

    precision: str
    steps: int
    batch: int
    chunk: int | None = None
    encoder: str = DEFAULT
    adapter: str | None = None


@dataclass
class Measured:
    """The repetitions of one measurement."""

    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the repetitions."""
        return statistics.median(self.values)

    def __str__(self) -> str:
        digits = 0 if self.median >= 20 else 2
        median, *ends = (
            f"{value:.{digits}f}" for value in (self.median, min(self.values), max(self.values))
        )

        return median if len(self.values) == 1 else f"{median} ({' to '.join(ends)})"


# Time and memory ----------------------------------------------------------------------------------


def now() -> float:
    """Return the time in seconds, after a GPU has finished its work."""
    if ON_GPU:
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds_of(work: Callable[[], Any]) -> float:
    """Return the seconds that some work takes."""
    start = now()
    work()
    return now() - start


class Clock:
    """The times at which steps ended; the first step is a warm-up.

    On a GPU, the device takes the times, so that no step waits for the end of the one before.
    """

    def __init__(self) -> None:
        self.ends: list[Any] = []

    def tick(self) -> None:
        """Record the end of a step."""
        if not ON_GPU:
            self.ends.append(time.perf_counter())
            return

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.ends.append(event)

    @property
    def seconds(self) -> float:
        """The seconds per step, without the first."""
        first, last, steps = self.ends[0], self.ends[-1], len(self.ends) - 1
        if not ON_GPU:
            return float(last - first) / steps

        torch.cuda.synchronize()

        return float(first.elapsed_time(last)) / 1000 / steps


def highest_resident() -> int:
    """Return the largest resident set of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.is_file():
        (peak,) = re.findall(r"VmHWM:\s+(\d+)", status.read_text())
        return int(peak) * 1024

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    return int(peak) if sys.platform == "darwin" else int(peak) * 1024


# Processes ----------------------------------------------------------------------------------------


def in_process(*command: str, **variables: str) -> dict[str, Any]:
    """Run a Python command that measures in a process of its own; return the JSON that it prints.

    Of several processes, the memory is added up.
    """
    process = subprocess.run(
        [sys.executable, *command],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | variables,
    )
    measurements: list[dict[str, Any]] = [
        json.loads(text) for text in re.findall(r"\{[^{}]*_mib[^{}]*\}", process.stdout)
    ]
    if process.returncode or not measurements:
        sys.exit(f"{' '.join(command)}: {process.stdout}{process.stderr}")

    return measurements[0] | {"peak_mib": sum(each["peak_mib"] for each in measurements)}


def print_measurement(**values: float) -> None:
    """Print what `in_process` reads."""
    sys.stdout.write(f"{json.dumps(values)}\n")


def silence() -> None:
    """Hide the warnings of both trainers."""
    warnings.filterwarnings("ignore")
    for name in ("pytorch_lightning", "sentence_transformers", "transformers", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)


# Results ------------------------------------------------------------------------------------------


def console() -> Console:
    """Return a console that is wide enough for the tables, also where the output is redirected."""
    return Console(width=max(120, Console().width), highlight=False)


def table_of(rows: list[dict[str, str]], title: str = "") -> Table:
    """Return a table of rows by column; the first row has all columns."""
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*(row.get(column, "") for column in rows[0]))

    return table


def machine() -> dict[str, Any]:
    """Return the GPU, the environment and the load, on which the numbers depend."""
    gpu = {"gpu": torch.cuda.get_device_name()} if ON_GPU else {}
    return gpu | environment() | {"load": round(os.getloadavg()[0], 2)}


def results_file() -> Path:
    """Return the file of this machine's results, named after its GPU or, without one, its processor
    and cores.
    """
    about = environment()["machine"]
    name = torch.cuda.get_device_name() if ON_GPU else f"{about['cpu']} {about['cores']} cores"
    stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")

    return Path(__file__).parent / "results" / f"{stem}.json"


def saved(file: Path) -> dict[str, Any]:
    """Return the content of a file of results."""
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def save(file: Path, result: Mapping[str, Any]) -> None:
    """Add results to a file, replacing those of the same names; a list of numbers is one line."""
    text = json.dumps({**saved(file), **result}, indent=1)
    text = re.sub(r"\[[^][{}\"]*\]", lambda match: re.sub(r"\s+", " ", match[0]), text)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n", encoding="utf-8")


def rounded(value: Any, digits: int = 5) -> Any:
    """Return a value with all floats rounded to this many significant digits."""
    if isinstance(value, Mapping):
        return {key: rounded(part, digits) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part, digits) for part in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
