"""Training rows from corpus rows: triplets, pairs, sentences, and an account that adds up."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from omegaconf import OmegaConf

from lightning_cse.data.drawing import subset, used
from lightning_cse.data.roles import INLIQuadruples, INLITriplets, NLITriplets, Sentences
from lightning_cse.data.rows import Rows, SourceFile
from lightning_cse.engine.build import check_nodes
from lightning_cse.errors import ConfigError, DataError

PAIRS = [
    ("A dog runs.", "An animal moves.", "entailment"),
    ("A dog runs.", "A dog sleeps.", "contradiction"),
    ("A dog runs.", "The dog is brown.", "neutral"),
    ("A cat eats.", "Something eats.", "entailment"),  # no contradiction
    ("A dog runs.", "A pet moves.", "entailment"),
    ("A dog runs.", "A dog sleeps.", "contradiction"),  # again
    ("It rains.", "It is dry.", "contradiction"),  # no entailment
    ("A dog runs.", "No dog runs.", "contradiction"),
    ("A dog runs.", "A beast moves.", "entailment"),
    ("Snow falls.", "Is it cold?", "-"),
    ("Snow falls.", "It is hot.", "contradiction"),
    ("Snow falls.", "It snows.", "entailment"),
]
DOG = "A dog runs."
ENTAILED, CONTRADICTED = (
    ("An animal moves.", "A pet moves.", "A beast moves."),
    ("A dog sleeps.", "No dog runs."),
)


def pairs(rows: list[tuple[str, str, str]] = PAIRS) -> Rows:
    columns = dict(
        zip(
            ("premise", "hypothesis", "label"),
            (list(c) for c in zip(*rows, strict=True)),
            strict=True,
        )
    )
    return Rows.of(columns, files=[SourceFile("SNLI/train", "/data/SNLI/train", "")])


def own(columns: dict[str, list[Any]], name: str = "own.csv") -> Rows:
    return Rows.of(columns, files=[SourceFile(name, f"/data/{name}", "")])


def triplets(rows: Rows) -> list[tuple[str, ...]]:
    return list(
        zip(
            *(rows.column(name) for name in ("premise", "entailment", "contradiction")), strict=True
        )
    )


def sources(rows: Rows) -> list[tuple[int, ...]]:
    return [tuple(numbers) for numbers in rows.column("made_of")]


# Pairs of NLI


def test_first_takes_one_triplet_a_premise_in_order_of_appearance() -> None:
    built = NLITriplets()([pairs()])
    assert triplets(built) == [
        (DOG, "An animal moves.", "A dog sleeps."),
        ("Snow falls.", "It snows.", "It is hot."),
    ]
    assert sources(built) == [(0, 1), (11, 10)]
    assert built.where(1) == "/data/SNLI/train:12"
    assert built.counts == {
        "read": 12,
        "dropped: label neutral": 1,
        "dropped: no gold label": 1,
        "dropped: repeated pair": 1,
        "dropped: premise without a contradiction": 1,
        "dropped: premise without an entailment": 1,
        "dropped: not chosen": 3,
    }
    for ours, theirs in (
        ("anchor", "premise"),
        ("positive", "entailment"),
        ("negative", "contradiction"),
    ):
        assert built.column(ours) == built.column(theirs)


@pytest.mark.parametrize(
    ("pairing", "want"),
    [
        ("zip", list(zip(ENTAILED, CONTRADICTED, strict=False))),
        ("cycle", list(zip(ENTAILED, (*CONTRADICTED, CONTRADICTED[0]), strict=True))),
        ("product", list(itertools.product(ENTAILED, CONTRADICTED))),
    ],
)
def test_pairing_of_a_premise_with_several_hypotheses(
    pairing: str, want: list[tuple[str, str]]
) -> None:
    built = NLITriplets(pairing=pairing)([pairs()])
    assert [(e, c) for p, e, c in triplets(built) if p == DOG] == want


def test_random_pairing_depends_on_its_seed_alone() -> None:
    drawn = {
        seed: triplets(NLITriplets(pairing="random", seed=seed)([pairs()])) for seed in range(20)
    }
    assert drawn[3] == triplets(NLITriplets(pairing="random", seed=3)([pairs()]))
    assert len({tuple(rows) for rows in drawn.values()}) > 2
    product = set(triplets(NLITriplets(pairing="product")([pairs()])))
    assert all(set(rows) <= product and len(rows) == 2 for rows in drawn.values())


@pytest.mark.parametrize("pairing", ["first", "random", "zip", "cycle", "product"])
@pytest.mark.parametrize("contradiction", [True, False])
def test_the_account_adds_up(
    pairing: str, contradiction: bool, adds_up: Callable[..., bool]
) -> None:
    built = NLITriplets(pairing=pairing, contradiction=contradiction)(
        [pairs(), pairs([PAIRS[0], PAIRS[6]])]
    )
    assert built.counts["read"] == 14
    assert adds_up(built.counts, used(built))


def test_pairs_alone_keep_every_entailment() -> None:
    rule = NLITriplets(contradiction=False)
    built = rule([pairs()])
    assert rule.roles == ("premise", "entailment")
    assert "contradiction" not in built.names
    assert built.column("positive") == [*ENTAILED, "Something eats.", "It snows."]


def test_premises_are_grouped_over_corpora_and_ready_made_triplets_stand_beside_them() -> None:
    ready = own({"premise": ["P"], "entailment": ["E"], "contradiction": ["C"]})
    built = NLITriplets()(
        [pairs([PAIRS[3]]), ready, pairs([("A cat eats.", "Nothing eats.", "contradiction")])]
    )
    assert triplets(built) == [("P", "E", "C"), ("A cat eats.", "Something eats.", "Nothing eats.")]
    assert sources(built) == [(0,), (1, 2)]


def test_no_triplet_is_an_error_with_the_file() -> None:
    with pytest.raises(DataError, match=r"SNLI/train: no premise has both"):
        NLITriplets()([pairs([PAIRS[0], PAIRS[6]])])


def test_sentences_keep_repeats() -> None:
    built = Sentences()([Rows.of({"sentence": ["a", "b"]}), Rows.of({"sentence": ["a"]})])
    assert built.column("anchor") == ["a", "b", "a"]
    assert len(subset(built, 2)) == 2


# INLI, and rows of a user's own that lack a role

WHOLE = {
    "premise": ["P"],
    "explicit_entailment": ["E"],
    "implied_entailment": ["I"],
    "contradiction": ["C"],
}
HOLES = {
    "premise": ["Q", "R", "S", "T"],
    "explicit_entailment": [None, "F", "G", None],
    "implied_entailment": ["J", None, "K", None],
    "contradiction": ["D", "H", None, None],
}


def test_quadruples_carry_what_rows_lack_and_drop_those_that_have_nothing(
    adds_up: Callable[..., bool],
) -> None:
    built = INLIQuadruples()([own(WHOLE | {"dataset": ["work"]}, "inli.csv"), own(HOLES)])
    assert list(zip(*(built.column(role) for role in INLIQuadruples.roles), strict=True)) == [
        ("P", "E", "I", "C"),
        ("Q", None, "J", "D"),
        ("R", "F", None, "H"),
        ("S", "G", "K", None),
    ]
    assert sources(built) == [(0,), (1,), (2,), (3,)]
    assert built.counts == {"read": 5, "dropped: no entailment and no contradiction": 1}
    assert adds_up(built.counts, used(built))
    assert built.where(3) == "/data/own.csv:3"
    built = INLIQuadruples()(
        [own({"premise": ["Q"], "implied_entailment": ["J"], "neutral": ["N"]}), own(WHOLE)]
    )
    assert built.column("explicit_entailment") == [None, "E"]
    assert built.column("contradiction") == [None, "C"]
    assert "neutral" not in built.names


@pytest.mark.parametrize(
    ("positive", "want", "dropped"),
    [
        ("both", [("Q", "J", "D"), ("R", "F", "H")], {"dropped: no contradiction": 2}),
        (
            "explicit",
            [("R", "F", "H")],
            {"dropped: no contradiction": 2, "dropped: no entailment": 1},
        ),
        (
            "implied",
            [("Q", "J", "D")],
            {"dropped: no contradiction": 2, "dropped: no entailment": 1},
        ),
    ],
)
def test_triplets_of_rows_with_holes(
    positive: str,
    want: list[tuple[str, ...]],
    dropped: dict[str, int],
    adds_up: Callable[..., bool],
) -> None:
    built = INLITriplets(positive)([own(HOLES)])
    assert triplets(built) == want
    assert built.column("negative") == [c for _, _, c in want]
    assert built.counts == {"read": 4, **dropped}
    assert adds_up(built.counts, used(built))


def test_two_triplets_of_a_premise_are_one_unit() -> None:
    built = INLITriplets("both")([own(WHOLE), own(WHOLE | {"premise": ["Q"]})])
    assert triplets(built) == [("P", "E", "C"), ("P", "I", "C"), ("Q", "E", "C"), ("Q", "I", "C")]
    assert subset(built, 1).column("premise") in (["P", "P"], ["Q", "Q"])
    assert (used(built), used(built.select([3]))) == (2, 1)


@pytest.mark.parametrize(
    ("rule", "columns", "message"),
    [
        (
            INLIQuadruples(),
            {"premise": ["P"], "hypothesis": ["H"]},
            "none of the columns explicit_.*: premise, hyp",
        ),
        (INLIQuadruples(), {"sentence": ["S"]}, "no column 'premise'.*found: sentence"),
        (
            INLIQuadruples(),
            {"premise": ["P"], "contradiction": [None]},
            "no row has an entailment or a contradiction",
        ),
        (
            INLITriplets("implied"),
            WHOLE | {"implied_entailment": [None]},
            "a contradiction and implied_entailment",
        ),
    ],
)
def test_tables_that_lack_what_is_trained_on(
    rule: Any, columns: dict[str, list[Any]], message: str
) -> None:
    with pytest.raises(DataError, match=rf"own\.csv: .*{message}"):
        rule([own(columns)])


@pytest.mark.parametrize(
    ("target", "key", "value", "meant"),
    [
        ("NLITriplets", "pairing", "randm", "random"),
        ("INLITriplets", "positive", "implicit", "implied"),
        ("INLIImplicitPairs", "mismatched", "other", "other_premise"),
        ("Hybrid", "pattern", "stss", "sts"),
    ],
)
def test_an_unknown_option_is_refused_before_anything_is_read(
    target: str, key: str, value: str, meant: str
) -> None:
    node = {"_target_": f"lightning_cse.data.{target}", key: value, "_partial_": True}
    with pytest.raises(
        ConfigError, match=rf"rows\.{key}: {target} takes Literal\[.*, got '{value}'"
    ) as caught:
        check_nodes(OmegaConf.create({"rows": node}))
    assert f"'{meant}'" in str(caught.value)
