"""Rows of an implicit sentence with an explicit one that belongs to it, and with one that does
not.
"""

import pytest

from lightning_cse.data import INLIImplicitPairs, Rows, SourceFile
from lightning_cse.data.preparation import subset, used

ROLES = ("pos_implicit", "pos_explicit", "neg_implicit", "neg_explicit")
INLI = ("premise", "explicit_entailment", "implied_entailment", "neutral", "contradiction")


def inli(count=6, **changed):
    columns = {name: [f"{name} {row}" for row in range(count)] for name in INLI}
    return Rows.of(columns | changed, files=[SourceFile("train.csv", "/train.csv", "")])


def sources(rows):
    return [number for (number,) in rows.column("made_of")]


@pytest.mark.parametrize("explicit", ["explicit", "both"])
@pytest.mark.parametrize("mismatched", ["contradiction", "neutral"])
def test_premise_is_the_implicit_sentence_of_both_pairs(explicit, mismatched, adds_up):
    kinds = INLI[1:2] if explicit == "explicit" else INLI[1:3]
    built = INLIImplicitPairs(explicit, mismatched)([inli()])
    want = [
        (f"premise {row}", f"{kind} {row}", f"premise {row}", f"{mismatched} {row}")
        for row in range(6)
        for kind in kinds
    ]

    assert list(zip(*map(built.column, ROLES), strict=True)) == want
    assert sources(built) == [row for row in range(6) for _ in kinds]
    assert built.where(len(kinds)) == "/train.csv:2"
    assert adds_up(built.counts, used(built))
    assert len(subset(built, 3)) == 3 * len(kinds), "both rows of a premise are drawn together"


def test_repeated_sentences_are_never_their_own_mismatch():
    entailed = ["one", "two", "one", "three"]  # b entails what a entails
    rows = inli(4, premise=["a", "a", "b", "c"], explicit_entailment=entailed)

    for seed in range(20):
        others = INLIImplicitPairs("explicit", seed=seed)([rows]).column("neg_explicit")

        assert others[:2] == ["three", "three"]
        assert others[2] in ("two", "three")
        assert others[3] in ("one", "two")


def test_rows_without_a_pair_are_dropped_and_counted():
    entailed = {
        "explicit_entailment": ["a", None, None, "d"],
        "implied_entailment": ["e", "f", None, "h"],
    }
    built = INLIImplicitPairs()([inli(4, **entailed)])

    assert sources(built) == [0, 0, 1, 3, 3]
    assert built.counts == {"read": 4, "dropped: no pair": 1}
    assert built.has(*ROLES).all()

    contradicted = INLIImplicitPairs("explicit", "contradiction")

    assert sources(contradicted([inli(3, contradiction=[None, "no", None])])) == [1]
    assert len(INLIImplicitPairs()([inli(1)])) == 0
