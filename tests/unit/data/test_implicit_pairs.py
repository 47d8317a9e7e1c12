"""Rows of an implicit sentence with an explicit one that belongs to it, and with one that does
not.
"""

import pytest
from data_modules import apply, table_of

from lightning_cse.data import INLIImplicitPairs, where
from lightning_cse.data.rows import count_corpus_rows, has
from lightning_cse.data.split import subset

ROLES = ("pos_implicit", "pos_explicit", "neg_implicit", "neg_explicit")
INLI = ("premise", "explicit_entailment", "implied_entailment", "neutral", "contradiction")


def inli(count=6, **changed):
    columns = {name: [f"{name} {row}" for row in range(count)] for name in INLI}
    return table_of(columns | changed, "train.csv")


def corpus_rows(rows):
    return [number for (number,) in rows["made_of"]]


@pytest.mark.parametrize("explicit", ["explicit", "both"])
@pytest.mark.parametrize("mismatched", ["contradiction", "neutral"])
def test_premise_is_the_implicit_sentence_of_both_pairs(explicit, mismatched, adds_up):
    entailments = INLI[1:2] if explicit == "explicit" else INLI[1:3]
    built, account = apply(INLIImplicitPairs(explicit, mismatched), inli())
    want = [
        (f"premise {row}", f"{entailment} {row}", f"premise {row}", f"{mismatched} {row}")
        for row in range(6)
        for entailment in entailments
    ]

    assert list(zip(*map(built.__getitem__, ROLES), strict=True)) == want
    assert corpus_rows(built) == [row for row in range(6) for _ in entailments]
    assert where(built, len(entailments)) == "/data/train.csv:2"
    assert adds_up(account, count_corpus_rows(built))

    fewer = subset(built, 3, account)

    assert len(fewer) == 3 * len(entailments), "both rows of a premise are drawn together"
    assert adds_up(account, count_corpus_rows(fewer))


def test_repeated_sentences_are_never_their_own_mismatch():
    entailed = ["one", "two", "one", "three"]  # b entails what a entails
    rows = inli(4, premise=["a", "a", "b", "c"], explicit_entailment=entailed)

    for seed in range(20):
        of_other_rows = apply(INLIImplicitPairs("explicit", seed=seed), rows)[0]["neg_explicit"]

        assert of_other_rows[:2] == ["three", "three"]
        assert of_other_rows[2] in ("two", "three")
        assert of_other_rows[3] in ("one", "two")


def test_rows_without_a_pair_are_dropped_and_counted():
    entailed = {
        "explicit_entailment": ["a", None, None, "d"],
        "implied_entailment": ["e", "f", None, "h"],
    }
    built, account = apply(INLIImplicitPairs(), inli(4, **entailed))

    assert corpus_rows(built) == [0, 0, 1, 3, 3]
    assert account == {"read": 4, "dropped: no pair": 1}
    assert has(built, *ROLES).all()

    contradicted = INLIImplicitPairs("explicit", "contradiction")
    built, _ = apply(contradicted, inli(3, contradiction=[None, "no", None]))

    assert corpus_rows(built) == [1]
    assert len(apply(INLIImplicitPairs(), inli(1))[0]) == 0
