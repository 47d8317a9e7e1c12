"""Rows as a `datasets.Dataset`: columns, places, account."""

import pytest

from lightning_cse.data import Rows, SourceFile
from lightning_cse.errors import DataError

FILES = [SourceFile("a.csv", "/data/a.csv", "1"), SourceFile("b.csv", "/data/b.csv", "2")]


def some(file: SourceFile = FILES[0], lines: tuple[int, ...] = (2, 5)) -> Rows:
    columns = {"premise": ["p", "q"], "score": [1.0, 2.0], "negative": [None, None]}
    return Rows.of(columns, files=[file], lines=lines, counts={"read": 3, "dropped: blank line": 1})


def test_columns_say_where_each_row_stands() -> None:
    rows = some()
    assert rows[1] == {
        "premise": "q",
        "score": 2.0,
        "negative": None,
        "file": "/data/a.csv",
        "line": 5,
    }
    assert rows.names == ("premise", "score", "negative")
    assert rows.column("negative") == [None, None]
    assert rows.where(1) == "/data/a.csv:5"
    assert Rows.of({"premise": ["p"]}).where(0) == "row 1"


def test_selected_rows_keep_files_lines_and_account() -> None:
    chosen = some().select([1], reason="not wanted")
    assert (chosen.column("premise"), chosen.where(0), chosen.files) == (
        ["q"],
        "/data/a.csv:5",
        (FILES[0],),
    )
    assert chosen.counts == {"read": 3, "dropped: blank line": 1, "dropped: not wanted": 1}
    assert some().select([1, 1, 0]).column("premise") == ["q", "q", "p"]
    assert some().select(row for row in (0,)).counts == some().counts
    filtered = some().filter(lambda row: row["line"] == 5)
    assert (type(filtered), filtered.column("premise"), filtered.where(0)) == (
        Rows,
        ["q"],
        "/data/a.csv:5",
    )


def test_columns_are_replaced_and_added() -> None:
    replaced = some().with_columns(anchor=["a", None])
    assert (replaced.names, replaced.where(1), replaced.counts) == (
        ("anchor",),
        "/data/a.csv:5",
        some().counts,
    )
    assert some().with_column("premise", ["x", "y"]).column("premise") == ["x", "y"]
    assert some().with_column("source", [0, 1]).names == ("premise", "score", "negative", "source")
    assert some().recounted().counts == {"read": 2}


def test_tables_are_put_one_after_the_other() -> None:
    more = (
        some(FILES[1], (7, 8))
        .with_column("negative", ["n", "m"])
        .with_column("only here", ["", ""])
    )
    both = Rows.cat([some(), more, some()])
    assert both.column("negative") == [None, None, "n", "m", None, None]
    assert both.where(3) == "/data/b.csv:8"
    assert both.files == tuple(FILES)
    assert both.counts == {"read": 9, "dropped: blank line": 3}
    assert "only here" not in both.names


def test_errors() -> None:
    with pytest.raises(
        DataError, match=r"a.csv: no column 'premis'.*did you mean 'premise'.*found: premise, "
    ):
        some().column("premis")
    with pytest.raises(
        ValueError, match=r"columns must have the same length, got \{'a': 1, 'b': 2\}"
    ):
        Rows.of({"a": ["x"], "b": ["x", "y"]})
    with pytest.raises(ValueError, match="need at least one table of rows"):
        Rows.cat([])
