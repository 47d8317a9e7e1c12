"""The sample corpus of the package: the official layout, sizes, and what makes it fit for training and tests."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.readers import read_corpus, sample_dir
from lightning_cse.data.rows import Rows

SIZES = {"inli": {"train": 595, "val": 120, "test": 180}, "stsb": {"train": 120, "dev": 100, "test": 100}}
HYPOTHESES = ("implied_entailment", "explicit_entailment", "neutral", "contradiction")


@pytest.fixture(scope="module")
def inli() -> dict[str, Rows]:
    return {split: read_corpus("inli", split, sample_dir()) for split in SIZES["inli"]}


@pytest.fixture(scope="module")
def stsb() -> dict[str, Rows]:
    return {split: read_corpus("stsb", split, sample_dir()) for split in SIZES["stsb"]}


def words(sentence: object) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z']+", str(sentence).lower()))


def test_every_corpus_has_every_split_in_the_official_place() -> None:
    assert set(SIZES) == set(CORPORA)
    for name, sizes in SIZES.items():
        assert {file.split for file in CORPORA[name].files} == set(sizes)
        for file in CORPORA[name].files:
            rows = read_corpus(name, file.split, sample_dir())
            assert (len(rows), rows.files[0].path) == (sizes[file.split], str(sample_dir() / file.path))


def test_nothing_else_lies_in_the_folder() -> None:
    found = {str(path.relative_to(sample_dir())) for path in sample_dir().rglob("*") if path.is_file()}
    assert found == {"LICENSE", *(file.path for corpus in CORPORA.values() for file in corpus.files)}
    assert "CC0-1.0" in (sample_dir() / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize("split", SIZES["inli"])
def test_inli_header_and_index_are_the_official_ones(split: str) -> None:
    text = (sample_dir() / f"INLI/{split}.csv").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0] == ",dataset,premise,implied_entailment,explicit_entailment,neutral,contradiction"
    assert [line.partition(",")[0] for line in lines[1:]] == [str(i) for i in range(SIZES["inli"][split])]


@pytest.mark.parametrize("path", [file.path for corpus in CORPORA.values() for file in corpus.files])
def test_typographic_signs_are_ascii(path: str) -> None:
    text = Path(sample_dir() / path).read_text(encoding="utf-8")
    assert not re.findall("[\u2010-\u2015\u2018-\u201f\u2026\u00a0\ufffd]", text)


def test_hypotheses_are_shorter_than_their_premise_and_differ(inli: dict[str, Rows]) -> None:
    for row in itertools.chain.from_iterable(inli.values()):
        length = len(str(row["premise"]).split())
        assert 10 <= length <= 50, row
        assert all(3 <= len(str(row[name]).split()) < length for name in HYPOTHESES), row
        assert len({str(row[name]) for name in HYPOTHESES}) == 4, row


def test_every_kind_of_scene_is_in_every_split(inli: dict[str, Rows]) -> None:
    for rows in inli.values():
        kinds = rows.column("dataset")
        assert set(kinds) == {"dialogue", "everyday", "work", "norms"}
        assert min(kinds.count(kind) for kind in set(kinds)) >= 0.2 * len(kinds)


def test_no_premise_comes_twice_also_not_nearly(inli: dict[str, Rows]) -> None:
    premises = [premise for rows in inli.values() for premise in rows.column("premise")]
    bags = [words(premise) for premise in premises]
    near = [
        (premises[i], premises[j])
        for i, j in itertools.combinations(range(len(bags)), 2)
        if len(bags[i] & bags[j]) > 0.4 * len(bags[i] | bags[j])
    ]
    assert near == []


def test_no_hypothesis_comes_twice(inli: dict[str, Rows]) -> None:
    sentences = [sentence for rows in inli.values() for name in HYPOTHESES for sentence in rows.column(name)]
    assert len(set(sentences)) == len(sentences)


def test_no_pair_of_stsb_comes_twice(stsb: dict[str, Rows]) -> None:
    bags = [words(f"{row['sentence1']} {row['sentence2']}") for row in itertools.chain.from_iterable(stsb.values())]
    assert not any(len(a & b) > 0.6 * len(a | b) for a, b in itertools.combinations(bags, 2))


def test_stsb_scores_cover_the_scale(stsb: dict[str, Rows]) -> None:
    for rows in stsb.values():
        scores = rows.column("score")
        for low in range(5):
            assert sum(low <= score < low + 1 or score == low + 1 == 5 for score in scores) >= 0.15 * len(scores)
        assert sum(score >= 4 for score in scores) >= 18
        assert sum(score <= 1 for score in scores) >= 18
        assert max(scores) == 5.0
        assert min(scores) == 0.0


def test_word_overlap_alone_does_not_give_the_score(stsb: dict[str, Rows]) -> None:
    for rows in stsb.values():
        overlaps = [
            (len(a & b) / len(a | b), row)
            for row in rows
            for a, b in [(words(row["sentence1"]), words(row["sentence2"]))]
        ]
        assert any(overlap < 0.2 and float(row["score"]) >= 4 for overlap, row in overlaps)
        assert any(overlap > 0.6 and float(row["score"]) <= 3 for overlap, row in overlaps)
