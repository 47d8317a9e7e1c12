"""Rows of an implicit sentence with an explicit one that belongs to it, and with one that does not."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from lightning_cse.data import ContrastiveData, ImplicitPairs, INLIImplicitPairs, Rows, SourceFile, sample_dir
from lightning_cse.data.drawing import subset, used
from lightning_cse.errors import DataError
from lightning_cse.tokens import Tokenize

ROLES = ("pos_implicit", "pos_explicit", "neg_implicit", "neg_explicit")
INLI = ("premise", "explicit_entailment", "implied_entailment", "neutral", "contradiction")


def inli(count: int = 6, **changed: Sequence[str | None]) -> Rows:
    columns = {name: [f"{name} {row}" for row in range(count)] for name in INLI}
    return Rows.of(columns | changed, files=[SourceFile("INLI/train.csv", "/data/INLI/train.csv", "")])


def quadruples(rows: Rows) -> list[tuple[str, ...]]:
    return list(zip(*(rows.column(role) for role in ROLES), strict=True))


def sources(rows: Rows) -> list[tuple[int, ...]]:
    return [tuple(numbers) for numbers in rows.column("made_of")]


def adds_up(counts: dict[str, int], used: int) -> bool:
    return counts["read"] == used + sum(count for key, count in counts.items() if key.startswith("dropped: "))


def test_the_pair_file_is_taken_as_it_is() -> None:
    rows = Rows.of({role: [f"{role} {row}" for row in range(3)] for role in ("id", *ROLES)})
    built = ImplicitPairs()([rows])
    assert built.names == ImplicitPairs.roles == ROLES
    assert quadruples(built)[1] == tuple(f"{role} 1" for role in ROLES)
    assert (sources(built), built.counts) == ([(0,), (1,), (2,)], {"read": 3})
    with pytest.raises(DataError, match="no column 'pos_implicit'"):
        ImplicitPairs()([inli()])


@pytest.mark.parametrize(
    ("explicit", "kinds"),
    [
        ("explicit", ["explicit_entailment"]),
        ("implied", ["implied_entailment"]),
        ("both", ["explicit_entailment", "implied_entailment"]),
    ],
)
@pytest.mark.parametrize("mismatched", ["contradiction", "neutral"])
def test_a_premise_is_the_implicit_sentence_of_both_pairs(explicit: str, kinds: list[str], mismatched: str) -> None:
    built = INLIImplicitPairs(explicit=explicit, mismatched=mismatched)([inli()])
    assert quadruples(built) == [
        (f"premise {row}", f"{kind} {row}", f"premise {row}", f"{mismatched} {row}")
        for row in range(6)
        for kind in kinds
    ]
    assert sources(built) == [(row,) for row in range(6) for _ in kinds]
    assert built.where(len(kinds)) == "/data/INLI/train.csv:2"
    assert adds_up(built.counts, used(built))
    assert len(subset(built, 3)) == 3 * len(kinds), "two rows of a premise are drawn together"


def test_a_mismatched_sentence_is_of_the_same_kind_and_of_another_premise() -> None:
    built = INLIImplicitPairs()([inli(20)])
    drawn = quadruples(built)
    for kind in ("explicit_entailment", "implied_entailment"):
        others = [other for _, own, _, other in drawn if own.startswith(kind)]
        assert sorted(others) == sorted(f"{kind} {row}" for row in range(20)), "each is drawn once"
        assert all(own != other for _, own, _, other in drawn)
    assert [implicit for implicit, *_ in drawn] == [implicit for _, _, implicit, _ in drawn]


def test_the_seed_decides_what_is_drawn_and_each_split_is_drawn_by_itself() -> None:
    one, same, other = (quadruples(INLIImplicitPairs(seed=seed)([inli(20)])) for seed in (0, 0, 1))
    assert one == same != other
    together = INLIImplicitPairs()([inli(3), inli(3, premise=["x", "y", "z"])])
    assert len(together) == 12
    assert [source for (source,) in sources(together)] == [row for row in range(6) for _ in range(2)]


def test_what_is_repeated_is_never_its_own_mismatch() -> None:
    premise = ["a", "a", "b", "c"]
    entailed = ["said", "told", "said", "other"]  # b says what a says
    for seed in range(20):
        built = INLIImplicitPairs(explicit="explicit", seed=seed)(
            [inli(4, premise=premise, explicit_entailment=entailed)]
        )
        others = dict(zip(zip(premise, entailed, strict=True), built.column("neg_explicit"), strict=True))
        assert others["a", "said"] == others["a", "told"] == "other"
        assert others["b", "said"] in ("told", "other")
        assert others["c", "other"] in ("said", "told")


def test_rows_that_lack_a_sentence_are_left_out_and_counted() -> None:
    rows = inli(4, explicit_entailment=["a", None, None, "d"], implied_entailment=["e", "f", None, "h"])
    built = INLIImplicitPairs()([rows])
    assert [source for (source,) in sources(built)] == [0, 0, 1, 3, 3]
    assert built.counts == {"read": 4, "dropped: no pair": 1}
    assert adds_up(built.counts, used(built))
    assert None not in [sentence for row in quadruples(built) for sentence in row]
    of_own = INLIImplicitPairs(explicit="explicit", mismatched="contradiction")
    assert sources(of_own([inli(3, contradiction=[None, "no", None])])) == [(1,)]


def test_nothing_to_draw_from_is_told() -> None:
    with pytest.raises(DataError, match=r"^INLI/train\.csv: no premise has .*explicit_entailment.*\(other_premise\)"):
        INLIImplicitPairs()([inli(1)])
    with pytest.raises(DataError, match=r"\(neutral\), so there is no pair to train on; set data\.rows\.explicit"):
        INLIImplicitPairs(mismatched="neutral")([inli(2, neutral=[None, None])])


class Words:
    """A tokenizer that makes a number of each word."""

    digest = "words"

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        return [[len(word) for word in re.findall(r"\w+", sentence)] for sentence in sentences]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        raise AssertionError("nothing is decoded here")


def test_batches_of_the_sample_have_the_four_roles_and_no_sentence_of_the_other_side() -> None:
    words: Tokenize = Words()
    data = ContrastiveData(
        train=["inli/train"],
        held_out=["inli/val"],
        excluded=["inli/val", "inli/test"],
        rows=INLIImplicitPairs(),
        tokenize=words,
        batch_size=8,
        drop_last=False,
        seed=0,
        data_dir=str(sample_dir()),
    )
    data.use(ROLES)
    data.setup()
    batch = next(iter(data.train_dataloader()))
    assert {role: len(tokens) for role, tokens in batch["roles"].items()} == dict.fromkeys(ROLES, 8)
    assert data.counts["training_rows"] == 2 * data.counts["used"]
    for rows in (data.train, data.held_out):
        assert set(rows.column("neg_explicit")) <= set(rows.column("pos_explicit"))
