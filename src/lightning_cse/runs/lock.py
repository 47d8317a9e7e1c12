"""Locks that allow one process at a time and end with their process."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from lightning_cse.errors import BUSY, LightningCSEError

_GRACE: Final = 0.5  # seconds, since `is_locked` holds a free lock for a moment
_NO_LOCKS: Final = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


class Busy(LightningCSEError):  # noqa: N818 - a status, not a fault
    """Another process is at work on the same thing."""

    exit_code = BUSY


@contextlib.contextmanager
def locked(path: Path, subject: str) -> Iterator[None]:
    """Hold a lock file until the end of the block; the lock ends with its process, however that ends.

    Args:
        path: The lock file, which is there only while it is held or after a kill.
        subject: What is locked, for the message.

    Raises:
        Busy: if another process holds it.
        LightningCSEError: if the file system has no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, fallback_to_soft=False, thread_local=False)
    try:
        lock.acquire(timeout=_GRACE, poll_interval=0.02)
    except Timeout:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            subject += f" (pid {path.read_text(encoding='ascii').strip()})"
        raise Busy(f"{subject} is in use by another process: wait for it, or stop it") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise LightningCSEError(f"{path.parent}: this file system has no locks; use a folder on another one") from error
    try:
        path.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: a process that waits for it notices, and makes a new one
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
    except OSError:  # read-only, or of another user
        return False
