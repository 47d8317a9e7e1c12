"""Metrics of scores against loops, scikit-learn, scipy and published examples."""

import itertools
import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from lightning_cse.metrics import (
    McNemar,
    auc,
    auc_error,
    auprc,
    best_threshold,
    delong,
    mcnemar,
    recall_at,
    reciprocal_rank_at,
    share_larger,
    spearman,
    spearman_all,
    spearman_mean,
    threshold_accuracy,
)
from lightning_cse.metrics.scores import AGGREGATIONS

THOUSAND = [k / 1000 for k in range(1001)]
coarse = st.integers(-3, 3).map(lambda k: k / 4)  # many ties
anything = st.floats(allow_nan=False, allow_infinity=False, width=32)
labelled = st.lists(
    st.tuples(st.integers(0, 1), st.one_of(coarse, anything)), min_size=1, max_size=12
)

# Thresholds


def accuracy_loop(labels, scores, threshold, strict):
    right = 0
    for label, score in zip(labels, scores, strict=True):
        predicted = score > threshold if strict else score >= threshold
        right += predicted == bool(label)

    return right / len(labels)


@given(labelled, st.booleans(), st.randoms())
def test_no_threshold_is_better_than_the_best(rows, strict, random):
    labels, scores = zip(*rows, strict=True)
    threshold, accuracy = best_threshold(labels, scores, strict=strict)
    # Every way to cut: at each score, with either comparison.
    cuts = itertools.product(scores, (True, False))
    assert accuracy == max(accuracy_loop(labels, scores, *cut) for cut in cuts)
    assert accuracy == accuracy_loop(labels, scores, threshold, strict)
    assert accuracy == threshold_accuracy(labels, scores, threshold, strict)
    shuffled = zip(*random.sample(rows, len(rows)), strict=True)
    assert best_threshold(*shuffled, strict=strict) == (threshold, accuracy)


@pytest.mark.parametrize(("strict", "want"), [(True, 1.0), (False, 0.5)])
def test_accuracy_at_a_score_equal_to_the_threshold(strict, want):
    assert threshold_accuracy([0, 1], [0.5, 1.0], 0.5, strict=strict) == want


@pytest.mark.parametrize(
    ("labels", "scores", "options", "want"),
    [
        ([0, 1], [0.25, 0.75], {}, (0.5, 1.0)),
        ([1, 1], [0.25, 0.75], {}, (-0.75, 1.0)),  # below all
        ([0, 0], [0.25, 0.75], {}, (1.75, 1.0)),  # above all
        ([0, 1, 0, 1], [0, 1, 2, 3], {}, (0.5, 0.75)),  # the lowest of equals
        ([0, 1], [0.25, 0.75], {"grid": [0.7, 0.3, 0.5]}, (0.7, 1.0)),  # the first of a grid
        ([0, 1], [-1, -1], {"grid": THOUSAND}, (0.0, 0.5)),
        ([0, 1], [0.5, 1.0], {"grid": [0.5], "strict": True}, (0.5, 1.0)),
    ],
)
def test_known_thresholds(labels, scores, options, want):
    assert best_threshold(labels, scores, **options) == want


# Areas under curves


def auprc_loop(labels, scores, grid=None):
    curve = [(0.0, 1.0)]
    for threshold in sorted(set(grid or scores), reverse=True):
        accepted = [
            label for label, score in zip(labels, scores, strict=True) if score >= threshold
        ]
        precision = sum(accepted) / len(accepted) if accepted else 1.0
        curve.append((sum(accepted) / sum(labels), precision))

    return sum((x - x0) * (y + y0) / 2 for (x0, y0), (x, y) in itertools.pairwise(curve))


