"""What a run leaves on disk: its identity, its folder, its curves, its predictions and the record that closes it."""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import importlib.metadata
import io
import json
import logging
import math
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from lightning_cse.errors import LightningCSEError

__all__ = [
    "Curves",
    "RunFolder",
    "RunState",
    "environment",
    "identity",
    "identity_document",
    "write_atomic",
    "write_predictions",
]

RunState = Literal["new", "interrupted", "failed", "finished"]

_LOG = logging.getLogger(__name__)

# What the top of the config holds and the result does not depend on.
# Baselines are evaluated beside a run and decide nothing of it; corpora and limits decide through data and suite, which
# read them.
_TOP_SWITCHES: Final = frozenset(
    {"seed", "paths", "logger", "force", "hydra", "recipe", "baselines", "corpora", "limits"}
)
# Places: the same files elsewhere are the same files, and their digests are part of the identity.
_PLACES: Final = frozenset({"data_dir", "cache_dir", "runs_dir"})
_TRAINER_SWITCHES: Final = frozenset(
    {"enable_progress_bar", "enable_model_summary", "logger", "default_root_dir", "profiler"}
)
# Where an encoder came from; what it is, its digests say.
_ENCODER_PLACES: Final = frozenset({"source", "package"})

_DISTRIBUTIONS: Final = (
    "lightning_cse",
    "torch",
    "pytorch-lightning",
    "transformers",
    "tokenizers",
    "numpy",
    "scipy",
    "hydra-core",
)


# ---------------------------------------------------------------------------------------------------------- identity


def identity(
    config: Mapping[str, Any], *, data: Mapping[str, str], encoder: Mapping[str, str], resolved: Mapping[str, Any]
) -> str:
    """Return the ten hex digits that name a point: a hash of what decides its result, and of nothing else.

    Equal numbers hash equal however they are written (``1`` and ``1.0``), tuples equal lists, the order of keys does
    not matter, and neither do seed, paths, loggers and switches.

    Args:
        config: The resolved config, as plain containers.
        data: sha256 by logical file name.
        encoder: Digests of the encoder, such as ``{"weights": ..., "tokenizer": ...}``.
        resolved: What automatic choices became, by dotted key: ``{"trainer.accelerator": "cpu"}``.

    Raises:
        TypeError: if the config holds something that is neither a mapping, a sequence nor a plain value.
    """
    document = identity_document(config, data=data, encoder=encoder, resolved=resolved)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:10]


