"""Groups of similar lengths: the least cost there is, and never more than allowed."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_cse.encoders.packing import cut_by_length

sorted_lengths = st.lists(st.integers(1, 12), min_size=1, max_size=9).map(sorted)


def cost(lengths: list[int], ends: list[int], overhead: int) -> int:
    starts = [0, *ends[:-1]]
    return sum((end - start) * max(lengths[start:end]) + overhead for start, end in zip(starts, ends, strict=True))


def every_cut(count: int) -> list[list[int]]:
    inner = range(1, count)
    return [[*chosen, count] for size in range(count) for chosen in combinations(inner, size)]


@given(sorted_lengths, st.integers(0, 30))
@settings(deadline=None, max_examples=200)
def test_cost_is_the_least_of_all_cuts(lengths: list[int], overhead: int) -> None:
    got = cut_by_length(lengths, overhead=overhead)
    assert cost(lengths, got, overhead) == min(cost(lengths, ends, overhead) for ends in every_cut(len(lengths)))


@given(sorted_lengths, st.integers(0, 30), st.integers(1, 60))
@settings(deadline=None, max_examples=200)
def test_groups_cover_all_and_hold_no_more_than_most(lengths: list[int], overhead: int, most: int) -> None:
    ends = cut_by_length(lengths, overhead=overhead, most=most)
    assert ends[-1] == len(lengths)
    assert all(a < b for a, b in zip([0, *ends], ends, strict=False))
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        assert end - start == 1 or (end - start) * lengths[end - 1] <= most


def test_nothing_gives_no_group() -> None:
    assert cut_by_length([]) == []


def test_lengths_may_be_an_array() -> None:
    assert cut_by_length(np.array([5, 5, 6, 90]), overhead=10) == [3, 4]


@pytest.mark.parametrize(("overhead", "groups"), [(0, 4), (10_000, 1)])
def test_overhead_decides_how_many_groups(overhead: int, groups: int) -> None:
    assert len(cut_by_length([3, 5, 8, 13], overhead=overhead)) == groups
