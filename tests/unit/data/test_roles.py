"""Training rows from corpus rows: triplets, pairs, sentences, and an account that adds up."""

import itertools
import random

import numpy as np
import pytest
from data_modules import apply, table_of

from lightning_cse.data.roles import (
    TRIPLET,
    INLIQuadruples,
    INLITriplets,
    LabelledPairs,
    NLITriplets,
    ScoredPairs,
    Sentences,
)
from lightning_cse.data.rows import count_corpus_rows, where
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
LABELS = ("entailment", "neutral", "contradiction")
DOG = "A dog runs."
ENTAILED = ("An animal moves.", "A pet moves.", "A beast moves.")
CONTRADICTED = ("A dog sleeps.", "No dog runs.")


def pairs(rows=PAIRS):
    columns = zip(*rows, strict=True)
    return table_of(
        dict(zip(("premise", "hypothesis", "label"), columns, strict=True)), "SNLI/train"
    )


def sentences(rows, *names):
    return list(zip(*(rows[name] for name in names or TRIPLET), strict=True))


# Pairs of NLI


def test_first_pairing_is_one_triplet_per_premise():
    built, account = apply(NLITriplets(), pairs())

    assert sentences(built) == [
        (DOG, "An animal moves.", "A dog sleeps."),
        ("Snow falls.", "It snows.", "It is hot."),
    ]
    assert built["made_of"][:] == [[0, 1], [11, 10]]
    assert where(built, 1) == "/data/SNLI/train:12"
    assert account == {
        "read": 12,
        "dropped: label neutral": 1,
        "dropped: no gold label": 1,
        "dropped: repeated pair": 1,
        "dropped: premise without a contradiction": 1,
        "dropped: premise without an entailment": 1,
        "dropped: not chosen": 3,
    }
    assert built["anchor"][:] == built["premise"][:]
    assert built["positive"][:] == built["entailment"][:]
    assert built["negative"][:] == built["contradiction"][:]


def test_random_pairing_depends_on_its_seed_alone():
    first_draws = [
        sentences(apply(NLITriplets("random", seed), pairs())[0])[0] for seed in range(20)
    ]

    assert first_draws[3] == sentences(apply(NLITriplets("random", seed=3), pairs())[0])[0]
    assert len(set(first_draws)) > 2
    assert set(first_draws) <= {(DOG, *pair) for pair in itertools.product(ENTAILED, CONTRADICTED)}


def chosen_by_loop(rows, pairing, seed):
    """Return the rows of entailment and contradiction of each premise, found by a loop."""
    of_premise = {}
    pairs_drawn = set()
    for row, (premise, hypothesis, label) in enumerate(rows):
        if label in TRIPLET and (premise, hypothesis) not in pairs_drawn:
            pairs_drawn.add((premise, hypothesis))
            of_premise.setdefault(premise, {}).setdefault(label, []).append(row)

    chosen = []
    for labels in of_premise.values():
        if len(labels) == 2:
            entailments, contradictions = (labels[label] for label in TRIPLET[1:])
            draw = random.Random(f"{seed} {entailments[0]}").choice
            choose = draw if pairing == "random" else lambda numbers: numbers[0]
            chosen.append([choose(entailments), choose(contradictions)])

    return chosen


