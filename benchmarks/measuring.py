"""Shared parts of the speed benchmarks: clocks, repetitions, the machine, and its file of
results.
"""

from __future__ import annotations

import json
import logging
import os
import re
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lightning_cse.runs import environment

ON_GPU = torch.cuda.is_available()
ROLES = ("anchor", "positive", "negative")
DEFAULT = "minilm_l6"


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
        if len(self.values) == 1:
            return f"{self.median:.{digits}f}"
        return f"{self.median:.{digits}f} ({min(self.values):.{digits}f} to {max(self.values):.{digits}f})"


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


def silence() -> None:
    """Hide the warnings of both trainers."""
    warnings.filterwarnings("ignore")
    for name in ("pytorch_lightning", "sentence_transformers", "transformers", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)


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
    return (
        Path(__file__).parent
        / "results"
        / (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".json")
    )


def saved(file: Path) -> dict[str, Any]:
    """Return the content of a file of results."""
    document: dict[str, Any] = (
        json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    )
    return document


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
