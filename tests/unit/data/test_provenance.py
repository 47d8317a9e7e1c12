"""Where LLM rows come from: written beside them, read with them, and never able to stop whoever uses the rows."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from lightning_cse.data import SourceFile, read_corpus, read_provenance, side_file, write_provenance
from lightning_cse.data.corpora import read_bytes, read_own
from lightning_cse.data.provenance import MOST_BYTES
from lightning_cse.errors import DataError

ROWS = "".join(
    json.dumps({"anchor": f"One {n}.", "positive": "1.", "intermediate": "Some.", "negative": "None."}) + "\n"
    for n in range(3)
)
TOLD: dict[str, Any] = {
    "model": "a-model",
    "pattern": {"name": "sts", "roles": ["positive", "intermediate", "negative"], "digest": "ab" * 32},
    "acceptance": {
        "sources": {"complete": 3, "given_up": 1},
        "roles": {"positive": {"asked": 5, "accepted": 4, "rejected": {"too long": 1}}},
    },
    "cost": None,
    "made": {"started": "2026-01-02T03:04:05+00:00", "finished": "2026-01-02T04:04:05+00:00"},
    "overrides": ["+pattern=sts"],
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file of LLM rows with its side file."""
    path = tmp_path / "rows.jsonl"
    path.write_text(ROWS)
    write_provenance(path, TOLD)
    return path


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def packed(rows: Path) -> Path:
    path = rows.with_name(f"{rows.name}.gz")
    path.write_bytes(gzip.compress(rows.read_bytes()))
    rows.unlink()
    return path


# Writing


