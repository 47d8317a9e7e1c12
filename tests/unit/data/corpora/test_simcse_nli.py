"""SimCSE's triplets: the layout, every fault with its line, the sample and the real head of the file."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.readers import find_file, read_corpus, sample_dir
from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import all_pairs
from lightning_cse.errors import DataError

HEADER = "sent0,sent1,hard_neg\n"
ROLES = ("premise", "entailment", "contradiction")
SIZES = {"simcse_nli": 60, "simcse_nli_head": 20}


def put(folder: Path, text: str) -> Path:
    path = folder / "simcse/nli_for_simcse.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    return path


@pytest.fixture(scope="module")
def sample() -> dict[str, Rows]:
    return {name: read_corpus(name, "train", sample_dir()) for name in SIZES}


def test_columns_get_the_names_of_their_roles(tmp_path: Path) -> None:
    path = put(
        tmp_path, HEADER + '"A man, a ""plan"".",A man.  ,None\nn/a,NA,"Two\nlines"\nIt rained.,Rain.,No rain.\n'
    )
    rows = read_corpus("simcse_nli", "train", tmp_path)
    assert list(rows) == [
        {"premise": 'A man, a "plan".', "entailment": "A man.", "contradiction": "None"},
        {"premise": "n/a", "entailment": "NA", "contradiction": "Two\nlines"},
        {"premise": "It rained.", "entailment": "Rain.", "contradiction": "No rain."},
    ]
    assert rows.where(2) == f"{path}:5"


def test_order_of_columns_line_ends_and_a_mark_do_not_matter(tmp_path: Path) -> None:
    put(tmp_path, "\ufeffhard_neg,sent1,sent0\r\nc,b,a\r\n")
    assert list(read_corpus("simcse_nli", "train", tmp_path)) == [
        {"premise": "a", "entailment": "b", "contradiction": "c"}
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (HEADER, ": a header but no rows"),
        ("sent0,sent1\na,b\n", ":1: missing column 'hard_neg'; columns found: sent0, sent1"),
        ("a,b,c\n", ":1: missing columns 'sent0', 'sent1', 'hard_neg'; columns found: a, b, c"),
        (HEADER + "a,b,c\na,b\n", ":3: 2 cells, the header has 3 columns"),
        (HEADER + "a,b,c\na,b,c,d\n", ":3: 4 cells, the header has 3 columns"),
        (HEADER + "a,b,c\n\na,b,c\n", ":3: blank line"),
        (HEADER + ",b,c\n", ":2: sent0 is empty"),
        (HEADER + '"a\nb",b,c\na, ,c\n', ":4: sent1 is empty (white space only)"),
        (HEADER + "a,b,c\na,b,\n", ":3: hard_neg is empty"),
        (HEADER + 'a,b,c\na,"b" x,c\n', ":3: the row that starts here is not valid CSV: ',' expected after '\"'"),
    ],
)
def test_faults(tmp_path: Path, text: str, fault: str) -> None:
    path = put(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read_corpus("simcse_nli", "train", tmp_path)
    assert str(caught.value) == f"{path}{fault}"


# The sample


def test_sample_has_the_official_layout(sample: dict[str, Rows]) -> None:
    for name, size in SIZES.items():
        assert (len(sample[name]), sample[name].names) == (size, ROLES)
        data = (sample_dir() / CORPORA[name].files[0].path).read_bytes()
        assert data.startswith(HEADER.encode())
        assert b"\r" not in data
        assert data.isascii()


def test_sample_has_cells_that_need_quotes_and_a_word_that_looks_like_nothing(sample: dict[str, Rows]) -> None:
    sentences = [sentence for role in ROLES for sentence in sample["simcse_nli"].column(role)]
    assert any('"' in sentence for sentence in sentences)
    assert any("," in sentence for sentence in sentences)
    assert "None" in sentences


def test_sample_entailments_are_shorter_as_a_rule(sample: dict[str, Rows]) -> None:
    for rows in sample.values():
        shorter = [len(str(row["entailment"]).split()) < len(str(row["premise"]).split()) for row in rows]
        assert 0.8 * len(shorter) < sum(shorter) < len(shorter)


def test_no_sentence_of_the_sample_comes_twice(sample: dict[str, Rows]) -> None:
    sentences = [sentence for rows in sample.values() for role in ROLES for sentence in rows.column(role)]
    assert len(set(sentences)) == len(sentences)


def test_no_pair_of_the_sample_is_in_a_dev_or_test_file_of_the_sample(sample: dict[str, Rows]) -> None:
    held_out = [
        read_corpus(name, split, sample_dir())
        for name, corpus in CORPORA.items()
        for split in corpus.splits
        if "train" not in split and all(find_file(sample_dir(), file) for file in corpus.split_files(split))
    ]
    assert {"INLI/val.csv", "STS/STSBenchmark/sts-test.csv"} <= {file.name for rows in held_out for file in rows.files}
    ours = all_pairs(list(sample.values()))
    assert len(ours) == 2 * sum(SIZES.values())
    assert ours.isdisjoint(all_pairs(held_out))


# The real files


def test_the_real_head(real_data: Path) -> None:
    rows = read_corpus("simcse_nli_head", "train", real_data)
    (file,) = CORPORA["simcse_nli_head"].files
    assert (len(rows), rows.files[0].sha256) == (9, file.sha256)
    assert rows.names == ROLES
    assert len(set(itertools.chain.from_iterable(rows.column(role) for role in ROLES))) == 27


def test_sizes_are_the_published_ones() -> None:
    assert {name: CORPORA[name].files[0].rows for name in SIZES} == {"simcse_nli": 275_601, "simcse_nli_head": 9}
