"""Pairs of a corpus, counted."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from lightning_cse.data import sample_dir
from lightning_cse.errors import DataError
from lightning_cse.papers.corpus_statistics import pair_counts


def lines(path: Path) -> int:
    with path.open(encoding="utf-8", newline="") as file:
        return len(list(csv.reader(file))) - 1


def test_inli_has_four_pairs_a_line() -> None:
    counts = pair_counts("inli", sample_dir())
    assert counts == {split: 4 * lines(sample_dir() / "INLI" / f"{split}.csv") for split in ("train", "val", "test")}


def test_the_official_inli_has_what_the_paper_says(real_data: Path) -> None:
    assert pair_counts("inli", real_data) == {"train": 32_000, "val": 4_000, "test": 4_000}


def test_a_corpus_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"corpus 'inli', split 'train' is not there"):
        pair_counts("inli", tmp_path)
    with pytest.raises(DataError, match=r"unknown corpus 'inly' - did you mean 'inli'\?"):
        pair_counts("inly", tmp_path)
