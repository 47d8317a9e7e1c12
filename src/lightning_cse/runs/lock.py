"""A lock that says who holds it and when they were last seen, for processes on one machine or on several.

A lock is one small file, made exclusively, which is right on local disks and on NFS alike. Its text names the holder,
and while the holder lives its time of change goes on: every `HEARTBEAT` seconds a thread touches it. A holder that died
on this machine is told by its process, on another one by the silence of more than `SILENCE`. filelock's SoftFileLease
would have a contender watch a lock for the whole silence before it may take it, and does not say since when it is held.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from lightning_cse.errors import BUSY, LightningCSEError
from lightning_cse.runs.writing import told_disk, write_all, write_atomic

HEARTBEAT: Final = 15.0
"""Seconds between two signs of life of a holder."""

SILENCE: Final = 300.0
"""Seconds without a sign of life after which a holder on another machine counts as dead."""

ATTEMPTS: Final = 250
"""How often a lock is tried that is neither held nor free, which lasts no longer than a process takes to write it."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owner:
    """Who holds a lock; as a string, what a message says of them.

    ``host`` and ``pid`` name the process (an empty host and pid 0 where the lock's text cannot be read), ``started`` is
    when it took the lock, ``seen`` its last sign of life; both in UTC.
    """

    host: str
    pid: int
    started: datetime
    seen: datetime

    def __str__(self) -> str:
        now = datetime.now(UTC)
        at = "%H:%M" if (now - self.started).total_seconds() < 86_400 else "%Y-%m-%d %H:%M"
        who = f"pid {self.pid} on {self.host}" if self.host else "somebody whose lock cannot be read"
        silent = max(0, round((now - self.seen).total_seconds()))
        return f"{who}, since {self.started.astimezone().strftime(at)} (last sign of life {silent} s ago)"


class Busy(LightningCSEError):  # noqa: N818 - said of a run, as in `failed` and `finished`; it is no fault
    """Somebody else is at it; ``owner`` says who, and ``lock`` is the file that does."""

    exit_code = BUSY

    def __init__(self, subject: str, owner: Owner, lock: Path | None = None) -> None:
        self.subject = subject
        self.owner = owner
        self.lock = lock
        advice = "wait for it, or stop it"
        if not owner.host and lock is not None:  # nobody to be asked: only the file itself can be looked at
            advice = (
                f"{lock} holds no claim of ours. It counts as left behind {SILENCE:.0f} s after its last change; "
                "remove it before, if nobody is at it"
            )
        super().__init__(f"{subject} is being run by {owner}: {advice}")

    def __reduce__(self) -> tuple[type[Busy], tuple[str, Owner, Path | None]]:
        return (type(self), (self.subject, self.owner, self.lock))


@dataclass(frozen=True)
class _Claim:
    """The text of a lock."""

    host: str
    system: str
    pid: int
    process: str
    since: float
    token: str


