"""Shuffled and cut word pieces: what is kept, how much is removed, and that seed and sentence alone decide it."""

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lightning_cse.data.augment import TokenCutoff, TokenShuffle

pieces = st.lists(st.integers(0, 30_000), max_size=60)
sentences = st.text(st.characters(codec="utf-8"), max_size=40)


@given(pieces, sentences, st.integers(), st.floats(0, 0.999))
@example([7], "x", 0, 0.99)
@settings(max_examples=50)
def test_a_shuffle_keeps_all_pieces_and_a_cutoff_their_order(
    ids: list[int], sentence: str, seed: int, share: float
) -> None:
    shuffled, cut = TokenShuffle(seed)(ids, sentence), TokenCutoff(share, seed)(ids, sentence)
    assert type(shuffled) is type(cut) is list
    assert Counter(shuffled) == Counter(ids)
    left = iter(ids)
    assert all(piece in left for piece in cut), "a subsequence"
    assert len(cut) == max(len(ids) - round(share * len(ids)), min(len(ids), 1))


def test_a_cutoff_removes_a_twentieth_by_length() -> None:
    removed = {n: n - len(TokenCutoff()(range(n), "a sentence")) for n in range(1, 201)}
    assert removed == {n: round(0.05 * n) for n in range(1, 201)}
    # A half goes to the even neighbour: 0.5 to 0, 1.5 to 2, 2.5 to 2.
    assert [removed[n] for n in (1, 9, 10, 11, 29, 30, 31, 49, 50, 51, 200)] == [
        0,
        0,
        0,
        1,
        1,
        2,
        2,
        2,
        2,
        3,
        10,
    ]


@pytest.mark.parametrize("augment", [TokenShuffle, TokenCutoff])
def test_seed_and_sentence_decide(augment: type[TokenShuffle | TokenCutoff]) -> None:
    ids = list(range(100))
    assert augment()(ids, "a sentence") == augment(seed=0)(ids, "a sentence")
    assert len({tuple(augment(seed=seed)(ids, "a sentence")) for seed in (0, 1, -1, 10)}) == 4
    assert (
        len(
            {
                tuple(augment()(ids, text))
                for text in ("a sentence", "a sentence ", "A sentence", "0")
            }
        )
        == 4
    )


@pytest.mark.parametrize(
    ("augment", "outcomes", "quantile"),
    [
        (
            TokenShuffle(seed=3),
            list(itertools.permutations(range(4))),
            57.1,
        ),  # 23 degrees of freedom
        (
            TokenCutoff(1 / 3),
            list(itertools.combinations(range(6), 4)),
            42.6,
        ),  # 14 degrees of freedom
    ],
)
def test_every_outcome_is_as_likely(
    augment: TokenShuffle | TokenCutoff, outcomes: Sequence[tuple[int, ...]], quantile: float
) -> None:
    size, draws = max(map(max, outcomes)) + 1, 500 * len(outcomes)
    counts = Counter(tuple(augment(range(size), f"sentence {k}")) for k in range(draws))
    assert set(counts) == set(outcomes)
    assert sum((count - 500) ** 2 for count in counts.values()) / 500 < quantile, (
        "chi square, 0.9999"
    )


def test_the_draws_stay_as_they_are() -> None:
    """Stored positives and records of old runs depend on them, whatever the hash seed of a process."""
    assert TokenShuffle(seed=42)(range(10), "A word after a word.") == [
        8,
        5,
        0,
        1,
        6,
        4,
        2,
        9,
        7,
        3,
    ]
    assert TokenCutoff(share=0.3, seed=42)(range(10), "A word after a word.") == [
        0,
        2,
        3,
        4,
        5,
        6,
        9,
    ]


@pytest.mark.parametrize("share", [-0.05, 1.0, float("nan")])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match=rf"share must be in \[0, 1\), got {share}"):
        TokenCutoff(share=share)
