"""Rows beside the pattern: which pairs are measured."""

import json

from lightning_cse.encoders import tiny_encoder
from lightning_cse.generation.examples import Examples
from lightning_cse.generation.pattern import Pattern, Role
from lightning_cse.generation.summary import summarise, summary_table


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
        Role.model_construct(name=role, drawn=Examples(pairs[:1], pairs, "own"))
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
    written = {role: pairs[:30] for role, pairs in PAIRS.items()}
    got = summary(tmp_path, PAIRS, written, tiny_encoder(), most=20)

    assert [path.name for path in tmp_path.iterdir()] == ["mine.jsonl"]
    assert got["encoder"]["name"] == "tiny"
    assert [entry["name"] for entry in got["sets"]] == ["written", "pattern"]

    for role, written_pairs, pattern_pairs in zip(
        PAIRS, *(entry["pairs"] for entry in got["sets"]), strict=True
    ):
        assert (written_pairs["label"], written_pairs["pairs"], written_pairs["measured"]) == (
            f"anchor - {role}",
            30,
            20,
        )
        assert (pattern_pairs["label"], pattern_pairs["pairs"], pattern_pairs["measured"]) == (
            f"{role}: own",
            40,
            20,
        )
        assert written_pairs["mer"]["mean"] == pattern_pairs["mer"]["mean"] == 1 - KEPT[role] / 4
        assert written_pairs["cosine"] is not None


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
    heading, *lines, _, total = summary_table(measured, provenance).splitlines()

    assert heading.split() == [
        *("replies", "accepted", "mer", "(pattern)", "cosine", "(pattern)", "rejected")
    ]
    assert [" ".join(line.split()) for line in lines] == [
        "positive 1,234 30 0.250 (0.250) - (-) refused 1,200, empty 4",
        "negative 30 30 1.000 (1.000) - (-)",
        "negative score 31 30 no score 1",
    ]
    assert total == "rows: 30, 2 given up; tokens: 1,100; cost: $0.5000"