@given(labelled, st.randoms())
def test_auprc_matches_loop_and_scikit_learn(rows, random):
    labels, scores = zip(*rows, strict=True)
    assume(any(labels))
    got = auprc(labels, scores)
    precision, recalls, _ = sklearn_metrics.precision_recall_curve(labels, scores)
    assert got == pytest.approx(auprc_loop(labels, scores), abs=1e-12)
    assert got == pytest.approx(sklearn_metrics.auc(recalls, precision), abs=1e-12)
    assert auprc(*zip(*random.sample(rows, len(rows)), strict=True)) == got
    for grid in (THOUSAND, [-0.25, 0.5], random.sample(THOUSAND, 9)):
        want = auprc_loop(labels, scores, grid)
        assert auprc(labels, scores, grid) == pytest.approx(want, abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3)), min_size=2, max_size=15))
def test_auc_is_the_share_of_ordered_pairs(rows):
    yes = [score for label, score in rows if label]
    no = [score for label, score in rows if not label]
    assume(yes and no)
    pairs = [(a > b) + (a == b) / 2 for a, b in itertools.product(yes, no)]
    assert auc(*zip(*rows, strict=True)) == pytest.approx(np.mean(pairs))


def test_auc_error_matches_delong_and_resampling():
    generator = np.random.default_rng(0)
    yes = generator.normal(0.8, 1, 90).round(1)  # with ties
    no = generator.normal(0, 1, 150).round(1)
    labels = np.repeat([1, 0], [90, 150])
    above = (yes[:, None] > no) + (yes[:, None] == no) / 2
    variances = [statistics.variance(above.mean(axis=k).tolist()) for k in (1, 0)]
    error = auc_error(labels, [*yes, *no])
    assert error == pytest.approx(math.sqrt(variances[0] / 90 + variances[1] / 150))


def test_delong_matches_loops_over_the_covariance():
    generator = np.random.default_rng(1)
    labels = np.repeat([1, 0], [60, 90])
    common = labels + generator.normal(0, 1, 150)
    a = (common + generator.normal(0, 0.5, 150)).round(1)  # with ties
    b = (common + generator.normal(0, 1, 150)).round(1)
    placed = []
    for scores in (a, b):
        above = scores[:60, None] - scores[None, 60:]
        wins = (above > 0) + (above == 0) / 2
        placed.append((wins.mean(axis=1), wins.mean(axis=0)))

    # Var(A) + Var(B) - 2 Cov(A, B), the form of the paper.
    variance = 0.0
    for side, count in ((0, 60), (1, 90)):
        s = np.cov(placed[0][side], placed[1][side])
        variance += (s[0, 0] + s[1, 1] - 2 * s[0, 1]) / count

    comparison = delong(labels, [a], [b])
    areas = [sklearn_metrics.roc_auc_score(labels, scores) for scores in (a, b)]
    assert (comparison.auc_a, comparison.auc_b) == pytest.approx(areas)
    assert comparison.error == pytest.approx(math.sqrt(variance))
    assert comparison.pvalue == pytest.approx(
        2 * stats.norm.sf(abs(areas[0] - areas[1]) / math.sqrt(variance))
    )


def test_delong_of_ranks_of_several_runs_and_of_equal_scores():
    generator = np.random.default_rng(2)
    labels = generator.random(200) < 0.4
    runs = [labels + generator.normal(0, 1, 200) for _ in range(4)]
    ranked = [stats.rankdata(scores, method="dense") for scores in runs]
    comparison = delong(labels, runs[:2], runs[2:])
    assert delong(labels, ranked[:2], ranked[2:]) == comparison
    assert comparison.auc_a == pytest.approx(np.mean([auc(labels, scores) for scores in runs[:2]]))
    assert delong(labels, runs[:1], runs[:1]).pvalue == 1
    # Against a score that says nothing, only the errors of the one remain.
    flat = delong(labels, runs[:1], [np.zeros(200)])
    assert flat.error == pytest.approx(auc_error(labels, runs[0]))
    with pytest.raises(ValueError, match="two 0 and two 1"):
        delong([1, 0, 0], [[0.1, 0.2, 0.3]], [[0.1, 0.2, 0.3]])


# Correlations

HAND_MADE = [([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4]), ([1, 2], [0.9, 0.8])]
WITH_CONSTANT = [*HAND_MADE, ([3, 3], [0.5, 0.6])]


