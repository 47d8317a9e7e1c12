"""Files that are written as a whole or not at all, and checked when they are read back."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lightning_cse.errors import DataError, LightningCSEError

if TYPE_CHECKING:
    import pandas as pd

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset(
    {
        errno.EACCES,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.EPERM,
        errno.EROFS,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)


class DiskError(LightningCSEError):
    """The system cannot read or write a file, which says nothing about the content of the file."""


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise `DiskError`, which names ``path``, if there is no space left for it, or if the disk or
    the permissions prevent access to it; other errors pass.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            folder = next((folder for folder in path.parents if folder.is_dir()), Path("/"))
            free = shutil.disk_usage(folder).free / 2**20
            raise DiskError(
                f"no space left to write {path} ({free:,.0f} MiB free): free some space and give "
                "the same command again, or set paths.runs_dir or paths.cache_dir to another disk"
            ) from error

        if error.errno in _REFUSED:
            raise DiskError(
                f"{path} cannot be read or written ({error.strerror}): leave it as it is, check "
                "the disk and the permissions, and give the same command again"
            ) from error

        raise


def of_system(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised from, is a refusal of the system, such as a full
    disk, after which the same command may succeed.
    """
    while error is not None:
        is_refusal = isinstance(error, OSError) and error.errno in _FULL | _REFUSED
        if is_refusal or isinstance(error, DiskError):
            return True

        error = error.__cause__ or error.__context__

    return False


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` at the end of the block, but not on an error."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_file(path.parent, f".{path.name}.", ".tmp") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)


@contextlib.contextmanager
def temporary_file(folder: Path, start: str, end: str) -> Iterator[BinaryIO]:
    """Open a new file with a random name between ``start`` and ``end``; it is removed at the end of
    the block.

    It is locked, so that `remove_leftovers` can tell whether its process is gone.
    """
    while True:
        path = folder / f"{start}{secrets.token_hex(4)}{end}"
        file = path.open("xb")
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH)

        if os.fstat(file.fileno()).st_nlink:
            break

        file.close()  # removed before it was locked

    try:
        with file:
            yield file
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def remove_leftovers(folder: Path, pattern: str = ".*.tmp") -> None:
    """Remove what killed processes left of `temporary_file` and `atomic_file` below a folder."""
    for path in list(folder.rglob(pattern)):
        with contextlib.suppress(OSError), path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def read_object(path: Path, schema: Any = dict, *, advice: str) -> dict[str, Any]:
    """Return the object in a JSON file that a run wrote, if it has what ``schema`` (a class that
    pydantic can check) asks for.

    Raises DataError, which names the file and ends with ``advice``, if the file is damaged,
    `DiskError` if it cannot be read, and FileNotFoundError if there is none.
    """
    with disk_errors(path):
        content = path.read_bytes()

    return parse_object(content, str(path), schema, advice=advice)


def parse_object(content: bytes, source: str, schema: Any = dict, *, advice: str) -> dict[str, Any]:
    """Return the object in a JSON text as `read_object` does; DataError names ``source``."""
    from pydantic import TypeAdapter, ValidationError

    try:
        value: dict[str, Any] = json.loads(content.decode("utf-8"))
        TypeAdapter(schema).validate_python(value)
    except ValidationError as error:
        fault = error.errors()[0]
        reason = ": ".join(filter(None, (".".join(map(str, fault["loc"])), fault["msg"])))
    except (ValueError, RecursionError) as error:
        reason = str(error)
    else:
        return value

    raise DataError(f"{source} is damaged ({reason}): {advice}")


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a whole file or nothing, as `atomic_file` does; strings are written as UTF-8."""
    with atomic_file(path) as file:
        file.write(data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, a whole file or nothing; NaN and infinity are a ValueError."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text + "\n")


def write_predictions(folder: Path, task: str, columns: Mapping[str, Sequence[Any]]) -> Path:
    """Write columns, one row per example, to ``<folder>/<task>.parquet`` and return its path.

    The file has a digest of its columns, which `read_predictions` checks.
    """
    # Slow to import, and not needed to read a record.
    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
    import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

    path = folder / f"{task}.parquet"
    table = pa.table(dict(columns))
    table = table.replace_schema_metadata({"sha256": _digest(table)})
    with atomic_file(path) as file:
        pq.write_table(table, file)

    return path


def read_predictions(path: Path) -> "pd.DataFrame":
    """Return the predictions of a task.

    Raises DataError, which names the file, if it is damaged, and `DiskError` if it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with disk_errors(path):
        content = path.read_bytes()

    try:
        table = pq.read_table(pa.BufferReader(content))
        frame: pd.DataFrame = table.to_pandas()
        if (table.schema.metadata or {}).get(b"sha256", _digest(table)) != _digest(table):
            raise ValueError("its digest is wrong")
    except Exception as error:  # pyarrow raises many classes for damaged files
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{path} is damaged ({reason}): restore it, or give the command of its run again with "
            "force=true"
        ) from error

    return frame


def _digest(table: Any) -> bytes:
    """Return the sha256 of the columns of an Arrow table, which does not depend on the file."""
    columns = json.dumps(table.to_pydict(), default=repr)
    return hashlib.sha256(columns.encode()).hexdigest().encode()


CHECKPOINT_ADVICE = "restore it from a copy, or train the run again with force=true"


def check_checkpoint(path: Path) -> None:
    """Check every byte of a checkpoint against the checksums in it.

    Raises DataError, which names the file, if it is missing or damaged, and `DiskError` if it
    cannot be read.
    """
    with _checked(path), zipfile.ZipFile(path) as archive:
        if (member := archive.testzip()) is not None:
            raise ValueError(f"wrong checksum of {member}")


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint, tensors and plain values, in main memory.

    Raises as `check_checkpoint`.
    """
    import torch

    check_checkpoint(path)
    # What zipfile accepts, torch may refuse.
    with _checked(path):
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)

    return content


@contextlib.contextmanager
def _checked(path: Path) -> Iterator[None]:
    """Replace the errors of a checkpoint that is read."""
    with disk_errors(path):
        try:
            yield
        except FileNotFoundError:
            raise DataError(f"{path} is missing: {CHECKPOINT_ADVICE}") from None
        except Exception as error:  # zipfile and torch raise many classes for damaged files
            # A checkpoint that does not fit into the memory is not damaged.
            if of_system(error) or isinstance(error, MemoryError) or "allocate" in str(error):
                raise

            fault = str(error).partition("\n")[0][:160] or type(error).__name__
            raise DataError(f"{path} is damaged ({fault}): {CHECKPOINT_ADVICE}") from error
