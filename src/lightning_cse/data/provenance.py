"""Where LLM rows come from: a side file beside them, which whoever trains on the rows copies into the run's record."""

from __future__ import annotations

import hashlib
import json
import logging
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lightning_cse.data.readers import blocks
from lightning_cse.data.rows import SourceFile
from lightning_cse.errors import DataError
from lightning_cse.runs import write_atomic

__all__ = ["FORMAT", "read_provenance", "side_file", "write_provenance"]

log = logging.getLogger(__name__)

FORMAT: Final = 1
"""Of the side file's layout."""

ROWS: Final = ".jsonl"
"""What a file of LLM rows ends in, plain or with ``.gz`` behind."""

SIDE: Final = ".provenance.json"
"""What a side file ends in, in place of the ending of its rows."""

MOST_BYTES: Final = 1_000_000
"""A larger side file is not read: a record is no place for it, and one that was written here has a few thousand."""

_DEEPEST: Final = 20  # of what lies in one another: records are written by a function that calls itself
_LONGEST_INTEGER: Final = 18  # digits; every number then fits a float
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "rows": (dict,),
    "model": (str, type(None)),
    "pattern": (dict,),
    "acceptance": (dict,),
    "made": (dict,),
    "cost": (int, float, type(None)),
    "overrides": (list,),
}
_TOLD: Final = {dict: "an object", list: "a list", str: "a text", int: "a number"}


class _DamagedError(Exception):
    """What is wrong with a side file, in words that go on from its name."""


def side_file(rows: Path) -> Path:
    """Return where it stands where LLM rows come from: ``x.provenance.json`` for ``x.jsonl`` and ``x.jsonl.gz``.

    Raises:
        ValueError: if the name is not that of LLM rows.
    """
    stem = rows.name.removesuffix(".gz")
    if not stem.endswith(ROWS):
        raise ValueError(f"{rows}: LLM rows end in {ROWS} or {ROWS}.gz")
    return rows.with_name(stem.removesuffix(ROWS) + SIDE)


def write_provenance(rows: Path, document: Mapping[str, Any]) -> Path:
    """Write where the rows of a file come from beside them, whole or not at all, and return the side file.

    Args:
        rows: The file of the rows, finished: the side file says what it holds.
        document: What is to be told, plain JSON values; ``format`` and, in ``rows``, ``file``, ``sha256`` (of the
            uncompressed bytes) and ``count`` are added.

    Raises:
        DataError: if the rows cannot be read, or the side file not be written.
        LightningCSEError: if the disk is full.
        ValueError: if `read_provenance` would refuse it: no JSON, parts of another kind, too large.
    """
    path = side_file(rows)
    digest, count = _counted(rows)
    about = {"file": rows.name, "sha256": digest, "count": count}
    told = {"format": FORMAT} | {**document, "format": FORMAT, "rows": {**document.get("rows", {}), **about}}
    text = json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        _parsed(text.encode("utf-8"))
    except _DamagedError as error:
        raise ValueError(f"{path.name}: {error}") from None
    try:
        write_atomic(path, text)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from None
    return path


def read_provenance(rows: SourceFile | Path, sha256: str | None = None) -> dict[str, Any] | None:
    """Return what the side file tells of some rows; never raises for it, since it is nothing but information.

    Args:
        rows: The file of the rows, wherever it was found.
        sha256: Digest of its uncompressed bytes, where it is known; a `SourceFile` has its own.

    Returns:
        The side file's content with ``unchanged``, whether the rows are still those that it was written for, and a
        warning if they are not; ``{"damaged": why}``, and a warning, where it cannot be made use of; None where there
        is none, as beside rows that no LLM wrote.

    Raises:
        DataError: if no digest is given and the rows cannot be read.
    """
    path, digest = (Path(rows.path), rows.sha256) if isinstance(rows, SourceFile) else (rows, sha256)
    if not path.name.removesuffix(".gz").endswith(ROWS):
        return None
    side = side_file(path)
    try:
        data = _read(side)
        if data is None:
            return None
        document = _parsed(data)
        digest = _counted(path)[0] if digest is None else digest
        unchanged = _tells_of(document["rows"], path, digest)
    except _DamagedError as error:
        log.warning(
            "%s: %s; so it is not known where the rows of %s come from, which are used as they are. Remove it, or put "
            "the one there that was made with the rows",
            side,
            error,
            path.name,
        )
        return {"damaged": str(error)}
    if not unchanged:
        log.warning(
            "%s was edited after it was made: its sha256 is not the one in %s, which may not hold for all its rows",
            path,
            side.name,
        )
    return {**document, "unchanged": unchanged}


def _counted(rows: Path) -> tuple[str, int]:
    """Return the sha256 of some rows and how many they are; line breaks at the end make none."""
    digest = hashlib.sha256()
    size = breaks = at_end = 0
    for block in blocks(rows):
        digest.update(block)
        size += len(block)
        content = len(block.rstrip(b"\r\n"))
        if content:
            breaks, at_end = breaks + at_end + block.count(b"\n", 0, content), 0
        at_end += block.count(b"\n", content)
    return digest.hexdigest(), breaks + 1 if size else 0


def _read(side: Path) -> bytes | None:
    """Return the bytes of a side file; None where there is none."""
    try:
        state = side.stat()
        if not stat.S_ISREG(state.st_mode):  # a pipe would be waited for
            raise _DamagedError("is no file")
        if state.st_size <= MOST_BYTES:
            return side.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _DamagedError(f"cannot be read: {error.strerror}") from None
    raise _DamagedError(f"is not read: {state.st_size} bytes, and at most {MOST_BYTES} are expected")


def _parsed(data: bytes) -> dict[str, Any]:
    """Return the content of a side file, which a record may then hold as it is."""
    if len(data) > MOST_BYTES:
        raise _DamagedError(f"{len(data)} bytes, and at most {MOST_BYTES} are read")
    try:
        document = json.loads(data.decode("utf-8-sig"), parse_int=_integer)
        # What JSON can hold and a record cannot: infinity, and halves of characters.
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise _DamagedError(f"is damaged: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(document, dict):
        raise _DamagedError("is no JSON object")
    found = document.get("format")
    if isinstance(found, bool) or found != FORMAT:
        told = f"has format {json.dumps(found)[:40]}" if "format" in document else "has no format"
        raise _DamagedError(f"{told}, and this version reads format {FORMAT}")
    for key, kinds in _KINDS.items():
        if key in document and (isinstance(document[key], bool) or not isinstance(document[key], kinds)):
            raise _DamagedError(f"has under {key!r} something else than {_TOLD[kinds[0]]}")
    rows = document.get("rows", {})
    lacking = [f"rows.{key}" for key in ("file", "sha256") if not isinstance(rows.get(key), str)]
    if lacking:
        raise _DamagedError(f"does not say of which rows it tells: no text under {' and '.join(lacking)}")
    if _depth(document) > _DEEPEST:
        raise _DamagedError(f"has more than {_DEEPEST} levels in one another")
    return document


def _tells_of(told: Mapping[str, Any], path: Path, digest: str) -> bool:
    """Tell whether the rows are as the side file says; they may have another name, or other content, but not both."""
    if told["sha256"] == digest:
        return True
    if told["file"].removesuffix(".gz") != path.name.removesuffix(".gz"):
        raise _DamagedError(f"tells of other rows, those of {told['file'][:80]!r}")
    return False


def _integer(text: str) -> int:
    if len(text) > _LONGEST_INTEGER:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return depth
