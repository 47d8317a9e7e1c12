"""Rows as a `datasets.Dataset`: columns, places, account."""

import pytest

from lightning_cse.data import Rows, SourceFile
from lightning_cse.errors import DataError

FILES = [
    SourceFile(
        "a.csv",
        "/data/a.csv",
        "1",
    ),
    SourceFile(
        "b.csv",
        "/data/b.csv",
        "2",
    ),
]


def two_rows(file=FILES[0], lines=(2, 5)):
    return Rows.of(
        {
            "premise": ["p", "q"],
            "score": [1.0, 2.0],
            "negative": [None, None],
        },
        files=[file],
        lines=lines,
        counts={
            "read": 3,
            "dropped: blank line": 1,
        },
    )


def test_columns_and_places():
    rows = two_rows()

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

    with pytest.raises(DataError, match=r"a.csv: no column 'premis'.*'premise'.*found: premise, "):
        rows.column("premis")


def test_selected_rows_keep_files_lines_and_account():
    chosen = two_rows().select([1], reason="not wanted")

    assert chosen.column("premise") == ["q"]
    assert chosen.where(0) == "/data/a.csv:5"
    assert chosen.files == (FILES[0],)
    assert chosen.counts == {
        "read": 3,
        "dropped: blank line": 1,
        "dropped: not wanted": 1,
    }
    assert two_rows().select(row for row in (1, 1, 0)).column("premise") == ["q", "q", "p"]

    filtered = two_rows().filter(lambda row: row["line"] == 5)

    assert type(filtered) is Rows
    assert filtered.where(0) == "/data/a.csv:5"


def test_concatenated_tables_have_their_shared_columns():
    more = two_rows(FILES[1], (7, 8)).with_column("negative", ["n", "m"])
    both = Rows.cat(
        [
            two_rows(),
            more.with_column("only here", ["", ""]),
            two_rows(),
        ]
    )

    assert both.column("negative") == [None, None, "n", "m", None, None]
    assert both.where(3) == "/data/b.csv:8"
    assert both.files == tuple(FILES)
    assert both.counts == {
        "read": 9,
        "dropped: blank line": 3,
    }
    assert "only here" not in both.names
