"""Shuffled and cut word pieces: what is kept, how much is removed, and that seed and sentence alone
decide it.
"""

from lightning_cse.data.augment import TokenCutoff, TokenShuffle

TEXT = "A word after a word."


def test_draws_are_those_of_earlier_versions():
    """Stored positives and records of old runs depend on them, whatever the hash seed of a
    process.
    """
    assert TokenShuffle(seed=42)(range(10), TEXT) == [8, 5, 0, 1, 6, 4, 2, 9, 7, 3]
    assert TokenCutoff(0.3, seed=42)(range(10), TEXT) == [0, 2, 3, 4, 5, 6, 9]
    assert TokenShuffle(seed=43)(range(10), TEXT) != TokenShuffle(seed=42)(range(10), TEXT)
