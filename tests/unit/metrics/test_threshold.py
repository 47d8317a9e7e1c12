"""Thresholds against a loop over every cut, ties, grids, neighbouring floats, errors."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.metrics import best_threshold, threshold_accuracy

coarse = st.integers(-3, 3).map(lambda k: k / 4)  # many ties
anything = st.floats(allow_nan=False, allow_infinity=False, width=32)
rows = st.lists(st.tuples(st.integers(0, 1), st.one_of(coarse, anything)), min_size=1, max_size=12)


def accuracy_loop(labels, scores, threshold, strict):
    right = 0
    for label, score in zip(labels, scores, strict=True):
        predicted = score > threshold if strict else score >= threshold
        right += predicted == bool(label)
    return right / len(labels)


@given(rows, st.booleans(), st.randoms())
def test_no_cut_is_better(rows, strict, random):
    labels, scores = zip(*rows, strict=True)
    threshold, accuracy = best_threshold(labels, scores, strict=strict)
    # Every way to cut: at each score, with either comparison, and above all.
    cuts = [accuracy_loop(labels, scores, cut, at) for cut in scores for at in (True, False)]
    assert accuracy == max(cuts)
    assert accuracy == accuracy_loop(labels, scores, threshold, strict)
    assert accuracy == threshold_accuracy(labels, scores, threshold, strict)
    shuffled = zip(*random.sample(rows, len(rows)), strict=True)
    assert best_threshold(*shuffled, strict=strict) == (threshold, accuracy)


@given(rows, st.lists(st.one_of(coarse, st.floats(-2, 2)), min_size=1, max_size=8), st.booleans())
def test_grid_against_loop(rows, grid, strict):
    labels, scores = zip(*rows, strict=True)
    best = (grid[0], -1.0)
    for threshold in grid:
        accuracy = accuracy_loop(labels, scores, threshold, strict)
        assert threshold_accuracy(labels, scores, threshold, strict) == accuracy
        if accuracy > best[1]:
            best = (threshold, accuracy)
    assert best_threshold(labels, scores, grid, strict) == best


@pytest.mark.parametrize(
    ("labels", "scores", "options", "want"),
    [
        ([0, 1], [0.25, 0.75], {}, (0.5, 1.0)),
        ([1, 1], [0.25, 0.75], {}, (-0.75, 1.0)),  # below all
        ([0, 0], [0.25, 0.75], {}, (1.75, 1.0)),  # above all
        # The lowest of equals: cuts at 0.5 and 2.5 are both right three times in four, below and above all only twice.
        ([0, 1, 0, 1], [0, 1, 2, 3], {}, (0.5, 0.75)),
        ([1, 0], [0, 1], {}, (-1, 0.5)),
        ([0, 1], [0.25, 0.75], {"grid": [0.7, 0.3, 0.5]}, (0.7, 1.0)),  # the first of a grid
        ([0, 1], [-1, -1], {"grid": [k / 1000 for k in range(1001)]}, (0.0, 0.5)),
        ([0, 1], [0.5, 1.0], {"grid": [0.5]}, (0.5, 0.5)),
        ([0, 1], [0.5, 1.0], {"grid": [0.5], "strict": True}, (0.5, 1.0)),
    ],
)
def test_by_hand(labels, scores, options, want):
    assert best_threshold(labels, scores, **options) == want


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("low", [0.0, 1.0, -1.0, 1e20, -1e20, 5e-324])
def test_neighbouring_floats_are_told_apart(low, strict):
    scores = [low, np.nextafter(low, np.inf)]
    for labels in ([0, 1], [0, 0], [1, 1]):
        threshold, accuracy = best_threshold(labels, scores, strict=strict)
        assert accuracy == threshold_accuracy(labels, scores, threshold, strict) == 1.0


def test_tensors_of_any_precision_and_booleans():
    labels, scores = (
        torch.tensor([False, True, True]),
        torch.tensor([0.25, 0.75, 1.0], requires_grad=True),
    )
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        assert best_threshold(labels, scores.to(dtype)) == (0.5, 1.0)
    assert [type(value) for value in best_threshold(labels.numpy(), scores.detach().numpy())] == [
        float,
        float,
    ]


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([], [], "labels must be a non-empty"),
        ([[1, 0]], [0.5, 0.5], r"labels must be .* got shape \(1, 2\)"),
        ([1, 0, 1], [0.5, 0.5], "labels and scores must be equally long, got 3 and 2"),
        ([1, 2], [0.5, 0.5], "labels must be 0 or 1, got 2 at row 1"),
        ([1, 0], [0.5, float("nan")], "scores must be finite, got nan at row 1"),
    ],
)
def test_errors_tell_what_came(labels, scores, message):
    with pytest.raises(ValueError, match=message):
        best_threshold(labels, scores)
    with pytest.raises(ValueError, match=message):
        threshold_accuracy(labels, scores, 0.5)
    with pytest.raises(ValueError, match="grid must be a non-empty"):
        best_threshold([0, 1], [0.25, 0.75], grid=[])
