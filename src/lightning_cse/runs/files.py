"""Files that are written as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from lightning_cse.errors import LightningCSEError


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise LightningCSEError if there is no space left to write ``path``; other system errors pass as they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        folder = next((folder for folder in path.parents if folder.is_dir()), Path("/"))
        free = shutil.disk_usage(folder).free / 2**20
        raise LightningCSEError(
            f"no space left to write {path} ({free:,.0f} MiB free): free some space and give the same command again, "
            "or set paths.runs_dir to another disk"
        ) from error


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` at the end of the block; on an error ``path`` stays as it was."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a whole file or nothing, as `atomic_file` does; strings are written as UTF-8."""
    with atomic_file(path) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


def write_predictions(folder: Path, task: str, columns: Mapping[str, Sequence[Any]]) -> Path:
    """Write equally long columns, one row an example, to ``<folder>/<task>.parquet`` and return its path.

    Raises:
        ValueError: if ``task`` is not a plain file name, or the columns differ in length (of pyarrow).
    """
    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]  # slow to import, and not needed to read a record
    import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", task):
        raise ValueError(f"the task {task!r} names a file: use letters, digits, '_', '-' and '.'")
    path = folder / f"{task}.parquet"
    with atomic_file(path) as file:
        pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), file)
    return path
