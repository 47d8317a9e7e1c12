"""Holm's adjustment, the majority vote and the paired bootstrap against scipy, loops and printed examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, spearmanr

from lightning_cse.metrics import spearman
from lightning_cse.papers.paired_tests import (
    PairedBootstrap,
    bootstrap_spearman,
    count_draws,
    holm,
    majority_vote,
    spearman_of_draws,
)

pvalues = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def paired_bootstrap(gold, a, b, draws, seed=0):
    """The test of two models, each with one seed or several."""
    a, b = np.atleast_2d(a), np.atleast_2d(b)
    observed = np.mean([spearman(gold, one) for one in a]) - np.mean([spearman(gold, one) for one in b])
    drawn_a, drawn_b = (bootstrap_spearman(gold, side, draws, seed) for side in (a, b))
    return PairedBootstrap.of_draws(observed, drawn_a - drawn_b)


def test_the_printed_example_of_holm():
    # A family of four tests at 0.05: only the first and the last are rejected.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([0.3]) == pytest.approx([0.3])


@given(pvalues, st.floats(0.001, 0.999))
def test_holm_rejects_what_stepping_down_rejects(values, level):
    order = sorted(range(len(values)), key=values.__getitem__)
    rejected = set()
    for step, index in enumerate(order):
        if (len(values) - step) * values[index] >= level:
            break
        rejected.add(index)
    assert {index for index, p in enumerate(holm(values)) if p < level} == rejected


@given(pvalues)
def test_holm_is_monotone_and_between_the_raw_value_and_bonferroni(values):
    adjusted = holm(values)
    assert (adjusted >= np.array(values)).all()
    assert (adjusted <= np.minimum(1, len(values) * np.array(values))).all()
    assert (np.diff(adjusted[np.argsort(values, kind="stable")]) >= 0).all()


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1)))
def test_majority_against_loop(seeds):
    want = [2 * sum(column) > len(seeds) for column in zip(*seeds, strict=True)]
    assert majority_vote(seeds).tolist() == want


def test_a_tie_is_wrong_and_one_seed_votes_for_itself():
    assert majority_vote([[1, 1, 0, 0], [1, 0, 1, 0]]).tolist() == [True, False, False, False]
    assert majority_vote([[1, 0]]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: holm([0.5, 1.5]), "pvalues must be .* got .*1.5"),
        (lambda: holm([]), "pvalues must be a non-empty"),
        (lambda: majority_vote([]), r"need seeds with the same examples, got \[\]"),
        (lambda: majority_vote([[1, 0], [1]]), r"same examples, got \[2, 1\]"),
    ],
)
def test_errors_say_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("distinct", [3, 8, 1000])
def test_correlations_of_draws_against_scipy_on_the_drawn_pairs(distinct):
    generator = np.random.default_rng(distinct)
    n, draws = 25, 40
    gold, scores = generator.integers(0, distinct, n).astype(float), generator.integers(0, distinct, (3, n)) / 7
    rows = generator.integers(0, n, (draws, n))
    counts = np.stack([np.bincount(drawn, minlength=n) for drawn in rows], axis=1).astype(float)
    found = spearman_of_draws(gold, scores, counts)
    want = [[spearmanr(gold[drawn], model[drawn]).statistic for drawn in rows] for model in scores]
    assert found == pytest.approx(np.array(want), abs=1e-12)


def test_a_draw_with_a_constant_side_has_no_correlation():
    counts = np.array([[3.0, 0, 1], [0, 3, 1], [0, 0, 1]])
    found = spearman_of_draws(np.array([1.0, 2, 3]), np.array([[1.0, 2, 3], [5, 5, 5]]), counts)
    assert found.tolist() == [[0, 0, 1], [0, 0, 0]]


def test_every_draw_has_as_many_pairs_as_there_are():
    counts = np.concatenate(list(count_draws(30, 70, seed=9)), axis=1)
    assert counts.shape == (30, 70)  # more than one chunk, and a last one that is not full
    assert (counts.sum(axis=0) == 30).all()
    assert counts.mean(axis=1) == pytest.approx(np.ones(30), abs=0.5)


def test_the_bootstrap_against_a_loop():
    generator = np.random.default_rng(5)
    n, draws = 30, 70
    gold = generator.integers(0, 5, n).astype(float)
    a, b = gold + generator.normal(0, 2, (3, n)), gold + generator.normal(0, 3, (2, n))
    seen = [
        np.repeat(np.arange(n), counts[:, draw].astype(int))
        for counts in count_draws(n, draws, seed=9)
        for draw in range(counts.shape[1])
    ]
    differences = [
        np.mean([spearmanr(gold[rows], model[rows]).statistic for model in a])
        - np.mean([spearmanr(gold[rows], model[rows]).statistic for model in b])
        for rows in seen
    ]
    observed = np.mean([spearman(gold, m) for m in a]) - np.mean([spearman(gold, m) for m in b])
    test = paired_bootstrap(gold, a, b, draws=draws, seed=9)
    below = sum(d <= 0 for d in differences)
    assert 0 < below < draws
    assert test.draws == len(seen) == draws
    assert test.difference == pytest.approx(observed)
    assert test.pvalue == pytest.approx(min(1, 2 * (1 + min(below, draws - below)) / (draws + 1)))
    assert (test.low, test.high) == pytest.approx(tuple(np.percentile(differences, (2.5, 97.5))))


def test_p_is_uniform_when_nothing_differs():
    generator = np.random.default_rng(3)
    found = []
    for _ in range(150):
        gold = generator.normal(size=60)
        a, b = gold + generator.normal(size=(2, 60))
        found.append(paired_bootstrap(gold, a, b, draws=200, seed=len(found)).pvalue)
    assert kstest(found, "uniform").pvalue > 0.01
    assert np.mean(np.array(found) < 0.05) < 0.12


def test_more_seeds_are_averaged_and_equal_models_do_not_differ():
    generator = np.random.default_rng(1)
    gold = generator.normal(size=50)
    a, b = gold + generator.normal(size=(4, 50)), gold + generator.normal(size=(50,))
    test = paired_bootstrap(gold, a, b, draws=100)
    swapped = paired_bootstrap(gold, b, a[::-1], draws=100)
    assert (swapped.pvalue, -swapped.difference) == pytest.approx((test.pvalue, test.difference))
    assert (-swapped.high, -swapped.low) == pytest.approx((test.low, test.high))
    same = paired_bootstrap(gold, b, np.stack([b, b]), draws=100)
    assert (same.pvalue, same.difference, same.low, same.high) == (1, 0, 0, 0)
    assert paired_bootstrap(gold, -gold, gold, draws=100).pvalue == pytest.approx(2 / 101)


def test_the_same_seed_draws_the_same_examples():
    gold, a = np.random.default_rng(1).normal(size=(2, 50))
    drawn = bootstrap_spearman(gold, [a], draws=90, seed=4)
    assert (drawn == bootstrap_spearman(gold, [a], draws=90, seed=4)).all()
    assert (drawn != bootstrap_spearman(gold, [a], draws=90, seed=5)).any()
