"""Locks of files, which end with the process that holds them."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from lightning_cse.errors import BUSY, LightningCSEError


class Busy(LightningCSEError):  # noqa: N818 - a status, not a fault
    """Another process is working on the same thing."""

    exit_code = BUSY


@contextlib.contextmanager
def locked(path: Path, subject: str) -> Iterator[None]:
    """Hold a lock file until the block or the process ends; raise `Busy` if it is held."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, fallback_to_soft=False, thread_local=False)
    try:
        # `is_locked` holds a free lock for a moment.
        lock.acquire(timeout=0.5, poll_interval=0.02)
    except Timeout:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            subject += f" (pid {path.read_text(encoding='ascii').strip()})"

        raise Busy(f"{subject} is in use by another process: wait for it, or stop it") from None

    try:
        path.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        path.unlink(missing_ok=True)  # while held: a waiting process notices, and makes a new one
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
