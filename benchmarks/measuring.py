"""What the benchmarks of speed share: clocks, repetitions, the machine, and the file of its results."""

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


@dataclass(frozen=True)
class Size:
    """How much is measured at once: precision, steps of a repetition, triplets of a batch, sentences of a chunk."""

    precision: str
    steps: int
    batch: int
    chunk: int | None = None


@dataclass
class Measured:
    """Repetitions of one measurement."""

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
    """Seconds, once a GPU has done what it was given."""
    if ON_GPU:
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds_of(work: Callable[[], Any]) -> float:
    """Seconds that some work takes."""
    start = now()
    work()
    return now() - start


class Clock:
    """When each step ended; the first one warms up."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def tick(self) -> None:
        """A step has ended."""
        self.ends.append(now())

    @property
    def seconds(self) -> float:
        """Seconds a step, the first left out."""
        return (self.ends[-1] - self.ends[0]) / (len(self.ends) - 1)


def silence() -> None:
    """Show no warnings: of two trainers about each other's habits."""
    warnings.filterwarnings("ignore")
    for name in ("pytorch_lightning", "sentence_transformers", "transformers", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    gpu = {"gpu": torch.cuda.get_device_name()} if ON_GPU else {}
    return gpu | environment() | {"load": round(os.getloadavg()[0], 2)}


def results_file() -> Path:
    """Return the file of this machine's results, named after its GPU or else its processor and cores."""
    about = environment()["machine"]
    name = torch.cuda.get_device_name() if ON_GPU else f"{about['cpu']} {about['cores']} cores"
    return Path(__file__).parent / "results" / (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".json")


def saved(file: Path) -> dict[str, Any]:
    """Return what a file of results holds."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def save(file: Path, result: Mapping[str, Any]) -> None:
    """Add results to a file, in the place of what has the same names; a list of numbers is one line."""
    text = json.dumps(saved(file) | result, indent=1)
    text = re.sub(r"\[[^][{}\"]*\]", lambda match: re.sub(r"\s+", " ", match[0]), text)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n", encoding="utf-8")


def rounded(value: Any, digits: int = 5) -> Any:
    """Round every number to some digits that count."""
    if isinstance(value, Mapping):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
