"""The runs on disk as one flat table, in which the runs of a point are those with its key."""

import fnmatch
import functools
import logging
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from lightning_cse import runs
from lightning_cse.errors import DataError, LightningCSEError, one_line
from lightning_cse.runs.keys import asked_precision
from lightning_cse.tables import predictions
from lightning_cse.tables.kept import RECORDS, Curves, KeptRuns, left_out, name_of
from lightning_cse.tables.nested import value_at
from lightning_cse.tables.points import Point, composed, key_of, keys_of

log = logging.getLogger(__name__)

State = Literal["finished", "running", "interrupted", "failed", "missing"]


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run: its record, its folder (None for a run that a paper keeps), the file of the
    record, and what the paper keeps.
    """

    record: Mapping[str, Any] = field(repr=False)
    folder: Path | None
    source: Path
    kept: KeptRuns | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.source}" if self.kept is None else f"{self.source} ({self.name})"

    @property
    def name(self) -> str:
        """The name under which it is kept."""
        return name_of(self.record)

    @functools.cached_property
    def packed(self) -> predictions.Arrays:
        """Its predictions as `lightning_cse.tables.predictions` packs them; none if it has none.

        Those of a damaged file are left out with a warning.
        """
        packed: dict[str, NDArray[Any]] = {}
        if self.folder is not None:
            for path in predictions.files(self.folder):
                with left_out():
                    packed |= predictions.pack_file(path)
        elif self.kept is not None and self.name in self.kept.predictions:
            with left_out():
                arrays = self.kept.predictions[self.name]
                predictions.check_digest(arrays, self.record, str(self))
                packed |= arrays

        return packed

    @functools.cached_property
    def curves(self) -> Curves:
        """The logged values ``(step, value)`` by key; empty without curves."""
        if self.kept is not None:
            return self.kept.curves.get(self.name, {})

        return {} if self.folder is None else runs.Curves(self.folder / "curves.csv").read()

    @property
    def evaluates(self) -> Mapping[str, Any] | None:
        """The name, hash and seed of the training run that an evaluation evaluates, if any."""
        return self.record["model"]["run"] if "suite" in self.record else None

    @property
    def is_untrained(self) -> bool:
        """Whether it is an evaluation of a model that no run trained, such as LENGTH."""
        return "suite" in self.record and self.evaluates is None

    @property
    def weights(self) -> str | None:
        """The SHA-256 of the checkpoint that a training wrote or an evaluation read, if any."""
        checkpoint = self.record.get("checkpoint") or {}
        encoder = self.record.get("encoder") or {}  # earlier evaluations have it here

        return checkpoint.get("sha256") or encoder.get("weights")

    def is_of(self, training: "FinishedRun") -> bool:
        """Return whether an evaluation evaluated the model of a training, and not another one of
        the same setting.
        """
        of = self.evaluates
        is_same_run = of is not None and all(training.record[key] == of[key] for key in of)

        return is_same_run and self.weights == training.weights


def read_run(path: Path) -> FinishedRun:
    """Return the run of a ``record.json``; raises as `lightning_cse.runs.read_record`."""
    return FinishedRun(runs.read_record(path), path.parent, path)


def runs_of(folder: KeptRuns) -> list[FinishedRun]:
    """Return the runs that a folder keeps."""
    path = folder.folder / RECORDS
    return [FinishedRun(record, None, path, folder) for record in folder.records.values()]


def read_runs(paths: Iterable[Path]) -> list[FinishedRun]:
    """Read finished runs, each once; damaged ones are left out with a warning.

    Args:
        paths: run folders; folders with run folders below them, such as that of all runs; the
            folder of a sweep; the ``runs.jsonl`` of a paper, or, for some of its runs, their name
            beside it, such as ``experiments/ngcse/results/ngcse_nli_*-s0``.
    """
    by_source: dict[tuple[Path, str], FinishedRun] = {}
    for path in paths:
        of_path = {(run.source.resolve(), run.name): run for run in _runs_below(path)}
        if not of_path:
            raise DataError(
                f"{path} holds no finished runs: give folders of runs, or the {RECORDS} of a paper"
            )

        by_source |= of_path

    return list(by_source.values())


def _runs_below(path: Path) -> Iterator[FinishedRun]:
    """Yield the runs of a file or a folder; the evaluations in a run's folder belong to it."""
    with left_out():
        if path.name == "record.json":
            yield read_run(path)
        elif (path / "record.json").is_file():
            yield read_run(path / "record.json")
        elif path.is_dir():
            for inner in sorted(path.iterdir()):
                yield from _runs_below(inner)
        elif path.name == RECORDS:
            yield from runs_of(KeptRuns(path.parent))
        elif (path.parent / RECORDS).is_file() and not path.exists():
            named = runs_of(KeptRuns(path.parent))
            yield from (run for run in named if fnmatch.fnmatchcase(run.name, path.name))
        elif path.suffix == ".json":
            content = runs.read_object(path, advice="restore it, or move it away")
            if isinstance(content.get("folder"), str):  # of a point of a sweep
                yield from _runs_below(Path(content["folder"]))


