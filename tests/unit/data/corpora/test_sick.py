"""SICK: both layouts, their quirks, every fault with its line, the sample, and the counts of the real files."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.readers import read_corpus, sample_dir
from lightning_cse.data.rows import Rows
from lightning_cse.errors import DataError

HEADER = [
    "pair_ID",
    "sentence_A",
    "sentence_B",
    "entailment_label",
    "relatedness_score",
    "entailment_AB",
    "entailment_BA",
    "sentence_A_original",
    "sentence_B_original",
    "sentence_A_dataset",
    "sentence_B_dataset",
    "SemEval_set",
]
ROW = dict(
    zip(
        HEADER,
        [
            "7",
            "A tall man naps",
            "A man naps",
            "ENTAILMENT",
            "4.5",
            "A_entails_B",
            "B_neutral_A",
            "a",
            "b",
            "F",
            "F",
            "TRAIN",
        ],
        strict=True,
    )
)
SEMEVAL_HEADER = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
SEMEVAL_ROW = dict(zip(SEMEVAL_HEADER, ["7", "A tall man naps", "A man naps", "4.5", "ENTAILMENT"], strict=True))
SIZES = {"train": (40, 4439, 4500), "trial": (20, 495, 500), "test": (60, 4906, 4927)}
FILES = {"train": "SICK_train.txt", "trial": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}


def put(folder: Path, name: str, rows: list[dict[str, str]], end: str = "\n") -> Path:
    path = folder / "SICK" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    path.write_bytes(end.join(lines).encode())
    return path


def fault(folder: Path, corpus: str, path: Path) -> str:
    """Read a bad train split and return the message after its path; it must be one line."""
    with pytest.raises(DataError) as caught:
        read_corpus(corpus, "train", folder)
    message = str(caught.value)
    assert message.startswith(f"{path}:")
    assert "\n" not in message
    return message.removeprefix(str(path))


# The layouts


def test_one_file_holds_all_splits(tmp_path: Path) -> None:
    sets = ["TEST", "TRAIN", "TRIAL", "TEST"]
    rows = [ROW | {"sentence_B": f"Sentence {i} ", "SemEval_set": name} for i, name in enumerate(sets)]
    path = put(tmp_path, "SICK.txt", rows, end="\r\n")
    found = {split: read_corpus("sick", split, tmp_path) for split in SIZES}
    assert {split: rows.column("hypothesis") for split, rows in found.items()} == {
        "train": ["Sentence 1"],
        "trial": ["Sentence 2"],
        "test": ["Sentence 0", "Sentence 3"],
    }
    assert [found["test"].where(i) for i in range(2)] == [f"{path}:2", f"{path}:5"]
    assert found["test"].counts == {"read": 2}
    assert list(read_corpus("sick", "dev", tmp_path)) == list(found["trial"])


def test_columns_of_the_full_file(tmp_path: Path) -> None:
    put(tmp_path, "SICK.txt", [ROW], end="\r\n")
    assert list(read_corpus("sick", "train", tmp_path)) == [
        {
            "premise": "A tall man naps",
            "hypothesis": "A man naps",
            "label": "entailment",
            "score": 4.5,
            "entailment_ab": "A_entails_B",
            "entailment_ba": "B_neutral_A",
            "semeval_set": "TRAIN",
        }
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("split", FILES)
def test_columns_of_the_semeval_files(tmp_path: Path, split: str, end: str) -> None:
    rows = [
        SEMEVAL_ROW | {"sentence_A": 'A "man', "relatedness_score": "1"},
        SEMEVAL_ROW | {"sentence_B": "None", "entailment_judgment": "CONTRADICTION"},
        SEMEVAL_ROW | {"relatedness_score": "4.885", "entailment_judgment": "NEUTRAL"},
    ]
    path = put(tmp_path, FILES[split], rows, end)
    found = read_corpus("sick_semeval", split, tmp_path)
    assert list(found) == [
        {"premise": 'A "man', "hypothesis": "A man naps", "label": "entailment", "score": 1.0},
        {"premise": "A tall man naps", "hypothesis": "None", "label": "contradiction", "score": 4.5},
        {"premise": "A tall man naps", "hypothesis": "A man naps", "label": "neutral", "score": 4.885},
    ]
    assert found.where(2) == f"{path}:4"


def test_quotes_in_columns_that_are_not_read_do_no_harm(tmp_path: Path) -> None:
    put(tmp_path, "SICK.txt", [ROW | {"sentence_A_original": 'A man, "tall'}, ROW | {"sentence_B": "B"}])
    assert read_corpus("sick", "train", tmp_path).column("hypothesis") == ["A man naps", "B"]


# Faults


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"sentence_A": " "}, "sentence_A is empty (white space only)"),
        ({"sentence_B": ""}, "sentence_B is empty"),
        ({"entailment_label": "entailment"}, "label 'entailment' is not one of ENTAILMENT, NEUTRAL, CONTRADICTION"),
        ({"relatedness_score": "4,5"}, "relatedness_score '4,5' is not a number"),
        ({"relatedness_score": "0.5"}, "relatedness_score '0.5' is not between 1 and 5"),
        ({"relatedness_score": "nan"}, "relatedness_score 'nan' is not between 1 and 5"),
        ({"entailment_AB": "A_entail_B"}, "entailment_AB 'A_entail_B' is not one of A_entails_B, A_neutral_B, "),
        ({"entailment_BA": "A_neutral_B"}, "entailment_BA 'A_neutral_B' is not one of B_entails_A, B_neutral_A, "),
        ({"SemEval_set": "DEV"}, "SemEval_set 'DEV' is not one of TRAIN, TRIAL, TEST"),
        ({"sentence_B": "A\tman"}, "13 cells between tabs, the header has 12 columns"),
    ],
)
def test_faults_of_the_full_file_are_told_with_their_line(tmp_path: Path, bad: dict[str, str], told: str) -> None:
    path = put(tmp_path, "SICK.txt", [ROW, ROW | bad, ROW], end="\r\n")
    assert fault(tmp_path, "sick", path).startswith(f":3: {told}")


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"sentence_A": ""}, "sentence_A is empty"),
        ({"entailment_judgment": "NEUTRALE"}, "label 'NEUTRALE' is not one of ENTAILMENT, NEUTRAL, CONTRADICTION"),
        ({"relatedness_score": "5.1"}, "relatedness_score '5.1' is not between 1 and 5"),
        ({"sentence_A": "A\tman"}, "6 cells between tabs, the header has 5 columns"),
    ],
)
def test_faults_of_the_semeval_files_are_told_with_their_line(tmp_path: Path, bad: dict[str, str], told: str) -> None:
    path = put(tmp_path, "SICK_train.txt", [SEMEVAL_ROW, SEMEVAL_ROW | bad, SEMEVAL_ROW])
    assert fault(tmp_path, "sick_semeval", path).startswith(f":3: {told}")


@pytest.mark.parametrize("name", HEADER)
def test_a_column_that_is_missing_is_told_if_it_is_needed(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, "SICK.txt", [{"other" if key == name else key: cell for key, cell in ROW.items()}])
    if name == "pair_ID" or name.endswith(("_original", "_dataset")):
        assert len(read_corpus("sick", "train", tmp_path)) == 1
    else:
        assert fault(tmp_path, "sick", path).startswith(f":1: missing column {name!r}")


def test_the_semeval_release_is_not_taken_for_the_full_file(tmp_path: Path) -> None:
    path = put(tmp_path, "SICK.txt", [SEMEVAL_ROW])
    message = fault(tmp_path, "sick", path)
    assert message.startswith(":1: missing columns 'entailment_label', 'entailment_AB', 'entailment_BA', 'SemEval_set'")


def test_a_split_without_rows_is_told(tmp_path: Path) -> None:
    path = put(tmp_path, "SICK.txt", [ROW | {"SemEval_set": "TEST"}])
    assert "no row of the split 'train': none has semeval_set = TRAIN" in fault(tmp_path, "sick", path)


# The sample


@pytest.fixture(scope="module")
def sample() -> dict[str, Rows]:
    return {split: read_corpus("sick", split, sample_dir()) for split in SIZES}


def directions(rows: Rows) -> Counter[tuple[str, str, str]]:
    return Counter(zip(*(rows.column(name) for name in ("label", "entailment_ab", "entailment_ba")), strict=True))


def test_sample_sizes_and_directions(sample: dict[str, Rows]) -> None:
    assert {split: len(rows) for split, rows in sample.items()} == {"train": 40, "trial": 20, "test": 60}
    assert directions(sample["test"]) == {
        ("entailment", "A_entails_B", "B_neutral_A"): 16,
        ("entailment", "A_entails_B", "B_entails_A"): 6,
        ("neutral", "A_neutral_B", "B_neutral_A"): 24,
        ("contradiction", "A_contradicts_B", "B_contradicts_A"): 14,
    }
    assert all(len(directions(rows)) == 4 for rows in sample.values())


def test_sample_premises_that_say_more_are_longer_as_a_rule(sample: dict[str, Rows]) -> None:
    one_way = [
        row for row in sample["test"] if (row["entailment_ab"], row["entailment_ba"]) == ("A_entails_B", "B_neutral_A")
    ]
    assert sum(len(str(row["premise"])) > len(str(row["hypothesis"])) for row in one_way) == 13


def test_sample_splits_share_no_sentence(sample: dict[str, Rows]) -> None:
    sentences = {split: {*rows.column("premise"), *rows.column("hypothesis")} for split, rows in sample.items()}
    for first, second in itertools.combinations(sentences.values(), 2):
        assert not first & second
    assert all(
        len(set(zip(rows.column("premise"), rows.column("hypothesis"), strict=True))) == len(rows)
        for rows in sample.values()
    )


def test_sample_of_semeval_has_the_same_pairs(sample: dict[str, Rows]) -> None:
    for split, rows in sample.items():
        columns = {name: rows.column(name) for name in ("premise", "hypothesis", "label", "score")}
        found = read_corpus("sick_semeval", split, sample_dir())
        assert {name: found.column(name) for name in columns} == columns


def test_sample_line_ends_are_the_official_ones() -> None:
    full = (sample_dir() / "SICK/SICK.txt").read_bytes()
    assert full.count(b"\r\n") == full.count(b"\n") == 120
    assert full.split(b"\r\n")[0].decode().split("\t") == HEADER
    for name, ends in (("SICK_train.txt", 0), ("SICK_trial.txt", 0), ("SICK_test_annotated.txt", 61)):
        data = (sample_dir() / "SICK" / name).read_bytes()
        assert data.count(b"\r\n") == ends
        assert data.endswith(b"\n")
        assert data.splitlines()[0].decode().split("\t") == SEMEVAL_HEADER


def test_sample_scores_cover_the_scale_and_rise_with_entailment(sample: dict[str, Rows]) -> None:
    for rows in sample.values():
        scores = rows.column("score")
        assert min(scores) == 1
        assert max(scores) >= 4.8
        entailed = [row["score"] for row in rows if row["label"] == "entailment"]
        assert sum(map(float, entailed)) / len(entailed) > 4


# The real files


@pytest.mark.parametrize("split", SIZES)
def test_real_rows(real_data: Path, split: str) -> None:
    _, full, semeval = SIZES[split]
    for name, size in (("sick", full), ("sick_semeval", semeval)):
        rows = read_corpus(name, split, real_data)
        (file,) = CORPORA[name].split_files(split)
        assert len(rows) == file.rows == size
        assert rows.files[0].sha256 == file.sha256


def test_real_test_labels(real_data: Path) -> None:
    full = read_corpus("sick", "test", real_data)
    assert Counter(full.column("label")) == {"entailment": 1404, "neutral": 2790, "contradiction": 712}
    semeval = read_corpus("sick_semeval", "test", real_data)
    assert Counter(semeval.column("label")) == {"entailment": 1414, "neutral": 2793, "contradiction": 720}


def test_real_entailments_that_hold_one_way_and_their_lengths(real_data: Path) -> None:
    rows = read_corpus("sick", "test", real_data)
    one_way = [row for row in rows if row["entailment_ab"] == "A_entails_B" and row["entailment_ba"] != "B_entails_A"]
    assert len(one_way) == 794
    assert sum(len(str(row["premise"])) > len(str(row["hypothesis"])) for row in one_way) == 549


def test_real_pairs_of_the_full_file_are_those_of_semeval(real_data: Path) -> None:
    names = ("premise", "hypothesis", "label", "score")
    missing = []
    for split in SIZES:
        full, semeval = (
            Counter(zip(*(rows.column(name) for name in names), strict=True))
            for rows in (read_corpus(corpus, split, real_data) for corpus in ("sick", "sick_semeval"))
        )
        assert not full - semeval
        missing.append((semeval - full).total())
    assert missing == [61, 5, 21]
