"""Bytes and lines of files, plain or compressed (``.gz``)."""

import codecs
import contextlib
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from lightning_cse.errors import DataError

_BYTE_ORDER_MARKS = {  # that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

_ADVICE = "save the file as UTF-8, for example by iconv -f latin1 -t utf-8"


@contextlib.contextmanager
def readable(path: Path) -> Iterator[io.BufferedReader]:
    """Open the bytes of a file, uncompressed, or raise DataError if they cannot be read."""
    try:
        packed = path.suffix.lower() == ".gz"
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            yield cast("io.BufferedReader", file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}: the compressed data is cut off or broken ({error}); fetch it again"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file; raises like `readable`."""
    with readable(path) as file:
        return file.read()


def sha256_of(path: Path) -> str:
    """Return the sha256 of the uncompressed bytes of a file; raises like `readable`."""
    with readable(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def state_of(path: Path) -> tuple[str, int, int, int, int]:
    """Return values that change when a file is replaced or written to; raises OSError."""
    state = path.stat()
    return str(path), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def lines_of(path: Path, encoding: str | None = None) -> Iterator[str]:
    """Yield the lines of a text file, which end at LF; a CR stays.

    Args:
        path: the file.
        encoding: its encoding; None: that of its byte-order mark, or UTF-8.

    Raises:
        DataError: if the file is empty, not text, or has only CR at the ends of lines.
    """
    with readable(path) as file:
        mark = file.read(4)
        file.seek(0)
        if not mark:
            raise DataError(f"{path}: the file is empty (0 bytes)")

        marked = (name for start, name in _BYTE_ORDER_MARKS.items() if mark.startswith(start))
        encoding = encoding or next(marked, "utf-8")
        number = 0

        try:
            for number, line in enumerate(io.TextIOWrapper(file, encoding, newline="\n"), start=1):
                if "\0" in line:
                    raise DataError(f"{path}:{number}: not text: a NUL character; {_ADVICE}")

                if number == 1 and "\r" in line and not line.endswith("\n"):
                    raise DataError(
                        f"{path}:1: lines end in CR alone, as on old Macs; to convert the file: "
                        rf"tr '\r' '\n' < {path.name} > converted{path.suffix}"
                    )

                yield line.removeprefix("\ufeff") if number == 1 else line
        except UnicodeError as error:
            reason = str(error)
            if isinstance(error, UnicodeDecodeError):  # of the bytes behind the last line
                before = error.object[: error.start].decode(encoding, "ignore")
                number += before.count("\n")
                reason = f"byte 0x{error.object[error.start]:02x}"

            name = encoding.upper()
            raise DataError(f"{path}:{number + 1}: not {name} text: {reason}; {_ADVICE}") from None
