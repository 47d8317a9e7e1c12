"""STS12 to STS16: layout, every fault with its line, the sample, and the published counts of each subset."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.corpora.sts import parse_pairs, parse_scores
from lightning_cse.data.readers import read_corpus, sample_dir
from lightning_cse.errors import DataError

# Scored pairs a subset, as published.
PUBLISHED = {
    "sts12/train": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 734},
    "sts12/test": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "OnWN": 750, "SMTnews": 399},
    "sts13/test": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "sts14/test": {
        "deft-forum": 450,
        "deft-news": 300,
        "headlines": 750,
        "OnWN": 750,
        "images": 750,
        "tweet-news": 750,
    },
    "sts15/test": {"answers-forums": 375, "answers-students": 750, "belief": 375, "headlines": 750, "images": 750},
    "sts16/test": {
        "answer-answer": 254,
        "headlines": 249,
        "plagiarism": 230,
        "postediting": 244,
        "question-question": 209,
    },
}
TOTALS = {"sts12/train": 2234, "sts12/test": 3108, "sts13/test": 1500, "sts14/test": 3750, "sts15/test": 3000}
TOTALS["sts16/test"] = 1186
UNSCORED = {"sts15/test": 8500 - 3000, "sts16/test": 9183 - 1186}


def test_pairs_without_quoting() -> None:
    table = parse_pairs('He said "no.\tNone \r\n\u2028One\x0btwo.\t"Three"\tx\ty\n', "x")
    assert table.columns == {"sentence1": ['He said "no.', "One\x0btwo."], "sentence2": ["None", '"Three"']}
    assert table.lines == [1, 2]


def test_blank_lines_are_unscored_pairs_and_counted() -> None:
    table = parse_scores("\n4\r\n\n \n0.250\n\n", "x")
    assert table.columns == {"score": [4.0, 0.25]}
    assert table.lines == [2, 5]
    assert table.dropped == {"no gold score": 4}
    assert parse_scores("5", "x").dropped == {}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("One.", "x:2: 1 cell between tabs, 2 are needed, or 4 with the sources"),
        ("One.\tTwo.\tThree.", "x:2: 3 cells between tabs, 2 are needed, or 4 with the sources"),
        ("", "x:2: 1 cell between tabs, 2 are needed, or 4 with the sources"),
        ("\tTwo.", "x:2: sentence1 is empty"),
        ("One.\t ", "x:2: sentence2 is empty (white space only)"),
    ],
)
def test_faults_of_pairs(line: str, fault: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_pairs(f"A.\tB.\n{line}\nC.\tD.\n", "x")
    assert str(caught.value) == fault


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("five", "x:2: score 'five' is not a number"),
        ("5.01", "x:2: score '5.01' is not between 0 and 5"),
        ("-1", "x:2: score '-1' is not between 0 and 5"),
        ("nan", "x:2: score 'nan' is not between 0 and 5"),
    ],
)
def test_faults_of_scores(line: str, fault: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_scores(f"1\n{line}\n2\n", "x")
    assert str(caught.value) == fault


def test_a_file_without_a_score() -> None:
    with pytest.raises(DataError, match=r"^x: no score, only 2 blank lines$"):
        parse_scores("\n\n", "x")


def test_the_spec_has_the_published_counts() -> None:
    found = {f"{name}/{split}": CORPORA[name].rows(split) for name, split in (key.split("/") for key in PUBLISHED)}
    assert found == TOTALS
    for key, subsets in PUBLISHED.items():
        name, split = key.split("/")
        files = CORPORA[name].split_files(split)
        assert {file.part: file.rows for file in files} == subsets
        assert Counter(file.part for file in files) == dict.fromkeys(subsets, 2)


@pytest.mark.parametrize("key", PUBLISHED)
def test_every_subset_of_the_sample_has_scores_of_all_sizes(key: str) -> None:
    name, split = key.split("/")
    rows = read_corpus(name, split, sample_dir())
    assert Counter(rows.column("subset")) == dict.fromkeys(PUBLISHED[key], 20)
    unscored = 5 * len(PUBLISHED[key]) if key in UNSCORED else 0
    assert rows.counts == {"read": len(rows) + unscored} | ({"dropped: no gold score": unscored} if unscored else {})
    for subset in PUBLISHED[key]:
        scores = [float(row["score"]) for row in rows if row["subset"] == subset]
        assert min(scores) < 1.5
        assert max(scores) > 3.5


@pytest.mark.parametrize("key", PUBLISHED)
def test_every_real_subset_has_the_published_count(real_data: Path, key: str) -> None:
    name, split = key.split("/")
    rows = read_corpus(name, split, real_data)
    subsets = rows.column("subset")
    assert Counter(subsets) == PUBLISHED[key]
    assert list(dict.fromkeys(subsets)) == list(PUBLISHED[key])
    assert len(rows) == TOTALS[key]
    assert rows.counts.get("dropped: no gold score", 0) == UNSCORED.get(key, 0)
    assert rows.counts["read"] == TOTALS[key] + UNSCORED.get(key, 0)
    file, line = rows.where(len(rows) - 1).rsplit(":", 1)
    last = Path(file).read_text(encoding="utf-8").split("\n")[int(line) - 1]
    assert [cell.strip() for cell in last.split("\t")] == [rows[-1]["sentence1"], rows[-1]["sentence2"]]


def test_real_training_pairs_fall_into_the_patterns_as_counted(real_data: Path) -> None:
    rows = read_corpus("sts12", "train", real_data)
    counts = {
        subset: (sum(s > 4 for s in scores), sum(1 < s < 4 for s in scores), sum(s < 1 for s in scores))
        for subset in PUBLISHED["sts12/train"]
        for scores in [[float(row["score"]) for row in rows if row["subset"] == subset]]
    }
    assert counts == {"MSRpar": (133, 530, 11), "MSRvid": (102, 359, 242), "SMTeuroparl": (542, 122, 8)}
