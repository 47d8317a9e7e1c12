"""Every reply of a language model on disk, so that nothing is paid twice."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from lightning_cse.llm.requests import LLMError, Reply, Request

_TABLES: Final = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS standing (digest TEXT PRIMARY KEY, messages TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY,
    model TEXT NOT NULL, standing TEXT NOT NULL REFERENCES standing (digest), last TEXT NOT NULL,
    parameters TEXT NOT NULL, sample INTEGER NOT NULL,
    text TEXT NOT NULL, finish_reason TEXT NOT NULL, refusal TEXT, prompt_tokens INTEGER, completion_tokens INTEGER,
    served TEXT, endpoint TEXT, created TEXT NOT NULL
);
"""
# `standing` holds what precedes the last message, which is long and the same for thousands of requests.
_SELECT: Final = """
SELECT text, finish_reason, served, prompt_tokens, completion_tokens, endpoint FROM replies WHERE key = ?
"""
_INSERT: Final = "INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, ?, ?)"
_PATIENCE: Final = 60.0  # seconds to wait for another process that is writing


class ReplyCache:
    """Replies by `Request.key` in one SQLite file, which several processes may share.

    A reply survives the process as soon as `put` returns. The file says what was asked, who answered, and where.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    def get(self, key: str) -> Reply | None:
        """Return the reply that is kept under a key."""
        with self._open() as connection:
            row = connection.execute(_SELECT, (key,)).fetchone()
        return None if row is None else Reply(*row, True)

    def put(self, key: str, model: str, request: Request, reply: Reply) -> Reply:
        """Keep a reply, and return the one that is kept: an earlier one stays, with the tokens that were paid now."""
        *standing, last = (json.dumps(message, ensure_ascii=False) for message in request.messages)
        before = f"[{', '.join(standing)}]"
        digest = hashlib.sha256(before.encode()).hexdigest()
        parameters = json.dumps(dict(request.parameters), sort_keys=True, ensure_ascii=False)
        asked = (key, model, digest, last, parameters, request.sample, reply.text, reply.finish)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        said = (reply.prompt_tokens, reply.completion_tokens, reply.model, reply.endpoint, now)
        with self._open() as connection, connection:
            connection.execute("INSERT OR IGNORE INTO standing VALUES (?, ?)", (digest, before))
            new = connection.execute(_INSERT, (*asked, *said)).rowcount
        if new or (kept := self.get(key)) is None:
            return reply
        return replace(kept, prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens, cached=False)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._connection is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._connection = sqlite3.connect(self.path, timeout=_PATIENCE)
                self._connection.executescript(_TABLES)
            yield self._connection
        except (sqlite3.Error, OSError) as error:
            raise LLMError(
                f"the cache of replies {self.path} cannot be used: {error}. If it is damaged, move it away; "
                "without it, every question is asked again"
            ) from error
