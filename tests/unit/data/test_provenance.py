"""Where LLM rows come from: written beside them, read with them, and never able to stop whoever uses the rows."""

import gzip
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lightning_cse.data import SourceFile, read_corpus, read_provenance, side_file, write_provenance
from lightning_cse.data.own import read_table
from lightning_cse.errors import DataError

ROWS = "".join(
    json.dumps(
        {"anchor": f"One {n}.", "positive": "1.", "intermediate": "Some.", "negative": "None."}
    )
    + "\n"
    for n in range(3)
)
WRITTEN: dict[str, Any] = {
    "model": "a-model",
    "pattern": {
        "name": "sts",
        "roles": ["positive", "intermediate", "negative"],
        "digest": "ab" * 32,
    },
    "acceptance": {"sources": {"complete": 3, "given_up": 1}},
    "cost": None,
    "made": {"started": "2026-01-02T03:04:05+00:00"},
    "overrides": ["+pattern=sts"],
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file of LLM rows with its side file."""
    path = tmp_path / "rows.jsonl"
    path.write_text(ROWS)
    write_provenance(path, WRITTEN)
    return path


def packed(rows: Path) -> Path:
    path = rows.with_name(f"{rows.name}.gz")
    path.write_bytes(gzip.compress(rows.read_bytes()))
    rows.unlink()
    return path


def test_what_is_written_is_read(rows: Path, caplog: pytest.LogCaptureFixture) -> None:
    about = {"file": "rows.jsonl", "sha256": hashlib.sha256(ROWS.encode()).hexdigest(), "count": 3}
    want = {"format": 1, **WRITTEN, "rows": about, "unchanged": True}
    assert read_provenance(rows) == read_provenance(read_table(str(rows), key="x").files[0]) == want
    assert sorted(path.name for path in rows.parent.iterdir()) == [
        "rows.jsonl",
        "rows.provenance.json",
    ]
    path = packed(rows)
    assert read_provenance(path) == read_provenance(read_table(str(path), key="x").files[0]) == want
    write_provenance(path, WRITTEN)
    assert read_provenance(path) == {**want, "rows": {**about, "file": "rows.jsonl.gz"}}
    assert caplog.messages == []


def test_rows_in_the_place_of_the_data_folder(rows: Path) -> None:
    folder = rows.parent / "data" / "ngcse"
    folder.mkdir(parents=True)
    placed = shutil.move(rows, folder / "wiki_sts.jsonl")
    shutil.move(side_file(rows), side_file(placed))
    packed(placed)
    found = read_provenance(read_corpus("ngcse", "wiki_sts", folder.parent).files[0])
    assert found is not None
    # The digest says that they are the same rows, whatever they are called now.
    assert (found["model"], found["unchanged"], found["rows"]["file"]) == (
        "a-model",
        True,
        "rows.jsonl",
    )


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"cost": float("nan")}, "not JSON compliant"),
        ({"model": 5}, "is damaged: model: Input should be a valid string"),
    ],
)
def test_what_could_not_be_read_is_not_written(
    document: dict[str, Any], why: str, rows: Path
) -> None:
    before = side_file(rows).read_bytes()
    with pytest.raises(ValueError, match=why):
        write_provenance(rows, document)
    assert side_file(rows).read_bytes() == before


@pytest.mark.parametrize(
    ("content", "count"),
    [(b"", 0), (b"{}", 1), (b"{}\r\n\n\r\r\n", 1), (b"{}\r\n{}\r\n", 2), (b"{}\n\n\n{}\n\n", 4)],
)
def test_rows_are_counted_whatever_they_end_in(content: bytes, count: int, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    assert json.loads(write_provenance(path, WRITTEN).read_text())["rows"]["count"] == count


def test_what_cannot_be_read_or_written_is_an_error(rows: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(ROWS.encode())[:-9])
    for path, why in (
        (broken, "is cut off or broken"),
        (tmp_path / "no.jsonl", "cannot be read: No such file"),
    ):
        with pytest.raises(DataError, match=f"{path.name}: .*{why}"):
            write_provenance(path, WRITTEN)
        assert not side_file(path).exists()
    with pytest.raises(
        ValueError, match=r"rows\.csv: a file of LLM rows must end in \.jsonl or \.jsonl\.gz"
    ):
        side_file(tmp_path / "rows.csv")


def test_rows_without_a_side_file_say_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "rows.jsonl"
    own.write_text(ROWS)
    (tmp_path / "x.provenance.json").write_text("{")
    assert read_provenance(own) is None
    assert read_provenance(tmp_path / "x.txt") is None  # nothing that an LLM wrote
    assert read_provenance(SourceFile("x.jsonl", "hf://datasets/a/b@0/train", "00")) is None
    assert caplog.messages == []


def test_rows_that_were_edited_are_reported(rows: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = read_provenance(rows)
    rows.write_text(ROWS.replace("Some.", "Any."))
    assert first is not None
    assert read_provenance(rows) == {**first, "unchanged": False}
    assert caplog.messages == [
        f"{rows} was edited after it was generated; rows.provenance.json may not describe all its rows"
    ]


def test_a_side_file_of_other_rows_is_not_believed(
    rows: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = rows.with_name("other.jsonl")
    other.write_text(ROWS.replace("Some.", "Any."))
    shutil.copy(side_file(rows), side_file(other))
    assert read_provenance(other) == {"damaged": "describes other rows, those of 'rows.jsonl'"}
    (message,) = caplog.messages
    assert message.startswith(f"{side_file(other)}: describes other rows")
    assert "the rows of other.jsonl are used, but their origin is unknown" in message


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is damaged: the file: Invalid JSON: EOF while parsing a value"),
        (b"[1]", "is damaged: the file: Input should be an object"),
        (b'{"format": 2}', "is damaged: format: Input should be 1"),
        (
            b'{"format": 1, "rows": {"file": "rows.jsonl"}}',
            "is damaged: rows.sha256: Field required",
        ),
        (Path.mkdir, "cannot be read: Is a directory"),
    ],
)
def test_a_side_file_of_no_use_is_reported_and_stops_nothing(
    content: Any, why: str, rows: Path, caplog: pytest.LogCaptureFixture
) -> None:
    side = side_file(rows)
    side.unlink()
    if callable(content):
        content(side)
    else:
        side.write_bytes(content)
    found = read_provenance(rows)
    assert found is not None
    assert found.keys() == {"damaged"}
    assert found["damaged"].startswith(why)
    (message,) = caplog.messages
    assert message.startswith(f"{side}: {why}")
    assert "\n" not in message
