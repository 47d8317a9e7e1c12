"""Implicit/explicit pairs: the draw of the splits, and the file they are drawn of."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.corpora.impscore import SENTENCES, drawn_splits
from lightning_cse.data.readers import read_corpus
from lightning_cse.errors import DataError

HEADER = ",".join(SENTENCES)


def put(folder: Path, *rows: str) -> Path:
    path = folder / "ImpScore/all_data.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([HEADER, *rows, ""]), encoding="utf-8")
    return path


def test_the_splits_have_the_sizes_of_the_authors_code() -> None:
    splits = drawn_splits(56_290)
    sizes = {split: splits.count(split) for split in ("train", "dev", "test")}
    assert sizes == {"train": 50_661, "dev": 2_814, "test": 2_815}
    assert sizes == {file.split: file.rows for file in CORPORA["impscore"].files}
    assert 2 * sizes["test"] == 5_630, "the papers count pairs"
    assert 2 * sum(sizes.values()) == 112_580


def test_the_draw_is_that_of_the_authors_for_the_real_number_of_rows() -> None:
    splits = drawn_splits(56_290)
    assert [row for row, split in enumerate(splits) if split == "test"][:6] == [9, 14, 24, 28, 51, 59]
    assert [row for row, split in enumerate(splits) if split == "dev"][:6] == [45, 76, 94, 99, 111, 120]
    digest = hashlib.sha256("".join(split[:2] for split in splits).encode()).hexdigest()
    assert digest == "56623d2001a2e5e1934a0265cdb18e68c6d927a8ba6878f32772a0d700ba67eb"


@pytest.mark.parametrize("rows", [20, 100, 133, 1999])
def test_about_nine_tenths_are_to_train_on(rows: int) -> None:
    splits = drawn_splits(rows)
    assert len(splits) == rows
    assert splits.count("train") == rows * 9 // 10
    assert splits.count("dev") == rows // 20
    assert splits != sorted(splits)


def test_a_split_keeps_the_order_of_the_file(tmp_path: Path) -> None:
    path = put(tmp_path, *(f"i{n}, e{n} ,i{n},e{n + 1}" for n in range(60)))
    rows = {split: read_corpus("impscore", split, tmp_path) for split in CORPORA["impscore"].splits}
    assert [len(table) for table in rows.values()] == [54, 3, 3]
    numbers = {split: [int(name[1:]) for name in table.column("pos_implicit")] for split, table in rows.items()}
    assert all(found == sorted(found) for found in numbers.values())
    assert sorted(n for found in numbers.values() for n in found) == list(range(60))
    first = numbers["test"][0]
    assert rows["test"][0] == {
        "pos_implicit": f"i{first}",
        "pos_explicit": f"e{first}",
        "neg_implicit": f"i{first}",
        "neg_explicit": f"e{first + 1}",
        "split": "test",
    }
    assert rows["test"].where(0) == f"{path}:{first + 2}"


def test_a_file_of_too_few_rows_has_no_dev_split(tmp_path: Path) -> None:
    path = put(tmp_path, *["a,b,a,c"] * 19)
    with pytest.raises(DataError) as caught:
        read_corpus("impscore", "dev", tmp_path)
    assert str(caught.value) == f"{path}: no row of the split 'dev': none has split = dev"


def test_a_fault_is_told_whichever_split_it_is_in(tmp_path: Path) -> None:
    path = put(tmp_path, *["a,b,a,c"] * 30, "a,b,a, ")
    for split in CORPORA["impscore"].splits:
        with pytest.raises(DataError) as caught:
            read_corpus("impscore", split, tmp_path)
        assert str(caught.value) == f"{path}:32: neg_explicit is empty (white space only)"


def test_where_the_file_is_not_there_it_is_said_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ImpScore/all_data\.csv .*\n(.*\n)*.*put all_data\.csv of the authors"):
        read_corpus("impscore", "dev", tmp_path)
    assert "github.com/audreycs/ImpScore" in CORPORA["impscore"].prepare
