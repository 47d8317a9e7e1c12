"""The folder of one point and seed: how far it is, and the record that closes it."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
import shutil
import traceback
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from lightning_cse.errors import LightningCSEError
from lightning_cse.runs.lock import Busy, Lock, Owner
from lightning_cse.runs.writing import write_atomic

RunStatus = Literal["new", "interrupted", "failed", "running", "finished"]

_LOG = logging.getLogger(__name__)


class FailedBeforeError(LightningCSEError):
    """A run failed before and is not tried again; ``reason`` is what it failed of."""

    def __init__(self, folder: Path, reason: str) -> None:
        self.folder = folder
        self.reason = reason
        super().__init__(f"{folder} failed before ({reason}) and is left alone: retry_failed=true tries it again")

    def __reduce__(self) -> tuple[type[FailedBeforeError], tuple[Path, str]]:
        return (type(self), (self.folder, self.reason))


class Run:
    """The folder of one point and seed: ``<root>/<name>/<identity>-s<seed>/``.

    Nothing is made on disk before `lock` or `start`. The record is written last, so a folder with a record is a
    finished run. Who changes what is in the folder holds its lock.

    Args:
        root: The folder of all runs, ``paths.runs_dir``.
        name: The experiment's name; slashes make subfolders.
        identity: What `identity` returned.
        seed: The seed.

    Raises:
        ValueError: if ``name`` or ``identity`` would lead out of ``root``.
    """

    def __init__(self, root: Path, name: str, identity: str, seed: int) -> None:
        parts = name.split("/")
        if any(part in {"", ".", ".."} for part in parts) or any(c in name for c in "\\\0\n"):
            raise ValueError(f"the name {name!r} makes no folder inside {root}")
        if not re.fullmatch(r"[0-9A-Za-z]+", identity):
            raise ValueError(f"the identity {identity!r} is not made of letters and digits")
        self.root = Path(root)
        self.name = name
        self.identity = identity
        self.seed = int(seed)
        self.path = self.root.joinpath(*parts, f"{identity}-s{self.seed}")
        self._lock: Lock | None = None

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def record_path(self) -> Path:
        """The record, there only when the run is finished."""
        return self.path / "record.json"

    @property
    def failed_path(self) -> Path:
        """What went wrong, there only when the run failed."""
        return self.path / "failed.json"

    @property
    def lock_path(self) -> Path:
        """The lock, there while somebody is at it."""
        return self.path / "lock.json"

    @property
    def config_path(self) -> Path:
        """The resolved config."""
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        """The folder of the best and the last checkpoint."""
        return self.path / "checkpoints"

    @property
    def predictions(self) -> Path:
        """The folder of the predictions, one file a task."""
        return self.path / "predictions"

    @property
    def figures(self) -> Path:
        """The folder of the run's figures."""
        return self.path / "figures"

    @property
    def curves(self) -> Path:
        """Every logged value by step, see `Curves`."""
        return self.path / "curves.csv"

    @property
    def state(self) -> RunStatus:
        """How far the run is: a record beats a holder of the lock, that one a failure, and a failure a checkpoint.

        Whoever holds the lock through this object sees the state that it had found.
        """
        if self.record_path.is_file():
            return "finished"
        if not (self._lock is not None and self._lock.held) and self.owner() is not None:
            return "running"
        if self.failed_path.is_file():
            return "failed"
        return "interrupted" if (self.checkpoints / "last.ckpt").is_file() else "new"

    @contextlib.contextmanager
    def lock(self) -> Iterator[Lock]:
        """Be the only process that changes this folder, until the end of the block, however it ends.

        Raises:
            Busy: if a live process is at it, here or on another machine; this one too.
            LightningCSEError: if the disk is full.
        """
        new = not self.path.is_dir()
        try:
            with Lock(self.lock_path, str(self.path)) as lock:
                self._lock = lock
                try:
                    yield lock
                finally:
                    self._lock = None
        finally:
            if new:
                with contextlib.suppress(OSError):
                    self.path.rmdir()  # made for the lock alone; a folder that holds something stays

    def owner(self) -> Owner | None:
        """Return who is running this point, or None where nobody is, or whoever was is dead."""
        return Lock(self.lock_path, str(self.path)).owner()

    def reason(self) -> str | None:
        """Return in one line what the run failed of, or None if it did not fail."""
        if not self.failed_path.is_file():
            return None
        try:
            failure = json.loads(self.failed_path.read_text(encoding="utf-8"))
            kind, message = str(failure["type"]), " ".join(str(failure["message"]).split())
        except (OSError, ValueError, KeyError, TypeError):
            return f"see {self.failed_path}"
        return f"{kind}: {message}" if message else kind

    def start(self, config_yaml: str) -> None:
        """Make the folder, write the resolved config, and take away what an earlier failure or crash left.

        Checkpoints and curves stay: an interrupted run goes on from them.

        Raises:
            LightningCSEError: if the disk is full.
        """
        write_atomic(self.config_path, config_yaml)
        for leftover in (*self.path.rglob(".*.tmp"), *self.checkpoints.glob("*.part")):
            leftover.unlink(missing_ok=True)
        self.failed_path.unlink(missing_ok=True)

    def finish(self, record: Mapping[str, Any], *, nullable: Collection[str] = ()) -> None:
        """Write the record, which declares the run finished: call it last.

        Args:
            record: Plain JSON values only; ``None`` is one of them.
            nullable: Keys, alone or dotted from the top, where NaN and infinity are written as null.

        Raises:
            ValueError: if a number is not finite, naming its key.
            TypeError: if a value is not JSON, naming its key.
            LightningCSEError: if the disk is full.
        """
        plain = _plain_json(record, (), frozenset(nullable))
        text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)
        write_atomic(self.record_path, text + "\n")
        self.failed_path.unlink(missing_ok=True)

    def fail(self, exception: BaseException, stage: str, step: int | None = None) -> None:
        """Write ``failed.json``; never raises for the disk, since ``exception`` is what the user must see.

        Args:
            exception: What ended the run.
            stage: What the run was at, such as ``"fit"`` or ``"test"``.
            step: The optimizer step, where known; else the exception's own ``step``, if it has one.
        """
        known = step if step is not None else getattr(exception, "step", None)
        failure = {
            "type": type(exception).__name__,
            "message": str(exception),
            "stage": stage,
            "step": known if isinstance(known, int) else None,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "traceback": "".join(traceback.format_exception(exception)),
        }
        try:
            write_atomic(self.failed_path, json.dumps(failure, indent=2) + "\n")
        except (OSError, LightningCSEError) as error:
            _LOG.warning("could not write %s: %s", self.failed_path, error)

    def read(self) -> dict[str, Any]:
        """Return the record of a finished run.

        Raises:
            LightningCSEError: if there is none, or it is no JSON object.
        """
        try:
            record = json.loads(self.record_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise LightningCSEError(f"{self.path} holds no record.json: the run is {self.state}.") from None
        except ValueError as error:
            raise LightningCSEError(f"{self.record_path} is damaged ({error}): redo the run with force=true.") from None
        if not isinstance(record, dict):
            raise LightningCSEError(f"{self.record_path} is no JSON object: redo the run with force=true.")
        return record

    def clear(self) -> None:
        """Remove what this folder holds but its lock, and nothing outside it: links are removed, never followed.

        Raises:
            LightningCSEError: if the folder itself is a link, since what it holds would be elsewhere.
            Busy: if somebody is at a folder inside, such as an evaluation of this run; nothing is removed then.
        """
        if self.path.is_symlink():
            raise LightningCSEError(f"{self.path} is a link to {self.path.readlink()}: clear that folder yourself.")
        if not self.path.is_dir():
            return
        for path in self.path.rglob(self.lock_path.name):
            inner = Lock(path, str(path.parent))
            if path != self.lock_path and (owner := inner.owner()) is not None:
                raise Busy(inner.subject, owner, path)
        # The record goes first: a run cleared half-way must not look finished.
        self.record_path.unlink(missing_ok=True)
        for entry in self.path.iterdir():
            if entry.name == self.lock_path.name or entry.name.startswith(f".{self.lock_path.name}."):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def _plain_json(value: Any, path: tuple[str, ...], nullable: frozenset[str]) -> Any:
    where = ".".join(path) or "the record"
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} is no string")
        return {key: _plain_json(item, (*path, key), nullable) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_json(item, (*path, str(index)), nullable) for index, item in enumerate(value)]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        if where in nullable or (path and path[-1] in nullable):
            return None
        raise ValueError(f"{where} is {float(value)}, which a record cannot hold")
    raise TypeError(f"{where}: {value!r} of type {type(value).__name__} is not JSON; give a plain value")
