"""The provenance of LLM rows: a side file beside them, copied into the records of runs."""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from lightning_cse.data.files import read_bytes
from lightning_cse.data.rows import SourceFile
from lightning_cse.runs import write_atomic

log = logging.getLogger(__name__)


class _About(BaseModel, extra="allow", strict=True):
    file: str
    sha256: str


class _Document(BaseModel, extra="allow", strict=True):
    format: Literal[1]
    rows: _About
    model: str | None = None
    pattern: dict[str, Any] = {}
    acceptance: dict[str, Any] = {}
    made: dict[str, Any] = {}
    cost: float | None = None
    overrides: list[Any] = []


def side_file(rows: Path) -> Path:
    """Return the side file of LLM rows, ``x.provenance.json`` for ``x.jsonl`` or ``x.jsonl.gz``."""
    stem = rows.name.removesuffix(".gz")
    if not stem.endswith(".jsonl"):
        raise ValueError(f"{rows}: a file of LLM rows must end in .jsonl or .jsonl.gz")

    return rows.with_name(stem.removesuffix(".jsonl") + ".provenance.json")


def write_provenance(rows: Path, document: Mapping[str, Any]) -> Path:
    """Write the side file of a file of rows, with its name, sha256 and number of rows.

    A document that `read_provenance` would refuse is a ValueError.
    """
    path = side_file(rows)
    digest, count = _counted(rows)
    about = {
        **document.get("rows", {}),
        "file": rows.name,
        "sha256": digest,
        "count": count,
    }
    complete = {
        "format": 1,
        **document,
        "rows": about,
    }
    text = (
        json.dumps(
            complete,
            indent=2,
            ensure_ascii=False,
            allow_nan=False,
        )
        + "\n"
    )
    _parsed(text.encode())
    write_atomic(path, text)
    return path


def read_provenance(rows: SourceFile | Path) -> dict[str, Any] | None:
    """Return the content of the side file, with ``unchanged``: whether it describes these rows.

    A damaged side file causes only a warning, since it is just information, and gives ``{"damaged":
    why}``. Returns None if there is no side file.
    """
    path = Path(rows.path) if isinstance(rows, SourceFile) else rows
    if not path.name.removesuffix(".gz").endswith(".jsonl"):
        return None

    side = side_file(path)
    if not os.path.lexists(side):
        return None

    try:
        document = _parsed(side.read_bytes())
        digest = rows.sha256 if isinstance(rows, SourceFile) else _counted(path)[0]
        unchanged = document["rows"]["sha256"] == digest
        described = document["rows"]["file"]
        # The rows may have a new name or new content, but not both.
        if not unchanged and described.removesuffix(".gz") != path.name.removesuffix(".gz"):
            raise ValueError(f"describes other rows, those of {described[:80]!r}")
    except (OSError, ValueError) as error:
        why = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
        message = "%s: %s; the rows of %s are used, but their origin is unknown. Restore the file"
        log.warning(
            message,
            side,
            why,
            path.name,
        )
        return {"damaged": why}

    if not unchanged:
        message = "%s was edited after it was generated; %s may not describe all its rows"
        log.warning(
            message,
            path,
            side.name,
        )

    return {**document, "unchanged": unchanged}


def _counted(rows: Path) -> tuple[str, int]:
    """Return the sha256 of a file of rows and the number of rows."""
    data = read_bytes(rows)
    content = data.rstrip(b"\r\n")
    return hashlib.sha256(data).hexdigest(), content.count(b"\n") + 1 if content else 0


def _parsed(data: bytes) -> dict[str, Any]:
    """Return the content of a side file, or raise ValueError."""
    try:
        return _Document.model_validate_json(data).model_dump(exclude_unset=True)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"])) or "the file"
        raise ValueError(f"is damaged: {key}: {fault['msg']}") from None
