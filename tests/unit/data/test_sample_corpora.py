"""The sample of each corpus: nothing comes twice, corpora of one origin belong together, labels and scores vary."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from lightning_cse.data import Rows, read_corpus, sample_dir
from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.sources import all_pairs

HYPOTHESES = ("implied_entailment", "explicit_entailment", "neutral", "contradiction")
SNLI = ("snli", "snli_senteval", "snli_partial", "snli_sample", "snli_counterfactual")
MNLI = ("mnli", "mnli_glue", "mnli_nyu", "mnli_llmsknow")
CLASSES = {
    "mr": {"positive", "negative"},
    "cr": {"positive", "negative"},
    "subj": {"subjective", "objective"},
    "mpqa": {"positive", "negative"},
    "sst2": {"positive", "negative"},
    "trec": {"ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"},
    "mrpc": {"paraphrase", "other"},
}


def sample(name: str, split: str) -> Rows:
    return read_corpus(name, split, sample_dir())


def splits(name: str) -> dict[str, Rows]:
    return {split: sample(name, split) for split in CORPORA[name].splits}


def columns(tables: Iterable[Rows], *names: str) -> list[str]:
    return [sentence for rows in tables for name in names for sentence in rows.column(name)]


@pytest.mark.parametrize(
    ("corpora", "names"),
    [
        (["inli"], ["premise"]),
        (["inli"], HYPOTHESES),
        (["impscore"], ["pos_implicit", "pos_explicit"]),
        (["simcse_nli", "simcse_nli_head"], ["premise", "entailment", "contradiction"]),
        (["wiki1m", "wiki1m_part", "wiki_split", "wikitext2"], ["sentence"]),
        (["sst2"], ["sentence"]),
        (["trec"], ["sentence"]),
    ],
)
def test_no_sentence_comes_twice(corpora: list[str], names: list[str]) -> None:
    sentences = columns((rows for name in corpora for rows in splits(name).values()), *names)
    assert len({sentence.casefold() for sentence in sentences}) == len(sentences)


def test_a_pair_that_does_not_match_has_the_explicit_sentence_of_another_row_of_its_split() -> None:
    for rows in splits("impscore").values():
        assert rows.column("neg_implicit") == rows.column("pos_implicit")
        assert sorted(rows.column("neg_explicit")) == sorted(rows.column("pos_explicit"))
        assert all(row["neg_explicit"] != row["pos_explicit"] for row in rows)


# SNLI, MNLI, SICK


@pytest.mark.parametrize("names", [SNLI, MNLI])
def test_kinds_of_splits_share_no_pair(names: tuple[str, ...]) -> None:
    parts = {
        (name, split): all_pairs([rows]) for name in names for split, rows in splits(name).items()
    }
    assert all(len(found) == len(sample(*key)) for key, found in parts.items()), (
        "none has a pair twice"
    )
    kinds = {
        key: next((k for k in ("mismatched", "dev", "test") if k in key[1]), "train")
        for key in parts
    }
    for one, other in itertools.combinations(parts, 2):
        if kinds[one] != kinds[other]:
            assert not parts[one] & parts[other], (one, other)


@pytest.mark.parametrize("split", CORPORA["mnli"].splits)
def test_mnli_of_glue_is_the_labelled_part(split: str, plain: Callable[[Rows], list[Any]]) -> None:
    labelled = [row for row in plain(sample("mnli", split)) if row["label"] != "-"]
    assert plain(sample("mnli_glue", split)) == labelled
    assert len(sample("mnli", split)) - len(labelled) == (0 if split == "train" else 2)


def test_sick_has_directions_of_entailment_and_the_pairs_of_semeval() -> None:
    assert {split: len(rows) for split, rows in splits("sick").items()} == {
        "train": 40,
        "trial": 20,
        "test": 60,
    }
    names = ("label", "entailment_ab", "entailment_ba")
    assert Counter(zip(*(sample("sick", "test").column(name) for name in names), strict=True)) == {
        ("entailment", "A_entails_B", "B_neutral_A"): 16,
        ("entailment", "A_entails_B", "B_entails_A"): 6,
        ("neutral", "A_neutral_B", "B_neutral_A"): 24,
        ("contradiction", "A_contradicts_B", "B_contradicts_A"): 14,
    }
    for split, rows in splits("sick").items():
        for name in ("premise", "hypothesis", "label", "score"):
            assert sample("sick_semeval", split).column(name) == rows.column(name)
    for first, second in itertools.combinations(splits("sick").values(), 2):
        assert not set(columns([first], "premise", "hypothesis")) & set(
            columns([second], "premise", "hypothesis")
        )


# STS and transfer tasks, plain text, LLM rows


@pytest.mark.parametrize("name", ["sts12", "sts13", "sts14", "sts15", "sts16"])
def test_every_subset_of_sts_has_scores_of_all_sizes(name: str) -> None:
    for split, rows in splits(name).items():
        subsets = dict.fromkeys(file.part for file in CORPORA[name].split_files(split))
        assert Counter(rows.column("subset")) == dict.fromkeys(subsets, 20)
        unscored = 5 * len(subsets) if name in {"sts15", "sts16"} else 0
        assert (
            rows.counts.get("dropped: no gold score", 0)
            == unscored
            == rows.counts["read"] - len(rows)
        )
        for subset in subsets:
            scores = [row["score"] for row in rows if row["subset"] == subset]
            assert min(scores) < 1.5 < 3.5 < max(scores)


@pytest.mark.parametrize("name", CLASSES)
def test_transfer_tasks_have_every_class(name: str) -> None:
    for rows in splits(name).values():
        counts = Counter(rows.column("label"))
        assert set(counts) == CLASSES[name]
        assert min(counts.values()) >= (1 if name == "trec" else len(rows) // 4)


def test_anchors_of_llms_are_sentences_of_the_corpus_they_replace() -> None:
    sts, nli = (set(sample("ngcse", split).column("anchor")) for split in ("wiki_sts", "wiki_nli"))
    assert sts | nli <= set(sample("wiki1m", "train").column("sentence"))
    assert not sts & nli
