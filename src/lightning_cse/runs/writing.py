"""Files that are there as a whole or not at all, and a full disk told as one error."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from lightning_cse.errors import LightningCSEError


@contextlib.contextmanager
def told_disk(path: Path) -> Iterator[None]:
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


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write to that takes the name ``path`` at the end of the block, or nothing if that fails.

    Whoever reads ``path`` finds the old content or the new, never a part: what is written goes to a temporary file in
    the same folder, to the disk, and then takes the name in one step; the folder is made if need be.

    Raises:
        LightningCSEError: if the disk is full; ``path`` is as it was.
    """
    with told_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(path.parent)


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a whole file or nothing, as `atomic_file` does; strings are written as UTF-8, line ends as they are.

    Raises:
        LightningCSEError: if the disk is full; ``path`` is as it was.
    """
    with atomic_file(path) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


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
        folder: The folder of the predictions, `Run.predictions`.
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


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte, however many the system takes at once."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
