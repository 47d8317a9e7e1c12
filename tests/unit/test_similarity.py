"""Cosine: values, precision, zero vectors, gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import cos, normal
from torch import Tensor

from lightning_cse.similarity import cosine, cosine_matrix

BOTH = (cosine_matrix, cosine)


def loop(a: Tensor, b: Tensor) -> Tensor:
    """The formula, spelled out in float64."""
    return torch.tensor([[cos(x, y) for y in b] for x in a], dtype=torch.float64)


@given(n=st.integers(1, 5), m=st.integers(1, 5), d=st.integers(1, 8), seed=st.integers(0, 10_000))
def test_against_loop(n, m, d, seed):
    a, b, c = normal(n, d, seed=seed), normal(m, d, seed=seed + 1), normal(n, d, seed=seed + 2)
    torch.testing.assert_close(cosine_matrix(a, b), loop(a, b), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        cosine_matrix(a.float(), b.float()).double(), loop(a, b), rtol=0, atol=1e-6
    )
    torch.testing.assert_close(cosine(a, c), loop(a, c).diagonal(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    a, b = normal(6, 384, dtype=dtype), normal(6, 384, seed=1, dtype=dtype)
    for got, want in ((cosine_matrix(a, b), loop(a, b)), (cosine(a, b), loop(a, b).diagonal())):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_autocast_does_not_downcast(dtype):
    a, b = normal(6, 384, dtype=dtype), normal(6, 384, seed=1, dtype=dtype)
    for function in BOTH:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert (
                a @ b.T
            ).dtype == torch.bfloat16 or dtype == torch.float64  # autocast is really on
            got = function(a, b)
        assert got.dtype == dtype
        torch.testing.assert_close(got, function(a, b), rtol=0, atol=0)


@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-20, 1e-13])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_vectors_have_cosine_zero_and_modest_gradients(length, dtype):
    a, b = normal(3, 4, dtype=dtype), normal(3, 4, seed=1, dtype=dtype)
    a[1] = torch.tensor([length, 0, 0, 0])
    b[1] = a[1]
    a.requires_grad_()
    b.requires_grad_()
    matrix, rows = cosine_matrix(a, b), cosine(a, b)
    assert matrix[1].abs().max() < 1e-12
    assert abs(rows[1].item()) < 1e-12
    (matrix.sum() + rows.sum()).backward()
    for tensor in (a, b):
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()
        assert tensor.grad[1].abs().max() < 10  # not 1e12: one empty sentence must not drown a step


@pytest.mark.parametrize("function", BOTH)
def test_gradients(function):
    a, b = normal(3, 4).requires_grad_(), normal(3, 4, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(function, (a, b))


@pytest.mark.parametrize(
    ("functions", "a", "b"),
    [(BOTH, (2, 3), (2, 4)), (BOTH, (3,), (2, 3)), ([cosine], (3, 4), (2, 4))],
)
def test_wrong_shapes_are_refused(functions, a, b):
    for function in functions:
        with pytest.raises(ValueError, match=r"got \(.*\) and \(2, \d\)"):
            function(torch.ones(a), torch.ones(b))
