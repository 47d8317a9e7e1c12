"""The sentence pairs of dev and test sets, which must not be in a training set."""

import pyarrow as pa
import pytest
from data_modules import table_of

from lightning_cse.data.corpora import read_sources
from lightning_cse.data.leaks import all_pairs, free_of, pair_hashes


def table(names, *rows):
    return table_of(dict(zip(names.split(), zip(*rows, strict=True), strict=True)))


def hash_of_pair(first, second):
    return pair_hashes(*(pa.chunked_array([[text]], pa.string()) for text in (first, second)))[0]


@pytest.mark.parametrize(
    ("names", "row", "pairs"),
    [
        ("sentence1 sentence2", "PQ", "p-q"),
        ("sentence", "P", ""),
        ("anchor positive intermediate negative", "PQRS", "p-q p-r p-s"),
        ("anchor positive negative negative_2", "PQRS", "p-q p-r p-s"),
        ("pos_implicit pos_explicit neg_implicit neg_explicit", "PQRS", "p-q r-s"),
        ("premise anchor entailment positive", "PPQQ", "p-q"),
        ("premise hypothesis", ("A-b_c 1!", "\u00c9\u2014\u00df."), "abc1-\u00e9ss"),
        ("premise hypothesis", ("STRASSE", "\u03a3\u03c2"), "stra\u00dfe-\u03c3\u03c3"),
        ("premise hypothesis", ("He doesn't run?", "A man."), "aman-hedoesntrun"),
    ],
)
def test_the_pairs_of_a_row(names, row, pairs):
    """A pair ignores case, white space, punctuation and the order of both sentences."""
    want = {hash_of_pair(*pair.split("-")) for pair in pairs.split()}
    assert all_pairs([table(names, tuple(row))]).tolist() == sorted(want)


def test_pairs_of_equal_or_missing_sentences():
    assert hash_of_pair("a", "a") != hash_of_pair("b", "b")
    assert hash_of_pair("a", None) == hash_of_pair(None, None) == 0


def test_rows_may_lack_a_sentence():
    names = "premise entailment contradiction"
    pairs = all_pairs([table(names, ("P", "Q", None))])
    assert len(pairs) == 1

    rows = table(names, ("A", None, "B"), ("p", "q", None))

    assert free_of(rows, pairs).tolist() == [True, False]


def test_chosen_rows_are_free_of_the_pairs_of_others():
    names = "premise hypothesis"
    pairs = all_pairs([table(names, ("P", "Q"), ("R", "S"))])
    rows = table(names, ("A", "B"), ("p", "q."), ("r", "s"))

    assert free_of(rows, pairs).tolist() == [True, False, False]
    assert free_of(rows.select([2, 0]), pairs).tolist() == [False, True]
    assert free_of(rows, pairs[:0]).all()


def test_counterfactual_dev_and_test_come_from_snli_dev_and_test(real_data):
    pairs = all_pairs(read_sources(["snli_senteval/dev", "snli_senteval/test"], real_data, key="x"))
    leaks = []
    for split in ("original_train", "original_dev", "original_test", "revised_train"):
        (rows,) = read_sources(f"snli_counterfactual/{split}", real_data, key="x")
        leaks.append(int((~free_of(rows, pairs)).sum()))

    assert leaks == [0, 200, 400, 0]
