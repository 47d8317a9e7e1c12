"""The bytes and text of data files, plain or gzipped; errors name the file and line."""

import gzip
import logging
import zlib
from pathlib import Path

from lightning_cse.errors import DataError

log = logging.getLogger(__name__)


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, uncompressed if its name ends in ``.gz``, or raise DataError."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}: the compressed data is cut off or broken ({error}); fetch it again"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def decoded(data: bytes, path: str, encoding: str | None = None) -> str:
    """Decode a file as UTF-8, or else in ``encoding``; raise DataError if it is not text."""
    if not data:
        raise DataError(f"{path}: the file is empty (0 bytes)")

    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        fault = f"{path}:{line}: not UTF-8 text: byte 0x{data[error.start]:02x}"

    if encoding is None:
        raise DataError(f"{fault}; save the file as UTF-8")

    log.warning("%s; the file is read as %s", fault, encoding)
    return data.decode(encoding)
