"""A run on disk: its folder, status, lock, record, curves, predictions, and its hash."""

from lightning_cse.runs.curves import Curves, CurveSummary, mean_of_text, summarise
from lightning_cse.runs.files import (
    Busy,
    atomic_file,
    disk_errors,
    locked,
    write_atomic,
    write_predictions,
)
from lightning_cse.runs.hashing import config_hash, decisive
from lightning_cse.runs.machine import environment
from lightning_cse.runs.run import FailedBefore, Outcome, Run, find_runs

__all__ = [
    "Busy",
    "CurveSummary",
    "Curves",
    "FailedBefore",
    "Outcome",
    "Run",
    "atomic_file",
    "config_hash",
    "decisive",
    "disk_errors",
    "environment",
    "find_runs",
    "locked",
    "mean_of_text",
    "summarise",
    "write_atomic",
    "write_predictions",
]
