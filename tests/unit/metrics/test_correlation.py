"""Spearman against ranks spelled out; the three aggregations of subsets; errors."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lightning_cse.metrics import spearman, spearman_all, spearman_mean
from lightning_cse.metrics.scores import AGGREGATIONS

HAND_MADE = [([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4]), ([1, 2], [0.9, 0.8])]
WITH_CONSTANT = [*HAND_MADE, ([3, 3], [0.5, 0.6])]
pairs = st.lists(
    st.tuples(st.integers(0, 5), st.integers(-6, 6).map(lambda k: k / 8)), min_size=2, max_size=10
)


def ranks(values):
    """Mean rank of each value, counted one by one."""
    return [
        sum(v < value for v in values) + (sum(v == value for v in values) + 1) / 2
        for value in values
    ]


def loop(gold, scores):
    a, b = ranks(gold), ranks(scores)
    mean = (len(a) + 1) / 2
    covariance = math.fsum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    return covariance / math.sqrt(
        math.fsum((x - mean) ** 2 for x in a) * math.fsum((y - mean) ** 2 for y in b)
    )


@given(pairs)
def test_against_loop(pairs):
    gold, scores = zip(*pairs, strict=True)
    assume(len(set(gold)) > 1 and len(set(scores)) > 1)
    assert spearman(gold, scores) == pytest.approx(loop(gold, scores), abs=1e-12)
    assert spearman(gold, [math.exp(score) for score in scores]) == pytest.approx(
        spearman(gold, scores), abs=1e-12
    )


def test_hand_made_subsets_tell_the_aggregations_apart():
    assert spearman_mean(HAND_MADE) == pytest.approx(0, abs=1e-12)
    assert spearman_mean(HAND_MADE, weighted=True) == pytest.approx(1 / 3)
    assert spearman_all(HAND_MADE) == pytest.approx(
        loop([1, 2, 3, 4, 1, 2], [0.1, 0.2, 0.3, 0.4, 0.9, 0.8])
    )
    assert spearman_all(HAND_MADE) == pytest.approx(0.029, abs=5e-4)
    for aggregation in AGGREGATIONS.values():
        assert aggregation(HAND_MADE[:1]) == pytest.approx(1), "one subset needs no aggregation"
        assert aggregation(iter(HAND_MADE)) == pytest.approx(aggregation(HAND_MADE[::-1]))


@pytest.mark.parametrize(
    ("gold", "scores", "message"),
    [
        ([1, 1, 1], [0.1, 0.2, 0.3], "gold must vary .* got 1 in all 3 rows"),
        ([1, 2], [0.5, 0.5], "scores must vary .* got 0.5 in all 2 rows"),
        ([], [], r"gold must be a non-empty 1-d sequence, got shape \(0,\)"),
        ([1, 2, 3], [0.1, 0.2], "gold and scores must be equally long, got 3 and 2"),
        ([1, 2], [0.1, float("nan")], "scores must be finite, got nan at row 1"),
    ],
)
def test_errors_tell_what_came(gold, scores, message):
    with pytest.raises(ValueError, match=message):
        spearman(gold, scores)


@pytest.mark.parametrize("aggregation", AGGREGATIONS.values(), ids=AGGREGATIONS)
def test_errors_tell_which_subset(aggregation):
    with pytest.raises(ValueError, match="at least one subset"):
        aggregation([])
    with pytest.raises(ValueError, match=r"gold of subset 1 and scores of subset 1 .* got 2 and 1"):
        aggregation([*HAND_MADE[:1], ([1, 2], [0.5])])


def test_a_constant_subset_stops_means_unless_the_caller_says_what_it_counts():
    for aggregation in (AGGREGATIONS["mean"], AGGREGATIONS["wmean"]):
        with pytest.raises(ValueError, match="gold must vary"):
            aggregation(WITH_CONSTANT)
    assert math.isfinite(spearman_all(WITH_CONSTANT))
    assert (
        spearman([1, 1], [0.1, 0.2], constant=0.0)
        == spearman([1, 2], [0.5, 0.5], constant=0.0)
        == 0
    )
    assert spearman_mean(WITH_CONSTANT, constant=0.0) == pytest.approx((1 - 1 + 0) / 3)
    assert spearman_mean(WITH_CONSTANT, weighted=True, constant=0.25) == pytest.approx(
        (4 - 2 + 2 * 0.25) / 8
    )
    assert spearman_all([([1, 1], [1, 2]), ([1], [3])], constant=0.0) == 0
    with pytest.raises(ValueError, match="finite"):
        spearman([1, 1], [0.1, float("nan")], constant=0.0)
