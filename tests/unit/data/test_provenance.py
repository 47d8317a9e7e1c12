"""The side file of LLM rows: written beside them, read with them; a bad one causes only a
warning.
"""

import gzip
import hashlib
import json

import pytest

from lightning_cse.data import read_provenance, side_file, write_provenance

ROWS = json.dumps({"anchor": "One.", "positive": "1."}) + "\n"
DOCUMENT = {"model": "a-model", "cost": None}


@pytest.fixture
def rows(put):
    """A file of LLM rows with its side file."""
    path = put("rows.jsonl", ROWS * 3)
    write_provenance(path, DOCUMENT)

    return path


def test_round_trip(rows, put, caplog):
    digest = hashlib.sha256((ROWS * 3).encode()).hexdigest()
    about = {"file": "rows.jsonl", "sha256": digest, "count": 3}
    want = {"format": 1, **DOCUMENT, "rows": about, "unchanged": True}
    assert side_file(rows).name == "rows.provenance.json"
    assert read_provenance(rows) == want
    path = put("rows.jsonl.gz", gzip.compress(rows.read_bytes()))
    assert read_provenance(path) == want
    assert caplog.messages == []


def test_edited_rows(rows, caplog):
    before = read_provenance(rows)
    rows.write_text(ROWS * 2)
    assert read_provenance(rows) == {**before, "unchanged": False}
    assert caplog.messages[0].startswith(f"{rows} was edited after it was generated")


@pytest.mark.parametrize("content", ["", '{"format": 1, "rows": {"file": "x"}}', "[1]"])
def test_a_damaged_side_file(content, rows, caplog):
    side_file(rows).write_text(content)
    assert read_provenance(rows).keys() == {"damaged"}
    (message,) = caplog.messages
    assert message.startswith(f"{side_file(rows)} is damaged")
