"""NTXent against a loop over all vectors, and its closed forms."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import normal, nt_xent

from lightning_cse.losses import InfoNCE, NTXent


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
    assert got.item() == pytest.approx(nt_xent(*views, temperature), abs=1e-9)


def test_views_are_interchangeable():
    first, second = normal(2, 5, 4)
    assert NTXent()(first, second).item() == pytest.approx(
        NTXent()(second, first).item(), rel=1e-12
    )
    assert InfoNCE()(first, second).item() != pytest.approx(
        InfoNCE()(second, first).item(), rel=1e-3
    )


def test_orthogonal_sentences_give_the_closed_form():
    sentences = torch.eye(5, dtype=torch.float64)
    want = math.log(1 + 8 / math.exp(10))
    assert NTXent(temperature=0.1)(sentences, sentences).item() == pytest.approx(want, rel=1e-9)
