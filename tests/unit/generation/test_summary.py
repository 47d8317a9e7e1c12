"""Rows beside the pattern: which pairs are measured."""

import json

import pytest

from lightning_cse.analysis.histograms import Pairs
from lightning_cse.encoders import tiny_encoder
from lightning_cse.generation.examples import Examples
from lightning_cse.generation.pattern import Pattern, Role
from lightning_cse.generation.summary import Summary, summarise


def words(number, equal):
    """Return two sentences of four words, of which the first ones are the same."""
    first = [f"{letter}{number}" for letter in "abcd"]

    return " ".join(first), " ".join(
        first[:equal] + [f"other{index}" for index in range(4 - equal)]
    )


KEPT = {"positive": 3, "intermediate": 2, "negative": 0}
PAIRS = {role: tuple(words(number, equal) for number in range(40)) for role, equal in KEPT.items()}


def summary(folder, pattern, written, encoder, most):
    """Summarise rows in which each role has these pairs with the anchor, the same for all roles."""
    roles = [
        Role.model_construct(name=role, example_pairs=Examples(pairs[:1], pairs, "own"))
        for role, pairs in pattern.items()
    ]
    lines = []
    for pairs in zip(*written.values(), strict=True):
        row = {"anchor": pairs[0][0]}
        row |= zip(written, [second for _, second in pairs], strict=True)
        lines.append(json.dumps(row) + "\n")

    path = folder / "mine.jsonl"
    path.write_text("".join(lines))

    return summarise(Pattern.model_construct(roles=tuple(roles)), path, encoder, most=most, seed=0)


def test_rows_are_measured_beside_the_pattern(tmp_path):
    rows = {role: pairs[:30] for role, pairs in PAIRS.items()}
    measured = summary(tmp_path, PAIRS, rows, tiny_encoder(), most=20)
    record = measured.record()

    assert record["encoder"]["name"] == "tiny"
    for role, (written, pattern) in measured.pairs.items():
        assert (written.label, written.total) == (f"anchor - {role}", 30)
        assert (pattern.label, pattern.total) == (f"{role}: own", 40)
        assert written.mer == pattern.mer == [1 - KEPT[role] / 4] * 20

    values = record["values"]["written"][0]
    assert values["mer"] == [0.25] * 20
    assert values["cosine"] == pytest.approx(measured.pairs["positive"][0].cosine, abs=5e-4)


def test_metrics_are_shares_means_and_common_areas():
    written, none, pattern = (
        Pairs("positive", "", (), (), 4, cosine=cosines) for cosines in COSINES
    )
    measured = Summary(None, {"positive": [written, pattern], "other": [none, none]})
    counts = {"asked": 4, "accepted": 3}
    provenance = {
        "acceptance": {
            "roles": {"positive": counts, "other score": counts},
            "sources": {"complete": 3, "given_up": 1},
        },
        "tokens": {"prompt": 20, "completion": 10},
    }

    assert measured.metrics(provenance) == {
        "generate/tokens_per_row": 10,
        "generate/given_up": 0.25,
        "generate/positive/accepted": 0.75,
        "generate/positive/cosine": pytest.approx(0.4),
        "generate/positive/overlap": 0.5,
        "generate/other/accepted": 0.75,
    }


COSINES = ([0.05, 0.15, 0.65, 0.75], [], [0.02, 0.11, 0.35, -0.9])


def test_table_has_replies_by_role_and_pairs_beside_the_pattern(tmp_path):
    written = {role: pairs[:30] for role, pairs in PAIRS.items()}
    measured = summary(tmp_path, PAIRS, written, None, most=20)
    roles = {
        "positive": {"asked": 1_234, "accepted": 30, "rejected": {"refused": 1_200, "empty": 4}},
        "negative": {"asked": 30, "accepted": 30, "rejected": {}},
        "negative score": {"asked": 31, "accepted": 30, "rejected": {"no score": 1}},
    }
    provenance = {
        "acceptance": {"roles": roles, "sources": {"complete": 30, "given_up": 2}},
        "tokens": {"prompt": 900, "completion": 200},
        "cost": 0.5,
    }
    heading, *lines, _, total = measured.table(provenance).splitlines()

    assert heading.split() == [
        *("replies", "accepted", "mer", "(pattern)", "cosine", "(pattern)", "rejected")
    ]
    assert [" ".join(line.split()) for line in lines] == [
        "positive 1,234 30 0.250 (0.250) - (-) refused 1,200, empty 4",
        "negative 30 30 1.000 (1.000) - (-)",
        "negative score 31 30 no score 1",
    ]
    assert total == "rows: 30, 2 given up; tokens: 1,100; cost: $0.5000"
