"""Training rows from corpus rows: triplets, pairs, sentences, and an account that adds up."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from omegaconf import OmegaConf

from lightning_cse.data.drawing import subset, used
from lightning_cse.data.roles import SOURCE, INLIQuadruples, INLITriplets, NLITriplets, Sentences
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


def pairs(rows: list[tuple[str, str, str]] = PAIRS) -> Rows:
    columns = dict(zip(("premise", "hypothesis", "label"), (list(c) for c in zip(*rows, strict=True)), strict=True))
    return Rows.of(columns, files=[SourceFile("SNLI/train", "/data/SNLI/train", "")])


def triplets(rows: Rows) -> list[tuple[str, str, str]]:
    return [(row["premise"], row["entailment"], row["contradiction"]) for row in rows]  # type: ignore[misc]


def sources(rows: Rows) -> list[tuple[int, ...]]:
    return [tuple(numbers) for numbers in rows.column("made_of")]


def adds_up(counts: dict[str, int], used: int) -> bool:
    dropped = sum(count for key, count in counts.items() if key.startswith("dropped: "))
    return counts["read"] == used + dropped


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
    assert adds_up(built.counts, used(built))


@pytest.mark.parametrize(
    ("pairing", "want"),
    [
        ("zip", [("An animal moves.", "A dog sleeps."), ("A pet moves.", "No dog runs.")]),
        (
            "cycle",
            [
                ("An animal moves.", "A dog sleeps."),
                ("A pet moves.", "No dog runs."),
                ("A beast moves.", "A dog sleeps."),
            ],
        ),
        (
            "product",
            list(
                itertools.product(
                    ("An animal moves.", "A pet moves.", "A beast moves."), ("A dog sleeps.", "No dog runs.")
                )
            ),
        ),
    ],
)
def test_pairing_of_a_premise_with_several_hypotheses(pairing: str, want: list[tuple[str, str]]) -> None:
    built = NLITriplets(pairing=pairing)([pairs()])
    assert [(e, c) for p, e, c in triplets(built) if p == DOG] == want


def test_random_pairing_depends_on_its_seed_alone() -> None:
    drawn = {seed: triplets(NLITriplets(pairing="random", seed=seed)([pairs()])) for seed in range(20)}
    assert drawn[3] == triplets(NLITriplets(pairing="random", seed=3)([pairs()]))
    assert len({tuple(rows) for rows in drawn.values()}) > 2
    product = set(triplets(NLITriplets(pairing="product")([pairs()])))
    assert all(set(rows) <= product and len(rows) == 2 for rows in drawn.values())


@pytest.mark.parametrize("pairing", ["first", "random", "zip", "cycle", "product"])
@pytest.mark.parametrize("contradiction", [True, False])
def test_the_account_adds_up(pairing: str, contradiction: bool) -> None:
    built = NLITriplets(pairing=pairing, contradiction=contradiction)([pairs(), pairs([PAIRS[0], PAIRS[6]])])
    assert built.counts["read"] == 14
    assert adds_up(built.counts, used(built))
    assert len(sources(built)) == len(built)


def test_premises_are_grouped_over_corpora() -> None:
    built = NLITriplets()([pairs([PAIRS[3]]), pairs([("A cat eats.", "Nothing eats.", "contradiction")])])
    assert triplets(built) == [("A cat eats.", "Something eats.", "Nothing eats.")]


def test_pairs_alone_keep_every_entailment() -> None:
    rule = NLITriplets(contradiction=False)
    built = rule([pairs()])
    assert rule.roles == ("premise", "entailment")
    assert "contradiction" not in built.names
    assert [row["positive"] for row in built] == [
        "An animal moves.",
        "A pet moves.",
        "A beast moves.",
        "Something eats.",
        "It snows.",
    ]


def test_ready_made_triplets_are_taken_as_they_are_beside_pairs() -> None:
    file = SourceFile("ready.csv", "/data/ready.csv", "")
    ready = Rows.of({"premise": ["P"], "entailment": ["E"], "contradiction": ["C"]}, files=[file])
    built = NLITriplets()([pairs(), ready])
    assert triplets(built)[0] == ("P", "E", "C")
    assert len(built) == 3
    assert sources(built) == [(0,), (1, 2), (12, 11)]
    assert adds_up(built.counts, used(built))


def test_both_names_of_a_role_hold_the_same() -> None:
    rows = NLITriplets()([pairs()])
    for ours, theirs in (("anchor", "premise"), ("positive", "entailment"), ("negative", "contradiction")):
        assert rows.column(ours) == rows.column(theirs)


def test_no_triplet_is_an_error_with_the_file() -> None:
    with pytest.raises(DataError, match=r"SNLI/train: no premise has both"):
        NLITriplets()([pairs([PAIRS[0], PAIRS[6]])])


def test_inli_triplets_of_one_premise_are_one_unit() -> None:
    inli = Rows.of(
        {
            "premise": ["P", "Q"],
            "explicit_entailment": ["E", "F"],
            "implied_entailment": ["I", "J"],
            "contradiction": ["C", "D"],
        }
    )
    built = INLITriplets("both")([inli])
    assert triplets(built) == [("P", "E", "C"), ("P", "I", "C"), ("Q", "F", "D"), ("Q", "J", "D")]
    assert subset(built, 1).column("premise") in (["P", "P"], ["Q", "Q"])
    assert used(built) == 2
    assert used(built.select([3])) == 1


def test_sentences_keep_repeats() -> None:
    built = Sentences()([Rows.of({"sentence": ["a", "b"]}), Rows.of({"sentence": ["a"]})])
    assert built.column("anchor") == ["a", "b", "a"]
    assert len(subset(built, 2)) == 2


def test_columns_are_copied_a_few_times_and_not_once_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []

    def noting(rows: Rows, name: str, real: Callable[[Rows, str], list[Any]] = Rows.column) -> list[Any]:
        copied.append(name)
        return real(rows, name)

    monkeypatch.setattr(Rows, "column", noting)
    many = [
        (f"{word} {k}.", f"{label} {k}.", label)
        for k in range(50)
        for word, label in (("It rains", "entailment"), ("It rains", "contradiction"))
    ]
    assert len(NLITriplets()([pairs(many)])) == 50
    assert copied.count("hypothesis") < 5


# Rows that lack a role, as a user's own may

WHOLE = {"premise": ["P"], "explicit_entailment": ["E"], "implied_entailment": ["I"], "contradiction": ["C"]}
HOLES = {
    "premise": ["Q", "R", "S", "T"],
    "explicit_entailment": [None, "F", "G", None],
    "implied_entailment": ["J", None, "K", None],
    "contradiction": ["D", "H", None, None],
}


def own(columns: dict[str, list[Any]], name: str = "own.csv") -> Rows:
    return Rows.of(columns, files=[SourceFile(name, f"/data/{name}", "")])


def test_quadruples_carry_what_rows_lack_and_drop_those_that_have_nothing() -> None:
    built = INLIQuadruples()([own(WHOLE | {"dataset": ["work"]}, "inli.csv"), own(HOLES)])
    assert [{role: row[role] for role in INLIQuadruples.roles} for row in built] == [
        dict(zip(INLIQuadruples.roles, row, strict=True))
        for row in (("P", "E", "I", "C"), ("Q", None, "J", "D"), ("R", "F", None, "H"), ("S", "G", "K", None))
    ]
    assert sources(built) == [(0,), (1,), (2,), (3,)]
    assert built.counts == {"read": 5, "dropped: no entailment and no contradiction": 1}
    assert adds_up(built.counts, used(built))
    assert built.where(3) == "/data/own.csv:3"


def test_quadruples_of_a_table_without_a_column() -> None:
    some = {"premise": ["Q"], "implied_entailment": ["J"], "neutral": ["N"]}
    built = INLIQuadruples()([own(some), own(WHOLE)])
    assert built.column("explicit_entailment") == [None, "E"]
    assert built.column("implied_entailment") == ["J", "I"]
    assert built.column("contradiction") == [None, "C"]
    assert "neutral" not in built.names


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"premise": ["P"], "hypothesis": ["H"]},
            r"own\.csv: none of the columns explicit_entailment, .*: premise, hyp",
        ),
        ({"sentence": ["S"]}, r"own\.csv: no column 'premise'.*there are: sentence"),
        (
            {"premise": ["P"], "neutral": ["N"], "contradiction": [None]},
            r"own\.csv: no row has an entailment or a contradiction",
        ),
    ],
)
def test_tables_without_quadruples_are_told(columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        INLIQuadruples()([own(columns)])


@pytest.mark.parametrize(
    ("positive", "want", "dropped"),
    [
        ("both", [("Q", "J", "D"), ("R", "F", "H")], {"dropped: no contradiction": 2}),
        ("explicit", [("R", "F", "H")], {"dropped: no contradiction": 2, "dropped: no entailment": 1}),
        ("implied", [("Q", "J", "D")], {"dropped: no contradiction": 2, "dropped: no entailment": 1}),
    ],
)
def test_triplets_of_rows_with_holes(positive: str, want: list[tuple[str, str, str]], dropped: dict[str, int]) -> None:
    built = INLITriplets(positive)([own(HOLES)])
    assert triplets(built) == want
    assert built.column("negative") == [c for _, _, c in want]
    assert built.counts == {"read": 4, **dropped}
    assert adds_up(built.counts, used(built))


def test_no_triplet_of_rows_with_holes_is_told() -> None:
    with pytest.raises(DataError, match=r"own\.csv: no row has a contradiction and implied_entailment"):
        INLITriplets("implied")([own({"premise": ["P"], "explicit_entailment": ["E"], "contradiction": ["C"]})])


@pytest.mark.parametrize("rule", [INLIQuadruples(), INLITriplets("both"), INLITriplets("explicit")])
def test_rows_keep_the_source_they_are_from(rule: Any) -> None:
    tables = [own(WHOLE | {SOURCE: [0]}), own(HOLES | {SOURCE: [1] * 4})]
    rows = rule(tables)
    assert {(row["premise"], row[SOURCE]) for row in rows} <= {("P", 0), ("Q", 1), ("R", 1), ("S", 1)}
    assert set(rows.column(SOURCE)) == {0, 1}


@pytest.mark.parametrize(
    ("target", "key", "value", "meant"),
    [
        ("NLITriplets", "pairing", "randm", "random"),
        ("INLITriplets", "positive", "implicit", "implied"),
        ("INLIImplicitPairs", "explicit", "implicit", "explicit"),
        ("INLIImplicitPairs", "mismatched", "other", "other_premise"),
        ("Hybrid", "pattern", "stss", "sts"),
    ],
)
def test_an_unknown_option_is_refused_before_anything_is_read(target: str, key: str, value: str, meant: str) -> None:
    node = {"_target_": f"lightning_cse.data.{target}", key: value, "_partial_": True}
    with pytest.raises(ConfigError, match=rf"rows\.{key}: {target} takes Literal\[.*, got '{value}'") as caught:
        check_nodes(OmegaConf.create({"rows": node}))
    assert f"'{meant}'" in str(caught.value)
