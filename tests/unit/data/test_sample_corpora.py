"""The sample of each corpus: labels, quirks of the official files, and no sentence in two splits."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from lightning_cse.data import Rows, read_corpus, sample_dir
from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.parsers import LLM_PATTERNS


def sample(name: str, split: str) -> Rows:
    return read_corpus(name, split, sample_dir())


def plain(rows: Rows) -> list[dict[str, Any]]:
    return [{name: row[name] for name in rows.names} for row in rows]


# MNLI


MATCHED = {"fiction", "government", "slate", "telephone", "travel"}
MISMATCHED = {"facetoface", "letters", "nineeleven", "oup", "verbatim"}
MNLI = [(name, split) for name in ("mnli", "mnli_glue", "mnli_nyu", "mnli_llmsknow") for split in CORPORA[name].splits]


@pytest.fixture(scope="module")
def mnli() -> dict[tuple[str, str], Rows]:
    return {key: sample(*key) for key in MNLI}


def mnli_pairs(rows: Rows) -> set[tuple[str, str]]:
    return set(zip(rows.column("premise"), rows.column("hypothesis"), strict=True))


def jsonl(split: str) -> list[dict[str, str]]:
    text = (sample_dir() / f"MNLI/multinli_1.0/multinli_1.0_{split}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_mnli_labels(mnli: dict[tuple[str, str], Rows]) -> None:
    for (name, split), rows in mnli.items():
        count = Counter(rows.column("label"))
        assert count["-"] == (2 if name == "mnli" and split != "train" else 0)
        assert min(count[label] for label in ("entailment", "neutral", "contradiction")) >= 0.25 * len(rows)


def test_mnli_pairs_are_in_one_split_once(mnli: dict[tuple[str, str], Rows]) -> None:
    splits = {
        part: [mnli_pairs(rows) for (_, split), rows in mnli.items() if split == part]
        for part in ("train", "dev_matched", "dev_mismatched")
    }
    for first, second in itertools.combinations(splits.values(), 2):
        assert not set.union(*first) & set.union(*second)
    assert all(len(mnli_pairs(rows)) == len(rows) for rows in mnli.values())
    premises = {key: set(rows.column("premise")) for key, rows in mnli.items() if key[0] == "mnli"}
    assert len(set.union(*premises.values())) == sum(map(len, premises.values())) == 50


def test_mnli_of_glue_is_the_labelled_part(mnli: dict[tuple[str, str], Rows]) -> None:
    for split in ("train", "dev_matched", "dev_mismatched"):
        labelled = [row for row in plain(mnli["mnli", split]) if row["label"] != "-"]
        assert plain(mnli["mnli_glue", split]) == labelled


def test_mnli_votes_agree_with_the_gold_label() -> None:
    for split in ("train", "dev_matched", "dev_mismatched"):
        rows = jsonl(split)
        assert {row["genre"] for row in rows} == (MISMATCHED if split == "dev_mismatched" else MATCHED)
        assert len({row["pairID"] for row in rows}) == len(rows)
        for row in rows:
            votes = Counter(row["annotator_labels"])
            assert sum(votes.values()) == (1 if split == "train" else 5)
            label, count = votes.most_common(1)[0]
            majority = label if 2 * count > sum(votes.values()) else "-"
            assert row["gold_label"] == majority


def test_mnli_has_the_quirks(mnli: dict[tuple[str, str], Rows]) -> None:
    for name in ("mnli", "mnli_glue", "mnli_nyu"):
        assert "None" in mnli[name, "train"].column("hypothesis")
        quote = "``" if name == "mnli_nyu" else '"'
        assert any(quote in premise for premise in mnli[name, "train"].column("premise"))
    assert any(premise.startswith('"') for premise in mnli["mnli_llmsknow", "train"].column("premise"))
    text = (sample_dir() / "MNLI/llmsknow/mnli_train.csv").read_text(encoding="utf-8")
    assert ' "" represent' in text
    assert not any(re.search(r'\."*$', str(row[name])) for row in plain(mnli["mnli_llmsknow", "train"]) for name in row)


def test_mnli_of_the_exercise_is_tokenised(mnli: dict[tuple[str, str], Rows]) -> None:
    for split in ("train", "dev_matched"):
        for row in mnli["mnli_nyu", split]:
            assert not re.search(r"\w[.,!?;](\s|$)|\w'(s|ll|d|re)\b|\wn't|\"", f"{row['premise']}\n{row['hypothesis']}")


def test_mnli_has_triplets_and_longer_premises(mnli: dict[tuple[str, str], Rows]) -> None:
    rows = mnli["mnli", "train"]
    labels: dict[object, list[object]] = {}
    for row in rows:
        labels.setdefault(row["premise"], []).append(row["label"])
    assert all({"entailment", "contradiction"} <= set(found) for found in labels.values())
    for key in (("mnli", "train"), ("mnli", "dev_matched"), ("mnli", "dev_mismatched")):
        longer = [len(str(row["premise"])) > len(str(row["hypothesis"])) for row in mnli[key]]
        assert 0.9 <= sum(longer) / len(longer) < 1


# SICK


@pytest.fixture(scope="module")
def sick() -> dict[str, Rows]:
    return {split: sample("sick", split) for split in CORPORA["sick"].splits}


def directions(rows: Rows) -> Counter[tuple[str, str, str]]:
    return Counter(zip(*(rows.column(name) for name in ("label", "entailment_ab", "entailment_ba")), strict=True))


def test_sick_sizes_and_directions(sick: dict[str, Rows]) -> None:
    assert {split: len(rows) for split, rows in sick.items()} == {"train": 40, "trial": 20, "test": 60}
    assert directions(sick["test"]) == {
        ("entailment", "A_entails_B", "B_neutral_A"): 16,
        ("entailment", "A_entails_B", "B_entails_A"): 6,
        ("neutral", "A_neutral_B", "B_neutral_A"): 24,
        ("contradiction", "A_contradicts_B", "B_contradicts_A"): 14,
    }
    assert all(len(directions(rows)) == 4 for rows in sick.values())


def test_sick_premises_that_say_more_are_longer_as_a_rule(sick: dict[str, Rows]) -> None:
    one_way = [
        row for row in sick["test"] if (row["entailment_ab"], row["entailment_ba"]) == ("A_entails_B", "B_neutral_A")
    ]
    assert sum(len(str(row["premise"])) > len(str(row["hypothesis"])) for row in one_way) == 13


def test_sick_splits_share_no_sentence(sick: dict[str, Rows]) -> None:
    sentences = {split: {*rows.column("premise"), *rows.column("hypothesis")} for split, rows in sick.items()}
    for first, second in itertools.combinations(sentences.values(), 2):
        assert not first & second
    assert all(
        len(set(zip(rows.column("premise"), rows.column("hypothesis"), strict=True))) == len(rows)
        for rows in sick.values()
    )


def test_sick_of_semeval_has_the_same_pairs(sick: dict[str, Rows]) -> None:
    for split, rows in sick.items():
        columns = {name: rows.column(name) for name in ("premise", "hypothesis", "label", "score")}
        found = read_corpus("sick_semeval", split, sample_dir())
        assert {name: found.column(name) for name in columns} == columns


def test_sick_line_ends_are_the_official_ones() -> None:
    full = (sample_dir() / "SICK/SICK.txt").read_bytes()
    assert full.count(b"\r\n") == full.count(b"\n") == 120
    for name, ends in (("SICK_train.txt", 0), ("SICK_trial.txt", 0), ("SICK_test_annotated.txt", 61)):
        data = (sample_dir() / "SICK" / name).read_bytes()
        assert data.count(b"\r\n") == ends
        assert data.endswith(b"\n")


def test_sick_scores_cover_the_scale_and_rise_with_entailment(sick: dict[str, Rows]) -> None:
    for rows in sick.values():
        scores = rows.column("score")
        assert min(scores) == 1
        assert max(scores) >= 4.8
        entailed = [row["score"] for row in rows if row["label"] == "entailment"]
        assert sum(map(float, entailed)) / len(entailed) > 4


# SNLI


NAMES = ("snli", "snli_senteval", "snli_partial", "snli_sample", "snli_counterfactual")
NATIVE_KEYS = [
    "annotator_labels",
    "captionID",
    "gold_label",
    "pairID",
    "sentence1",
    "sentence1_binary_parse",
    "sentence1_parse",
    "sentence2",
    "sentence2_binary_parse",
    "sentence2_parse",
]


def snli_pairs(name: str, split: str) -> set[tuple[str, str]]:
    """The snli_pairs of a split of the sample by their letters, so that a tokenised pair is the same pair."""
    letters = [
        "".join(filter(str.isalnum, str(sentence).lower())) for sentence in sample(name, split).column("premise")
    ]
    others = [
        "".join(filter(str.isalnum, str(sentence).lower())) for sentence in sample(name, split).column("hypothesis")
    ]
    return set(zip(letters, others, strict=True))


@pytest.mark.parametrize(
    ("name", "split", "labels"),
    [
        ("snli", "train", (23, 14, 23, 0)),
        ("snli", "dev", (20, 18, 20, 2)),
        ("snli", "test", (20, 18, 20, 2)),
        ("snli_senteval", "dev", (20, 18, 20, 0)),
        ("snli_senteval", "test", (20, 18, 20, 0)),
        ("snli_partial", "dev", (7, 6, 6, 1)),
        ("snli_partial", "test", (7, 6, 6, 1)),
        ("snli_sample", "train", (14, 13, 13, 0)),
        ("snli_sample", "extra", (7, 6, 7, 0)),
        ("snli_counterfactual", "original_train", (9, 6, 5, 0)),
        ("snli_counterfactual", "original_dev", (7, 8, 5, 0)),
        ("snli_counterfactual", "original_test", (7, 6, 7, 0)),
        ("snli_counterfactual", "revised_train", (8, 2, 10, 0)),
        ("snli_counterfactual", "revised_dev", (11, 1, 8, 0)),
        ("snli_counterfactual", "revised_test", (11, 2, 7, 0)),
    ],
)
def test_labels_of_snli_in_the_sample(name: str, split: str, labels: tuple[int, ...]) -> None:
    counts = Counter(sample(name, split).column("label"))
    assert tuple(counts[label] for label in ("entailment", "neutral", "contradiction", "-")) == labels


@pytest.mark.parametrize("path", [file.path for name in ("snli", "snli_partial") for file in CORPORA[name].files])
def test_native_rows_of_snli_in_the_sample(path: str) -> None:
    text = (sample_dir() / path).read_text(encoding="ascii")
    rows = [json.loads(row) for row in text.removesuffix("\n").split("\n")]
    assert text == "".join(f"{json.dumps(row)}\n" for row in rows).removesuffix("" if text[-1] == "\n" else "\n")
    assert len({row["pairID"] for row in rows}) == len(rows)
    for row in rows:
        assert list(row) == NATIVE_KEYS
        assert row["pairID"].startswith(row["captionID"])
        label, votes = Counter(row["annotator_labels"]).most_common(1)[0]
        assert row["gold_label"] == (label if 2 * votes > len(row["annotator_labels"]) else "-")
        assert len(row["annotator_labels"]) == (1 if "train" in path else 5)


def test_splits_of_snli_in_the_sample_share_no_pair() -> None:
    parts = {(name, split): snli_pairs(name, split) for name in NAMES for split in CORPORA[name].splits}
    training = {key for key in parts if key[1] in {"train", "extra", "original_train", "revised_train"}}
    kinds = {key: "train" if key in training else "dev" if key[1].endswith("dev") else "test" for key in parts}
    for one, other in itertools.combinations(parts, 2):
        if one[0] == other[0] or kinds[one] != kinds[other]:
            assert not parts[one] & parts[other], (one, other)
    for key, found in parts.items():
        assert len(found) == len(sample(*key)), f"{key} has a pair twice"


@pytest.mark.parametrize("split", ["dev", "test"])
def test_parts_of_snli_in_the_sample_are_parts_of_snli(split: str) -> None:
    whole = sample("snli", split)
    agreed = [row for row in range(len(whole)) if whole[row]["label"] != "-"]
    assert sample("snli_senteval", split).column("label") == whole.select(agreed).column("label")
    assert snli_pairs("snli_senteval", split) < snli_pairs("snli", split)
    assert plain(sample("snli_partial", split)) == plain(whole)[:20]
    assert snli_pairs("snli_counterfactual", f"original_{split}") < snli_pairs("snli", split)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_revised_rows_of_snli_in_the_sample_differ_in_one_sentence_and_in_label(split: str) -> None:
    original = sample("snli_counterfactual", f"original_{split}")
    for old, new in zip(original, sample("snli_counterfactual", f"revised_{split}"), strict=True):
        assert old["label"] != new["label"]
        assert (old["premise"] == new["premise"]) != (old["hypothesis"] == new["hypothesis"])


def test_premises_of_snli_in_the_sample_have_both_labels_that_a_triplet_needs() -> None:
    def complete(*parts: Rows) -> int:
        labels: dict[str, set[str]] = defaultdict(set)
        for row in itertools.chain.from_iterable(parts):
            labels[str(row["premise"])].add(str(row["label"]))
        return sum({"entailment", "contradiction"} <= found for found in labels.values())

    assert complete(sample("snli", "train")) == 21
    revised = [sample("snli_counterfactual", f"{kind}_train") for kind in ("original", "revised")]
    assert complete(*revised) == 10


@pytest.mark.parametrize(("name", "split"), [(name, split) for name in NAMES for split in CORPORA[name].splits])
def test_what_the_sample_entails_is_shorter_than_its_premise(name: str, split: str) -> None:
    for row in sample(name, split):
        if row["label"] == "entailment":
            assert len(str(row["hypothesis"]).split()) < len(str(row["premise"]).split()), row


# STS and transfer tasks


@pytest.mark.parametrize("name", ["sts12", "sts13", "sts14", "sts15", "sts16"])
def test_every_subset_of_sts_has_scores_of_all_sizes(name: str) -> None:
    for split in CORPORA[name].splits:
        subsets = dict.fromkeys(file.part for file in CORPORA[name].split_files(split))
        rows = sample(name, split)
        assert Counter(rows.column("subset")) == dict.fromkeys(subsets, 20)
        unscored = 5 * len(subsets) if name in {"sts15", "sts16"} else 0
        assert rows.counts.get("dropped: no gold score", 0) == unscored
        assert rows.counts["read"] == len(rows) + unscored
        for subset in subsets:
            scores = [float(row["score"]) for row in rows if row["subset"] == subset]
            assert min(scores) < 1.5
            assert max(scores) > 3.5


LABELS = {
    "mr": {"positive", "negative"},
    "cr": {"positive", "negative"},
    "subj": {"subjective", "objective"},
    "mpqa": {"positive", "negative"},
    "sst2": {"positive", "negative"},
    "trec": {"ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"},
    "mrpc": {"paraphrase", "other"},
}
TRANSFER = [(name, split) for name in LABELS for split in CORPORA[name].splits]


@pytest.mark.parametrize(("name", "split"), TRANSFER)
def test_transfer_tasks_have_every_class(name: str, split: str) -> None:
    rows = read_corpus(name, split, sample_dir())
    counts = Counter(rows.column("label"))
    assert set(counts) == LABELS[name]
    assert min(counts.values()) >= (1 if name == "trec" else len(rows) // 4)
    assert rows.counts.get("dropped: blank line", 0) == {"cr": 4, "mpqa": 3}.get(name, 0)


def test_no_sentence_of_a_transfer_task_is_in_two_splits() -> None:
    for name in ("sst2", "trec"):
        splits = [set(read_corpus(name, split, sample_dir()).column("sentence")) for split in CORPORA[name].splits]
        assert len(set.union(*splits)) == sum(map(len, splits))


# Triplets, plain sentences, LLM rows


ROLES = ("premise", "entailment", "contradiction")
TRIPLETS = {"simcse_nli": 60, "simcse_nli_head": 20}
TEXT = {
    "wiki1m": {"train": 410},
    "wiki1m_part": {"train": 30},
    "wiki_split": {"train": 20, "dev": 20, "test": 20},
    "wikitext2": {"valid": 22, "test": 20},
}


def test_triplets_has_the_official_layout() -> None:
    for name, size in TRIPLETS.items():
        assert (len(sample(name, "train")), sample(name, "train").names) == (size, ROLES)
        data = (sample_dir() / CORPORA[name].files[0].path).read_bytes()
        assert data.startswith(b"sent0,sent1,hard_neg\n")
        assert b"\r" not in data
        assert data.isascii()


def test_triplets_has_cells_that_need_quotes_and_a_word_that_looks_like_nothing() -> None:
    sentences = [sentence for role in ROLES for sentence in sample("simcse_nli", "train").column(role)]
    assert any('"' in sentence for sentence in sentences)
    assert any("," in sentence for sentence in sentences)
    assert "None" in sentences


def test_triplets_entailments_are_shorter_as_a_rule() -> None:
    for rows in (sample(name, "train") for name in TRIPLETS):
        shorter = [len(str(row["entailment"]).split()) < len(str(row["premise"]).split()) for row in rows]
        assert 0.8 * len(shorter) < sum(shorter) < len(shorter)


def test_no_sentence_of_a_triplet_comes_twice() -> None:
    sentences = [
        sentence
        for rows in (sample(name, "train") for name in TRIPLETS)
        for role in ROLES
        for sentence in rows.column(role)
    ]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize("name", TEXT)
def test_plain_sentences(name: str) -> None:
    assert CORPORA[name].splits == tuple(TEXT[name])
    for split, size in TEXT[name].items():
        rows = read_corpus(name, split, sample_dir())
        assert len(rows) == size
        assert all(4 <= len(sentence.split()) <= 40 or split != "train" for sentence in rows.column("sentence"))
        assert Path(rows.files[0].path).read_bytes().isascii()


def test_no_sentence_of_plain_text_comes_twice() -> None:
    tables = [read_corpus(name, split, sample_dir()) for name, splits in TEXT.items() for split in splits]
    sentences = [sentence for rows in tables for column in rows.names for sentence in rows.column(column)]
    assert len(sentences) == 410 + 30 + 3 * 60 + 22 + 20
    assert len(set(sentences)) == len(sentences)


def test_simple_sentences_are_shorter() -> None:
    for split in TEXT["wiki_split"]:
        for row in read_corpus("wiki_split", split, sample_dir()):
            lengths = [len(str(row[name]).split()) for name in ("sentence", "simple1", "simple2")]
            assert max(lengths[1:]) < lengths[0], row


def test_wikitext_has_headings_blank_lines_and_rare_words() -> None:
    for split in TEXT["wikitext2"]:
        rows = read_corpus("wikitext2", split, sample_dir())
        assert rows.counts["dropped: heading"] == 5
        assert rows.counts["dropped: blank line"] == 11
        assert "<unk>" in " ".join(rows.column("sentence"))
        lines = Path(rows.files[0].path).read_text(encoding="utf-8").split("\n")
        assert len(lines) == 25 + 1
        assert all(line.startswith(" ") and line.endswith(" ") for line in lines[:-1])


@pytest.mark.parametrize("split", CORPORA["ngcse"].splits)
def test_rows_of_llms_are_fit_for_training(split: str) -> None:
    rows = read_corpus("ngcse", split, sample_dir())
    assert rows.names == LLM_PATTERNS[split.rpartition("_")[2]]
    assert len(set(rows.column("anchor"))) == len(rows)
    for row in rows:
        assert len(set(row.values())) == len(row), row
        if "intermediate" in row:
            assert len(str(row["intermediate"]).split()) < len(str(row["positive"]).split()), row


def test_anchors_of_llms_are_sentences_of_the_corpus_they_replace() -> None:
    wiki = set(read_corpus("wiki1m", "train", sample_dir()).column("sentence"))
    for split in ("wiki_sts", "wiki_nli"):
        assert set(read_corpus("ngcse", split, sample_dir()).column("anchor")) <= wiki
    anchors = [set(read_corpus("ngcse", split, sample_dir()).column("anchor")) for split in ("wiki_sts", "wiki_nli")]
    assert anchors[0].isdisjoint(anchors[1])
