"""The runs on disk as one flat table, in which the runs of a point are those with its key."""

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from lightning_cse import runs
from lightning_cse.errors import DataError
from lightning_cse.papers.points import Point, key_of

State = Literal["finished", "running", "interrupted", "failed", "missing"]


@dataclass(frozen=True)
class Found:
    """A run: its record, its folder (None for a record kept as a file), and the file of the record.

    Only a report shows runs that are not finished; their record has only the name, the hash and the
    seed.
    """

    record: Mapping[str, Any] = field(repr=False, hash=False, compare=False)
    folder: Path | None
    source: Path
    state: str = "finished"

    @property
    def curves_path(self) -> Path:
        """The file of its curves, which may not exist; beside a kept ``X.json`` it is
        ``X.curves.csv``.
        """
        if self.folder is None:
            return self.source.with_suffix(".curves.csv")
        return self.folder / "curves.csv"

    @functools.cached_property
    def curves(self) -> Mapping[str, Sequence[tuple[int, float]]]:
        """The logged values ``(step, value)`` by key; empty without curves."""
        return runs.Curves(self.curves_path).read()

    @property
    def evaluates(self) -> Mapping[str, Any] | None:
        """The name, hash and seed of the training run that an evaluation evaluates, if any."""
        return self.record["model"]["run"] if "suite" in self.record else None


def frame_of(found: Iterable[Found]) -> pd.DataFrame:
    """Return a row for each run: its record, with dotted columns such as ``best.score``, and the
    run as ``run``.
    """
    found = list(found)
    frame = pd.json_normalize([dict(run.record) for run in found])
    frame["run"] = pd.Series(found, dtype=object)
    return frame.copy() if found else frame.reindex(columns=["key", "seed", "run"])


def kept_name(record: Mapping[str, Any]) -> str:
    """Return the file name of a kept record, without its ending."""
    suite = f"-{record['suite']}" if "suite" in record else ""
    return f"{record['name'].replace('/', '-')}{suite}-{record['config_hash']}-s{record['seed']}"


class RunsTable:
    """The runs below a folder, and the records kept as files in other folders.

    The disk is read once, and again after `refresh`. Records without a key, of an older version,
    are left out.
    """

    def __init__(
        self,
        runs_dir: Path,
        kept: Sequence[Path] = (),
    ) -> None:
        self.runs_dir = Path(runs_dir)
        self.kept = tuple(kept)

    def refresh(self) -> None:
        """Make the next query read the disk again; records that did not change are not parsed
        again.
        """
        for name in ("frame", "_places", "_unfinished"):
            vars(self).pop(name, None)

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """The finished runs: kept records first, then those with a folder, each the oldest first
        (see `frame_of`).
        """
        found = []
        for path, folder in self._record_files():
            record = _read_record(path, path.stat().st_mtime_ns)
            if record is not None:
                found.append(Found(record, folder, path))
        return frame_of(found)

    def find(
        self,
        point: Point,
        seed: int,
    ) -> Found | None:
        """Return the newest finished run of a point and a seed; None without one.

        An evaluation must be of the newest run of its training.
        """
        place = self._places.get((key_of(point), seed))
        if place is None:
            return None
        run: Found = self.frame["run"].iat[place]
        training = None if point.of is None else self.find(point.of, seed)
        if training is not None and run.evaluates is not None:
            is_of_newest = run.evaluates["config_hash"] == training.record["config_hash"]
            return run if is_of_newest else None
        return run

    def finished(
        self,
        point: Point,
        seeds: Sequence[int],
    ) -> pd.DataFrame:
        """Return the rows of the runs that `find` finds, in the order of the seeds, with the seed
        as index.
        """
        found = [seed for seed in sorted(seeds) if self.find(point, seed) is not None]
        places = [self._places[key_of(point), seed] for seed in found]
        return self.frame.iloc[places].set_index("seed", drop=False)

    def training(self, run: Found) -> Found | None:
        """Return the run whose model an evaluation uses, None if it is missing; for any other run,
        the run itself.
        """
        if (of := run.evaluates) is None:
            return run
        frame = self.frame
        same_run = (frame["config_hash"] == of["config_hash"]) & (frame["seed"] == of["seed"])
        found = frame["run"][same_run & (frame["name"] == of["name"])]
        return None if found.empty else found.iloc[-1]

    def state(
        self,
        point: Point,
        seed: int,
    ) -> State:
        """Return the state of a point and a seed; a run that stopped before its first checkpoint is
        missing.
        """
        if self.find(point, seed) is not None:
            return "finished"
        run = self._unfinished.get((key_of(point), seed))
        if run is None:
            return "missing"
        status: State | Literal["new"] = run.status
        if status == "finished":  # since the disk was read
            self.refresh()
            return self.state(point, seed)
        if status == "new":
            return "interrupted" if any((run.path / "tasks").glob("*.json")) else "missing"
        return status

    def failure(
        self,
        point: Point,
        seed: int,
    ) -> str:
        """Return the reason why a run failed, in one line."""
        run = self._unfinished.get((key_of(point), seed))
        return (run and run.reason()) or ""

    @functools.cached_property
    def _places(self) -> dict[tuple[str, int], int]:
        """The place of the newest run of each key and seed in the frame."""
        pairs = zip(
            self.frame["key"],
            self.frame["seed"],
            strict=True,
        )
        return {pair: place for place, pair in enumerate(pairs)}

    @functools.cached_property
    def _unfinished(self) -> dict[tuple[str | None, int], runs.Run]:
        found = runs.find_runs(self.runs_dir)
        return {(run.key, run.seed): run for run in found if not run.record_path.is_file()}

    def _record_files(self) -> Iterator[tuple[Path, Path | None]]:
        """Yield the files of records with the folders of their runs."""
        kept = [path for folder in self.kept for path in folder.glob("*.json")]
        own = {run.record_path: run.path for run in runs.find_runs(self.runs_dir)}
        finished = [path for path in own if path.is_file()]
        for files in (kept, finished):
            for path in sorted(files, key=lambda file: (file.stat().st_mtime_ns, file)):
                yield path, own.get(path)


@functools.cache
def _read_record(path: Path, changed: int) -> dict[str, Any] | None:
    """Return the record in a file, which changed at this time; None for JSON that is no record with
    a key.
    """
    with contextlib.suppress(FileNotFoundError):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{path} is damaged ({error}): remove it to repeat its run") from None
        return record if isinstance(record, dict) and record.get("key") else None
    return None
