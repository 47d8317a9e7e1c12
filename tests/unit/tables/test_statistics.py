"""Power, intervals and shares against simulation, closed forms and other libraries."""

import numpy as np
import pytest
from scipy import stats

from lightning_cse.metrics import mean_influences
from lightning_cse.tables.statistics import (
    clustered_error,
    detectable_difference,
    mean_interval,
    two_way_interval,
)


@pytest.mark.parametrize("pairs", [3, 5, 20])
def test_the_smallest_difference_is_found_as_often_as_its_power_says(pairs):
    least = detectable_difference(1.7, pairs)
    rng = np.random.default_rng(0)
    samples = rng.normal(least, 1.7, size=(20_000, pairs))
    result = stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05
    assert result.mean() == pytest.approx(0.8, abs=0.01)


def test_a_paired_interval_is_that_of_scipy():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 5))
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert mean_interval(a - b)[1:] == pytest.approx(tuple(interval))


def error_between(first, second, clusters=None):
    influences = mean_influences(
        np.atleast_2d(np.subtract(first, second, dtype=float)).mean(axis=0)
    )
    return clustered_error(influences, range(len(influences)) if clusters is None else clusters)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize(("of_seeds", "of_examples"), [(1, 0.01), (1, 0.3), (0.3, 1), (0.01, 1)])
def test_how_often_an_interval_covers_the_difference(seeds, of_seeds, of_examples):
    """Draw experiments whose seeds and examples both differ; the true difference is 0."""
    rng = np.random.default_rng(7)
    examples = 400
    covered = []
    for _ in range(1_500):
        shift = rng.normal(0, of_seeds * np.sqrt(seeds), (seeds, 1))
        difference = shift + rng.normal(0, of_examples * np.sqrt(examples), (1, examples))
        error = error_between(difference, 0)
        _, low, high = two_way_interval(difference.mean(axis=1), error)
        covered.append(low <= 0 <= high)

    assert np.mean(covered) > 0.94


def test_an_error_over_clusters_matches_a_loop_and_independent_examples():
    rng = np.random.default_rng(8)
    clusters = rng.integers(0, 40, 200)
    difference = rng.normal(size=40)[clusters] + rng.normal(size=200)
    result = error_between(difference, 0, clusters)
    total = 0.0
    for cluster in range(40):
        inside = difference[clusters == cluster] - difference.mean()
        total += (inside.sum() / 200) ** 2

    assert result == pytest.approx(np.sqrt(40 / 39 * total))
    assert result > 1.3 * error_between(difference, 0)
    alone = error_between(difference, 0, range(200))
    assert alone == pytest.approx(error_between(difference, 0))
    assert np.isnan(clustered_error([0.0, 0.0], [1, 1]))


def test_equal_methods_have_no_difference():
    same = np.ones((3, 20), dtype=bool)
    error = error_between(same, same)
    assert two_way_interval([0, 0, 0], error) == (0, 0, 0)
