"""Every reply of a language model on disk, so that nothing is paid twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final

from lightning_cse.llm.errors import LLMError
from lightning_cse.llm.requests import Reply, Request

VERSION: Final = 1
"""Of the tables' layout."""

PATIENCE: Final = 60.0
"""Seconds to wait for another process that is writing."""

_OURS: Final = 0x4C435345  # "LCSE", the file's application id
_NOT_FREE: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TABLES: Final = (
    # What stands before the last message is as a rule long, and the same for thousands of requests.
    "CREATE TABLE IF NOT EXISTS standing (digest TEXT PRIMARY KEY, messages TEXT NOT NULL)",
    """
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY,
    model TEXT NOT NULL, standing TEXT NOT NULL REFERENCES standing (digest), last TEXT NOT NULL,
    parameters TEXT NOT NULL, sample INTEGER NOT NULL,
    text TEXT NOT NULL, finish_reason TEXT NOT NULL, refusal TEXT, prompt_tokens INTEGER, completion_tokens INTEGER,
    served TEXT, endpoint TEXT, created TEXT NOT NULL
)
""",
)
_SELECT: Final = """
SELECT text, finish_reason, refusal, prompt_tokens, completion_tokens, served, endpoint FROM replies WHERE key = ?
"""
_INSERT: Final = "INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True)
class Entry:
    """A reply, and what it is kept with: the request's key, the model, the request."""

    key: str
    model: str
    request: Request
    reply: Reply


class ReplyCache:
    """Replies by `Request.key` in one SQLite file, for several threads and several processes of one machine.

    The file says of each what was asked, which model answered, and where. A reply is on the disk when `put` or
    `put_all` returns: neither a killed process nor a machine without power takes it away (write-ahead log,
    synchronous=FULL). That log needs memory shared by all who use the file: on a network file system one machine at a
    time may. A context manager, which closes the file.

    Args:
        path: the file; made with its folder if need be, when it is first needed.

    Raises:
        LLMError: where it is used first, if the file is no cache of ours, is damaged or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def get(self, key: str) -> Reply | None:
        """Return the reply that is kept under a key, as `Reply.cached`.

        Raises:
            LLMError: if the file is damaged.
        """
        with self._told() as connection:
            row = connection.execute(_SELECT, (key,)).fetchone()
        if row is None:
            return None
        text, finish_reason, refusal, sent, received, served, endpoint = row
        return Reply(text, finish_reason, refusal, sent, received, cached=True, served=served, endpoint=endpoint)

    def put(self, key: str, model: str, request: Request, reply: Reply) -> Reply:
        """Keep one reply, as `put_all` does."""
        return self.put_all([Entry(key, model, request, reply)])[0]

    def put_all(self, entries: Sequence[Entry]) -> list[Reply]:
        """Keep replies with one write to the disk, all or none; where one was kept before, that one stays.

        Returns:
            The replies that are kept, so that every process goes on with the same ones; the tokens are those of the
            given replies, which were paid.

        Raises:
            LLMError: if the disk is full, or the file is damaged.
        """
        standing = [_standing(entry.request) for entry in entries]
        rows = [_row(entry, digest) for entry, (digest, _) in zip(entries, standing, strict=True)]
        kept = []
        with self._told() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany("INSERT OR IGNORE INTO standing VALUES (?, ?)", dict(standing).items())
                connection.executemany(_INSERT, rows)
                for entry in entries:
                    text, why, refusal, _, _, served, endpoint = connection.execute(_SELECT, (entry.key,)).fetchone()
                    said = replace(entry.reply, text=text, finish_reason=why, refusal=refusal)
                    kept.append(replace(said, served=served, endpoint=endpoint))
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk has ended it already
                    connection.execute("ROLLBACK")
                raise
        return kept

    def __len__(self) -> int:
        with self._told() as connection:
            return int(connection.execute("SELECT count(*) FROM replies").fetchone()[0])

    def __enter__(self) -> ReplyCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; whoever uses the cache again opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _told(self) -> Iterator[sqlite3.Connection]:
        """Give the open file to one thread, and turn what SQLite and the system say into one error."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = _open(self.path)
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                raise LLMError(f"the cache of replies {self.path} {_advice(error)}") from error


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        _check(connection, path)
        _log_ahead(connection)
        connection.execute("PRAGMA synchronous=FULL")
        # Two processes may both find a new file: the second waits here, and finds what the first made.
        connection.execute("BEGIN IMMEDIATE")
        if _check(connection, path):
            for table in _TABLES:
                connection.execute(table)
            connection.execute(f"PRAGMA application_id={_OURS}")
            connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _standing(request: Request) -> tuple[str, str]:
    """Return the messages before the last one, after their digest."""
    messages = json.dumps(request.messages[:-1], ensure_ascii=False)
    return hashlib.sha256(messages.encode()).hexdigest(), messages


def _row(entry: Entry, standing: str) -> tuple[str | int | None, ...]:
    last = json.dumps(entry.request.messages[-1], ensure_ascii=False)
    parameters = json.dumps(dict(entry.request.parameters), sort_keys=True, ensure_ascii=False)
    asked = (entry.key, entry.model, standing, last, parameters, entry.request.sample)
    reply = entry.reply
    said = (reply.text, reply.finish_reason, reply.refusal, reply.prompt_tokens, reply.completion_tokens)
    return (*asked, *said, reply.served, reply.endpoint, datetime.now(UTC).isoformat(timespec="seconds"))


def _check(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file is new; refuse one that is not ours before anything is changed in it."""
    mark, version, tables = (
        connection.execute(query).fetchone()[0]
        for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if not tables:
        return True
    if mark != _OURS:
        raise LLMError(f"{path} is an SQLite file of another program: give the cache of replies another name")
    if version != VERSION:
        raise LLMError(
            f"the cache of replies {path} has layout {version}, and this lightning_cse reads {VERSION}: "
            "use the version that wrote it, or give the cache another name"
        )
    return False


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switch a new file to its write-ahead log, for which SQLite itself does not wait while others do the same."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _NOT_FREE or time.monotonic() > until:
                raise
        time.sleep(0.02)


def _advice(error: Exception) -> str:
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in _DAMAGED:
        return f"is damaged ({error}): move it away, or bring back a copy; without it, every reply is asked for again"
    if primary == sqlite3.SQLITE_FULL:
        return "has no space left on its disk: free some and give the same command again, which continues"
    if primary in _NOT_FREE:
        return f"has been held by another process for {PATIENCE:.0f} s: see what that one is doing, and try again"
    return f"cannot be used ({error}): is its folder there, and may you write in it?"