def identity_document(
    config: Mapping[str, Any], *, data: Mapping[str, str], encoder: Mapping[str, str], resolved: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what `identity` hashes, so that two runs can be compared key by key.

    Returns:
        ``config`` (without what does not decide the result, automatic choices replaced by what they became), ``data``
        and ``encoder``, all of plain JSON values.
    """
    kept: dict[str, Any] = _canonical({k: v for k, v in config.items() if k not in _TOP_SWITCHES}, "config")
    for dotted, value in resolved.items():
        _set_dotted(kept, dotted, _canonical(value, dotted))
    trainer = kept.get("trainer")
    if isinstance(trainer, dict):
        kept["trainer"] = {k: v for k, v in trainer.items() if k not in _TRAINER_SWITCHES}
    options = kept.get("encoder")
    if isinstance(options, dict) and encoder:
        kept["encoder"] = {k: v for k, v in options.items() if k not in _ENCODER_PLACES}
    return {
        "config": kept,
        "data": _canonical(data, "data"),
        "encoder": _canonical(encoder, "encoder"),
    }


def _canonical(value: Any, where: str) -> Any:
    """Reduce to plain JSON values with one spelling a number, leaving out places."""
    if isinstance(value, Mapping):
        return {str(k): _canonical(v, f"{where}.{k}") for k, v in value.items() if k not in _PLACES}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return {"float": repr(float(value))}  # JSON has no infinity, and a string "inf" is another value
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_canonical(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise TypeError(f"{where}: {value!r} of type {type(value).__name__} has no place in a config")


def _set_dotted(document: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    node = document
    for name in parents:
        child = node.setdefault(name, {})
        if not isinstance(child, dict):
            raise TypeError(f"resolved {dotted!r}: {name!r} is no mapping in the config but {child!r}")
        node = child
    node[last] = value


# --------------------------------------------------------------------------------------------------- writing to disk


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Turn a full disk into the project's error; other system errors pass as they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        quota = " (your quota is used up)" if error.errno == errno.EDQUOT else ""
        raise LightningCSEError(
            f"no space left to write {path}{quota}: {_free_space(path)} free there. What was there before is "
            "unharmed. Free some space and give the same command again, or set paths.runs_dir to another disk."
        ) from error


def _free_space(path: Path) -> str:
    for folder in (path, *path.parents):
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(folder).free
            return f"{free / 2**20:,.1f} MiB" if free < 2**30 else f"{free / 2**30:,.1f} GiB"
    return "an unknown amount is"


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a whole file or nothing: whoever reads ``path`` finds the old content or the new, never a part.

    The content goes to a temporary file in the same folder, to the disk, and then takes the name in one step; the
    folder is made if need be. Strings are written as UTF-8, line ends as they are.

    Raises:
        LightningCSEError: if the disk is full; ``path`` is as it was.
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    with _disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Bring a renamed file's name to the disk; where a system cannot do that for folders, its rename has to do."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def write_predictions(folder: Path, task: str, columns: Mapping[str, Sequence[Any]]) -> Path:
    """Write one row an example to ``<folder>/<task>.parquet``, whole or not at all.

    Args:
        folder: The folder of the predictions, `RunFolder.predictions`.
        task: The evaluation task, which names the file.
        columns: Equally long columns by name: lists or one-dimensional NumPy arrays of plain values.

    Returns:
        The file's path.

    Raises:
        ValueError: if the columns differ in length, or ``task`` is not a plain file name.
        LightningCSEError: if the disk is full.
    """
    # Heavy, and not needed to look at a record.
    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
    import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", task):
        raise ValueError(f"the task {task!r} names a file: use letters, digits, '_', '-' and '.'")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"predictions of {task}: the columns differ in length: {lengths}")
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    path = folder / f"{task}.parquet"
    write_atomic(path, sink.getvalue())
    return path


# -------------------------------------------------------------------------------------------------------- run folder


class RunFolder:
    """The folder of one point and seed: ``<root>/<name>/<identity>-s<seed>/``.

    Nothing is made on disk before `start`. The record is written last, so a folder with a record is a finished run.

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

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @property
    def record_path(self) -> Path:
        """The record, there only when the run is finished."""
        return self.path / "record.json"

    @property
    def failed_path(self) -> Path:
        """What went wrong, there only when the run failed."""
        return self.path / "failed.json"

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
    def state(self) -> RunState:
        """How far the run is: a record beats a failure, and a failure beats a last checkpoint."""
        if self.record_path.is_file():
            return "finished"
        if self.failed_path.is_file():
            return "failed"
        return "interrupted" if (self.checkpoints / "last.ckpt").is_file() else "new"

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
        """Remove what this folder holds, and nothing outside it: links are removed, never followed.

        Raises:
            LightningCSEError: if the folder itself is a link, since what it holds would be elsewhere.
        """
        if self.path.is_symlink():
            raise LightningCSEError(f"{self.path} is a link to {self.path.readlink()}: clear that folder yourself.")
        if not self.path.is_dir():
            return
        # The record goes first: a run cleared half-way must not look finished.
        self.record_path.unlink(missing_ok=True)
        for entry in self.path.iterdir():
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


# ------------------------------------------------------------------------------------------------------------ curves


class Curves:
    """Every logged value of a run: a CSV with the columns ``step, key, value``, one row a value.

    Values are written so that they are read back to the last bit. Rows reach the file as they are logged; the file is
    made by the first of them.

    Args:
        path: The CSV, see `RunFolder.curves`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Curves(Path(folder) / "curves.csv") as curves:
        ...     curves.append(100, {"train/loss": 0.5})
        ...     curves.read()
        {'train/loss': [(100, 0.5)]}
    """

    _HEADER: Final = "step,key,value"

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._descriptor: int | None = None

    def __enter__(self) -> Curves:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, step: int, values: Mapping[str, float]) -> None:
        """Write the values of one step, all of them or, on a full disk, none.

        Raises:
            ValueError: if a key is empty or has a line break.
            LightningCSEError: if the disk is full.
        """
        rows = [(int(step), key, repr(float(value))) for key, value in values.items()]
        if not rows:
            return
        text = self._format(rows)
        with _disk(self.path):
            descriptor = self._open()
            size = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, text.encode("utf-8"))
            except BaseException:
                os.ftruncate(descriptor, size)
                raise

    def cut(self, step: int) -> None:
        """Keep the rows up to and with ``step``: what a resumed run logs again must not be there twice.

        A last line that was only half written is dropped.

        Raises:
            LightningCSEError: if a line other than the last is damaged, or the disk is full.
        """
        if not self.path.is_file():
            return
        self.close()
        rows = [(at, key, repr(value)) for at, key, value in self._rows() if at <= step]
        write_atomic(self.path, f"{self._HEADER}\n{self._format(rows)}")

    def read(self) -> dict[str, list[tuple[int, float]]]:
        """Return the points ``(step, value)`` of each key, in the order in which they were logged.

        Raises:
            LightningCSEError: if a line other than the last is damaged.
        """
        curves: dict[str, list[tuple[int, float]]] = {}
        for step, key, value in self._rows():
            curves.setdefault(key, []).append((step, value))
        return curves

    def close(self) -> None:
        """Close the file; a later `append` opens it again."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0:
            self.close()  # somebody else cut the file, which puts a new one in its place
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
            descriptor = os.open(self.path, flags, 0o666)
            try:
                content = self.path.read_bytes()
                whole = content.rfind(b"\n") + 1  # a line cut short by a crash would spoil the next one
                if whole < len(content):
                    os.ftruncate(descriptor, whole)
                if whole == 0:
                    _write_all(descriptor, f"{self._HEADER}\n".encode())
            except BaseException:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
        return self._descriptor

    def _rows(self) -> list[tuple[int, str, float]]:
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        lines.pop()  # empty after the last line break, else a half-written line
        if lines and lines[0].decode("utf-8", "replace").rstrip("\r") != self._HEADER:
            raise LightningCSEError(f"{self.path}, line 1: expected the header {self._HEADER!r}, found {lines[0]!r}")
        rows = []
        for number, line in enumerate(lines[1:], start=2):
            try:
                (fields,) = csv.reader([line.decode("utf-8")], strict=True)
                step, key, value = fields
                rows.append((int(step), key, float(value)))
            except (ValueError, csv.Error):
                if number == len(lines):
                    break  # the last line of a machine that lost its power
                raise LightningCSEError(
                    f"{self.path}, line {number}: expected {self._HEADER!r}, found {line!r}"
                ) from None
        return rows

    @staticmethod
    def _format(rows: Sequence[tuple[int, str, str]]) -> str:
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        for row in rows:
            if not row[1] or "\n" in row[1] or "\r" in row[1]:
                raise ValueError(f"{row[1]!r} cannot be the key of a curve: it is empty or has a line break")
            writer.writerow(row)
        return sink.getvalue()


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


# ------------------------------------------------------------------------------------------------------- environment


def environment() -> dict[str, Any]:
    """Return what this process runs on; never raises, and says None where something cannot be found out.

    Returns:
        ``commit`` (of the repository that tracks this package, with ``-dirty`` where tracked files differ from it),
        ``versions`` by distribution, ``machine`` (platform, cpu, cores, memory in GiB) and ``threads``. Device and
        precision are the caller's to add.
    """
    return {"commit": _commit(), "versions": _versions(), "machine": _machine(), "threads": _threads()}


def _commit() -> str | None:
    package = Path(__file__).resolve().parent
    # In a git hook, GIT_DIR and its kin point elsewhere.
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    variables["GIT_OPTIONAL_LOCKS"] = "0"

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=20, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "--", Path(__file__).name)  # else some other repository that we lie in
        commit = git("rev-parse", "HEAD")
        return f"{commit}-dirty" if git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    if versions["lightning_cse"] is None:  # run from a checkout that is not installed
        package = sys.modules.get("lightning_cse")
        versions["lightning_cse"] = getattr(package, "__version__", None)
    return versions


def _machine() -> dict[str, Any]:
    try:
        cores: int | None = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        cores = os.cpu_count()
    try:
        memory: float | None = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        memory = None
    return {"platform": platform.platform(), "cpu": _cpu_model(), "cores": cores, "memory_gib": memory}


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    models = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine() or None


def _threads() -> int | None:
    torch = sys.modules.get("torch")  # asking must not be what loads it
    if torch is not None:
        return int(torch.get_num_threads())
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() else os.cpu_count()
