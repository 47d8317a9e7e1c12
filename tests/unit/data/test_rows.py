"""Rows as a `datasets.Dataset`: columns, places, account."""

import pytest

from lightning_cse.data import Rows, SourceFile
from lightning_cse.errors import DataError

A = SourceFile("a.csv", "/data/a.csv", "1")
B = SourceFile("b.csv", "/data/b.csv", "2")


def two_rows(file=A, lines=(2, 5)):
    columns = {"premise": ["p", "q"], "score": [1.0, 2.0], "negative": [None, None]}
    counts = {"read": 3, "dropped: blank line": 1}
    return Rows.of(columns, files=[file], lines=lines, counts=counts)


def test_columns_and_places():
    rows = two_rows()
    place = {"file": "/data/a.csv", "line": 5}

    assert rows[1] == {"premise": "q", "score": 2.0, "negative": None, **place}
    assert rows.names == ("premise", "score", "negative")
    assert rows.column("negative") == [None, None]
    assert rows.where(1) == "/data/a.csv:5"
    assert Rows.of({"premise": ["p"]}).where(0) == "row 1"

    with pytest.raises(DataError, match=r"a.csv: no column 'premis'; found: premise, "):
        rows.column("premis")


def test_selected_rows_keep_files_lines_and_account():
    chosen = two_rows().select([1], reason="not wanted")

    assert chosen.column("premise") == ["q"]
    assert chosen.where(0) == "/data/a.csv:5"
    assert chosen.files == (A,)
    assert chosen.counts == {"read": 3, "dropped: blank line": 1, "dropped: not wanted": 1}
    assert two_rows().select(row for row in (1, 1, 0)).column("premise") == ["q", "q", "p"]


def test_concatenated_tables_have_their_shared_columns():
    more = two_rows(B, (7, 8)).with_column("negative", ["n", "m"])
    both = Rows.cat([two_rows(), more.with_column("only here", ["", ""]), two_rows()])

    assert both.column("negative") == [None, None, "n", "m", None, None]
    assert both.where(3) == "/data/b.csv:8"
    assert both.files == (A, B)
    assert both.counts == {"read": 9, "dropped: blank line": 3}
    assert "only here" not in both.names
