"""Rows: access by number, column and line, and the account of what was read and dropped."""

from __future__ import annotations

import pickle

import pytest

from lightning_cse.data.rows import Rows, SourceFile
from lightning_cse.errors import DataError

FILES = (SourceFile("A/a.csv", "/data/A/a.csv", "aa"), SourceFile("A/b.csv", "/data/A/b.csv.gz", "bb"))


def make() -> Rows:
    return Rows(
        {"premise": ["p0", "p1", "p2", "p3"], "score": [0.0, 1.0, 2.0, 3.0]},
        files=FILES,
        origins=[(0, 2), (0, 5), (1, 2), (1, 3)],
    )


def test_a_number_gives_a_row_and_a_slice_gives_rows() -> None:
    rows = make()
    assert rows[1] == {"premise": "p1", "score": 1.0}
    assert rows[-1] == rows[3]
    assert list(rows[1:3]) == [rows[1], rows[2]]
    assert isinstance(rows[1:3], Rows)
    assert list(rows) == [rows[i] for i in range(4)]
    assert rows.names == ("premise", "score")


def test_out_of_range_is_an_index_error() -> None:
    rows = make()
    with pytest.raises(IndexError):
        rows[4]
    with pytest.raises(IndexError):
        rows.select([0, -5])


def test_a_changed_row_or_column_changes_nothing_in_rows() -> None:
    rows = make()
    rows[0]["premise"] = "other"
    rows.column("premise")[0] = "other"
    assert rows[0]["premise"] == "p0"


def test_where_follows_the_row_through_select_and_slice() -> None:
    rows = make()
    assert [rows.where(i) for i in range(4)] == [
        "/data/A/a.csv:2",
        "/data/A/a.csv:5",
        "/data/A/b.csv.gz:2",
        "/data/A/b.csv.gz:3",
    ]
    chosen = rows.select([3, 0, 3])
    assert chosen.column("score") == [3.0, 0.0, 3.0]
    assert chosen.where(0) == "/data/A/b.csv.gz:3"
    assert chosen[1:].where(0) == "/data/A/a.csv:2"
    assert chosen.files == FILES


def test_new_columns_keep_lines_and_account() -> None:
    rows = make().select([2, 1]).with_columns(anchor=["x", "y"])
    assert rows[0] == {"anchor": "x"}
    assert rows.where(0) == "/data/A/b.csv.gz:2"
    assert rows.counts == {"read": 4}


def test_the_account_keeps_read_and_adds_what_was_dropped() -> None:
    rows = make()
    assert rows.counts == {"read": 4}
    assert rows[:2].counts == {"read": 4}
    fewer = rows.select([0, 1, 2], reason="too long").select([0], reason="too long").select([], reason="empty")
    assert fewer.counts == {"read": 4, "dropped: too long": 3, "dropped: empty": 1}
    assert rows.counts == {"read": 4}


def test_an_unknown_column_is_told_with_the_nearest_and_all_names() -> None:
    with pytest.raises(DataError, match=r"A/a.csv, A/b.csv: no column 'premis' - did you mean 'premise'\?") as caught:
        make().column("premis")
    assert str(caught.value).endswith("there are: premise, score")


def test_rows_without_files_say_their_number() -> None:
    rows = Rows({"text": ["a", "b"]})
    assert rows.where(1) == "row 2"
    assert rows.select([1])[0] == {"text": "b"}


def test_no_rows() -> None:
    assert len(Rows({})) == 0
    assert list(Rows({"text": []})) == []


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\{'a': 1, 'b': 2\}"):
        Rows({"a": ["x"], "b": ["x", "y"]})
    with pytest.raises(ValueError, match=r"1 rows need as many origins, got 2"):
        Rows({"a": ["x"]}, files=FILES, origins=[(0, 1), (0, 2)])
    with pytest.raises(ValueError, match=r"there are 2 files"):
        Rows({"a": ["x"]}, files=FILES, origins=[(2, 1)])


def test_rows_survive_pickling() -> None:
    rows = pickle.loads(pickle.dumps(make()))
    assert list(rows) == list(make())
    assert rows.where(3) == "/data/A/b.csv.gz:3"
