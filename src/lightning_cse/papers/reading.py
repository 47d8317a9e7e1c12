"""Reads the runs of a report, finished or not, from folders and from records kept as files."""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from lightning_cse.errors import DataError
from lightning_cse.papers.records import Found
from lightning_cse.runs import Run

_RECORD: Final = {"name", "config_hash", "seed"}


def read_runs(paths: Iterable[Path], seeds: Sequence[int] | None = None) -> list[Found]:
    """Read runs, finished or not, each once.

    Args:
        paths: run folders; folders with run folders below them, such as that of all runs; the
            folder of a sweep; records kept as files, with their curves beside them as
            ``<name>.curves.csv``; folders of such files.
        seeds: read only the runs with these seeds.
    """
    found: dict[Path, Found] = {}
    for path in paths:
        runs = {place.resolve(): _read(place) for place in _places(path)}
        if not runs:
            raise DataError(f"{path} holds no runs: give folders of runs, or records kept as files")
        found |= runs
    return [run for run in found.values() if seeds is None or int(run.record["seed"]) in seeds]


def _places(path: Path) -> Iterator[Path]:
    """Yield run folders and record files; the contents of a run folder, such as evaluations, belong
    to it.
    """
    begun = re.fullmatch(r"[0-9A-Za-z]+-s\d+", path.name) and (path / "config.yaml").is_file()
    if begun or (path / "record.json").is_file():
        yield path
    elif path.is_dir():
        for inner in sorted(path.iterdir()):
            yield from _places(inner)
    elif path.suffix == ".json":
        content = _load(path)
        folder = content.get("folder")  # of a point of a sweep
        if content.keys() >= _RECORD:
            yield path
        elif isinstance(folder, str) and Path(folder).is_dir():
            yield from _places(Path(folder))


def _load(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file; an empty mapping if it is damaged or not a mapping."""
    with contextlib.suppress(ValueError):
        document = json.loads(path.read_text(encoding="utf-8"))
        return document if isinstance(document, dict) else {}
    return {}


def _read(path: Path) -> Found:
    if path.is_file():
        return Found(_load(path), None, path)
    run = Run.at(path)
    begun = {
        "name": run.name,
        "config_hash": run.config_hash,
        "seed": run.seed,
    }
    record = run.read() if run.record_path.is_file() else begun
    return Found(
        record,
        path,
        path / "record.json",
        run.status,
    )
