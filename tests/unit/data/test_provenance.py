"""The side file of LLM rows: written beside them, read with them; a bad one causes only a
warning.
"""

import gzip
import hashlib
import json
import shutil
from typing import Any

import pytest

from lightning_cse.data import read_provenance, side_file, write_provenance
from lightning_cse.data.own import read_table

ROW = {
    "anchor": "One.",
    "positive": "1.",
    "intermediate": "Some.",
    "negative": "None.",
}
ROWS = f"{json.dumps(ROW)}\n" * 3
DOCUMENT: dict[str, Any] = {
    "model": "a-model",
    "pattern": {"name": "sts", "digest": "ab" * 32},
    "acceptance": {"sources": {"complete": 3, "given_up": 1}},
    "cost": None,
    "made": {"started": "2026-01-02T03:04:05+00:00"},
    "overrides": ["+pattern=sts"],
}


@pytest.fixture
def rows(tmp_path):
    """A file of LLM rows with its side file."""
    path = tmp_path / "rows.jsonl"
    path.write_text(ROWS)
    write_provenance(path, DOCUMENT)
    return path


def packed(rows):
    path = rows.with_name(f"{rows.name}.gz")
    path.write_bytes(gzip.compress(rows.read_bytes()))
    rows.unlink()
    return path


def test_round_trip(rows, caplog):
    about = {
        "file": "rows.jsonl",
        "sha256": hashlib.sha256(ROWS.encode()).hexdigest(),
        "count": 3,
    }
    want = {
        "format": 1,
        **DOCUMENT,
        "rows": about,
        "unchanged": True,
    }
    assert side_file(rows).name == "rows.provenance.json"
    assert read_provenance(rows) == want
    path = packed(rows)
    assert read_provenance(path) == want
    assert read_provenance(read_table(str(path), key="x").files[0]) == want
    write_provenance(path, DOCUMENT)
    assert read_provenance(path) == {**want, "rows": {**about, "file": "rows.jsonl.gz"}}
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"cost": float("nan")}, "not JSON compliant"),
        ({"model": 5}, "is damaged: model: Input should be a valid string"),
    ],
)
def test_a_faulty_document_is_not_written(document, message, rows):
    before = side_file(rows).read_bytes()
    with pytest.raises(ValueError, match=message):
        write_provenance(rows, document)
    assert side_file(rows).read_bytes() == before


def test_edited_rows(rows, caplog):
    before = read_provenance(rows)
    assert before is not None
    rows.write_text(ROWS.replace("Some.", "Any."))
    assert read_provenance(rows) == {**before, "unchanged": False}
    assert caplog.messages[0].startswith(f"{rows} was edited after it was generated")

    other = rows.with_name("other.jsonl")
    shutil.copy(rows, other)
    shutil.copy(side_file(rows), side_file(other))
    assert read_provenance(other) == {"damaged": "describes other rows, those of 'rows.jsonl'"}
    assert caplog.messages[1].startswith(f"{side_file(other)}: describes other rows")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is damaged: the file: Invalid JSON: EOF while parsing a value"),
        (b'{"format": 1, "rows": {"file": "x"}}', "is damaged: rows.sha256: Field required"),
        (None, "cannot be read: Is a directory"),
    ],
)
def test_a_damaged_side_file(content, why, rows, caplog):
    side = side_file(rows)
    side.unlink()
    if content is None:
        side.mkdir()
    else:
        side.write_bytes(content)
    found = read_provenance(rows)
    assert found is not None
    assert found.keys() == {"damaged"}
    assert found["damaged"].startswith(why)
    (message,) = caplog.messages
    assert message.startswith(f"{side}: {why}")
    assert "\n" not in message
