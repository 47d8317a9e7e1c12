"""Whole lines appended to a file, which a crash may cut short."""

from __future__ import annotations

import os
from pathlib import Path

from lightning_cse.runs import disk_errors


class Lines:
    """A file to which whole lines are appended; what a crash left of a half-written last one is dropped.

    The file is made by the first line, and opened again where somebody has put another one in its place.

    Args:
        path: The file.
        header: What its first line is to be, without its line break; none if empty.
    """

    def __init__(self, path: Path, header: str = "") -> None:
        self.path = Path(path)
        self._header = header
        self._descriptor: int | None = None

    def append(self, text: str) -> None:
        """Write lines, each with its line break: all of them or, on a full disk, none.

        Raises:
            LightningCSEError: if the disk is full.
        """
        with disk_errors(self.path):
            descriptor = self._open()
            size = os.fstat(descriptor).st_size
            try:
                write_all(descriptor, text.encode("utf-8"))
            except BaseException:
                os.ftruncate(descriptor, size)
                raise

    def sync(self) -> None:
        """Return when what was written is on the disk.

        Raises:
            LightningCSEError: if the disk is full.
        """
        if self._descriptor is not None:
            with disk_errors(self.path):
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; a later `append` opens it again."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0:
            self.close()
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
            descriptor = os.open(self.path, flags, 0o666)
            try:
                whole = _whole(descriptor)
                if whole < os.fstat(descriptor).st_size:
                    os.ftruncate(descriptor, whole)
                if whole == 0 and self._header:
                    write_all(descriptor, f"{self._header}\n".encode())
            except BaseException:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
        return self._descriptor


_BLOCK = 1 << 16


def _whole(descriptor: int) -> int:
    """Return how long the file is up to and with its last line break."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        os.lseek(descriptor, start, os.SEEK_SET)
        block = b""
        while len(block) < end - start and (more := os.read(descriptor, end - start - len(block))):
            block += more
        if (place := block.rfind(b"\n")) >= 0:
            return start + place + 1
        end = start
    return 0


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte, however many the system takes at once."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
