"""NTXent against a loop over all vectors, and its closed forms."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import cos, cross_entropy, normal

from lightning_cse.losses import InfoNCE, NTXent


def loop(anchor, positive, temperature):
    vectors = [*anchor, *positive]
    count = len(anchor)
    total = 0.0
    for i, vector in enumerate(vectors):
        similarities = [cos(vector, other) for other in vectors]
        own = similarities[(i + count) % (2 * count)]
        others = similarities[:i] + similarities[i + 1 :]
        total += cross_entropy(own, others, temperature)

    return total / len(vectors)


@given(
    n=st.integers(2, 5),
    d=st.integers(1, 6),
    temperature=st.sampled_from([0.05, 0.1, 1.0]),
    seed=st.integers(0, 10_000),
)
def test_loss_matches_loop(n, d, temperature, seed):
    views = normal(2, n, d, seed=seed)
    got = NTXent(temperature)(*views)
    assert got.shape == ()
    assert got.item() == pytest.approx(loop(*views, temperature), abs=1e-9)


def test_views_are_interchangeable():
    one, two = normal(2, 5, 4)
    assert NTXent()(one, two).item() == pytest.approx(NTXent()(two, one).item(), rel=1e-12)
    assert InfoNCE()(one, two).item() != pytest.approx(InfoNCE()(two, one).item(), rel=1e-3)


def test_orthogonal_sentences_give_the_closed_form():
    sentences = torch.eye(5, dtype=torch.float64)
    want = math.log(1 + 8 / math.exp(10))
    assert NTXent(temperature=0.1)(sentences, sentences).item() == pytest.approx(want, rel=1e-9)
