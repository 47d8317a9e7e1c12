"""The sources of a training set, and the sentence pairs that must not be in it."""

import pytest

from lightning_cse.data import mapped, sources
from lightning_cse.data.corpora import sample_dir
from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import all_pairs, free_of, pair_hash, read_sources, without_pairs
from lightning_cse.errors import ConfigError, DataError


def table(names, *rows):
    return Rows.of(dict(zip(names.split(), zip(*rows, strict=True), strict=True)))


@pytest.mark.parametrize(
    ("names", "row", "keys"),
    [
        ("sentence1 sentence2", "PQ", "p-q"),
        ("sentence", "P", ""),
        ("anchor positive intermediate negative", "PQRS", "p-q p-r p-s"),
        ("anchor positive negative negative_2", "PQRS", "p-q p-r p-s"),
        ("pos_implicit pos_explicit neg_implicit neg_explicit", "PQRS", "p-q r-s"),
        ("premise anchor entailment positive", "PPQQ", "p-q"),
        ("premise hypothesis", ("A-b_c 1!", "\u00c9\u2014\u00df."), "abc1-\u00e9ss"),
        ("premise hypothesis", ("He doesn't run?", "A man."), "aman-hedoesntrun"),
    ],
)
def test_the_pairs_of_a_row(names, row, keys):
    """A key ignores case, white space, punctuation and the order of both sentences."""
    rows = table(names, tuple(row))
    want = {pair_hash(*key.split("-")) for key in keys.split()}
    assert all_pairs([rows]).tolist() == sorted(want)


def test_rows_may_lack_a_sentence():
    names = "premise entailment contradiction"
    known = all_pairs([table(names, ("P", "Q", None))])
    assert len(known) == 1
    other = table(names, ("A", None, "B"), ("p", "q", None))
    assert without_pairs(other, known).column("premise") == ["A"]


def test_long_tables_are_searched_once(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "LONG", 1)
    names = "premise hypothesis"
    known = all_pairs([table(names, ("P", "Q"), ("R", "S"))])
    columns = {"premise": ["A", "p", "r"], "hypothesis": ["B", "q.", "s"]}
    rows = Rows.of(columns, cache_dir=tmp_path)
    want = [True, False, False]

    assert free_of(rows, known).tolist() == want
    assert free_of(rows.select([2, 0]), known).tolist() == [False, True]
    assert len(list((tmp_path / "computed").iterdir())) == 1

    monkeypatch.setattr(sources, "pair_hash", None)
    assert free_of(rows, known).tolist() == want
    monkeypatch.undo()
    monkeypatch.setattr(mapped, "LONG", 1)

    assert free_of(rows, known[:1]).sum() == 2
    assert free_of(rows.with_column("hypothesis", ["B", "C", "D"]), known).all()
    assert len(list((tmp_path / "computed").iterdir())) == 3


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["inli"], "'inli' is not of the form corpus/split"),
        (["my/rows.json"], "'my/rows.json' is not of the form corpus/split"),
        ([], "give a file of your own, or corpus/split"),
        (["my/no.jsonl"], "my/no.jsonl: there is no such file"),
        (["inly/train"], "unknown corpus 'inly' - did you mean 'inli'"),
    ],
)
def test_errors_name_the_key(names, words):
    with pytest.raises((ConfigError, DataError), match=r"^data\.train: ") as caught:
        read_sources(names, sample_dir(), key="data.train")

    assert words in str(caught.value)


def test_counterfactual_dev_and_test_come_from_snli_dev_and_test(real_data):
    known = all_pairs(read_sources(["snli_senteval/dev", "snli_senteval/test"], real_data, key="x"))
    leaks = []
    for split in ("original_train", "original_dev", "original_test", "revised_train"):
        (rows,) = read_sources(f"snli_counterfactual/{split}", real_data, key="x")
        leaks.append(len(rows) - len(without_pairs(rows, known)))

    assert leaks == [0, 200, 400, 0]