def _age(path: Path) -> tuple[int, Path]:
    return path.stat().st_mtime_ns, path


def _version_today(target: str) -> int | None:
    """Return the version of a method's class, or None if the class cannot be imported, or is that
    of a foreign record and in no module that is found (`check_class`).
    """
    from lightning_cse.models.base import check_class  # imports torch

    try:
        check_class({"_target_": target})
        version: int | None = getattr(pkgutil.resolve_name(target), "version", None)
    except Exception:  # noqa: BLE001 - a module from outside may raise anything
        return None

    return version


class RunsTable:
    """The runs below a folder, and those that papers keep.

    The folder is read once, and again after `refresh`. Records without a key, of an older version,
    are left out, and so are damaged ones, with a warning; ``damaged`` has their faults.
    """

    def __init__(self, runs_dir: Path, kept_folders: Iterable[KeptRuns] = ()) -> None:
        self.runs_dir = Path(runs_dir)
        self.damaged: dict[Path, str] = {}
        self._kept = [
            run for folder in kept_folders for run in runs_of(folder) if run.record.get("key")
        ]
        self.refresh()

    def refresh(self) -> None:
        """Read the folder again.

        ``runs`` has the finished runs: kept ones first, then those with a folder, the oldest first.
        """
        folders = list(runs.find_runs(self.runs_dir))
        records = [run.record_path for run in folders if run.record_path.is_file()]
        by_age = filter(None, map(self._read, sorted(records, key=_age)))
        self.runs = [*self._kept, *(run for run in by_age if run.record.get("key"))]
        self._newest = {(run.record["key"], run.record["seed"]): run for run in self.runs}
        self._unfinished = {
            (run.key, run.seed): run for run in folders if not run.record_path.is_file()
        }

    def _read(self, path: Path) -> FinishedRun | None:
        """Return the run of a record; warn once of a damaged one, and return None."""
        try:
            return read_run(path)
        except (LightningCSEError, OSError) as error:
            if path not in self.damaged:
                log.warning("left out: %s", one_line(error))

            self.damaged[path] = one_line(error)
            return None

    def find(self, point: Point, seed: int) -> FinishedRun | None:
        """Return the newest finished run of a point and a seed; None without one.

        A training must have the precision that the point asks for; ``auto`` asks for any. An
        evaluation must be of the weights of the newest run of its training.
        """
        for key in keys_of(point):
            run = self._newest.get((key, seed))
            if run is not None and self._answers(run, point, seed):
                return run

        return None

    def _answers(self, run: FinishedRun, point: Point, seed: int) -> bool:
        """Whether a run with one of the keys of a point is what the point asks for."""
        has_own_key: bool = run.record["key"] == key_of(point)
        if point.command == "train":
            precision = asked_precision(composed(point))
            return has_own_key or precision in ("auto", run.record.get("precision"))

        training = None if point.of is None else self.find(point.of, seed)
        if training is None or run.evaluates is None:
            return has_own_key

        return run.is_of(training)

    def training(self, run: FinishedRun) -> FinishedRun | None:
        """Return the run whose model an evaluation uses, None if it is missing; for any other run,
        the run itself.
        """
        if run.evaluates is None:
            return run

        trainings = (training for training in reversed(self.runs) if run.is_of(training))

        return next(trainings, None)

    def is_stale(self, run: FinishedRun) -> bool:
        """Return whether a run was made with another version of its method than today's.

        A run without a version, or whose training is missing, is stale as well; one whose method
        cannot be imported is not.
        """
        training = self.training(run)
        if training is None:
            return True

        method = value_at(training.record, "decisive.config.method")
        if method is None:
            return False

        version = training.record.get("version")
        if version is None:
            return True

        today = _version_today(method["_target_"])

        return today is not None and today != version

    def state(self, point: Point, seed: int) -> State:
        """Return the state of a point and a seed; a run that stopped before its first checkpoint is
        missing.
        """
        if self.find(point, seed) is not None:
            return "finished"

        run = self._unfinished.get((key_of(point), seed))
        status = run.status if run else "new"

        return "missing" if status == "new" else status

    def failure(self, point: Point, seed: int) -> str:
        """Return the reason why a run failed, in one line."""
        run = self._unfinished.get((key_of(point), seed))
        return (run and run.reason()) or ""
