"""The files that tell what became of runs, checked when they are read."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from lightning_cse.runs.files import parse_object, read_object

_ADVICE = "restore it, or move it away and give the command of its run again"
_Metrics = dict[str, float | None]


class _Identity(BaseModel, strict=True):
    name: str
    config_hash: str
    seed: int


class _Named(BaseModel, strict=True):
    name: str


class _File(BaseModel, strict=True):
    sha256: str


class _Best(BaseModel, strict=True):
    score: float | None = None
    step: int | None = None
    monitor: str | None = None


class _Method(BaseModel, strict=True):
    target: str = Field(alias="_target_")


class _Config(BaseModel, strict=True):
    method: _Method | None = None


class _Decisive(BaseModel, strict=True):
    config: _Config


class _Model(BaseModel, strict=True):
    run: _Identity | None = None


class _Record(_Identity, strict=True):
    """The entries that other code relies on; a record may have more."""

    metrics: _Metrics
    baselines: dict[str, _Metrics] = {}
    key: str | None = None
    suite: str | None = None
    overrides: list[str] = []
    decisive: _Decisive | None = None
    model: _Model | None = None
    encoder: _Named | None = None
    checkpoint: _File | None = None
    predictions: _File | None = None
    best: _Best | None = None
    final: dict[str, Any] | None = None
    summary: dict[str, Any] | None = None
    seconds: dict[str, float] | None = None
    environment: dict[str, Any] | None = None
    steps: int | None = Field(None, ge=0)
    device: str | None = None
    precision: str | None = None


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of a finished run.

    Raises DataError, which names the file, if it is damaged, DiskError if it cannot be read, and
    FileNotFoundError if there is none.
    """
    return read_object(path, _Record, advice=_ADVICE)


def parse_record(content: bytes, source: str) -> dict[str, Any]:
    """Return the record in a JSON text, such as a line of ``runs.jsonl``.

    Raises DataError, which names ``source``, if it is damaged.
    """
    return parse_object(content, source, _Record, advice="restore it")


class _Result(BaseModel, strict=True):
    """What an evaluation writes for each task."""

    metrics: dict[str, float]
    reason: str | None
    seconds: float
    sentences: int
    cut: int


def read_result(path: Path) -> dict[str, Any]:
    """Return the result of a task of an evaluation; raises as `read_record`."""
    return read_object(path, _Result, advice="the task is measured again")


class _Failure(BaseModel, strict=True):
    type: str
    message: str


def read_failure(path: Path) -> dict[str, Any]:
    """Return why a run failed; raises as `read_record`."""
    return read_object(path, _Failure, advice="retry_failed=true tries the run again")
