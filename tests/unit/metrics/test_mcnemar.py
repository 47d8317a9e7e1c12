"""McNemar's test against a printed example, a loop over counts, binomial sums and scipy; errors."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from lightning_cse.metrics import McNemar, mcnemar

flags = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30)


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
    assert mcnemar(a, b) == McNemar(
        counts[True, True], counts[True, False], counts[False, True], counts[False, False]
    )
    assert mcnemar(b, a).pvalue == mcnemar(a, b).pvalue


@given(st.integers(0, 60), st.integers(0, 60))
def test_pvalues_against_scipy_and_loop(b, c):
    test = McNemar(both=3, only_a=b, only_b=c, neither=5)
    if b + c == 0:
        assert (test.pvalue, test.statistic, test.pvalue_asymptotic) == (1.0, 0.0, 1.0)
        return
    tail = sum(math.comb(b + c, k) for k in range(min(b, c) + 1)) / 2 ** (b + c)
    assert test.pvalue == pytest.approx(min(1.0, 2 * binom.cdf(min(b, c), b + c, 0.5)), rel=1e-9)
    assert test.pvalue == pytest.approx(min(1.0, 2 * tail), rel=1e-9)
    assert test.statistic == pytest.approx((abs(b - c) - 1) ** 2 / (b + c))
    assert test.pvalue_asymptotic == pytest.approx(
        chi2.sf((abs(b - c) - 1) ** 2 / (b + c), 1), rel=1e-9
    )


def test_large_counts_stay_finite():
    assert 0 <= McNemar(both=0, only_a=30_000, only_b=20_000, neither=0).pvalue < 1e-300


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1, 0], [1], "correct_a and correct_b must be equally long, got 2 and 1"),
        ([], [], "correct_a must be a non-empty"),
        (
            torch.tensor([True, False]),
            np.array([1, 0.5]),
            "correct_b must be 0 or 1, got 0.5 at row 1",
        ),
    ],
)
def test_errors_tell_what_came(a, b, message):
    with pytest.raises(ValueError, match=message):
        mcnemar(a, b)
