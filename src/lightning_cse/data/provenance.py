"""The provenance of LLM rows: a side file beside them, copied into the records of runs."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_cse.data.files import read_bytes, sha256_of
from lightning_cse.errors import one_line
from lightning_cse.runs import public, write_json

log = logging.getLogger(__name__)


def side_file(rows: Path) -> Path:
    """Return the side file of LLM rows, ``x.provenance.json`` for ``x.jsonl`` or ``x.jsonl.gz``."""
    stem = rows.name.removesuffix(".gz").removesuffix(".jsonl")

    return rows.with_name(f"{stem}.provenance.json")


def write_provenance(rows: Path, document: Mapping[str, Any]) -> Path:
    """Write the side file of a file of rows, with its name, sha256 and number of rows."""
    path = side_file(rows)
    about = {
        **document.get("rows", {}),
        "file": rows.name,
        "sha256": sha256_of(rows),
        "count": len(read_bytes(rows).splitlines()),
    }
    write_json(path, public({"format": 1, **document, "rows": about}))

    return path


def read_provenance(rows: Path) -> dict[str, Any] | None:
    """Return the content of the side file, with ``unchanged``: whether it describes these rows.

    A damaged side file causes only a warning, since it is just information, and gives ``{"damaged":
    why}``. Returns None if there is no side file.
    """
    side = side_file(rows)

    if ".jsonl" not in rows.suffixes or not side.exists():
        return None

    try:
        document = json.loads(side.read_bytes())
        unchanged = document["rows"]["sha256"] == sha256_of(rows)
    except (OSError, ValueError, LookupError, TypeError) as error:
        log.warning(
            "%s is damaged (%s): the origin of its rows is not known", side, one_line(error)
        )
        return {"damaged": one_line(error)}

    if not unchanged:
        log.warning("%s was edited after it was generated; %s may not describe it", rows, side.name)

    return {**document, "unchanged": unchanged}
