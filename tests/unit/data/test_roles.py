"""Training rows from corpus rows: triplets, pairs, sentences, and an account that adds up."""

import itertools

import pytest

from lightning_cse.data.preparation import used
from lightning_cse.data.roles import (
    TRIPLET,
    INLIQuadruples,
    INLITriplets,
    LabelledPairs,
    NLITriplets,
    ScoredPairs,
    Sentences,
)
from lightning_cse.data.rows import Rows, SourceFile
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


def table(columns, name="own.csv"):
    return Rows.of(columns, files=[SourceFile(name, f"/data/{name}", "")])


def pairs(rows=PAIRS):
    columns = zip(*rows, strict=True)
    return table(dict(zip(("premise", "hypothesis", "label"), columns, strict=True)), "SNLI/train")


def sentences(rows, *names):
    return list(zip(*map(rows.column, names or TRIPLET), strict=True))


# Pairs of NLI


def test_first_pairing_is_one_triplet_per_premise():
    built = NLITriplets()([pairs()])

    assert sentences(built) == [
        (DOG, "An animal moves.", "A dog sleeps."),
        ("Snow falls.", "It snows.", "It is hot."),
    ]
    assert built.column("made_of") == [[0, 1], [11, 10]]
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
    assert built.column("anchor") == built.column("premise")
    assert built.column("positive") == built.column("entailment")
    assert built.column("negative") == built.column("contradiction")


def test_random_pairing_depends_on_its_seed_alone():
    drawn = [sentences(NLITriplets("random", seed=seed)([pairs()]))[0] for seed in range(20)]

    assert drawn[3] == sentences(NLITriplets("random", seed=3)([pairs()]))[0]
    assert len(set(drawn)) > 2
    assert set(drawn) <= {(DOG, *pair) for pair in itertools.product(ENTAILED, CONTRADICTED)}


def test_without_contradictions_every_entailment_is_kept(adds_up):
    rule = NLITriplets(contradiction=False)
    built = rule([pairs(), pairs([PAIRS[0], PAIRS[6]])])

    assert rule.roles == ("premise", "entailment")
    assert "contradiction" not in built.names
    assert built.column("positive") == [*ENTAILED, "Something eats.", "It snows."]
    assert built.counts["read"] == 14
    assert adds_up(built.counts, used(built))


def test_sentences_keep_repeats_unless_distinct():
    tables = [Rows.of({"sentence": ["a", "b"]}), Rows.of({"sentence": ["a"]})]

    assert Sentences()(tables).column("anchor") == ["a", "b", "a"]

    pairs = Sentences(both=True)(
        [*tables, table({"sentence1": ["c", "e"], "sentence2": ["d", "f"]})]
    )
    assert pairs.column("anchor")[-4:] == ["c", "d", "e", "f"]
    assert pairs.column("line")[-4:] == [1, 1, 2, 2]
    assert used(pairs) == pairs.counts["read"] == 5
    distinct = Sentences(distinct=True)(tables)

    assert distinct.column("anchor") == ["a", "b"]
    assert distinct.counts == {"read": 3, "dropped: repeated sentence": 1}


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
    built = INLIQuadruples()([table(WHOLE | {"dataset": ["work"]}), table(OWN)])

    assert sentences(built, *QUADRUPLE) == [("P", "E", "I", "C"), *LACKING[:3]]
    assert built.column("made_of") == [[0], [1], [2], [3]]
    assert built.counts == {"read": 5, "dropped: no entailment and no contradiction": 1}
    assert adds_up(built.counts, used(built))

    with pytest.raises(DataError, match=r"own\.csv: no column 'premise'.*found: sentence"):
        INLIQuadruples()([table({"sentence": ["S"]})])


@pytest.mark.parametrize(
    ("positive", "want"),
    [
        ("both", [("Q", "J", "D"), ("R", "F", "H")]),
        ("explicit", [("R", "F", "H")]),
        ("implied", [("Q", "J", "D")]),
    ],
)
def test_triplets_of_rows_that_lack_roles(positive, want, adds_up):
    built = INLITriplets(positive)([table(OWN)])

    assert sentences(built) == want
    assert built.counts["dropped: no contradiction"] == 2
    assert built.counts.get("dropped: no entailment", 0) == 2 - len(want)
    assert adds_up(built.counts, used(built))


# Labelled and scored pairs


def test_labelled_pairs_have_the_number_of_their_label(adds_up):
    built = LabelledPairs()([pairs()])
    labels = [label for _, _, label in PAIRS if label != "-"]

    assert built.column("target") == [LABELS.index(label) for label in labels]
    assert built.column("entailment") == [
        hypothesis if label == "entailment" else None
        for _, hypothesis, label in PAIRS
        if label != "-"
    ]
    assert built.counts["dropped: no gold label"] == 1
    assert adds_up(built.counts, used(built))

    two = LabelledPairs(["contradiction", "entailment"])([pairs()])

    assert set(two.column("target")) == {0, 1}
    assert two.counts["dropped: label neutral"] == 1
    assert two.column("entailment")[1] == "A dog sleeps."  # of the first label


def test_pairs_without_a_label_are_refused():
    with pytest.raises(DataError, match="no column 'label'; found: premise, hypothesis"):
        LabelledPairs()([table({"premise": ["a"], "hypothesis": ["b"]})])


def scored(*scores):
    columns = {"sentence1": [f"a {score}" for score in scores]}
    columns |= {"sentence2": [f"b {score}" for score in scores], "score": list(scores)}
    return table(columns)


def test_scored_pairs_have_their_score_from_0_to_1():
    built = ScoredPairs((1, 5))([scored(1.0, 5.0, 2.0, 4.2)])

    assert built.column("target") == pytest.approx([0, 1, 0.25, 0.8])
    assert built.column("positive") == [None, "b 5.0", None, "b 4.2"]
    assert built.column("made_of") == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("scheme", "error", "message"),
    [
        (ScoredPairs, DataError, r"own\.csv:2: the score 4\.2 is not .* 0 and 1: set"),
        (lambda: ScoredPairs((5, 0)), ConfigError, r"\[lowest, highest\], got \[5, 0\]"),
    ],
)
def test_scores_off_their_scale_are_refused(scheme, error, message):
    with pytest.raises(error, match=message):
        scheme()([scored(0.5, 4.2)])
