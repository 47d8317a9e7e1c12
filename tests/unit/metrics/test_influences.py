"""Influences against the change of a metric whose rows are weighted, and against resampled rows."""

import numpy as np
import pytest

from lightning_cse.metrics import auprc, auprc_influences, spearman, spearman_influences

STEP = 1e-6


def weighted_auprc(labels, scores, weights):
    """The area by a loop over thresholds, with rows that count several times."""
    area, hits_before, precision_before = 0.0, 0.0, 1.0
    for threshold in sorted({*scores}, reverse=True):
        accepted = sum(w for s, w in zip(scores, weights, strict=True) if s >= threshold)
        hits = sum(
            w for y, s, w in zip(labels, scores, weights, strict=True) if y and s >= threshold
        )
        area += (hits - hits_before) * (hits / accepted + precision_before) / 2
        hits_before, precision_before = hits, hits / accepted

    return area / hits_before


def weighted_spearman(gold, scores, weights):
    """The correlation of ranks in which rows count several times, by loops."""

    def ranks(side):
        return [
            sum(w * ((a < b) + (a == b) / 2) for a, w in zip(side, weights, strict=True))
            for b in side
        ]

    x, y = (
        np.array(side) - np.average(side, weights=weights) for side in map(ranks, (gold, scores))
    )

    return np.sum(weights * x * y) / np.sqrt(np.sum(weights * x * x) * np.sum(weights * y * y))


def data(task, rows, seed=0):
    rng = np.random.default_rng(seed)
    if task == "auprc":
        target = rng.random(rows) < 0.4
        return target, np.round(target + rng.normal(size=rows), 1)

    target = rng.integers(0, 6, rows) / 1.0

    return target, np.round(target + 2 * rng.normal(size=rows), 1)


METRICS = {
    "auprc": (auprc, auprc_influences, weighted_auprc),
    "spearman": (spearman, spearman_influences, weighted_spearman),
}


@pytest.mark.parametrize("task", METRICS)
def test_an_influence_is_the_derivative_by_the_weight_of_a_row(task):
    metric, influences, weighted = METRICS[task]
    target, scores = data(task, 40)
    assert len({*scores}) < 40, "some scores are tied"
    weights = np.ones(40)
    assert weighted(target, scores, weights) == pytest.approx(metric(target, scores))
    expected = []
    for row in range(40):
        up, down = weights.copy(), weights.copy()
        up[row] += STEP
        down[row] -= STEP
        ends = [weighted(target, scores, shifted) for shifted in (up, down)]
        expected.append((ends[0] - ends[1]) / (2 * STEP))

    got = influences(target, scores)
    assert got == pytest.approx(np.array(expected), abs=1e-8)
    assert got.sum() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("task", METRICS)
def test_the_standard_error_is_that_of_resampled_rows(task):
    metric, influences, _ = METRICS[task]
    target, scores = data(task, 1_500)
    rng = np.random.default_rng(1)
    samples = (rng.integers(0, 1_500, 1_500) for _ in range(600))
    resampled = np.std([metric(target[rows], scores[rows]) for rows in samples])
    error = np.sqrt(np.sum(influences(target, scores) ** 2))
    assert error == pytest.approx(resampled, rel=0.1)


@pytest.mark.parametrize("task", METRICS)
def test_only_the_order_of_the_scores_matters(task):
    _, influences, _ = METRICS[task]
    target, scores = data(task, 50)
    assert influences(target, np.exp(scores)) == pytest.approx(influences(target, scores))


def test_the_error_of_unrelated_ranks_is_that_of_the_null_hypothesis():
    rng = np.random.default_rng(2)
    influences = spearman_influences(rng.random(20_000), rng.random(20_000))
    assert np.sqrt(np.sum(influences**2)) == pytest.approx(1 / np.sqrt(20_000), rel=0.03)


def test_perfect_scores_have_no_influences():
    assert spearman_influences([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(np.zeros(4))
    assert auprc_influences([0, 0, 1, 1], [1, 2, 3, 4]) == pytest.approx(np.zeros(4))


def test_input_that_has_no_metric():
    assert spearman_influences([1, 1, 1], [1, 2, 3]).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="labels must have a 1"):
        auprc_influences([0, 0], [0.1, 0.2])
    with pytest.raises(ValueError, match="equally long"):
        spearman_influences([1, 2], [1, 2, 3])