@pytest.mark.parametrize("pairing", ["first", "random"])
@pytest.mark.parametrize("count", [2, 300])
def test_triplets_are_those_of_a_loop(pairing, count, adds_up):
    numbers = np.random.default_rng(0).integers((40, 25, 4), size=(count, 3))
    labels = (*LABELS, "-")
    rows = [(f"premise {p}", f"hypothesis {h}", labels[label]) for p, h, label in numbers]
    chosen = chosen_by_loop(rows, pairing, 5)
    built, account = apply(
        NLITriplets(pairing, 5), pairs(rows[: count // 2]), pairs(rows[count // 2 :])
    )

    assert built["made_of"][:] == chosen
    assert sentences(built) == [(*rows[first][:2], rows[second][1]) for first, second in chosen]
    assert adds_up(account, count_corpus_rows(built))


def test_without_contradictions_every_entailment_is_kept(adds_up):
    scheme = NLITriplets(contradiction=False)
    built, account = apply(scheme, pairs(), pairs([PAIRS[0], PAIRS[6]]))

    assert scheme.roles == ("premise", "entailment")
    assert "contradiction" not in built.column_names
    assert built["positive"][:] == [*ENTAILED, "Something eats.", "It snows."]
    assert account["read"] == 14
    assert adds_up(account, count_corpus_rows(built))


def test_ready_triplets_keep_their_further_negatives_beside_those_of_pairs():
    columns = {"anchor": ["a"], "positive": ["b"], "negative": ["c"], "negative_2": ["d"]}
    built, _ = apply(NLITriplets(), pairs(), table_of(columns))

    assert sentences(built)[::2] == [("a", "b", "c"), ("Snow falls.", "It snows.", "It is hot.")]
    assert built["negative_2"][:] == ["d", None, None]
    assert built["made_of"][:] == [[12], [0, 1], [11, 10]]


def test_sentences_keep_repeats_unless_distinct():
    tables = [table_of({"sentence": ["a", "b"]}), table_of({"sentence": ["a"]})]

    assert apply(Sentences(), *tables)[0]["anchor"][:] == ["a", "b", "a"]

    more = table_of({"sentence1": ["c", "e"], "sentence2": ["d", "f"]})
    built, account = apply(Sentences(both=True), *tables, more)

    assert built["anchor"][-4:] == ["c", "d", "e", "f"]
    assert built["line"][-4:] == [1, 1, 2, 2]
    assert count_corpus_rows(built) == account["read"] == 5

    distinct, account = apply(Sentences(distinct=True), *tables)

    assert distinct["anchor"][:] == ["a", "b"]
    assert account == {"read": 3, "dropped: repeated sentence": 1}


# INLI, and the user's own rows that lack a role

QUADRUPLE = INLIQuadruples.roles
WHOLE = dict(zip(QUADRUPLE, (["P"], ["E"], ["I"], ["C"]), strict=True))
LACKING = [
    ("Q", None, "J", "D"),
    ("R", "F", None, "H"),
    ("S", "G", "K", None),
    ("T", None, None, None),
]
OWN = dict(zip(QUADRUPLE, map(list, zip(*LACKING, strict=True)), strict=True))


def test_quadruples_of_rows_that_lack_roles(adds_up):
    table = table_of(WHOLE | {"dataset": ["work"]})
    built, account = apply(INLIQuadruples(), table, table_of(OWN))

    assert sentences(built, *QUADRUPLE) == [("P", "E", "I", "C"), *LACKING[:3]]
    assert built["made_of"][:] == [[0], [1], [2], [3]]
    assert account == {"read": 5, "dropped: no entailment and no contradiction": 1}
    assert adds_up(account, count_corpus_rows(built))

    with pytest.raises(DataError, match=r"own\.csv: no column 'premise'.*found: sentence"):
        apply(INLIQuadruples(), table_of({"sentence": ["S"]}))


@pytest.mark.parametrize(
    ("positive", "want"),
    [
        ("both", [("Q", "J", "D"), ("R", "F", "H")]),
        ("explicit", [("R", "F", "H")]),
        ("implied", [("Q", "J", "D")]),
    ],
)
def test_triplets_of_rows_that_lack_roles(positive, want, adds_up):
    built, account = apply(INLITriplets(positive), table_of(OWN))

    assert sentences(built) == want
    assert account["dropped: no contradiction"] == 2
    assert account.get("dropped: no entailment", 0) == 2 - len(want)
    assert adds_up(account, count_corpus_rows(built))


# Labelled and scored pairs


def test_labelled_pairs_have_the_number_of_their_label(adds_up):
    built, account = apply(LabelledPairs(), pairs())
    labels = [label for _, _, label in PAIRS if label != "-"]

    assert built["target"][:] == [LABELS.index(label) for label in labels]
    assert built["entailment"][:] == [
        hypothesis if label == "entailment" else None
        for _, hypothesis, label in PAIRS
        if label != "-"
    ]
    assert account["dropped: no gold label"] == 1
    assert adds_up(account, count_corpus_rows(built))

    two, account = apply(LabelledPairs(["contradiction", "entailment"]), pairs())

    assert set(two["target"]) == {0, 1}
    assert account["dropped: label neutral"] == 1
    assert two["entailment"][1] == "A dog sleeps."  # of the first label


def test_pairs_without_a_label_are_refused():
    with pytest.raises(DataError, match="no column 'label'; found: premise, hypothesis"):
        apply(LabelledPairs(), table_of({"premise": ["a"], "hypothesis": ["b"]}))


def scored(*scores):
    columns = {"sentence1": [f"a {score}" for score in scores]}
    columns |= {"sentence2": [f"b {score}" for score in scores], "score": list(scores)}
    return table_of(columns)


def test_scored_pairs_have_their_score_from_0_to_1():
    built, _ = apply(ScoredPairs((1, 5)), scored(1.0, 5.0, 2.0, 4.2))

    assert built["target"][:] == pytest.approx([0, 1, 0.25, 0.8])
    assert built["positive"][:] == [None, "b 5.0", None, "b 4.2"]
    assert built["made_of"][:] == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("scheme", "error", "message"),
    [
        (ScoredPairs, DataError, r"own\.csv:2: the score 4\.2 is not .* 0 and 1: set"),
        (lambda: ScoredPairs((5, 0)), ConfigError, r"\[lowest, highest\], got \[5, 0\]"),
    ],
)
def test_scores_off_their_scale_are_refused(scheme, error, message):
    with pytest.raises(error, match=message):
        apply(scheme(), scored(0.5, 4.2))
