"""Power, bootstrap and shares against simulation, closed forms and other libraries."""

import numpy as np
import pytest
from scipy import stats

from lightning_cse.papers.statistics import (
    detectable_difference,
    hierarchical_bootstrap,
    mean_interval,
    share_difference,
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


def test_newcombes_published_example():
    # Newcombe 1998, table II, example (a): 56/70 and 48/80, method 10.
    found = share_difference(56 / 70, 48 / 80, 70, 80)
    assert found == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_one_seed_is_the_bootstrap_over_examples():
    rng = np.random.default_rng(2)
    a = rng.random(400) < 0.8
    b = np.where(rng.random(400) < 0.7, a, rng.random(400) < 0.5)
    sample = (a.astype(float) - b,)
    other = stats.bootstrap(sample, np.mean, n_resamples=9999, method="percentile", rng=3)
    ends = tuple(other.confidence_interval)
    assert hierarchical_bootstrap(a, b) == pytest.approx(ends, abs=0.006)


def test_its_variance_is_that_of_seeds_and_examples_and_their_interaction():
    rng = np.random.default_rng(4)
    d = rng.normal(size=(4, 1)) + rng.normal(size=(1, 50)) + rng.normal(size=(4, 50))
    low, high = hierarchical_bootstrap(d, np.zeros_like(d), draws=20_000)
    # Owen 2007: means of rows and of columns, and the cells once more, all without n - 1.
    centred = d - d.mean()
    rows = centred.mean(axis=1)
    columns = centred.mean(axis=0)
    variance = (
        (rows**2).sum() / 4**2 + (columns**2).sum() / 50**2 + (centred**2).sum() / (4 * 50) ** 2
    )
    # The cells of a drawn row and column are counted in all three; take what is counted twice out.
    variance -= (rows**2).sum() / (4**2 * 50) + (columns**2).sum() / (50**2 * 4)
    half = stats.norm.ppf(0.975) * np.sqrt(variance)
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)


def test_methods_that_do_not_differ_are_rarely_told_apart():
    rng = np.random.default_rng(5)
    small = 0
    for number in range(100):
        effect = rng.normal(size=(10, 1)) * 0.5 + rng.normal(size=(1, 60)) * 0.5
        d = effect - effect.mean() + rng.normal(0, 0.05) + rng.normal(size=(10, 60))
        low, high = hierarchical_bootstrap(d, np.zeros_like(d), draws=300, seed=number)
        small += not low <= 0 <= high

    assert small <= 12


def test_equal_methods_have_no_difference():
    same = np.ones((3, 20), dtype=bool)
    assert hierarchical_bootstrap(same, same, draws=100) == (0, 0)
