"""A cache on disk of every reply of a language model, so that nothing is paid for twice."""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock

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
"""
_SELECT = """
SELECT text, finish_reason, served, prompt_tokens, completion_tokens, TRUE
FROM replies WHERE key = ?
"""
_INSERT = "INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, NULL, ?)"


@dataclass
class ReplyCache:
    """Replies by `Request.key` in one SQLite file, which processes may share."""

    path: Path
    _connection: sqlite3.Connection | None = None
    _threads: threading.RLock = field(default_factory=threading.RLock)

    def get(self, key: str) -> Reply | None:
        """Return the reply that is kept under a key, or None."""
        with self._open() as connection:
            row = connection.execute(_SELECT, (key,)).fetchone()

        return Reply(*row) if row else None

    def claim(self, key: str) -> FileLock:
        """Return the lock to hold while the reply to a request is asked for.

        It ends with its process. Of 4,096 lock files, a request has that of its key's beginning.
        """
        return FileLock(self.path.parent / "locks" / key[:3], fallback_to_soft=False)

    def put(self, key: str, model: str, request: Request, reply: Reply) -> None:
        """Keep a reply, unless one is kept."""
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

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()

        self._connection = None

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
