"""Which splits a training set is made of, and which sentence pairs must not be in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_cse.data.corpora import absent, sample_dir
from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import LEAK, all_pairs, pair_keys, read_sources, without_pairs
from lightning_cse.errors import ConfigError, DataError


def pairs(*rows: tuple[str, str]) -> Rows:
    premises, hypotheses = zip(*rows, strict=True)
    return Rows.of({"premise": premises, "hypothesis": hypotheses, "label": ["neutral"] * len(rows)})


def test_tokenised_and_raw_editions_of_a_pair_are_the_same() -> None:
    raw = pairs(("He doesn't run, does he?", "A man's asleep."))
    tokenised = pairs(("he does n't run , does he ? ", "A man 's asleep ."))
    turned = pairs(("A man's asleep.", "He doesn't run, does he?"))
    assert pair_keys(raw) == pair_keys(tokenised) == pair_keys(turned)


def test_pairs_do_not_run_into_each_other() -> None:
    assert pair_keys(pairs(("ab", "c"))) != pair_keys(pairs(("a", "bc")))


def test_rows_with_an_excluded_pair_are_dropped_and_counted() -> None:
    train = Rows.of({"premise": ["P", "Q", "R"], "entailment": ["a", "b", "c"], "contradiction": ["d", "e", "f"]})
    kept = without_pairs(train, all_pairs([pairs(("q", "E!"), ("P", "b"))]))
    assert kept.column("premise") == ["P", "R"]
    assert kept.counts == {"read": 3, f"dropped: {LEAK}": 1}


def test_sts_pairs_and_plain_sentences() -> None:
    sts = Rows.of({"sentence1": ["P"], "sentence2": ["Q"], "score": [1.0]})
    assert pair_keys(sts) == pair_keys(pairs(("P", "Q")))
    assert pair_keys(Rows.of({"sentence": ["P"]})) == [()]


def test_pairs_of_llm_rows() -> None:
    rows = Rows.of({"anchor": ["P"], "positive": ["Q"], "intermediate": ["R"], "negative": ["S"]})
    assert pair_keys(rows) == [tuple(key for (key,) in pair_keys(pairs(("P", "Q"), ("P", "R"), ("P", "S"))) if key)]
    without = Rows.of({"anchor": ["P"], "positive": ["Q"], "negative": ["S"]})
    assert set(pair_keys(rows)[0]) - set(pair_keys(without)[0]) == set(pair_keys(pairs(("R", "p!")))[0])


def test_both_pairs_of_implicit_pairs() -> None:
    rows = Rows.of({"pos_implicit": ["P"], "pos_explicit": ["Q"], "neg_implicit": ["R"], "neg_explicit": ["S"]})
    assert pair_keys(rows) == [tuple(key for (key,) in pair_keys(pairs(("P", "Q"), ("s.", "r"))))]
    assert len(without_pairs(rows, all_pairs([pairs(("S!", "r"))]))) == 0
    assert len(without_pairs(rows, all_pairs([pairs(("P", "S"))]))) == 1


def test_a_pair_that_a_row_lacks_is_no_leak() -> None:
    lacking_one = Rows.of({"premise": ["P"], "entailment": ["Q"], "contradiction": [None]})
    known = all_pairs([lacking_one])
    assert len(known) == 1
    other = Rows.of({"premise": ["A", "p"], "entailment": [None, "q"], "contradiction": ["B", None]})
    assert without_pairs(other, known).column("premise") == ["A"]


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    assert absent(str(tmp_path / "mine.csv"), tmp_path) is None, "read_sources says that there is no such file"
    told = absent("impscore/test", tmp_path)
    assert told is not None
    assert told.startswith(
        f"{tmp_path}/ImpScore/all_data.csv is not there; prepare impscore: fetches nothing: put all_"
    )
    assert absent("impscore/test", sample_dir()) is None
    assert absent("stsb/test", tmp_path) is None, "the hub may have it"
    with pytest.raises(DataError, match="'impscore' has no split 'val'"):
        absent("impscore/val", tmp_path)


@pytest.mark.parametrize("name", ["inli", "inli/", "/train", "a/b/c", "my/rows.tsv", "rows.gz"])
def test_a_name_of_another_form_is_told_with_its_key(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"data\.train: '{name}' is not of the form corpus/split") as caught:
        read_sources([name], sample_dir(), key="data.train")
    assert str(caught.value).endswith("; a file of your own ends in .txt, .jsonl or .csv, or one of them and .gz")


def test_own_files_beside_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.txt").write_text("One.\nTwo.\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = ["mine.txt", "inli/val", f"{tmp_path}/mine.txt"]
    own, inli, again = read_sources(names, sample_dir(), key="data.train")
    assert own.column("sentence") == again.column("sentence") == ["One.", "Two."]
    assert len(inli) == 120
    with pytest.raises(DataError, match=r"my/no\.jsonl: there is no such file; relative paths start at"):
        read_sources(["my/no.jsonl"], sample_dir(), key="data.train")


def test_unknown_corpora_and_splits_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown corpus 'inly' - did you mean 'inli'"):
        read_sources(["inly/train"], tmp_path, key="data.train")


def test_counterfactual_dev_and_test_come_from_snli_dev_and_test(real_data: Path) -> None:
    known = all_pairs(read_sources(["snli_senteval/dev", "snli_senteval/test"], real_data, key="x"))
    for split, leaks in (("original_train", 0), ("original_dev", 200), ("original_test", 400), ("revised_train", 0)):
        (rows,) = read_sources([f"snli_counterfactual/{split}"], real_data, key="x")
        assert len(rows) - len(without_pairs(rows, known)) == leaks
