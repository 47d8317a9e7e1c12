"""McNemar's test, Holm's adjustment, the majority vote and the bootstrap against scipy, loops and printed examples."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chi2, kstest, norm, spearmanr

from lightning_cse.metrics import (
    McNemar,
    PairedBootstrap,
    bootstrap_statistics,
    holm,
    majority_vote,
    mcnemar,
    paired_bootstrap,
    spearman,
    spearman_of_draws,
)

flags = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30)
pvalues = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def test_the_published_example():
    # Fagerland, Lydersen and Laake 2013, table 1 (Bentur et al.): exact 0.070, asymptotic with correction 0.077.
    before = [1] * 2 + [0] * 19
    after = [1, 0] + [1] * 7 + [0] * 12
    test = mcnemar(before, after)
    assert test == McNemar(both=1, only_a=1, only_b=7, neither=12)
    assert (test.examples, test.statistic) == (21, 3.125)
    assert test.pvalue == pytest.approx(2 * (1 + 8) / 2**8)
    assert (round(test.pvalue, 3), round(test.pvalue_asymptotic, 3)) == (0.070, 0.077)


@given(flags)
def test_counts_against_loop(rows):
    counts = dict.fromkeys(itertools.product((True, False), repeat=2), 0)
    for row in rows:
        counts[row] += 1
    a, b = zip(*rows, strict=True)
    assert mcnemar(a, b) == McNemar(counts[True, True], counts[True, False], counts[False, True], counts[False, False])


@given(st.integers(0, 60), st.integers(0, 60))
def test_pvalues_against_scipy_and_loop(b, c):
    test = McNemar(both=3, only_a=b, only_b=c, neither=5)
    if b + c == 0:
        assert (test.pvalue, test.statistic, test.pvalue_asymptotic) == (1.0, 0.0, 1.0)
        return
    tail = sum(math.comb(b + c, k) for k in range(min(b, c) + 1)) / 2 ** (b + c)
    assert test.pvalue == pytest.approx(binomtest(b, b + c).pvalue, rel=1e-9)
    assert test.pvalue == pytest.approx(min(1.0, 2 * tail), rel=1e-9)
    assert test.statistic == pytest.approx((abs(b - c) - 1) ** 2 / (b + c))
    assert test.pvalue_asymptotic == pytest.approx(chi2.sf((abs(b - c) - 1) ** 2 / (b + c), 1), rel=1e-9)
    assert test.pvalue_asymptotic == pytest.approx(math.erfc(math.sqrt(test.statistic / 2)), rel=1e-9)


@given(flags, st.randoms())
def test_neither_order_nor_side_nor_agreement_matters(rows, random):
    a, b = zip(*rows, strict=True)
    test = mcnemar(a, b)
    shuffled = mcnemar(*zip(*random.sample(rows, len(rows)), strict=True))
    assert shuffled == test
    swapped, agreeing = mcnemar(b, a), mcnemar([*a, True, False], [*b, True, False])
    assert (swapped.only_a, swapped.only_b) == (test.only_b, test.only_a)
    assert swapped.pvalue == agreeing.pvalue == test.pvalue
    assert swapped.statistic == agreeing.statistic == test.statistic


def test_large_counts_stay_finite():
    test = McNemar(both=0, only_a=30_000, only_b=20_000, neither=0)
    assert 0 <= test.pvalue < 1e-300
    assert McNemar(both=0, only_a=25_000, only_b=25_000, neither=0).pvalue == 1.0


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


def test_tensors_and_arrays():
    a, b = torch.tensor([True, True, False]), np.array([1, 0, 1])
    assert mcnemar(a, b) == McNemar(both=1, only_a=1, only_b=1, neither=0)
    assert majority_vote(torch.tensor([[1, 0], [1, 1], [0, 0]])).tolist() == [True, False]
    assert majority_vote([a, b, [0, 0, 0]]).dtype == np.bool_
    assert holm(torch.tensor([0.5, 0.125])).tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mcnemar([1, 0], [1]), "correct_a and correct_b must be equally long, got 2 and 1"),
        (lambda: mcnemar([], []), "correct_a must be a non-empty"),
        (lambda: mcnemar([1, 0], [1, 0.5]), "correct_b must be 0 or 1, got 0.5 at row 1"),
        (lambda: McNemar(both=1, only_a=1, only_b=-2, neither=0), "only_b must not be negative, got -2"),
        (lambda: holm([0.5, 1.5]), "pvalues must be between 0 and 1, got 1.5 at row 1"),
        (lambda: holm([]), "pvalues must be a non-empty"),
        (lambda: majority_vote([]), "need at least one seed"),
        (lambda: majority_vote([[1, 0], [1]]), "same examples, got 2, 1 of them"),
        (lambda: majority_vote([[1, 0], [1, 3]]), "seed 1 must be 0 or 1, got 3 at row 1"),
    ],
)
def test_errors_tell_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def mean_of_draws(gold, scores, counts):
    """The mean score of every draw: what the bootstrap of it must give is known."""
    return scores @ counts / len(gold)


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


def test_the_bootstrap_against_a_loop():
    generator = np.random.default_rng(5)
    n, draws = 30, 70  # more than one chunk, and a last one that is not full
    gold = generator.integers(0, 5, n).astype(float)
    a, b = gold + generator.normal(0, 2, (3, n)), gold + generator.normal(0, 3, (2, n))
    drawn = bootstrap_statistics(gold, np.eye(n), mean_of_draws, draws, seed=9) * n
    assert np.allclose(drawn, 1), "every draw has as many pairs as there are"

    def rows_of_draws(gold, scores, counts):
        seen.extend(np.repeat(np.arange(n), counts[:, draw].astype(int)) for draw in range(counts.shape[1]))
        return np.zeros((len(scores), counts.shape[1]))

    seen = []
    bootstrap_statistics(gold, a, rows_of_draws, draws, seed=9)
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


def test_the_bootstrap_of_a_mean_is_nearly_normal():
    generator = np.random.default_rng(0)
    n = 400
    a, b = generator.normal(0.12, 1, n), generator.normal(0, 1, n)
    test = paired_bootstrap(np.zeros(n), a, b, mean_of_draws, draws=20_000)
    error = np.std(a - b) / math.sqrt(n)
    assert test.difference == pytest.approx(np.mean(a - b))
    assert test.pvalue == pytest.approx(2 * norm.sf(abs(test.difference) / error), rel=0.15)
    assert test.high - test.low == pytest.approx(2 * 1.96 * error, rel=0.03)


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
    generator = np.random.default_rng(1)
    gold = generator.normal(size=50)
    a, b = gold + generator.normal(size=(2, 50))
    drawn = [bootstrap_statistics(gold, scores, draws=90, seed=4) for scores in (a, b)]
    together = paired_bootstrap(gold, a, b, draws=90, seed=4)
    apart = PairedBootstrap.of_draws(spearman(gold, a) - spearman(gold, b), drawn[0] - drawn[1])
    assert together.pvalue == apart.pvalue
    assert (together.low, together.high) == pytest.approx((apart.low, apart.high))
    assert (drawn[0] != bootstrap_statistics(gold, a, draws=90, seed=5)).any()
    assert bootstrap_statistics(torch.tensor(gold), torch.tensor(a)[None], draws=90, seed=4).tolist() == list(drawn[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: paired_bootstrap([1, 2], [1, 2], [1]), "gold and scores_b must be equally long, got 2 and 1"),
        (
            lambda: paired_bootstrap([1, 2], [[1, 2], [1, math.nan]], [1, 2]),
            "scores_a must be finite, got nan at row 1",
        ),
        (lambda: paired_bootstrap([1, 2], [], [1, 2]), "scores_a must be a non-empty"),
        (lambda: bootstrap_statistics([1, 2], [1, 2], draws=0), "draws must be at least 1, got 0"),
        (lambda: PairedBootstrap.of_draws(1, []), "differences must be a non-empty"),
    ],
)
def test_errors_of_the_bootstrap_tell_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()
