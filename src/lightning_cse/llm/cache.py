"""A cache on disk of every reply of a language model, so that nothing is paid for twice."""

import hashlib
import json
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from lightning_cse.llm.requests import LLMError, Reply, Request

# `standing` has the messages before the last one, which are long and equal for thousands of
# requests. The tables keep their names, so that the caches of earlier versions stay valid.
_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS standing (digest TEXT PRIMARY KEY, messages TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY,
    model TEXT,
    standing TEXT,
    last TEXT,
    parameters TEXT,
    sample INTEGER,
    text TEXT NOT NULL,
    finish_reason TEXT NOT NULL,
    refusal TEXT,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    served TEXT,
    endpoint TEXT,
    created TEXT
);
CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, claimer TEXT NOT NULL);
"""
_SELECT = """
SELECT text, finish_reason, served, prompt_tokens, completion_tokens, TRUE
FROM replies WHERE key = ?
"""
_INSERT = "INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, NULL, ?)"


@dataclass
class ReplyCache:
    """Replies by `Request.key` in one SQLite file, which processes may share.

    Before a request is sent, its key is claimed, so that no other process sends it. A claim is
    valid while its process holds a lock file beside the cache, which ends with the process.
    """

    path: Path
    _connection: sqlite3.Connection | None = None
    _claimer: str = field(default_factory=lambda: secrets.token_hex(8))
    _claimer_lock: BaseFileLock | None = None
    _threads: threading.RLock = field(default_factory=threading.RLock)

    def get(self, key: str) -> Reply | None:
        """Return the reply that is kept under a key, or None."""
        with self._open() as connection:
            row = connection.execute(_SELECT, (key,)).fetchone()

        return Reply(*row) if row else None

    def claim(self, key: str) -> bool:
        """Claim a key without a reply; return whether no other living process has claimed it."""
        with self._open() as connection, connection:
            if self._claimer_lock is None:
                lock_file = self._lock_file(self._claimer)
                lock = FileLock(lock_file, fallback_to_soft=False, thread_local=False)
                lock.acquire()
                self._claimer_lock = lock

            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("SELECT 1 FROM replies WHERE key = ?", (key,)).fetchone():
                return False

            claimers = connection.execute("SELECT claimer FROM claims WHERE key = ?", (key,))
            for (claimer,) in claimers.fetchall():
                lock_file = self._lock_file(claimer)
                if _is_held(lock_file):
                    return False

                lock_file.unlink(missing_ok=True)  # its process was killed

            connection.execute("INSERT OR REPLACE INTO claims VALUES (?, ?)", (key, self._claimer))

        return True

    def release(self, key: str) -> None:
        """Give up a claim."""
        with self._open() as connection, connection:
            connection.execute(
                "DELETE FROM claims WHERE key = ? AND claimer = ?", (key, self._claimer)
            )

    def _lock_file(self, claimer: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{claimer}.lock")

    def put(self, key: str, model: str, request: Request, reply: Reply) -> Reply:
        """Keep a reply, unless one is kept; return the kept one, with the tokens used now."""
        *before, last = [json.dumps(message, ensure_ascii=False) for message in request.messages]
        shared = f"[{', '.join(before)}]"
        digest = hashlib.sha256(shared.encode()).hexdigest()
        row = (
            key,
            model,
            digest,
            last,
            json.dumps(dict(request.parameters), sort_keys=True, ensure_ascii=False),
            request.sample,
            reply.text,
            reply.finish,
            reply.prompt_tokens,
            reply.completion_tokens,
            reply.model,
            datetime.now(UTC).isoformat(timespec="seconds"),
        )

        with self._open() as connection, connection:
            connection.execute("INSERT OR IGNORE INTO standing VALUES (?, ?)", (digest, shared))
            connection.execute(_INSERT, row)

        return replace(
            self.get(key) or reply,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cached=False,
        )

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()

        if self._claimer_lock is not None:
            self._claimer_lock.release()
            self._lock_file(self._claimer).unlink(missing_ok=True)

        self._connection = self._claimer_lock = None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self._threads.acquire()
            if self._connection is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                # Other processes may be writing for a while.
                self._connection = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
                with FileLock(f"{self.path}.lock"):  # the timeout does not cover a new file
                    self._connection.executescript(_TABLES)

            yield self._connection
        except (sqlite3.Error, OSError) as error:
            raise LLMError(
                f"the cache of replies {self.path} cannot be used: {error}. If it is damaged, "
                "move it away: then every question is asked again"
            ) from error
        finally:
            self._threads.release()


def _is_held(lock_file: Path) -> bool:
    """Whether a living process holds a lock."""
    try:
        with FileLock(lock_file, fallback_to_soft=False, blocking=False):
            return False
    except Timeout:
        return True
