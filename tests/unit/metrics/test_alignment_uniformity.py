"""Alignment and uniformity against loops, closed forms, invariances; blocks, precision, errors."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import normal
from torch import Tensor

from lightning_cse.metrics import alignment, representation, uniformity


def unit_rows(x: Tensor) -> list[list[float]]:
    rows = x.double().tolist()
    return [[value / math.sqrt(math.fsum(v * v for v in row)) for value in row] for row in rows]


def squared_distance(x: list[float], y: list[float]) -> float:
    return math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True))


def alignment_loop(x: Tensor, y: Tensor, alpha: float = 2) -> float:
    pairs = list(zip(unit_rows(x), unit_rows(y), strict=True))
    return math.fsum(math.sqrt(squared_distance(a, b)) ** alpha for a, b in pairs) / len(pairs)


def uniformity_loop(x: Tensor, t: float = 2) -> float:
    rows = unit_rows(x)
    terms = [
        math.exp(-t * squared_distance(rows[i], rows[j]))
        for i in range(len(rows))
        for j in range(i)
    ]
    return math.log(math.fsum(terms) / len(terms))


@given(
    n=st.integers(2, 7),
    d=st.integers(1, 6),
    alpha=st.sampled_from([1, 2, 3.5]),
    t=st.sampled_from([0.5, 2, 5]),
    seed=st.integers(0, 10_000),
)
def test_against_loops(n, d, alpha, t, seed):
    x, y = normal(2, n, d, seed=seed)
    assert alignment(x, y, alpha) == pytest.approx(alignment_loop(x, y, alpha), abs=1e-9)
    assert uniformity(x, t) == pytest.approx(uniformity_loop(x, t), abs=1e-9)
    assert alignment(x[:1], y[:1]) == pytest.approx(alignment_loop(x[:1], y[:1]), abs=1e-9)


@pytest.mark.parametrize("elements", [1, 30, 57, 400, 10_000])
def test_block_size_does_not_matter(monkeypatch, elements):
    x = normal(29, 4)
    monkeypatch.setattr(representation, "_BLOCK_ELEMENTS", elements)
    assert uniformity(x) == pytest.approx(uniformity_loop(x), abs=1e-12)


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


def test_closed_forms():
    opposite = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    assert uniformity(opposite, t=2) == uniformity(3 * opposite, t=2) == -8
    assert uniformity(opposite, t=1000) == -4000, "nothing underflows"
    assert alignment(opposite[:1], opposite[1:]) == 4
    assert uniformity(torch.ones(5, 3)) == pytest.approx(0, abs=1e-12)
    assert uniformity(torch.eye(5)) == pytest.approx(-4)
    assert uniformity(torch.eye(5), t=3) == pytest.approx(-6)
    assert alignment(torch.eye(4), torch.eye(4).flip(0)) == pytest.approx(2)
    assert alignment(torch.eye(4), -torch.eye(4), alpha=3) == pytest.approx(8)
    with_zero = torch.tensor([[0.0, 0.0], [5.0, 0.0]])  # a zero vector counts as the origin
    assert uniformity(with_zero) == pytest.approx(-2)
    assert alignment(with_zero[:1], with_zero[1:]) == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_any_precision_is_computed_in_float64_also_under_autocast(dtype):
    x, y = (tensor.requires_grad_() for tensor in normal(2, 8, 64, dtype=dtype).unbind())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = alignment(x, y), uniformity(x)
    assert got == pytest.approx((alignment_loop(x, y), uniformity_loop(x)), abs=1e-12)
    assert [type(value) for value in got] == [float, float]


@pytest.mark.parametrize(
    ("function", "shapes", "message"),
    [
        (alignment, [(3, 4), (2, 4)], r"got \(3, 4\) and \(2, 4\)"),
        (alignment, [(0, 4), (0, 4)], r"got \(0, 4\) and \(0, 4\)"),
        (uniformity, [(1, 4)], r"n >= 2, got \(1, 4\)"),
        (uniformity, [(4,)], r"got \(4,\)"),
    ],
)
def test_errors_tell_what_came(function, shapes, message):
    with pytest.raises(ValueError, match=message):
        function(*(torch.ones(shape) for shape in shapes))
