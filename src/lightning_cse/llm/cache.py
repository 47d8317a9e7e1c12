"""A cache on disk of every reply of a language model, so that nothing is paid for twice."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from filelock import FileLock

from lightning_cse.llm.requests import LLMError, Reply, Request

# `standing` holds the messages before the last one, which are long and the same for thousands of requests.
_TABLES: Final = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS standing (digest TEXT PRIMARY KEY, messages TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY, model TEXT, standing TEXT, last TEXT, parameters TEXT, sample INTEGER, text TEXT NOT NULL,
    finish_reason TEXT NOT NULL, refusal TEXT, prompt_tokens INTEGER, completion_tokens INTEGER, served TEXT,
    endpoint TEXT, created TEXT
);
"""
_SELECT: Final = """
SELECT text, finish_reason, served, prompt_tokens, completion_tokens, endpoint, TRUE FROM replies WHERE key = ?
"""
_INSERT: Final = (
    "INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, ?, ?)"
)


class ReplyCache:
    """Replies by `Request.key` in one SQLite file, which processes may share, or, with None, in memory until closed."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    def get(self, key: str) -> Reply | None:
        """Return the reply that is kept under a key, or None."""
        with self._open() as connection:
            return next((Reply(*row) for row in connection.execute(_SELECT, (key,))), None)

    def put(self, key: str, model: str, request: Request, reply: Reply) -> Reply:
        """Keep a reply, unless an earlier one is kept; return the kept one, with the tokens that were paid for now."""
        *before, last = (json.dumps(message, ensure_ascii=False) for message in request.messages)
        standing = f"[{', '.join(before)}]"
        digest = hashlib.sha256(standing.encode()).hexdigest()
        parameters = json.dumps(dict(request.parameters), sort_keys=True, ensure_ascii=False)
        sent, received = reply.prompt_tokens, reply.completion_tokens
        row = (
            key,
            model,
            digest,
            last,
            parameters,
            request.sample,
            reply.text,
            reply.finish,
            sent,
            received,
        )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._open() as connection, connection:
            connection.execute("INSERT OR IGNORE INTO standing VALUES (?, ?)", (digest, standing))
            connection.execute(_INSERT, (*row, reply.model, reply.endpoint, now))
        kept = self.get(key) or reply
        return replace(kept, prompt_tokens=sent, completion_tokens=received, cached=False)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._connection is None:
                if self.path is not None:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                self._connection = sqlite3.connect(
                    self.path or ":memory:", timeout=60
                )  # others may be writing
                with (
                    FileLock(f"{self.path}.lock") if self.path else nullcontext()
                ):  # no timeout covers a new file
                    self._connection.executescript(_TABLES)
            yield self._connection
        except (sqlite3.Error, OSError) as error:
            known = f"the cache of replies {self.path} cannot be used: {error}"
            raise LLMError(
                f"{known}. If it is damaged, move it away: then every question is asked again"
            ) from error