def test_what_is_written_is_read(rows: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert side_file(rows) == rows.with_name("rows.provenance.json")
    about = {"file": "rows.jsonl", "sha256": hashlib.sha256(ROWS.encode()).hexdigest(), "count": 3}
    want = {"format": 1, **TOLD, "rows": about, "unchanged": True}
    assert read_provenance(rows) == want
    (source,) = read_own(str(rows)).files
    assert read_provenance(source) == want
    assert warned(caplog) == []
    assert next(iter(json.loads(side_file(rows).read_text()))) == "format"
    assert sorted(path.name for path in rows.parent.iterdir()) == ["rows.jsonl", "rows.provenance.json"]


def test_the_side_file_is_that_of_the_compressed_rows_too(rows: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = read_provenance(rows)
    path = packed(rows)
    assert side_file(path) == side_file(rows)
    assert read_provenance(path) == first
    (source,) = read_own(str(path)).files
    assert read_provenance(source) == first
    write_provenance(path, TOLD)
    again = read_provenance(path)
    assert first is not None
    assert again == {**first, "rows": {**first["rows"], "file": "rows.jsonl.gz"}}
    assert warned(caplog) == []


@pytest.mark.parametrize("compressed", [False, True])
def test_rows_in_the_place_of_the_data_folder(rows: Path, compressed: bool) -> None:
    folder = rows.parent / "data" / "ngcse"
    folder.mkdir(parents=True)
    placed = shutil.move(rows, folder / "wiki_sts.jsonl")
    shutil.move(side_file(rows), side_file(placed))
    if compressed:
        packed(placed)
    (source,) = read_corpus("ngcse", "wiki_sts", folder.parent).files
    found = read_provenance(source)
    assert found is not None
    # The digest says that they are the same rows, whatever they are called now.
    assert (found["model"], found["unchanged"], found["rows"]["file"]) == ("a-model", True, "rows.jsonl")


def test_a_document_cannot_say_of_which_rows_it_tells(rows: Path) -> None:
    write_provenance(rows, {**TOLD, "format": 9, "rows": {"file": "x", "sha256": "", "count": 0, "own": 1}})
    found = read_provenance(rows)
    assert found is not None
    assert (found["format"], found["unchanged"]) == (1, True)
    assert (found["rows"]["file"], found["rows"]["count"], found["rows"]["own"]) == ("rows.jsonl", 3, 1)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"cost": float("nan")}, "not JSON compliant"),
        ({"model": 5}, "is damaged: model: Input should be a valid string"),
        ({"long": "x" * MOST_BYTES}, f"would have more than {MOST_BYTES} bytes"),
        ({"model": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_what_could_not_be_read_is_not_written(document: dict[str, Any], why: str, rows: Path) -> None:
    before = side_file(rows).read_bytes()
    with pytest.raises(ValueError, match=why):
        write_provenance(rows, document)
    assert side_file(rows).read_bytes() == before


def test_rows_that_are_not_there_have_no_origin(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl: cannot be read: No such file"):
        write_provenance(tmp_path / "rows.jsonl", TOLD)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"rows\.csv: LLM rows end in \.jsonl or \.jsonl\.gz"):
        side_file(tmp_path / "rows.csv")


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"", 0),
        (b"{}", 1),
        (b"{}\n", 1),
        (b"{}\r\n\n\r\r\n", 1),
        (b"{}\n{}", 2),
        (b"{}\r\n{}\r\n", 2),
        (b"{}\n\n\n{}\n\n", 4),
        (b"\n\n{}", 3),
        (b"{}\n \n", 2),
    ],
)
def test_rows_are_counted_whatever_they_end_in(content: bytes, count: int, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.jsonl{ending}"
    path.write_bytes(gzip.compress(content) if ending else content)
    write_provenance(path, TOLD)
    found = read_provenance(path)
    assert found is not None
    assert found["rows"] == {"file": path.name, "sha256": hashlib.sha256(content).hexdigest(), "count": count}
    assert found["unchanged"] is True


def test_a_compressed_file_of_no_bytes_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.touch()
    assert json.loads(write_provenance(path, TOLD).read_text())["rows"]["count"] == 0


def damaged(folder: Path, fault: str) -> Path:
    """Write rows that cannot be read to their end, or not at all."""
    path = folder / ("rows.jsonl.gz" if fault in {"cut off", "broken", "more behind"} else "rows.jsonl")
    packing = zlib.compressobj(wbits=31)
    content = packing.compress(b"{}\n" * 100_000) + packing.flush(zlib.Z_SYNC_FLUSH)
    if fault == "cut off":
        path.write_bytes(content)
    elif fault == "broken":
        path.write_bytes(content + b"\x07")  # a block of a kind that there is not
    elif fault == "more behind":
        path.write_bytes(content + packing.flush() + b"more")
    elif fault == "folder":
        path.mkdir()
    elif fault == "loop":
        path.symlink_to(path)
    return path


@pytest.mark.parametrize("fault", ["cut off", "broken", "more behind", "folder", "loop", "not there"])
def test_rows_that_cannot_be_read_are_told_as_everywhere(fault: str, tmp_path: Path) -> None:
    path = damaged(tmp_path, fault)
    with pytest.raises(DataError) as everywhere:
        read_bytes(path)
    with pytest.raises(DataError) as here:
        write_provenance(path, TOLD)
    assert str(here.value) == str(everywhere.value)  # with the line, which depends on how much is unpacked at once
    assert not side_file(path).exists()


def test_a_side_file_that_cannot_be_written_is_told(rows: Path) -> None:
    side_file(rows).unlink()
    side_file(rows).mkdir()
    with pytest.raises(DataError, match=r"rows\.provenance\.json: cannot be written: Is a directory"):
        write_provenance(rows, TOLD)


# Reading


def test_rows_without_a_side_file_say_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = tmp_path / "rows.jsonl"
    own.write_text(ROWS)
    (tmp_path / "x.provenance.json").write_text("{")
    assert read_provenance(own) is None
    assert read_provenance(tmp_path / "x.txt") is None  # nothing that an LLM wrote
    assert read_provenance(tmp_path / "nowhere" / "rows.jsonl") is None
    assert read_provenance(own / "rows.jsonl") is None
    assert read_provenance(SourceFile("x.jsonl", "hf://datasets/a/b@0/train", "00")) is None
    assert warned(caplog) == []


def test_rows_that_were_edited_are_told(rows: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = read_provenance(rows)
    rows.write_text(ROWS.replace("Some.", "Any."))
    assert first is not None
    assert read_provenance(rows) == {**first, "unchanged": False}
    (told,) = warned(caplog)
    assert told == f"{rows} was edited after it was made, and rows.provenance.json may not hold for all its rows"


def test_a_side_file_of_other_rows_is_not_believed(rows: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = rows.with_name("other.jsonl")
    other.write_text(ROWS.replace("Some.", "Any."))
    shutil.copy(side_file(rows), side_file(other))
    assert read_provenance(other) == {"damaged": "is about other rows, those of 'rows.jsonl'"}
    (told,) = warned(caplog)
    assert told.startswith(f"{side_file(other)}: is about other rows")
    assert "the rows of other.jsonl come from, which are used as they are" in told


ABOUT = '"rows": {"file": "rows.jsonl", "sha256": "00"}'


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is damaged: EOF while parsing a value"),
        (b'{"format": 1, ', "is damaged: EOF while parsing a value"),
        (b"\xff\xfe", "is damaged: expected value"),
        (b"[1]", "is damaged: : Input should be a valid dictionary"),
        (b"{}", "is damaged: format: Field required"),
        (b'{"format": 2}', "is damaged: format: Input should be 1"),
        (b'{"format": 1}', "is damaged: rows: Field required"),
        (b'{"format": 1, "rows": {"file": "rows.jsonl"}}', "is damaged: rows.sha256: Field required"),
        (b'{"format": 1, "rows": []}', "is damaged: rows: Input should be a valid dictionary"),
        (f'{{"format": 1, {ABOUT}, "pattern": "sts"}}'.encode(), "is damaged: pattern: Input should be a valid dict"),
        (f'{{"format": 1, {ABOUT}, "cost": true}}'.encode(), "is damaged: cost: Input should be a valid number"),
        (f'{{"format": 1, {ABOUT}, "overrides": "x"}}'.encode(), "is damaged: overrides: Input should be a valid list"),
        (f'{{"format": 1, {ABOUT}, "cost": NaN}}'.encode(), "is damaged: expected value"),
        (f'{{"format": 1, {ABOUT}, "x": 1e999}}'.encode(), "is damaged: Out of range float values"),
        (f'{{"format": 1, {ABOUT}, "model": "\\ud800"}}'.encode(), "is damaged: unexpected end of hex escape"),
        (b"[" * 100_000, "is damaged: recursion limit exceeded"),
        (b" " * (MOST_BYTES + 1), f"is not a file of at most {MOST_BYTES} bytes"),
    ],
)
def test_a_side_file_of_no_use_is_told_and_stops_nothing(
    content: bytes, why: str, rows: Path, caplog: pytest.LogCaptureFixture
) -> None:
    side_file(rows).write_bytes(content)
    found = read_provenance(rows)
    assert found is not None
    assert found.keys() == {"damaged"}
    assert found["damaged"].startswith(why)
    (told,) = warned(caplog)
    assert told.startswith(f"{side_file(rows)}: {why}")
    assert "\n" not in told


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop"])
def test_what_is_no_file_is_not_waited_for(kind: str, rows: Path, caplog: pytest.LogCaptureFixture) -> None:
    side = side_file(rows)
    side.unlink()
    if kind == "folder":
        side.mkdir()
    elif kind == "pipe":
        os.mkfifo(side)
    else:
        side.symlink_to(side)
    assert read_provenance(rows) == {"damaged": f"is not a file of at most {MOST_BYTES} bytes"}
    assert len(warned(caplog)) == 1


def test_a_side_file_saved_with_a_mark_is_read(rows: Path) -> None:
    side_file(rows).write_bytes(b"\xef\xbb\xbf" + side_file(rows).read_bytes())
    found = read_provenance(rows)
    assert found is not None
    assert found["model"] == "a-model"
