"""Rows beside the pattern: which pairs are looked at, what their histograms share, and what is
printed.
"""

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


def of(pairs):
    roles = (
        Role(
            r,
            "source",
            "s",
            ("a", "b"),
            Examples(
                some[:1],
                some,
                "own",
            ),
            Checks(),
        )
        for r, some in pairs.items()
    )
    return Pattern("mine", tuple(roles))


def rows(folder, pairs):
    """Write rows in which each role has these pairs with the anchor, which is the same for all
    roles.
    """
    path = folder / "mine.jsonl"
    made = [
        {"anchor": some[0][0]}
        | dict(
            zip(
                pairs,
                (b for _, b in some),
                strict=True,
            )
        )
        for some in zip(*pairs.values(), strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))

    return path


def summary(folder, pattern, made, encoder=None, **given):
    return summarise(
        of(pattern),
        rows(folder, made),
        encoder,
        **{
            "most": 99,
            "seed": 0,
            **given,
        },
    )


def test_equal_rows_overlap_completely(tmp_path):
    found = summary(
        tmp_path,
        PAIRS,
        {role: some[:30] for role, some in PAIRS.items()},
        most=20,
    )

    assert found == json.loads((tmp_path / "summary.json").read_text())
    assert (tmp_path / "histograms.png").read_bytes().startswith(b"\x89PNG")

    for role, each in found["roles"].items():
        made, shown = each["written"], each["pattern"]

        assert (made["label"], made["pairs"], made["measured"]) == (f"anchor - {role}", 30, 20)
        assert (shown["label"], shown["pairs"], shown["measured"]) == (f"{role}: own", 40, 20)
        assert made["mer"]["mean"] == shown["mer"]["mean"] == 1 - KEPT[role] / 4
        assert (
            each["overlap"] == each["overlap_of_draws"] == {"mer": pytest.approx(1), "cosine": None}
        )


def test_overlap_of_draws(tmp_path):
    both = tuple(words(n, 3) for n in range(20)) + tuple(words(n, 0) for n in range(20))
    for times, count, alike in ((1, 1, 0.5), (10, 400, 0.975)):
        made = {"positive": tuple(words(n, 3) for n in range(count))}
        each = summary(
            tmp_path,
            {"positive": both * times},
            made,
            most=999,
        )["roles"]["positive"]

        assert each["overlap"]["mer"] == pytest.approx(0.5)
        assert each["overlap_of_draws"]["mer"] == pytest.approx(alike, abs=0.024)


@pytest.mark.parametrize(("count", "enough"), [(29, False), (30, True)])
def test_small_pools_have_no_overlap(count, enough, tmp_path):
    found = summary(
        tmp_path,
        {"positive": PAIRS["positive"][:count]},
        {"positive": PAIRS["positive"]},
    )["roles"]

    assert (found["positive"]["overlap"]["mer"] is not None) == enough
    assert found["positive"]["pattern"]["mer"] is not None


def test_cosine_overlap(tmp_path):
    given = {"positive": PAIRS["positive"]}
    found = summary(
        tmp_path,
        given,
        given,
        tiny_encoder(),
    )

    assert found["encoder"]["name"] == "tiny"
    assert found["roles"]["positive"]["overlap"]["cosine"] == pytest.approx(1)
