"""Hybrids: LLM rows in place of the sentences they were made from, and one hold-out for all
settings of a domain.
"""

import json
from collections import Counter

import pytest
from data_modules import apply, data_module, table_of

from lightning_cse.data import Hybrid, Sentences, TokenShuffle, where
from lightning_cse.data.corpora import read_sources
from lightning_cse.data.hybrid import PATTERNS, as_llm_rows
from lightning_cse.data.rows import count_corpus_rows
from lightning_cse.data.split import ANOTHER_ANCHOR
from lightning_cse.errors import ConfigError, DataError

SENTENCES = [f"sentence number {k}" for k in range(60)]
CORPUS = [*SENTENCES, "sentence number 4"]
STRANGERS = ["a stranger", "another stranger"]


def llm_row(anchor, pattern="sts"):
    return {role: f"{role} of {anchor}" for role in PATTERNS[pattern]} | {"anchor": anchor}


def put_rows(path, anchors, pattern="sts"):
    path.write_text("\n".join(json.dumps(llm_row(anchor, pattern)) for anchor in anchors))
    return str(path)


@pytest.fixture
def folder(tmp_path):
    """A corpus of 60 sentences, one of them twice, of which an LLM has extended 24, and two that
    are not in it.
    """
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS))

    for pattern in PATTERNS:
        put_rows(tmp_path / f"{pattern}.jsonl", [*SENTENCES[4:52:2], *STRANGERS], pattern)

    return tmp_path


def hybrid(folder, pattern="sts", file=None):
    path = str(folder / (file or f"{pattern}.jsonl"))
    return Hybrid(Sentences(), [path], pattern, str(folder))


def data(folder, rows=None, **options):
    options = {"held_out_share": 0.2, "data_dir": str(folder)} | options
    return data_module(str(folder / "corpus.txt"), rows or hybrid(folder), **options)


def anchors(rows):
    """Return the anchors that are sentences of the corpus."""
    return [anchor for anchor in rows["anchor"] if anchor not in STRANGERS]


def llm_anchors(rows):
    return {row["anchor"] for row in rows if row["negative"] is not None}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_llm_rows_replace_their_sentences(folder, pattern, plain, caplog):
    corpus = read_sources(str(folder / "corpus.txt"), folder, key="data.train")
    built, account = apply(hybrid(folder, pattern), *corpus)

    assert built["anchor"][:] == [*CORPUS, *STRANGERS]
    assert built["added"][:] == [False] * 61 + [True] * 2

    extended = {*range(4, 52, 2), 61, 62}

    for number, row in enumerate(plain(built)):
        alone = dict.fromkeys(PATTERNS[pattern]) | {"anchor": row["anchor"]}
        assert row == (llm_row(row["anchor"], pattern) if number in extended else alone)

    # 61 sentences and 26 LLM rows, of which 24 replace a sentence.
    assert account == {"read": 87, "dropped: replaced by an LLM row": 24}
    assert count_corpus_rows(built) == 63
    assert where(built, 6).endswith(f"{pattern}.jsonl:2")
    assert "2 of 26 LLM rows" in caplog.text


def test_hold_out_is_the_same_for_all_settings(folder, adds_up):
    settings = [
        data(folder, Sentences()),
        data(folder, Sentences(), augmentation=TokenShuffle()),
        data(folder, hybrid(folder, "nli"), seed=3),
        data(folder, llm_rows=5),
    ]
    for setting in settings:
        held_out = dict.fromkeys(anchors(setting.held_out))

        assert held_out == dict.fromkeys(anchors(settings[0].held_out))
        assert len(held_out) == 12
        assert held_out.keys().isdisjoint(setting.train["anchor"])
        assert adds_up(setting.counts)


def test_all_settings_watch_the_same_sentences_once_each(folder):
    put_rows(folder / "nli.jsonl", SENTENCES[4:40:2], "nli")
    watched_in = [str(folder / f"{pattern}.jsonl") for pattern in PATTERNS]
    share = {"held_out_share": 0.9, "watched_in": watched_in}
    plain = data(folder, Sentences(), **share)
    held_out = anchors(plain.held_out)

    assert held_out.count("sentence number 4") == 2, "repeated, so it is not watched"

    want = [sentence for sentence in held_out if sentence in SENTENCES[6:40:2]]

    assert plain.watched(["anchor"])["anchor"][:] == want

    for pattern, roles in PATTERNS.items():
        setting = data(folder, hybrid(folder, pattern), **share)
        assert setting.watched(roles)["anchor"][:] == want


def test_fewer_llm_rows(folder, adds_up):
    all_rows = data(folder)
    six, twelve = (data(folder, llm_rows=count) for count in (6, 12))

    assert llm_anchors(six.train) < llm_anchors(twelve.train) < llm_anchors(all_rows.train)
    assert len(llm_anchors(six.train)) == six.counts["llm_rows"] == 6
    assert list(six.held_out) == list(all_rows.held_out)
    assert anchors(six.train) == anchors(all_rows.train)
    assert all(row["negative"] for row in six.train if row["anchor"] in STRANGERS)
    assert adds_up(six.counts)


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("sts.jsonl", {"augmentation": TokenShuffle()}, r"data\.augmentation"),
        ("nli.jsonl", {}, r"nli\.jsonl: no LLM rows of the pattern 'sts'.*intermediate"),
        ("twice.jsonl", {}, r"twice\.jsonl:3: a second LLM row"),
    ],
)
def test_llm_rows_that_are_refused(folder, file, options, message):
    put_rows(folder / "twice.jsonl", ["a", "b", "a"])
    with pytest.raises((ConfigError, DataError), match=message):
        data(folder, hybrid(folder, file=file), **options)


# Corpora that stand in for LLM rows


def test_corpora_stand_in_for_llm_rows(plain):
    split = table_of({"sentence": ["a b", "c d"], "simple1": ["a", "c"], "simple2": ["b", "d"]})
    rows = plain(as_llm_rows(split, "sts", account := Counter()))

    assert rows == [
        {"anchor": text, "positive": text, "intermediate": text[0], "negative": ANOTHER_ANCHOR}
        for text in ("a b", "c d")
    ]
    assert account == {}

    columns = {"premise": list("pqp"), "explicit_entailment": list("efg")}
    triplets = as_llm_rows(table_of(columns | {"contradiction": list("ccc")}), "nli", account)

    assert [tuple(map(row.get, PATTERNS["nli"])) for row in triplets] == [
        tuple("pec"),
        tuple("qfc"),
    ]
    assert account == {"dropped: repeated anchor": 1}


def test_negatives_of_stand_ins_are_on_the_same_side_of_the_hold_out(tmp_path, put):
    sentences = [f"sentence {k} of" for k in range(40)]
    put("corpus.txt", "\n".join(sentences))
    rows = [f"{sentence}\t{sentence[:-3]} <::::> of\n" for sentence in sentences]
    put("text/wiki-split/tune.tsv", "".join(rows))
    stand_ins = Hybrid(Sentences(), ["wiki_split/train"], "sts", str(tmp_path))
    setting = data(tmp_path, stand_ins)

    for side in (setting.train, setting.held_out):
        assert sorted(side["anchor"]) == sorted(side["negative"])
        assert all(row["anchor"] != row["negative"] for row in side)
