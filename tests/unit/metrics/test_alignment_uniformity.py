"""Alignment and uniformity against loops, closed forms, invariances; blocks, precision, errors."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lightning_cse.metrics import alignment, representation, uniformity


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def unit_rows(x: Tensor) -> list[list[float]]:
    rows = x.double().tolist()
    return [[value / math.sqrt(math.fsum(v * v for v in row)) for value in row] for row in rows]


def squared_distance(x: list[float], y: list[float]) -> float:
    return math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True))


def alignment_loop(x: Tensor, y: Tensor, alpha: float) -> float:
    pairs = list(zip(unit_rows(x), unit_rows(y), strict=True))
    return math.fsum(math.sqrt(squared_distance(a, b)) ** alpha for a, b in pairs) / len(pairs)


def uniformity_loop(x: Tensor, t: float) -> float:
    rows = unit_rows(x)
    terms = [math.exp(-t * squared_distance(rows[i], rows[j])) for i in range(len(rows)) for j in range(i)]
    return math.log(math.fsum(terms) / len(terms))


@given(n=st.integers(1, 6), d=st.integers(1, 6), alpha=st.sampled_from([1, 2, 3.5]), seed=st.integers(0, 10_000))
def test_alignment_against_loop(n, d, alpha, seed):
    x, y = normal(2, n, d, seed=seed)
    assert alignment(x, y, alpha) == pytest.approx(alignment_loop(x, y, alpha), abs=1e-9)


@given(n=st.integers(2, 7), d=st.integers(1, 6), t=st.sampled_from([0.5, 2, 5]), seed=st.integers(0, 10_000))
def test_uniformity_against_loop(n, d, t, seed):
    x = normal(n, d, seed=seed)
    assert uniformity(x, t) == pytest.approx(uniformity_loop(x, t), abs=1e-9)


@pytest.mark.parametrize("elements", [1, 30, 57, 400, 10_000])
def test_block_size_does_not_matter(monkeypatch, elements):
    x = normal(29, 4)
    want = uniformity_loop(x, 2)
    monkeypatch.setattr(representation, "_BLOCK_ELEMENTS", elements)
    assert uniformity(x) == pytest.approx(want, abs=1e-12)


def test_many_sentences_never_make_the_full_matrix(monkeypatch):
    """The memory of one block is bounded, whatever the number of sentences: watched through the products made."""
    seen = []
    original = torch.Tensor.__matmul__

    def watched(a: Tensor, b: Tensor) -> Tensor:
        product = original(a, b)
        seen.append(product.numel())
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", watched)
    assert math.isfinite(uniformity(normal(5000, 2, dtype=torch.float32)))
    assert len(seen) > 1
    assert max(seen) <= 2**22


def test_antipodal_pair_is_exactly_minus_eight():
    x = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    assert uniformity(x, t=2) == -8
    assert uniformity(3 * x, t=2) == -8
    assert alignment(x[:1], x[1:]) == 4


def test_collapsed_and_orthogonal_sentences():
    assert uniformity(torch.ones(5, 3)) == pytest.approx(0, abs=1e-12)
    assert uniformity(torch.eye(5)) == pytest.approx(-4)
    assert uniformity(torch.eye(5), t=3) == pytest.approx(-6)
    assert alignment(torch.eye(5), torch.eye(5)) == 0
    assert alignment(torch.eye(4), torch.eye(4).flip(0)) == pytest.approx(2)
    assert alignment(torch.eye(4), -torch.eye(4), alpha=3) == pytest.approx(8)


def test_large_t_does_not_underflow():
    assert uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), t=1000) == -4000


def test_zero_vectors_count_as_the_origin():
    x = torch.tensor([[0.0, 0.0], [5.0, 0.0]])
    assert uniformity(x) == pytest.approx(-2)
    assert alignment(x[:1], x[1:]) == pytest.approx(1)
    assert uniformity(torch.zeros(3, 2)) == pytest.approx(0)


def test_order_length_and_rotation_do_not_matter():
    x, y = normal(2, 8, 5)
    order, q = torch.randperm(8, generator=torch.Generator().manual_seed(1)), torch.linalg.qr(normal(5, 5, seed=2)).Q
    lengths = torch.rand(8, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.1
    for change in (lambda z: z[order], lambda z: z * lengths, lambda z: z @ q):
        assert alignment(change(x), change(y)) == pytest.approx(alignment(x, y))
        assert uniformity(change(x)) == pytest.approx(uniformity(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_any_precision_is_computed_in_float64_also_under_autocast(dtype):
    x, y = normal(2, 8, 64, dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert alignment(x, y) == pytest.approx(alignment_loop(x, y, 2), abs=1e-12)
        assert uniformity(x) == pytest.approx(uniformity_loop(x, 2), abs=1e-12)


def test_results_are_plain_numbers_and_inputs_are_left_alone():
    x = normal(4, 3).requires_grad_()
    before = x.detach().clone()
    assert type(alignment(x, x)) is type(uniformity(x)) is float
    assert torch.equal(x, before)


def test_errors_tell_what_came():
    with pytest.raises(ValueError, match=r"got \(3, 4\) and \(2, 4\)"):
        alignment(torch.ones(3, 4), torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"got \(0, 4\) and \(0, 4\)"):
        alignment(torch.ones(0, 4), torch.ones(0, 4))
    with pytest.raises(ValueError, match=r"n >= 2, got \(1, 4\)"):
        uniformity(torch.ones(1, 4))
    with pytest.raises(ValueError, match=r"got \(4,\)"):
        uniformity(torch.ones(4))
    with pytest.raises(ValueError, match="t must be positive, got -2"):
        uniformity(torch.ones(2, 2), t=-2)
    with pytest.raises(ValueError, match="alpha must be positive, got 0"):
        alignment(torch.ones(2, 2), torch.ones(2, 2), alpha=0)
