"""Cosine: values, precision, zero vectors, gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import cos, normal

from lightning_cse.similarity import cosine, cosine_matrix

both_functions = pytest.mark.parametrize("function", [cosine_matrix, cosine])


def loop(a, b):
    """The formula, spelled out in float64."""
    rows = [torch.tensor([cos(x, y) for y in b], dtype=torch.float64) for x in a]
    return torch.stack(rows)


@given(n=st.integers(1, 5), m=st.integers(1, 5), d=st.integers(1, 8), seed=st.integers(0, 10_000))
def test_cosine_matches_loop(n, m, d, seed):
    a = normal(n, d, seed=seed)
    b = normal(m, d, seed=seed + 1)
    c = normal(n, d, seed=seed + 2)
    single = cosine_matrix(a.float(), b.float())
    torch.testing.assert_close(cosine_matrix(a, b), loop(a, b), rtol=0, atol=1e-12)
    torch.testing.assert_close(single.double(), loop(a, b), rtol=0, atol=1e-6)
    torch.testing.assert_close(cosine(a, c), loop(a, c).diagonal(), rtol=0, atol=1e-12)


@both_functions
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(function, dtype):
    a, b = normal(2, 6, 384, dtype=dtype)
    want = loop(a, b) if function is cosine_matrix else loop(a, b).diagonal()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = function(a, b)

    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), want, rtol=0, atol=1e-6)


@both_functions
@pytest.mark.parametrize("length", [0.0, 1e-13])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_vectors_have_cosine_zero_and_small_gradients(function, length, dtype):
    a, b = normal(2, 3, 4, dtype=dtype)
    a[1] = torch.tensor([length, 0, 0, 0])
    a.requires_grad_()
    got = function(a, b)
    assert got[1].abs().max() < 1e-12
    got.sum().backward()
    # Not 1e12: one empty sentence must not dominate a step.
    assert a.grad[1].abs().max() < 10
    assert torch.isfinite(a.grad).all()


@both_functions
def test_gradients(function):
    assert torch.autograd.gradcheck(function, list(normal(2, 3, 4).requires_grad_().unbind()))
