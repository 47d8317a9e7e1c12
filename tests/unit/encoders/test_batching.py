"""Groups of similar lengths: little padding, and never more tokens than allowed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_cse.encoders.packing import cut_by_length

sorted_lengths = st.lists(st.integers(1, 12), min_size=1, max_size=30).map(sorted)


@given(sorted_lengths, st.integers(0, 30), st.none() | st.integers(1, 60))
@settings(deadline=None, max_examples=200)
def test_groups_cover_all_within_their_bounds_and_none_ends_too_early(
    lengths: list[int], overhead: int, most: int | None
) -> None:
    ends = cut_by_length(np.array(lengths), overhead=overhead, most=most)
    assert ends[-1] == len(lengths)

    def fits(group: list[int]) -> bool:
        padded = len(group) * max(group)
        return padded - sum(group) <= overhead and (most is None or padded <= most)

    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        assert end - start == 1 or (end > start and fits(lengths[start:end]))
        assert end == len(lengths) or not fits(lengths[start : end + 1])


@pytest.mark.parametrize(("overhead", "groups"), [(0, 4), (10_000, 1)])
def test_overhead_decides_how_many_groups(overhead: int, groups: int) -> None:
    assert len(cut_by_length(np.array([3, 5, 8, 13]), overhead=overhead)) == groups
