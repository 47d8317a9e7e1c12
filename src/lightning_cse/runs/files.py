"""Files that are written as a whole or not at all, the CSV of curves, and locks of processes."""

import contextlib
import csv
import errno
import io
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from lightning_cse.errors import BUSY, LightningCSEError


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise LightningCSEError if there is no space left to write ``path``; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise

        folder = next((folder for folder in path.parents if folder.is_dir()), Path("/"))
        free = shutil.disk_usage(folder).free / 2**20
        raise LightningCSEError(
            f"no space left to write {path} ({free:,.0f} MiB free): free some space and give the "
            "same command again, or set paths.runs_dir or paths.cache_dir to another disk"
        ) from error


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` at the end of the block, but not on an error."""
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
        file.write(data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, a whole file or nothing; NaN and infinity are a ValueError."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text + "\n")


def write_predictions(folder: Path, task: str, columns: Mapping[str, Sequence[Any]]) -> Path:
    """Write columns, one row per example, to ``<folder>/<task>.parquet`` and return its path."""
    # Slow to import, and not needed to read a record.
    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
    import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

    path = folder / f"{task}.parquet"
    with atomic_file(path) as file:
        pq.write_table(pa.table(dict(columns)), file)

    return path


class Busy(LightningCSEError):  # noqa: N818 - a status, not a fault
    """Another process is working on the same thing."""

    exit_code = BUSY


@contextlib.contextmanager
def locked(path: Path, subject: str) -> Iterator[None]:
    """Hold a lock file until the block or the process ends; raise `Busy` if it is held."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, fallback_to_soft=False, thread_local=False)
    try:
        lock.acquire(
            timeout=0.5, poll_interval=0.02
        )  # since `is_locked` holds a free lock for a moment
    except Timeout:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            subject += f" (pid {path.read_text(encoding='ascii').strip()})"

        raise Busy(f"{subject} is in use by another process: wait for it, or stop it") from None

    try:
        path.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        path.unlink(
            missing_ok=True
        )  # removed while held: a waiting process notices and makes a new one
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether a process, this one included, holds a lock file."""
    if not path.is_file():
        return False

    try:
        with FileLock(path, fallback_to_soft=False, thread_local=False, blocking=False):
            return False
    except Timeout:
        return True
    except OSError:  # read-only, or owned by another user
        return False


@dataclass(frozen=True)
class Curves:
    """Every logged value of a run: a CSV with the columns ``step, key, value``, read back exactly.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     curves = Curves(Path(folder) / "curves.csv")
        ...     curves.append(100, {"train/loss": 0.5})
        ...     curves.read()
        {'train/loss': [(100, 0.5)]}
    """

    path: Path
    _HEADER = ("step", "key", "value")

    def append(self, step: int, values: Mapping[str, float]) -> None:
        """Write the values of one step."""
        rows = [(int(step), key, float(value)) for key, value in values.items()]
        with disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if file.tell() == 0:
                    writer.writerow(self._HEADER)

                writer.writerows(rows)

    def keep(self, wanted: Callable[[int, str], bool]) -> None:
        """Keep the rows whose step and key are wanted; drop a last line written only in part."""
        if not self.path.is_file():
            return

        rows = [row for row in self._rows() if wanted(row[0], row[1])]
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerow(self._HEADER)
        writer.writerows(rows)
        write_atomic(self.path, sink.getvalue())

    def read(self) -> dict[str, list[tuple[int, float]]]:
        """Return the points ``(step, value)`` of each key, in the order of logging."""
        curves: dict[str, list[tuple[int, float]]] = {}
        for step, key, value in self._rows():
            curves.setdefault(key, []).append((step, value))

        return curves

    def _rows(self) -> list[tuple[int, str, float]]:
        if not self.path.is_file():
            return []

        text = self.path.read_text(encoding="utf-8", errors="replace")
        lines = text.split("\n")[1:-1]  # the last line is empty, or was written only in part
        rows = []
        for line in lines:
            try:
                step, key, value = next(csv.reader([line], strict=True))
                rows.append((int(step), key, float(value)))
            except (ValueError, csv.Error, StopIteration):
                break  # after a power failure

        return rows
