"""Rows of an implicit sentence with an explicit one that belongs to it, and with one that does not."""

from collections.abc import Callable, Sequence

import pytest

from lightning_cse.data import ImplicitPairs, INLIImplicitPairs, Rows, SourceFile
from lightning_cse.data.drawing import subset, used
from lightning_cse.errors import DataError

ROLES = ("pos_implicit", "pos_explicit", "neg_implicit", "neg_explicit")
INLI = ("premise", "explicit_entailment", "implied_entailment", "neutral", "contradiction")
KINDS = {"explicit": INLI[1:2], "implied": INLI[2:3], "both": INLI[1:3]}


def inli(count: int = 6, **changed: Sequence[str | None]) -> Rows:
    columns = {name: [f"{name} {row}" for row in range(count)] for name in INLI}
    return Rows.of(
        columns | changed, files=[SourceFile("INLI/train.csv", "/data/INLI/train.csv", "")]
    )


def quadruples(rows: Rows) -> list[tuple[str, ...]]:
    return list(zip(*(rows.column(role) for role in ROLES), strict=True))


def sources(rows: Rows) -> list[int]:
    return [number for (number,) in rows.column("made_of")]


def test_the_pair_file_is_taken_as_it_is() -> None:
    rows = Rows.of({role: [f"{role} {row}" for row in range(3)] for role in ("id", *ROLES)})
    built = ImplicitPairs()([rows])
    assert built.names == ImplicitPairs.roles == ROLES
    assert quadruples(built)[1] == tuple(f"{role} 1" for role in ROLES)
    assert (sources(built), built.counts) == ([0, 1, 2], {"read": 3})
    with pytest.raises(DataError, match="no column 'pos_implicit'"):
        ImplicitPairs()([inli()])


@pytest.mark.parametrize("explicit", KINDS)
@pytest.mark.parametrize("mismatched", ["contradiction", "neutral"])
def test_a_premise_is_the_implicit_sentence_of_both_pairs(
    explicit: str, mismatched: str, adds_up: Callable[..., bool]
) -> None:
    kinds = KINDS[explicit]
    built = INLIImplicitPairs(explicit=explicit, mismatched=mismatched)([inli()])
    assert quadruples(built) == [
        (f"premise {row}", f"{kind} {row}", f"premise {row}", f"{mismatched} {row}")
        for row in range(6)
        for kind in kinds
    ]
    assert sources(built) == [row for row in range(6) for _ in kinds]
    assert built.where(len(kinds)) == "/data/INLI/train.csv:2"
    assert adds_up(built.counts, used(built))
    assert len(subset(built, 3)) == 3 * len(kinds), "two rows of a premise are drawn together"


def test_a_mismatched_sentence_is_of_the_same_kind_and_of_another_premise_as_the_seed_draws_it() -> (
    None
):
    drawn, same, other = (
        quadruples(INLIImplicitPairs(seed=seed)([inli(20)])) for seed in (0, 0, 1)
    )
    assert drawn == same != other
    for kind in KINDS["both"]:
        others = [other for _, own, _, other in drawn if own.startswith(kind)]
        assert sorted(others) == sorted(f"{kind} {row}" for row in range(20)), "each is drawn once"
    assert all(own != other and first == second for first, own, second, other in drawn)
    together = INLIImplicitPairs()([inli(3), inli(3, premise=["x", "y", "z"])])
    assert sources(together) == [row for row in range(6) for _ in range(2)]


def test_what_is_repeated_is_never_its_own_mismatch() -> None:
    premise = ["a", "a", "b", "c"]
    entailed = ["said", "told", "said", "other"]  # b says what a says
    for seed in range(20):
        rule = INLIImplicitPairs(explicit="explicit", seed=seed)
        built = rule([inli(4, premise=premise, explicit_entailment=entailed)])
        others = dict(
            zip(zip(premise, entailed, strict=True), built.column("neg_explicit"), strict=True)
        )
        assert others["a", "said"] == others["a", "told"] == "other"
        assert others["b", "said"] in ("told", "other")
        assert others["c", "other"] in ("said", "told")


def test_rows_that_lack_a_sentence_are_left_out_and_counted() -> None:
    rows = inli(
        4, explicit_entailment=["a", None, None, "d"], implied_entailment=["e", "f", None, "h"]
    )
    built = INLIImplicitPairs()([rows])
    assert sources(built) == [0, 0, 1, 3, 3]
    assert built.counts == {"read": 4, "dropped: no pair": 1}
    assert None not in [sentence for row in quadruples(built) for sentence in row]
    of_own = INLIImplicitPairs(explicit="explicit", mismatched="contradiction")
    assert sources(of_own([inli(3, contradiction=[None, "no", None])])) == [1]


@pytest.mark.parametrize(
    ("mismatched", "rows", "message"),
    [
        (
            "other_premise",
            inli(1),
            r"^INLI/train\.csv: no premise has .*explicit_entailment.*\(other_premise\)",
        ),
        (
            "neutral",
            inli(2, neutral=[None, None]),
            r"\(neutral\), so there is no pair .*; set data\.rows\.explicit",
        ),
    ],
)
def test_nothing_to_draw_from_is_an_error(mismatched: str, rows: Rows, message: str) -> None:
    with pytest.raises(DataError, match=message):
        INLIImplicitPairs(mismatched=mismatched)([rows])