def ranks(values):
    """Mean rank of each value, counted one by one."""
    result = []
    for value in values:
        below = sum(v < value for v in values)
        result.append(below + (sum(v == value for v in values) + 1) / 2)

    return result


@given(st.lists(st.tuples(st.integers(0, 5), coarse), min_size=2, max_size=10))
def test_spearman_matches_loop(pairs):
    gold, scores = zip(*pairs, strict=True)
    assume(len(set(gold)) > 1 and len(set(scores)) > 1)
    want = statistics.correlation(ranks(gold), ranks(scores))
    assert spearman(gold, scores) == pytest.approx(want, abs=1e-12)


def test_aggregations_differ_on_hand_made_subsets():
    assert spearman_mean(HAND_MADE) == pytest.approx(0, abs=1e-12)
    assert spearman_mean(HAND_MADE, weighted=True) == pytest.approx(1 / 3)
    assert spearman_all(HAND_MADE) == pytest.approx(0.029, abs=5e-4)
    assert AGGREGATIONS["wmean"](iter(HAND_MADE)) == pytest.approx(1 / 3)


@pytest.mark.parametrize("positives", [1, 3, 7])
def test_equal_scores_have_an_auprc_between_their_share_and_one(positives):
    labels = [1] * positives + [0] * (10 - positives)
    assert auprc(labels, [0.5] * 10) == pytest.approx((1 + positives / 10) / 2)


def test_constant_side_has_the_value_of_the_caller():
    for sides in (([1, 1], [0.1, 0.2]), ([1, 2], [0.5, 0.5])):
        assert spearman(*sides, constant=0.25) == 0.25
        with pytest.raises(ValueError, match="must vary"):
            spearman(*sides)

    got = spearman_mean(WITH_CONSTANT, weighted=True, constant=0.25)
    assert got == pytest.approx((4 - 2 + 2 * 0.25) / 8)


# McNemar's test


def test_published_example_of_mcnemar():
    # Fagerland, Lydersen and Laake 2013, table 1: exact 0.070, asymptotic with correction 0.077.
    before = [1] * 2 + [0] * 19
    after = [1, 0] + [1] * 7 + [0] * 12
    test = mcnemar(before, after)
    assert test == McNemar(both_right=1, only_a=1, only_b=7, neither=12)
    assert (test.examples, test.statistic) == (21, 3.125)
    assert (round(test.pvalue, 3), round(test.pvalue_asymptotic, 3)) == (0.070, 0.077)
    assert mcnemar(after, before).only_a == 7


def test_ties_are_not_larger():
    assert share_larger([0.5, 0.5, 0.75], torch.tensor([0.25, 0.5, 0.5]).bfloat16()) == 2 / 3


@pytest.mark.parametrize("k", [1, 3, 10])
def test_metrics_of_ranks_are_those_of_a_loop(k):
    ranks = torch.randint(1, 20, (50,), generator=torch.Generator().manual_seed(k)).tolist()
    assert recall_at(ranks, k) == sum(rank <= k for rank in ranks) / 50
    reciprocal = sum(1 / rank for rank in ranks if rank <= k) / 50
    assert reciprocal_rank_at(ranks, k) == pytest.approx(reciprocal, abs=1e-12)


@pytest.mark.parametrize(
    ("function", "inputs", "message"),
    [
        (best_threshold, ([], []), "labels must be a non-empty"),
        (best_threshold, ([[1, 0]], [0.5, 0.5]), r"labels must be .* got shape \(1, 2\)"),
        (best_threshold, ([1, 0, 1], [0.5, 0.5]), "must be equally long, got 3 and 2"),
        (best_threshold, ([1, 2], [0.5, 0.5]), "labels must be 0 or 1"),
        (best_threshold, ([1, 0], [0.5, math.nan]), "scores must be finite, got nan"),
        (auprc, ([0, 0, 0], [0.5, 0.1, 0.2]), "labels must have a 1"),
        (auc, ([1, 1], [0.1, 0.2]), "labels must have a 0 and a 1"),
    ],
)
def test_wrong_inputs_are_errors(function, inputs, message):
    with pytest.raises(ValueError, match=message):
        function(*inputs)
