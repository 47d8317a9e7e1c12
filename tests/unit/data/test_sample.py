"""The sample corpus of the package: the official layout, sizes, and what makes it fit for training and tests."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from lightning_cse.config import conf_dir
from lightning_cse.data.corpora import CORPORA, read_corpus, sample_dir
from lightning_cse.data.hybrid import as_llm_rows
from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import all_pairs, pair_keys, read_sources

# Rows enough to learn from; the others have 20 to 60 a split.
SIZES = {
    "inli": {"train": 595, "val": 120, "test": 180},
    "stsb": {"train": 120, "dev": 100, "test": 100},
    "wiki1m": {"train": 410},
    "sts12": {"train": 60, "test": 100},
    "sts13": {"test": 60},
    "sts14": {"test": 120},
    "sts15": {"test": 100},
    "sts16": {"test": 100},
    "impscore": {"train": 180, "dev": 10, "test": 10},
    "ngcse": {"wiki_sts": 210, "wiki_nli": 60, "nli_sts": 50, "nli_nli": 50},
}
SPLITS = [(name, split) for name, corpus in CORPORA.items() for split in corpus.splits]
PATHS = list(dict.fromkeys(file.path for corpus in CORPORA.values() for file in corpus.files))
TRAINING = {"train", "extra", "original_train", "revised_train", *CORPORA["ngcse"].splits}
"""Splits to train on; every other is evaluated on."""

MIXTURES = sorted(path.stem for path in (conf_dir() / "corpora").glob("*.yaml"))
IMPLICIT_PAIRS = ("implicit_pairs_train", "implicit_pairs_dev", "implicit_pairs_test")
PAIR = ("pos_implicit", "pos_explicit", "neg_implicit", "neg_explicit")
LLM_ROWS = ("llm_wiki_nli", "llm_wiki_sts", "llm_nli_nli", "llm_nli_sts")
HYPOTHESES = ("implied_entailment", "explicit_entailment", "neutral", "contradiction")


@pytest.fixture(scope="module")
def inli() -> dict[str, Rows]:
    return {split: read_corpus("inli", split, sample_dir()) for split in SIZES["inli"]}


@pytest.fixture(scope="module")
def stsb() -> dict[str, Rows]:
    return {split: read_corpus("stsb", split, sample_dir()) for split in SIZES["stsb"]}


@pytest.fixture(scope="module")
def pairs() -> dict[str, Rows]:
    return {split: read_corpus("impscore", split, sample_dir()) for split in SIZES["impscore"]}


def words(sentence: object) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z']+", str(sentence).lower()))


def leaks(training: dict[str, Rows], evaluated: dict[str, Rows]) -> list[str]:
    """Return where a sentence pair to train on is one to evaluate on, row by row."""
    places = {
        key: f"{name}, row {row}"
        for name, rows in evaluated.items()
        for row, keys in enumerate(pair_keys(rows))
        for key in keys
    }
    return [
        f"{name}, row {row}: as {places[key]}"
        for name, rows in training.items()
        for row, keys in enumerate(pair_keys(rows))
        for key in keys
        if key in places
    ]


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_every_corpus_has_every_split_in_the_official_place(name: str, split: str) -> None:
    rows = read_corpus(name, split, sample_dir())
    assert [file.path for file in rows.files] == [
        str(sample_dir() / file.path) for file in CORPORA[name].split_files(split)
    ]
    if name in SIZES:
        assert len(rows) == SIZES[name][split]
    else:
        assert 20 <= len(rows) <= 60


def test_sick_has_all_its_splits_in_one_file() -> None:
    rows = {split: read_corpus("sick", split, sample_dir()) for split in CORPORA["sick"].splits}
    assert {file.name for table in rows.values() for file in table.files} == {"SICK/SICK.txt"}
    assert sum(map(len, rows.values())) == 120


class TestImplicitPairs:
    def test_the_drawn_splits_are_always_the_same(self, pairs: dict[str, Rows]) -> None:
        lines = {split: [int(rows.where(i).rpartition(":")[2]) for i in range(10)] for split, rows in pairs.items()}
        assert lines["dev"] == [4, 32, 47, 68, 78, 103, 123, 132, 172, 189]
        assert lines["test"] == [5, 15, 46, 66, 113, 130, 138, 160, 169, 195]
        assert lines["train"][:4] == [2, 3, 6, 7]

    def test_they_have_each_row_once(self, pairs: dict[str, Rows]) -> None:
        lines = [int(rows.where(i).rpartition(":")[2]) for rows in pairs.values() for i in range(len(rows))]
        assert sorted(lines) == list(range(2, 202))

    def test_no_sentence_is_in_two_splits_or_comes_twice(self, pairs: dict[str, Rows]) -> None:
        sentences = [s for rows in pairs.values() for name in PAIR[:2] for s in rows.column(name)]
        assert len({s.casefold() for s in sentences}) == len(sentences) == 400

    def test_the_other_explicit_sentence_is_that_of_another_row_of_the_split(self, pairs: dict[str, Rows]) -> None:
        for rows in pairs.values():
            assert rows.column("neg_implicit") == rows.column("pos_implicit")
            assert sorted(rows.column("neg_explicit")) == sorted(rows.column("pos_explicit"))
            assert all(row["neg_explicit"] != row["pos_explicit"] for row in rows)

    def test_no_two_rows_are_nearly_the_same(self, pairs: dict[str, Rows]) -> None:
        for name in PAIR[:2]:
            sentences = [s for rows in pairs.values() for s in rows.column(name)]
            bags = [words(s) for s in sentences]
            near = [
                (sentences[i], sentences[j])
                for i, j in itertools.combinations(range(len(bags)), 2)
                if len(bags[i] & bags[j]) > 0.5 * len(bags[i] | bags[j])
            ]
            assert near == []

    def test_an_implicit_sentence_is_not_always_the_longer_one(self, pairs: dict[str, Rows]) -> None:
        rows = Rows.cat(list(pairs.values()))
        longer = [len(row["pos_implicit"].split()) > len(row["pos_explicit"].split()) for row in rows]
        assert 0.68 <= sum(longer) / len(rows) <= 0.78, "LENGTH has 0.73 of the real pairs right"

    def test_an_implicit_sentence_shares_few_words_with_its_explicit_one(self, pairs: dict[str, Rows]) -> None:
        bags = [[words(row[name]) for name in PAIR[:2]] for rows in pairs.values() for row in rows]
        assert sum(len(a & b) / len(a | b) for a, b in bags) / len(bags) < 0.2


def test_nothing_else_lies_in_the_folder() -> None:
    found = {path.relative_to(sample_dir()).as_posix() for path in sample_dir().rglob("*") if path.is_file()}
    assert found == {"LICENSE", "SAMPLE", *PATHS}


def test_the_licence_is_free_and_names_every_corpus_whose_layout_is_here() -> None:
    licence = (sample_dir() / "LICENSE").read_text(encoding="utf-8")
    assert "SPDX-License-Identifier: CC0-1.0" in licence
    assert [path for path in PATHS if f"{path.split('/')[0]}/" not in licence] == []


def test_no_pair_of_a_dev_or_test_split_is_trained_on() -> None:
    zoo = {f"{name}/{split}": read_corpus(name, split, sample_dir()) for name, split in SPLITS}
    training = {name: rows for name, rows in zoo.items() if name.split("/")[1] in TRAINING}
    evaluated = {name: rows for name, rows in zoo.items() if name not in training}
    assert min(len(all_pairs(list(part.values()))) for part in (training, evaluated)) > 1000
    assert leaks(training, evaluated) == []


def test_a_leak_is_found_in_another_edition_and_turned_round() -> None:
    tokenised = read_corpus("snli_senteval", "test", sample_dir())
    premise, hypothesis = (tokenised.column(name)[3].replace(" .", ".").upper() for name in ("premise", "hypothesis"))
    leak = Rows.of({"premise": ["A dog.", hypothesis], "hypothesis": ["A cat.", premise]})
    assert leaks({"train": leak}, {"test": tokenised}) == ["train, row 1: as test, row 3"]


def test_every_split_to_train_on_is_known_as_one() -> None:
    named = {split for name, split in SPLITS if "train" in split or name == "ngcse"}
    assert named | {"extra"} == TRAINING


@pytest.mark.parametrize("mixture", MIXTURES)
def test_a_mixture_names_splits_that_are_there(mixture: str, compose: Callable[..., DictConfig]) -> None:
    cfg = compose("+experiment=gausscse", f"corpora={mixture}")
    corpora = OmegaConf.to_container(cfg, resolve=True)["corpora"]  # type: ignore[call-overload, index]
    assert isinstance(corpora, dict)
    named = {key: [value] if isinstance(value, str) else value for key, value in corpora.items()}
    tested = {"snli_dev", "snli_test", "mnli_test", "sick_test", "evaluated"}
    trained = {"nli_train", "wiki", "ngcse_wiki", "watched_wiki", *LLM_ROWS}
    assert set(named) == {"evaluated_sts", *trained, *tested, *IMPLICIT_PAIRS}
    for key, sources in named.items():
        assert sources or key == "watched_wiki"
        assert len(set(sources)) == len(sources), key
        for rows in read_sources(sources, sample_dir(), key=f"corpora.{key}", may_be_empty=True):
            if key in LLM_ROWS:
                assert len(as_llm_rows(rows, key.rpartition("_")[2])) >= 20
            else:
                assert ("sentence" in rows.names) == (key in {"wiki", "ngcse_wiki", "watched_wiki"})
                assert ("pos_implicit" in rows.names) == (key in IMPLICIT_PAIRS)
    tasks = {source for key in ("snli_dev", "snli_test", "mnli_test", "sick_test") for source in named[key]}
    assert tasks | {"stsb/dev", "stsb/test"} == set(named["evaluated"]), (
        "what the tasks read is what must not be trained on"
    )
    suite = compose("+experiment=ngcse_wiki_sts", f"corpora={mixture}").suite
    of_sts = {task[split] for task in suite.values() for split in ("dev", "test") if split in task}
    assert of_sts | {"stsb/dev", "stsb/test"} == set(named["evaluated_sts"])
    assert {source.split("/")[1] for key in ("nli_train", "wiki") for source in named[key]} <= TRAINING


@pytest.mark.parametrize("mixture", MIXTURES)
def test_no_pair_that_a_mixture_evaluates_is_in_its_training_set(
    mixture: str, compose: Callable[..., DictConfig]
) -> None:
    corpora = compose("+experiment=gausscse", f"corpora={mixture}").corpora
    training, evaluated = (
        dict(zip(sources, read_sources(sources, sample_dir(), key="corpora"), strict=True))
        for sources in (corpora.nli_train, corpora.evaluated)
    )
    assert leaks(training, evaluated) == []


@pytest.mark.parametrize("split", SIZES["inli"])
def test_inli_header_and_index_are_the_official_ones(split: str) -> None:
    text = (sample_dir() / f"INLI/{split}.csv").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0] == ",dataset,premise,implied_entailment,explicit_entailment,neutral,contradiction"
    assert [line.partition(",")[0] for line in lines[1:]] == [str(i) for i in range(SIZES["inli"][split])]


@pytest.mark.parametrize("path", PATHS)
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
