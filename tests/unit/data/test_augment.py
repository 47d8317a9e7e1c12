"""Shuffled and cut word pieces: what is kept, how much is removed, and that seed and sentence alone
decide it.
"""

import itertools
from collections import Counter

import pytest

from lightning_cse.data.augment import TokenCutoff, TokenShuffle

TEXT = "A word after a word."


@pytest.mark.parametrize(
    ("augment", "outcomes", "quantile"),
    [
        (TokenShuffle(seed=3), list(itertools.permutations(range(4))), 57.1),  # 23 degrees
        (TokenCutoff(1 / 3), list(itertools.combinations(range(6), 4)), 42.6),  # 14 degrees
    ],
)
def test_outcomes_are_equally_likely(augment, outcomes, quantile):
    size = 1 + max(map(max, outcomes))
    texts = [f"sentence {k}" for k in range(500 * len(outcomes))]
    counts = Counter(tuple(augment(range(size), text)) for text in texts)
    chi_square = sum((count - 500) ** 2 for count in counts.values()) / 500

    assert set(counts) == set(outcomes)
    assert chi_square < quantile, "the 0.9999 quantile"


def test_draws_are_those_of_earlier_versions():
    """Stored positives and records of old runs depend on them, whatever the hash seed of a
    process.
    """
    assert TokenShuffle(seed=42)(range(10), TEXT) == [8, 5, 0, 1, 6, 4, 2, 9, 7, 3]
    assert TokenCutoff(0.3, seed=42)(range(10), TEXT) == [0, 2, 3, 4, 5, 6, 9]
    assert TokenShuffle(seed=43)(range(10), TEXT) != TokenShuffle(seed=42)(range(10), TEXT)
