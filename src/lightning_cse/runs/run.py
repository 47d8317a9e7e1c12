"""The folder of one run: its status, its lock, and the record that finishes it."""

import contextlib
import json
import logging
import os
import re
import shutil
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from lightning_cse.errors import LightningCSEError, one_line
from lightning_cse.runs.curves import Curves
from lightning_cse.runs.files import of_system, remove_leftovers, write_atomic, write_json
from lightning_cse.runs.locks import is_locked, locked
from lightning_cse.runs.redaction import public

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

_FOLDER = re.compile(r"([0-9A-Za-z]+)-s(\d+)")
_LOCK = "run.lock"


class FailedBefore(LightningCSEError):  # noqa: N818 - a status, not a fault
    """A run failed before and is not tried again."""


@dataclass(frozen=True)
class Outcome:
    """The outcome that a task returns to a sweep; ``skipped``: the run was finished before.

    ``folder`` is empty if nothing was kept, and ``metric`` the key of the score.
    """

    status: Literal["finished", "skipped"]
    folder: str
    score: float | None = None
    metric: str | None = None


@dataclass(eq=False)
class Run:
    """The folder of one run, ``<root>/<name>/<config_hash>-s<seed>/``.

    Nothing is created on disk before `lock` or `start`. The record is written last, so a folder
    with a record is a finished run. Only the process that holds the lock changes the folder.
    Slashes in the name make subfolders.
    """

    root: Path
    name: str
    config_hash: str
    seed: int

    def __post_init__(self) -> None:
        self.path = Path(self.root, self.name, f"{self.config_hash}-s{self.seed}")
        self.config_path = self.path / "config.yaml"
        self.curves_path = self.path / "curves.csv"
        self.checkpoints = self.path / "checkpoints"
        self.predictions = self.path / "predictions"
        self.figures = self.path / "figures"
        self.log_path = self.path / "train.log"
        self.record_path = self.path / "record.json"
        self.failed_path = self.path / "failed.json"
        self.lock_path = self.path / _LOCK
        self._held = False

    @classmethod
    def at(cls, path: Path) -> Self:
        """Return the run of a folder, from the names of the folder and its parent."""
        path = Path(path).absolute()
        match = _FOLDER.fullmatch(path.name)
        if match is None:
            raise LightningCSEError(
                f"{path} is not the folder of a run: its name must be <config_hash>-s<seed>"
            )

        return cls(path.parent.parent, path.parent.name, match[1], int(match[2]))

    @property
    def status(self) -> Literal["new", "running", "interrupted", "failed", "finished"]:
        """The status of the run; while this object holds the lock, the status before that."""
        if self.record_path.is_file():
            return "finished"
        if not self._held and is_locked(self.lock_path):
            return "running"
        if self.failed_path.is_file():
            return "failed"
        if (self.checkpoints / "last.ckpt").is_file():
            return "interrupted"

        return "new"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of this folder until the end of the block; see `locked`."""
        try:
            with locked(self.lock_path, str(self.path)):
                self._held = True
                yield
        finally:
            self._held = False

    @contextlib.contextmanager
    def claim(self, *, force: bool, leave_failed: bool) -> Iterator[bool]:
        """Hold the lock as in `lock`, and yield whether the run is still to be done.

        ``force`` clears the folder first; ``leave_failed`` raises `FailedBefore` if the run failed.
        """
        if self.status == "finished" and not force:
            yield False
            return

        with self.lock():
            if force:
                self.clear()

            if self.status == "failed" and leave_failed:
                raise FailedBefore(
                    f"{self.path} failed before ({self.reason()}): retry_failed=true tries it again"
                )

            yield self.status != "finished"  # another process may have just finished it

    def reason(self) -> str | None:
        """Return in one line why the run failed, or None if it did not; for a ``failed.json`` that
        cannot be read, why.
        """
        if not self.failed_path.is_file():
            return None

        from lightning_cse.runs.records import read_failure  # pydantic

        try:
            failure = read_failure(self.failed_path)
        except (LightningCSEError, OSError) as error:
            return one_line(error)

        return f"{failure['type']}: {' '.join(failure['message'].split())}"

    @property
    def key(self) -> str | None:
        """The key by which tables find the run (`lightning_cse.runs.hashing`), as `start` wrote it;
        None without one.
        """
        with contextlib.suppress(OSError, UnicodeDecodeError), self.config_path.open() as file:
            key = re.fullmatch(r"# key: (\w+)", file.readline().strip())
            return key and key[1]

        return None

    def start(self, config_yaml: str, key: str = "") -> None:
        """Write the resolved config without secrets, and remove leftovers of a failure or a kill;
        checkpoints and curves stay.
        """
        head = f"# key: {key}\n" if key else ""
        write_atomic(self.config_path, head + public(config_yaml))
        remove_leftovers(self.path)
        self.failed_path.unlink(missing_ok=True)

    def finish(self, record: Mapping[str, Any]) -> None:
        """Write the record without secrets, which makes the run finished; non-finite numbers become
        null.
        """
        finite = json.loads(json.dumps(public(record)), parse_constant=lambda name: None)
        write_json(self.record_path, finite)
        self.failed_path.unlink(missing_ok=True)

    def fail(self, error: BaseException, stage: str) -> None:
        """Write ``failed.json``; a problem is only logged, since the user must see ``error``.

        After a refusal of the system, such as a full disk, the run has not failed: the same command
        tries it again, in a sweep as well.
        """
        if of_system(error):
            return

        failure = {
            "type": type(error).__name__,
            "message": str(error),
            "stage": stage,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "traceback": "".join(traceback.format_exception(error)),
        }
        try:
            write_json(self.failed_path, public(failure))
        except (OSError, LightningCSEError) as problem:
            log.warning("could not write %s: %s", self.failed_path, problem)

    def read(self) -> dict[str, Any]:
        """Return the record of a finished run; raise LightningCSEError if it is unusable."""
        from lightning_cse.runs.records import read_record  # pydantic

        try:
            return read_record(self.record_path)
        except FileNotFoundError:
            raise LightningCSEError(
                f"{self.path} has no record.json: the run is {self.status}"
            ) from None

    def table(self) -> "pd.DataFrame":
        """Return the test metrics: one row per metric, one column for the run and per baseline."""
        import pandas as pd

        record = self.read()
        columns = {str(record["name"]): record["metrics"], **record.get("baselines", {})}

        return pd.DataFrame(columns).rename_axis("metric")

    def curves(self) -> "pd.DataFrame":
        """Return every logged value: one row per step, one column per key."""
        import pandas as pd

        columns = {key: dict(points) for key, points in Curves(self.curves_path).read().items()}

        return pd.DataFrame(columns).rename_axis("step").sort_index()

    def clear(self) -> None:
        """Remove everything in this folder but its lock; links are removed, never followed."""
        if self.path.is_symlink():
            raise LightningCSEError(f"{self.path} is a link: clear the folder behind it yourself")

        # The record is first: a run that is cleared half-way must not look finished.
        self.record_path.unlink(missing_ok=True)
        if not self.path.is_dir():
            return

        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != _LOCK:
                entry.unlink()


def find_runs(root: Path) -> Iterator[Run]:
    """Yield every run below a folder, finished or not, and the evaluations inside it."""
    for parent, folders, files in os.walk(root):
        path = Path(parent)
        folders.sort()
        if {"record.json", "config.yaml"}.isdisjoint(files):
            continue

        folders[:] = [name for name in folders if name == "evaluate"]
        match = _FOLDER.fullmatch(path.name)
        if match and path.parent != Path(root):
            name = path.parent.relative_to(root).as_posix()
            yield Run(root, name, match[1], int(match[2]))
