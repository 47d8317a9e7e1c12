"""Rows beside the pattern: which pairs are measured, and what their histograms share."""

import json

import pytest

from lightning_cse.encoders import tiny_encoder
from lightning_cse.generation.examples import Examples
from lightning_cse.generation.pattern import Checks, Pattern, Role
from lightning_cse.generation.summary import summarise


def words(number, kept):
    """Return two sentences of four words, of which the first ones are the same."""
    first = [f"{letter}{number}" for letter in "abcd"]

    return " ".join(first), " ".join(first[:kept] + [f"other{place}" for place in range(4 - kept)])


KEPT = {
    "positive": 3,
    "intermediate": 2,
    "negative": 0,
}
PAIRS = {role: tuple(words(number, kept) for number in range(40)) for role, kept in KEPT.items()}


def summary(folder, pattern, written, encoder=None, most=99):
    """Summarise rows in which each role has these pairs with the anchor, the same for all roles."""
    roles = [
        Role(role, "source", "s", ("a", "b"), Examples(pairs[:1], pairs, "own"), Checks())
        for role, pairs in pattern.items()
    ]
    lines = []
    for pairs in zip(*written.values(), strict=True):
        row = {"anchor": pairs[0][0]}
        row |= zip(written, [second for _, second in pairs], strict=True)
        lines.append(json.dumps(row) + "\n")

    path = folder / "mine.jsonl"
    path.write_text("".join(lines))
    return summarise(Pattern("mine", tuple(roles)), path, encoder, most=most, seed=0)


def test_equal_rows_overlap_completely(tmp_path):
    written = {role: some[:30] for role, some in PAIRS.items()}
    found = summary(tmp_path, PAIRS, written, most=20)

    assert found == json.loads((tmp_path / "summary.json").read_text())
    assert (tmp_path / "histograms.png").read_bytes().startswith(b"\x89PNG")

    for role, each in found["roles"].items():
        ours, theirs = each["written"], each["pattern"]

        assert (ours["label"], ours["pairs"], ours["measured"]) == (f"anchor - {role}", 30, 20)
        assert (theirs["label"], theirs["pairs"], theirs["measured"]) == (f"{role}: own", 40, 20)
        assert ours["mer"]["mean"] == theirs["mer"]["mean"] == 1 - KEPT[role] / 4
        assert each["overlap"] == {"mer": pytest.approx(1), "cosine": None}


def test_half_of_the_pattern_overlaps_by_half(tmp_path):
    both = tuple(words(n, 3) for n in range(20)) + tuple(words(n, 0) for n in range(20))
    written = {"positive": tuple(words(n, 3) for n in range(7))}
    found = summary(tmp_path, {"positive": both}, written)

    assert found["roles"]["positive"]["overlap"]["mer"] == pytest.approx(0.5)


@pytest.mark.parametrize(("count", "enough"), [(29, False), (30, True)])
def test_small_pools_have_no_overlap(count, enough, tmp_path):
    positive = PAIRS["positive"]
    found = summary(tmp_path, {"positive": positive[:count]}, {"positive": positive})["roles"]

    assert (found["positive"]["overlap"]["mer"] is not None) == enough
    assert found["positive"]["pattern"]["mer"] is not None


def test_cosine_overlap(tmp_path):
    given = {"positive": PAIRS["positive"]}
    found = summary(tmp_path, given, given, tiny_encoder())

    assert found["encoder"]["name"] == "tiny"
    assert found["roles"]["positive"]["overlap"]["cosine"] == pytest.approx(1)
