"""The folder of one run: the hash that names it, its status, its lock, and the record that finishes it."""

import contextlib
import hashlib
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
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from lightning_cse.errors import LightningCSEError
from lightning_cse.runs.curves import Curves
from lightning_cse.runs.files import is_locked, locked, write_atomic

if TYPE_CHECKING:
    import pandas as pd

_LOG: Final = logging.getLogger(__name__)
_FOLDER: Final = re.compile(r"([0-9A-Za-z]+)-s(\d+)")
_LOCK: Final = "run.lock"


class FailedBefore(LightningCSEError):  # noqa: N818 - a status, not a fault
    """A run failed before and is not tried again."""


@dataclass(frozen=True)
class Outcome:
    """The outcome that a task returns to a sweep; ``skipped`` means that the run was finished before."""

    status: Literal["finished", "skipped"]
    folder: str
    score: float | None = None


class Run:
    """The folder of one run, ``<root>/<name>/<config_hash>-s<seed>/``.

    Nothing is created on disk before `lock` or `start`. The record is written last, so a folder with a record is a
    finished run. Only the process that holds the lock changes the folder. Slashes in the name make subfolders.
    """

    def __init__(self, root: Path, name: str, config_hash: str, seed: int) -> None:
        self.root, self.name, self.config_hash, self.seed = Path(root), name, config_hash, int(seed)
        self.path = self.root / f"{name}/{config_hash}-s{self.seed}"
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
        found = _FOLDER.fullmatch(path.name)
        if found is None:
            raise LightningCSEError(
                f"{path} is not the folder of a run: its name must be <config_hash>-s<seed>"
            )
        return cls(path.parent.parent, path.parent.name, found[1], int(found[2]))

    @property
    def status(self) -> Literal["new", "running", "interrupted", "failed", "finished"]:
        """The status of the run; while this object holds the lock, the status before it was locked."""
        if self.record_path.is_file():
            return "finished"
        if not self._held and is_locked(self.lock_path):
            return "running"
        if self.failed_path.is_file():
            return "failed"
        return "interrupted" if (self.checkpoints / "last.ckpt").is_file() else "new"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of this folder until the end of the block; see `locked`."""
        new = not self.path.is_dir()
        try:
            with locked(self.lock_path, str(self.path)):
                self._held = True
                yield
        finally:
            self._held = False
            if new:
                with contextlib.suppress(OSError):
                    self.path.rmdir()  # made for the lock alone; a folder that holds something stays

    @contextlib.contextmanager
    def claim(self, *, force: bool, leave_failed: bool) -> Iterator[bool]:
        """Hold the lock as in `lock`, and yield whether there is something to do: not if the run is finished.

        ``force`` clears the folder first; ``leave_failed`` raises `FailedBefore` if the run failed before.
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
        """Return in one line why the run failed, or None if it did not."""
        if not self.failed_path.is_file():
            return None
        try:
            failure = json.loads(self.failed_path.read_text(encoding="utf-8"))
            return f"{failure['type']}: {' '.join(str(failure['message']).split())}"
        except (OSError, ValueError, KeyError, TypeError):
            return f"see {self.failed_path}"

    def start(self, config_yaml: str) -> None:
        """Write the resolved config, and remove leftovers of a failure or a kill; checkpoints and curves stay."""
        write_atomic(self.config_path, config_yaml)
        for leftover in self.path.rglob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        self.failed_path.unlink(missing_ok=True)

    def finish(self, record: Mapping[str, Any]) -> None:
        """Write the record, which makes the run finished, so call this last. Non-finite numbers become null."""
        finite = json.loads(json.dumps(record), parse_constant=lambda name: None)
        write_atomic(self.record_path, json.dumps(finite, indent=2, ensure_ascii=False) + "\n")
        self.failed_path.unlink(missing_ok=True)

    def fail(self, error: BaseException, stage: str) -> None:
        """Write ``failed.json``; if this is not possible, only log it, since the user must see ``error`` itself."""
        failure = {"type": type(error).__name__, "message": str(error), "stage": stage}
        failure["time"] = datetime.now(UTC).isoformat(timespec="seconds")
        failure["traceback"] = "".join(traceback.format_exception(error))
        try:
            write_atomic(self.failed_path, json.dumps(failure, indent=2) + "\n")
        except (OSError, LightningCSEError) as problem:
            _LOG.warning("could not write %s: %s", self.failed_path, problem)

    def read(self) -> dict[str, Any]:
        """Return the record of a finished run; raise LightningCSEError if there is no usable one."""
        try:
            record = json.loads(self.record_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise LightningCSEError(
                f"{self.path} has no record.json: the run is {self.status}"
            ) from None
        except ValueError as error:
            raise LightningCSEError(
                f"{self.record_path} is damaged ({error}): force=true runs it again"
            ) from None
        record = record if isinstance(record, dict) else {}
        if missing := [
            key for key in ("name", "config_hash", "seed", "metrics") if key not in record
        ]:
            raise LightningCSEError(
                f"{self.record_path} has no {', '.join(missing)}: force=true runs it again"
            )
        return record

    def table(self) -> "pd.DataFrame":
        """Return the test metrics of a finished run: one row per metric, one column for the run and per baseline."""
        import pandas as pd

        record = self.read()
        columns = {str(record["name"]): record["metrics"], **record.get("baselines", {})}
        return pd.DataFrame(columns).rename_axis("metric")

    def curves(self) -> "pd.DataFrame":
        """Return every value logged so far: one row per step, one column per key, NaN where a step lacks a key."""
        import pandas as pd

        columns = {key: dict(points) for key, points in Curves(self.curves_path).read().items()}
        return pd.DataFrame(columns).rename_axis("step").sort_index()

    def clear(self) -> None:
        """Remove everything in this folder but its lock; links are removed, never followed."""
        if self.path.is_symlink():
            raise LightningCSEError(
                f"{self.path} is a link to {self.path.readlink()}: clear that folder yourself"
            )
        self.record_path.unlink(
            missing_ok=True
        )  # first: a run cleared half-way must not look finished
        for entry in self.path.iterdir() if self.path.is_dir() else ():
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
        if (found := _FOLDER.fullmatch(path.name)) and path.parent != Path(root):
            yield Run(root, path.parent.relative_to(root).as_posix(), found[1], int(found[2]))


# The settings that affect a result, and their hash ----------------------------------------------------------------

# Top-level keys that do not affect a result, or only through the nodes that read them (corpora, limits and own through
# data and suite). The precision here is that of an evaluation; training has its own under `trainer`.
_SWITCHES: Final = frozenset(
    {
        "seed",
        "paths",
        "logger",
        "force",
        "retry_failed",
        "keep_last",
        "figures",
        "hydra",
        "recipe",
        "baselines",
    }
    | {"corpora", "limits", "own", "precision"}
)
# Keys that never affect a result, at any level: locations (files count by digest) and ways to compute the same.
_ANYWHERE: Final = frozenset(
    {"data_dir", "cache_dir", "runs_dir", "files", "chunk_size", "compile"}
)
_TRAINER: Final = frozenset(
    {
        "devices",
        "num_nodes",
        "strategy",
        "profiler",
        "logger",
        "default_root_dir",
        "enable_progress_bar",
    }
    | {"enable_model_summary", "log_every_n_steps", "num_sanity_val_steps", "limit_val_batches"}
)
# The modules in class paths, which the hash ignores: moving a class does not change it.
_MODULES: Final = re.compile(
    r'(?<="_target_":")(?:lightning_cse|torch|pytorch_lightning)\.(?:[^".]*\.)*'
)

NEUTRAL: Final[Mapping[str, Any]] = {
    "callbacks": {"early_stopping": {"patience": None, "min_delta": 0.0}},
    "least_evaluations": 1,
    "data.distinct_in_batch": False,
    "diag.dropout": False,
    "trainer.accumulate_grad_batches": 1,
    "trainer.max_steps": -1,
}
"""Values at which a key counts as absent, by dotted key, so that keys added later change no hash; null always does."""


def config_hash(
    config: Mapping[str, Any],
    *,
    data: Mapping[str, str],
    encoder: Mapping[str, str],
    resolved: Mapping[str, Any],
) -> str:
    """Return the ten hex digits that name a run: a hash of `decisive`, with classes by name, without their modules.

    ``config`` is the resolved config, ``data`` the sha256 by file name, ``encoder`` the encoder's name and digests, and
    ``resolved`` the values of automatic choices by dotted key: ``{"trainer.accelerator": "cpu"}``.
    """
    document = decisive(config, data=data, encoder=encoder, resolved=resolved)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(_MODULES.sub("", text).encode("ascii")).hexdigest()[:10]


def decisive(
    config: Mapping[str, Any],
    *,
    data: Mapping[str, str],
    encoder: Mapping[str, str],
    resolved: Mapping[str, Any],
) -> dict[str, Any]:
    """Return everything but the seed that affects a result, as plain JSON: ``config``, ``data`` and ``encoder``.

    The config is without seed, paths, loggers, switches, and keys at their neutral value; automatic choices are
    replaced by their values. Numbers are equal however they are written (``1`` and ``1.0``).
    """
    kept: dict[str, Any] = _canonical({k: v for k, v in config.items() if k not in _SWITCHES})
    for dotted, value in resolved.items():
        node, (*parents, key) = kept, dotted.split(".")
        for name in parents:
            node = node.setdefault(name, {})
        if dotted not in _SWITCHES:
            node[key] = _canonical(value)
    for name, absent in (
        ("trainer", _TRAINER),
        ("encoder", {"source", "package"} if encoder else set()),
    ):
        if isinstance(kept.get(name), dict):
            kept[name] = {key: value for key, value in kept[name].items() if key not in absent}
    for dotted, neutral in NEUTRAL.items():
        node, (*parents, key) = kept, dotted.split(".")
        for name in parents:
            node = node.get(name) or {}
        neutral = _canonical(neutral)
        if key in node and type(node[key]) is type(neutral) and node[key] == neutral:
            del node[key]
    return {"config": kept, "data": _canonical(data), "encoder": _canonical(encoder)}


def _canonical(value: Any) -> Any:
    """Reduce to plain JSON values, with one spelling per number, no nulls, and no keys that never affect a result."""
    if isinstance(value, Mapping):
        kept = {str(k): v for k, v in value.items() if k not in _ANYWHERE and v is not None}
        if (limit := kept.get("limit_train_batches")) is not None:
            kept["limit_train_batches"] = repr(limit)  # 1 is one batch, 1.0 all of them
        return {key: _canonical(item) for key, item in kept.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
