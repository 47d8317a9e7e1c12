"""Power, intervals and shares against simulation, closed forms and other libraries."""

import numpy as np
import pytest
from scipy import stats

from lightning_cse.metrics import auc_influences, delong, mean_influences
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
    found = stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.01)


def test_the_power_is_that_of_scipys_non_central_t():
    for pairs in (3, 5, 12):
        shift = detectable_difference(1, pairs, power=0.9) * np.sqrt(pairs)
        critical = stats.t.ppf(0.975, pairs - 1)
        power = stats.nct.sf(critical, pairs - 1, shift) + stats.nct.cdf(
            -critical, pairs - 1, shift
        )
        assert power == pytest.approx(0.9, abs=1e-4)

    assert detectable_difference(1, 2) > detectable_difference(1, 3)


def test_more_pairs_need_less_and_no_spread_needs_nothing():
    assert detectable_difference(1, 3) > detectable_difference(1, 5) > 0
    assert detectable_difference(0, 3) == 0
    # Of many pairs, the normal approximation: z(.975) + z(.8) standard errors.
    assert detectable_difference(1, 10_000) == pytest.approx(2.80159 / 100, rel=1e-3)


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


def test_one_seed_is_the_interval_over_examples():
    rng = np.random.default_rng(2)
    a = rng.random(400) < 0.8
    b = np.where(rng.random(400) < 0.7, a, rng.random(400) < 0.5)
    difference = a.astype(float) - b
    error = error_between(a, b)
    assert error == pytest.approx(np.std(difference, ddof=1) / 20)
    _, *ends = two_way_interval([difference.mean()], error)
    other = stats.bootstrap((difference,), np.mean, n_resamples=9999, rng=3)
    assert tuple(ends) == pytest.approx(tuple(other.confidence_interval), abs=0.006)


def test_a_method_without_seeds_is_the_same_for_all():
    rng = np.random.default_rng(6)
    a = rng.random((3, 50))
    b = rng.random(50)
    assert error_between(a, b) == error_between(a, [b, b, b])
    assert error_between(a, b) == pytest.approx(stats.sem(a.mean(axis=0) - b))


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


def test_it_contains_the_interval_over_seeds_and_the_one_over_examples():
    rng = np.random.default_rng(4)
    d = rng.normal(size=(4, 1)) + rng.normal(size=(1, 50)) + rng.normal(size=(4, 50))
    by_seed = d.mean(axis=1)
    error = error_between(d, 0)
    _, low, high = two_way_interval(by_seed, error)
    mean, *of_seeds = mean_interval(by_seed)
    of_examples = stats.norm.interval(0.95, mean, error)
    assert low < min(of_seeds[0], of_examples[0])
    assert high > max(of_seeds[1], of_examples[1])
    halves = [(ends[1] - ends[0]) / 2 for ends in (of_seeds, of_examples)]
    assert (high - low) / 2 == pytest.approx(np.hypot(*halves))


def test_an_error_over_clusters_matches_a_loop_and_independent_examples():
    rng = np.random.default_rng(8)
    clusters = rng.integers(0, 40, 200)
    difference = rng.normal(size=40)[clusters] + rng.normal(size=200)
    found = error_between(difference, 0, clusters)
    total = 0.0
    for cluster in range(40):
        inside = difference[clusters == cluster] - difference.mean()
        total += (inside.sum() / 200) ** 2

    assert found == pytest.approx(np.sqrt(40 / 39 * total))
    assert found > 1.3 * error_between(difference, 0)
    alone = error_between(difference, 0, range(200))
    assert alone == pytest.approx(error_between(difference, 0))
    assert np.isnan(clustered_error([0.0, 0.0], [1, 1]))


def test_an_error_of_an_auc_over_clusters_matches_resampled_clusters():
    """Clusters have rows of both labels, and influence the AUC as a whole."""
    rng = np.random.default_rng(9)
    names = np.repeat(np.arange(150), 4)
    labels = np.tile([1, 1, 0, 0], 150)
    shared = rng.normal(size=150)[names]
    a = labels + shared * labels + rng.normal(size=600)
    b = labels + rng.normal(size=600)
    found = delong(labels, [a], [b])
    influences = auc_influences(labels, a) - auc_influences(labels, b)
    error = clustered_error(influences, names)
    rows = np.arange(600).reshape(150, 4)
    differences = []
    for _ in range(1_000):
        drawn = rows[rng.integers(0, 150, 150)].ravel()
        differences.append(delong(labels[drawn], [a[drawn]], [b[drawn]]).difference)

    assert error == pytest.approx(np.std(differences), rel=0.08)
    assert error > 1.05 * found.error
    apart = clustered_error(influences, range(600))
    assert apart == pytest.approx(found.error, rel=0.002)


def test_equal_methods_have_no_difference():
    same = np.ones((3, 20), dtype=bool)
    error = error_between(same, same)
    assert two_way_interval([0, 0, 0], error) == (0, 0, 0)
