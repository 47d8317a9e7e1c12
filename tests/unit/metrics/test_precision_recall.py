"""AUPRC against a loop over thresholds, closed forms, invariances, scikit-learn, errors."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc, average_precision_score, precision_recall_curve

from lightning_cse.metrics import AUPRC, auprc

coarse = st.integers(-3, 3).map(lambda k: k / 4)  # many ties
anything = st.floats(allow_nan=False, allow_infinity=False, width=32)


def rows_of(scores):
    rows = st.lists(st.tuples(st.integers(0, 1), scores), min_size=1, max_size=12)
    return rows.filter(lambda rows: any(label for label, _ in rows))


def auprc_loop(labels, scores, grid=None):
    curve = [(0.0, 1.0)]
    for threshold in sorted(set(grid or scores), reverse=True):
        said = [label for label, score in zip(labels, scores, strict=True) if score >= threshold]
        curve.append((sum(said) / sum(labels), sum(said) / len(said) if said else 1.0))
    return sum((x - x0) * (y + y0) / 2 for (x0, y0), (x, y) in itertools.pairwise(curve))


@given(rows_of(st.one_of(coarse, anything)))
def test_against_loop_and_scikit_learn(rows):
    labels, scores = zip(*rows, strict=True)
    precision, recall, _ = precision_recall_curve(labels, scores)
    got = auprc(labels, scores)
    assert got == pytest.approx(auprc_loop(labels, scores), abs=1e-12)
    assert got == pytest.approx(auc(recall, precision), abs=1e-12)


THOUSAND = [k / 1000 for k in range(1001)]


@given(rows_of(st.one_of(coarse, anything, st.sampled_from(THOUSAND))), st.randoms())
def test_over_a_grid_against_a_loop(rows, random):
    labels, scores = zip(*rows, strict=True)
    for grid in (THOUSAND, [-0.25, 0.5], random.sample(THOUSAND, 9)):
        assert auprc(labels, scores, grid) == pytest.approx(
            auprc_loop(labels, scores, grid), abs=1e-12
        )
    assert auprc(labels, scores, scores) == auprc(labels, scores)


def test_the_papers_thresholds_merge_scores_that_the_exact_curve_parts():
    labels, scores = [1, 0, 1], [0.5004, 0.5003, 0.1]
    assert auprc(labels, scores) == pytest.approx(0.5 + 7 / 24)
    assert auprc(labels, scores, THOUSAND) == pytest.approx(3 / 8 + 7 / 24)
    assert float(AUPRC(grid=THOUSAND)(torch.tensor(labels), torch.tensor(scores))) == pytest.approx(
        3 / 8 + 7 / 24
    )


def test_against_scikit_learn_on_many_rows():
    generator = np.random.default_rng(0)
    labels = generator.random(20_000) < 1 / 3
    scores = (labels + generator.normal(size=20_000)).round(2)
    precision, recall, _ = precision_recall_curve(labels, scores)
    assert auprc(labels, scores) == pytest.approx(auc(recall, precision), abs=1e-12)
    assert abs(auprc(labels, scores) - average_precision_score(labels, scores)) > 1e-6


def test_by_hand():
    # Recall 1/2 at precision 1, then 1/2 at 1/2, then 1 at 2/3: (1 + 1)/2 * 1/2 + 0 + (1/2 + 2/3)/2 * 1/2.
    assert auprc([1, 0, 1], [0.9, 0.5, 0.1]) == pytest.approx(0.5 + 7 / 24)
    # The same with the first two tied: (1 + 1/2)/2 * 1/2 + (1/2 + 2/3)/2 * 1/2; order within a tie says nothing.
    assert (
        auprc([1, 0, 1], [0.9, 0.9, 0.1])
        == auprc([0, 1, 1], [0.9, 0.9, 0.1])
        == pytest.approx(3 / 8 + 7 / 24)
    )
    assert auprc([0, 1], [0.9, 0.1]) == pytest.approx(
        0.25
    )  # a triangle: straight up to (1, 1/2) from (0, 0)
    for positive, n in (
        (1, 7),
        (3, 4),
        (5, 5),
    ):  # equal scores give half of one and the share of positives
        assert auprc([1] * positive + [0] * (n - positive), [0.25] * n) == pytest.approx(
            (1 + positive / n) / 2
        )


@given(rows_of(coarse), st.randoms())
def test_only_the_order_of_scores_matters(rows, random):
    labels, scores = zip(*rows, strict=True)
    shuffled_labels, shuffled = zip(*random.sample(rows, len(rows)), strict=True)
    assert auprc(shuffled_labels, shuffled) == auprc(labels, scores)
    assert (
        auprc(labels, np.exp(scores))
        == auprc(labels, 3 * np.array(scores) - 7)
        == auprc(labels, scores)
    )


def test_no_positive_has_no_precision():
    with pytest.raises(ValueError, match=r"labels must have a 1 .* got 0 in all 3 rows"):
        auprc([0, 0, 0], [0.5, 0.1, 0.2])