class Lock:
    """One holder at a time, as a context manager: ``with Lock(path, "the run"): ...``.

    A lock is no waiting room: who finds it held is told so at once. It is taken by a process: a fork of the holder
    holds nothing and releases nothing, and the holder itself cannot take it twice.

    Args:
        path: The lock's file; its folder is made if need be.
        subject: What is locked, for the message.

    Raises:
        Busy: on entering, if a live process holds it.
        LightningCSEError: on entering, if the disk is full.
    """

    def __init__(self, path: Path, subject: str) -> None:
        self.path = Path(path)
        self.subject = subject
        self._claim: _Claim | None = None
        self._successor: Owner | None = None
        self._stop = threading.Event()

    def __enter__(self) -> Lock:
        host, system = _here()
        pid = os.getpid()
        claim = _Claim(host, system, pid, _process_start(pid), time.time(), secrets.token_hex(8))
        self._acquire(claim)
        self._claim, self._successor, self._stop = claim, None, threading.Event()
        beat = threading.Thread(target=self._beat, args=(claim, self._stop), name=f"lock {self.path}", daemon=True)
        beat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        claim, self._claim = self._claim, None
        if claim is None or claim.pid != os.getpid():
            return
        self._stop.set()
        # A lock that somebody took over, thinking us dead, is theirs.
        if _read(self.path)[0] == claim:
            with contextlib.suppress(OSError):
                self.path.unlink()

    @property
    def held(self) -> bool:
        """Whether this process holds the lock through this object."""
        return self._claim is not None and self._claim.pid == os.getpid()

    def check(self) -> None:
        """Make sure that the lock is still held, before what must be done by one process only.

        Raises:
            Busy: if another machine took it over, after a silence of more than `SILENCE` seconds.
        """
        self.check_known()
        if self.held and (found := _read(self.path))[0] != self._claim and (owner := _living(*found)) is not None:
            raise Busy(self.subject, owner, self.path)

    def check_known(self) -> None:
        """As `check`, by what the last sign of life found: free, so that it can stand in a loop.

        Raises:
            Busy: if another machine took it over.
        """
        if self.held and self._successor is not None:
            raise Busy(self.subject, self._successor, self.path)

    def owner(self) -> Owner | None:
        """Return who holds the lock, or None where nobody does or the holder is dead."""
        return _living(*_read(self.path))

    def _acquire(self, claim: _Claim) -> None:
        for _ in range(ATTEMPTS):
            if self._create(claim):
                return
            found, seen = _read(self.path)
            if (owner := _living(found, seen, self._now)) is not None:
                raise Busy(self.subject, owner, self.path)
            if seen is not None and self._take_over(found, claim):
                return
            time.sleep(0.02)  # released in between, or somebody is taking it over
        raise LightningCSEError(f"{self.path} is neither held nor free: remove it, if {self.subject} is not being run")

    def _create(self, claim: _Claim) -> bool:
        with told_disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
            try:
                descriptor = os.open(self.path, flags, 0o666)
            except (FileExistsError, FileNotFoundError):  # held, or the folder was removed in between
                return False
            try:
                write_all(descriptor, _text(claim))
                os.fsync(descriptor)
            except BaseException:
                self.path.unlink(missing_ok=True)
                raise
            finally:
                os.close(descriptor)
            return True

    def _take_over(self, dead: _Claim | None, claim: _Claim) -> bool:
        """Put our claim in the place of a dead one; of all who try it at once, one succeeds.

        The right to replace a claim is itself a lock, named after that claim: who has it and still finds the claim in
        its place is alone. Who comes late finds another claim there and leaves it.
        """
        name = dead.token if dead is not None else "unreadable"
        right = Lock(self.path.with_name(f".{self.path.name}.{name}"), self.subject)
        try:
            right._acquire(claim)
        except Busy:
            return False
        try:
            found, seen = _read(self.path)
            if found != dead or seen is None or _living(found, seen, self._now) is not None:
                return False
            write_atomic(self.path, _text(claim))
        except FileNotFoundError:
            return False
        finally:
            right.path.unlink(missing_ok=True)
        if dead is not None:
            _LOG.info("%s: pid %d on %s is dead; its lock is taken over", self.subject, dead.pid, dead.host)
        return True

    def _now(self) -> float:
        """Return the time by the clock that dates the lock's file, which on NFS is the server's."""
        probe = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.tmp")
        try:
            probe.touch()
            return probe.stat().st_mtime
        except OSError:
            return time.time()
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()

    def _beat(self, claim: _Claim, stop: threading.Event) -> None:
        while not stop.wait(HEARTBEAT):
            found, seen = _read(self.path)
            if found is not None and seen is not None and found != claim:
                if self._claim is claim:
                    self._successor = _owner(found, seen)
                _LOG.warning("%s was taken over by pid %d on %s", self.subject, found.pid, found.host)
                return
            with contextlib.suppress(OSError):
                os.utime(self.path)


def _text(claim: _Claim) -> bytes:
    return (json.dumps(asdict(claim), indent=2) + "\n").encode()


def _read(path: Path) -> tuple[_Claim | None, float | None]:
    """Return a lock's claim and last sign of life: no claim where it cannot be read, no time where there is no lock."""
    seen = None
    for _ in range(10):
        try:
            with path.open("rb") as file:
                text = file.read()
                seen = os.fstat(file.fileno()).st_mtime
            return _Claim(**_plain(json.loads(text))), seen
        except FileNotFoundError:
            return None, None
        except OSError:
            with contextlib.suppress(OSError):
                seen = path.stat().st_mtime
        except (ValueError, TypeError):
            pass  # made, and not written yet
        time.sleep(0.01)
    return None, seen


def _plain(claim: Any) -> dict[str, Any]:
    kinds = {"host": str, "system": str, "pid": int, "process": str, "since": float, "token": str}
    if not isinstance(claim, dict) or any(not isinstance(claim.get(key), kind) for key, kind in kinds.items()):
        raise TypeError("no claim")
    return {key: claim[key] for key in kinds}


def _living(claim: _Claim | None, seen: float | None, clock: Callable[[], float] = time.time) -> Owner | None:
    if seen is None:
        return None
    if claim is not None and claim.system and (claim.host, claim.system) == _here():
        alive = _process_start(claim.pid) == claim.process
    else:
        alive = clock() - seen <= SILENCE
    if not alive:
        return None
    if claim is None:
        at = datetime.fromtimestamp(seen, UTC)
        return Owner("", 0, at, at)
    return _owner(claim, seen)


def _owner(claim: _Claim, seen: float) -> Owner:
    return Owner(claim.host, claim.pid, datetime.fromtimestamp(claim.since, UTC), datetime.fromtimestamp(seen, UTC))


@functools.cache
def _here() -> tuple[str, str]:
    """Return the machine's name, and what tells one boot and one container of it from another."""
    system = []
    if os.name == "posix":
        for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
            with contextlib.suppress(OSError):
                file = Path(path)
                system.append(str(file.readlink()) if file.is_symlink() else file.read_text(encoding="ascii").strip())
        system = system or [os.uname().version]
    return socket.gethostname(), " ".join(system)


def _process_start(pid: int) -> str:
    """Return when a process began, in the system's own words, so that a pid given anew is not taken for the old one.

    An empty string where there is no such process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        fields = stat[stat.rfind(b")") + 1 :].split()  # the name before it may hold anything
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")
    except (OSError, IndexError):
        if Path("/proc/self/stat").is_file() or os.name != "posix":
            return ""
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()
