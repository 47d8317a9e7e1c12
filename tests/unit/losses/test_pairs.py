"""Losses on labelled and scored pairs against loops and closed forms."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import cos, normal

from lightning_cse.errors import ConfigError
from lightning_cse.losses import CosineRegression, InfoNCE, SoftInfoNCE, SoftmaxClassification

SHAPES = {"n": st.integers(2, 5), "d": st.integers(1, 5), "seed": st.integers(0, 9_999)}


def classifier(d, **options):
    torch.manual_seed(0)
    return SoftmaxClassification(d, **options).double()


def seen(u, v, parts):
    """What is seen of a pair, number by number."""
    features = {
        "first": u.tolist(),
        "second": v.tolist(),
        "difference": [abs(a - b) for a, b in zip(u.tolist(), v.tolist(), strict=True)],
        "product": [a * b for a, b in zip(u.tolist(), v.tolist(), strict=True)],
        "larger_squared": [max(a, b) ** 2 for a, b in zip(u.tolist(), v.tolist(), strict=True)],
    }
    return [number for name in parts for number in features[name]]


def through(layer, numbers):
    rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
    return [
        sum(w * x for w, x in zip(weights, numbers, strict=True)) + bias for weights, bias in rows
    ]


@given(**SHAPES)
@pytest.mark.parametrize(
    ("parts", "hidden", "tanh"),
    [
        (("first", "second", "difference"), (), False),
        (("first", "second", "difference", "product"), (4, 3), False),
        (("product", "difference"), (4,), True),
        (("first", "second", "difference", "larger_squared"), (), False),
    ],
)
def test_classification_matches_loop(parts, hidden, tanh, n, d, seed):
    loss = classifier(d, parts=parts, hidden=hidden, tanh=tanh)
    first, second = normal(2, n, d, seed=seed)
    labels = torch.arange(n) % 3
    linear = [layer for layer in loss.classifier if isinstance(layer, torch.nn.Linear)]
    total = 0.0
    for u, v, label in zip(first, second, labels.tolist(), strict=True):
        numbers = seen(u, v, parts)
        for layer in linear[:-1]:
            numbers = through(layer, numbers)
            numbers = [math.tanh(x) for x in numbers] if tanh else numbers

        logits = through(linear[-1], numbers)
        total += math.log(sum(map(math.exp, logits))) - logits[label]

    assert loss(first, second, labels).item() == pytest.approx(total / n, abs=1e-9)


@given(**SHAPES)
def test_regression_matches_loop(n, d, seed):
    first, second = normal(2, n, d, seed=seed)
    scores = torch.linspace(0, 1, n, dtype=torch.float64)
    rows = zip(first, second, scores.tolist(), strict=True)
    want = sum((cos(u, v) - score) ** 2 for u, v, score in rows) / n
    assert CosineRegression()(first, second, scores).item() == pytest.approx(want, abs=1e-9)


@given(**SHAPES, k=st.integers(0, 4))
@pytest.mark.parametrize("smooth_others", [False, True])
def test_soft_info_nce_matches_loop(smooth_others, n, d, k, seed):
    anchor, positive = normal(2, n, d, seed=seed)
    negative = normal(k, d, seed=seed + 1)
    scores = torch.linspace(0.2, 1, n, dtype=torch.float64)
    total = 0.0
    for i, row in enumerate(anchor):
        weights = [math.exp(cos(row, c) / 0.5) for c in (*positive, *negative)]
        logs = [math.log(weight / sum(weights)) for weight in weights]
        total -= scores[i].item() * logs[i]
        if smooth_others:
            share = (1 - scores[i].item()) / (len(logs) - 1)
            total -= share * sum(log for c, log in enumerate(logs) if c != i)

    loss = SoftInfoNCE(0.5, smooth_others=smooth_others)
    got = loss(anchor, positive, scores, negative if k else None)
    assert got.item() == pytest.approx(total / n, abs=1e-9)


def test_closed_forms():
    same = torch.ones(4, 8, dtype=torch.float64)
    half = torch.full((4,), 0.5, dtype=torch.float64)
    assert CosineRegression()(same, same, half).item() == pytest.approx(0.25)
    assert SoftInfoNCE()(same, same, half).item() == pytest.approx(math.log(4) / 2)
    assert SoftInfoNCE(smooth_others=True)(same, same, half).item() == pytest.approx(math.log(4))


@pytest.mark.parametrize("smooth_others", [False, True])
def test_scores_of_one_make_info_nce(smooth_others):
    anchor, positive, negative = normal(3, 4, 5)
    targets = torch.ones(4, dtype=torch.float64)
    soft = SoftInfoNCE(smooth_others=smooth_others)(anchor, positive, targets, negative)
    assert soft.item() == pytest.approx(InfoNCE()(anchor, positive, negative).item())


def test_a_label_too_many_names_the_key():
    with pytest.raises(ConfigError, match=r"method.classes: 3, but .* label number 3"):
        classifier(4)(*normal(2, 3, 4), torch.tensor([1, 2, 3]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 1}, "classes must be 2 or more, got 1"),
        ({"parts": ["firts"]}, "no 'firts'.*first.*product"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        SoftmaxClassification(4, **options)
