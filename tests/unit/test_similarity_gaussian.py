"""Gaussian similarity: values against loops and torch's own KL, invariances, gradients, precision, memory, errors."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import normal
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_cse import similarity
from lightning_cse.embeddings import GaussianEmbedding
from lightning_cse.similarity import (
    gaussian_similarity,
    gaussian_similarity_matrix,
    symmetric_gaussian_similarity,
)

ROWS = (gaussian_similarity, symmetric_gaussian_similarity)
ALL = (gaussian_similarity_matrix, *ROWS)
both = pytest.mark.parametrize("reduce", ["mean_of_sims", "sim_of_sum"])


def gaussians(
    n: int, d: int, *, seed: int = 0, dtype: torch.dtype = torch.float64, log_variance: float = 1.0
) -> GaussianEmbedding:
    mean, log = normal(2, n, d, seed=seed)
    return GaussianEmbedding(mean.to(dtype), (log_variance * log).to(dtype))


def leaves(*embeddings: GaussianEmbedding) -> list[Tensor]:
    return [value for embedding in embeddings for value in embedding.fields().values()]


def trainable(embedding: GaussianEmbedding) -> GaussianEmbedding:
    return GaussianEmbedding(
        *(value.clone().requires_grad_() for value in embedding.fields().values())
    )


def kl(a: GaussianEmbedding, b: GaussianEmbedding, i: int, j: int) -> list[float]:
    """The divergence in every dimension, spelled out."""
    values = (
        tensor.tolist() for tensor in (a.mean[i], a.log_variance[i], b.mean[j], b.log_variance[j])
    )
    result = []
    for a_mean, a_log, b_mean, b_log in zip(*values, strict=True):
        s, t = math.exp(a_log), math.exp(b_log)
        result.append((s / t + (a_mean - b_mean) ** 2 / t - 1 - math.log(s / t)) / 2)
    return result


def reduced(divergences: list[float], reduce: str) -> float:
    if reduce == "sim_of_sum":
        return 1 / (1 + math.fsum(divergences))
    return math.fsum(1 / (1 + k) for k in divergences) / len(divergences)


def loop(a: GaussianEmbedding, b: GaussianEmbedding, reduce: str) -> Tensor:
    rows = [[reduced(kl(a, b, i, j), reduce) for j in range(len(b))] for i in range(len(a))]
    return torch.tensor(rows, dtype=torch.float64)


def symmetric_loop(a: GaussianEmbedding, b: GaussianEmbedding, reduce: str) -> Tensor:
    both_ways = [(kl(a, b, i, i), kl(b, a, i, i)) for i in range(len(a))]
    rows = [
        reduced([(x + y) / 2 for x, y in zip(*pair, strict=True)], reduce) for pair in both_ways
    ]
    return torch.tensor(rows, dtype=torch.float64)


def naive(a: GaussianEmbedding, b: GaussianEmbedding, reduce: str) -> Tensor:
    """The formula over a tensor of all pairs and dimensions, for autograd."""
    s, t = a.log_variance.exp()[:, None], b.log_variance.exp()
    k = (
        s / t
        + (a.mean[:, None] - b.mean).square() / t
        - 1
        - (a.log_variance[:, None] - b.log_variance)
    ) / 2
    return (1 / (1 + k)).mean(dim=-1) if reduce == "mean_of_sims" else 1 / (1 + k.sum(dim=-1))


def assert_near(got: Any, want: Any, atol: float = 1e-12) -> None:
    torch.testing.assert_close(got, want, rtol=0, atol=atol)


# Values


@given(n=st.integers(1, 5), m=st.integers(1, 5), d=st.integers(1, 7), seed=st.integers(0, 10_000))
@both
def test_against_loop(reduce, n, m, d, seed):
    a, b, c = (gaussians(k, d, seed=seed + number) for number, k in enumerate((n, m, n)))
    got = gaussian_similarity_matrix(a, b, reduce)
    assert got.shape == (n, m)
    assert_near(got, loop(a, b, reduce))
    single, other = a.to(torch.float32), b.to(torch.float32)
    assert_near(
        gaussian_similarity_matrix(single, other, reduce).double(),
        loop(single, other, reduce),
        1e-6,
    )
    if reduce == "mean_of_sims":
        assert torch.equal(gaussian_similarity_matrix(a, b), got), "the default"
    assert_near(gaussian_similarity(a, c, reduce), loop(a, c, reduce).diagonal())
    symmetric = symmetric_gaussian_similarity(a, c, reduce)
    assert_near(symmetric, symmetric_loop(a, c, reduce))
    assert torch.equal(symmetric_gaussian_similarity(c, a, reduce), symmetric)


@both
def test_one_dimension_by_hand(reduce):
    a = GaussianEmbedding(torch.tensor([[1.0]]), torch.tensor([[0.0]]))
    b = GaussianEmbedding(torch.tensor([[3.0]]), torch.tensor([[math.log(2.0)]]))
    forth = 1 / (1 + (0.5 + 4 / 2 - 1 + math.log(2)) / 2)
    back = 1 / (1 + (2.0 + 4 - 1 - math.log(2)) / 2)
    middle = 1 / (1 + (0.5 + 2 + 2.0 + 4 - 2) / 4)
    for function in (gaussian_similarity, gaussian_similarity_matrix):
        assert function(a, b, reduce).item() == pytest.approx(forth, abs=1e-6)
        assert function(b, a, reduce).item() == pytest.approx(back, abs=1e-6)
    assert symmetric_gaussian_similarity(a, b, reduce).item() == pytest.approx(middle, abs=1e-6)


@both
def test_translation_and_scale_do_not_matter(reduce):
    a, b = gaussians(5, 6), gaussians(5, 6, seed=1)
    shift, scale = gaussians(1, 6, seed=2).mean, gaussians(1, 6, seed=3).mean.exp()

    def moved(x: GaussianEmbedding) -> GaussianEmbedding:
        return GaussianEmbedding((x.mean + shift) * scale, x.log_variance + 2 * scale.log())

    for function in ALL:
        assert_near(function(moved(a), moved(b), reduce), function(a, b, reduce))


# Blocks and gradients


@pytest.mark.parametrize("numbers", [1, 7, 26, 200, 10_000])
@pytest.mark.parametrize(("n", "m", "d"), [(9, 4, 13), (1, 11, 5), (11, 1, 5), (6, 6, 1)])
def test_the_size_of_blocks_does_not_matter(monkeypatch, numbers, n, m, d):
    a, b = trainable(gaussians(n, d)), trainable(gaussians(m, d, seed=1))
    weights = normal(m, 2 * n, seed=2)[:, ::2].T  # the loss hands over the transpose of a slice
    want = naive(a, b, "mean_of_sims")
    want_gradients = torch.autograd.grad((want * weights).sum(), leaves(a, b))
    monkeypatch.setattr(similarity, "_BLOCK_ON_CPU", numbers)
    got = gaussian_similarity_matrix(a, b)
    assert_near(got, want)
    assert_near(torch.autograd.grad((got * weights).sum(), leaves(a, b)), want_gradients)


@both
def test_no_rows(reduce):
    none, some = trainable(gaussians(0, 3)), trainable(gaussians(2, 3))
    assert gaussian_similarity_matrix(none, some, reduce).shape == (0, 2)
    got = gaussian_similarity_matrix(some, none, reduce)
    assert got.shape == (2, 0)
    got.sum().backward()
    assert torch.equal(some.mean.grad, torch.zeros(2, 3, dtype=torch.float64))
    assert all(function(none, none, reduce).shape == (0,) for function in ROWS)


class Largest(TorchDispatchMode):
    """The largest tensor that any operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, list | tuple) else (result,):
            if isinstance(value, Tensor):
                self.numbers = max(
                    self.numbers, value.untyped_storage().nbytes() // value.element_size()
                )
        return result


@both
def test_no_tensor_of_all_pairs_and_dimensions(reduce):
    n, m, d = 96, 80, 192
    a, b = (trainable(gaussians(k, d, dtype=torch.float32, seed=k)) for k in (n, m))

    def work(function: Callable[..., Tensor]) -> int:
        with Largest() as largest, torch.autograd.set_multithreading_enabled(False):
            torch.autograd.grad(function(a, b, reduce).sum(), leaves(a, b))
        return largest.numbers

    assert work(naive) >= n * m * d  # the instrument works
    assert work(gaussian_similarity_matrix) <= 4 * similarity._BLOCK_ON_CPU < n * m * d


@both
def test_gradients(reduce):
    a, b, c = (trainable(gaussians(n, 4, seed=seed)) for seed, n in enumerate((3, 2, 3)))

    def call(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda am, al, bm, bl: function(
            GaussianEmbedding(am, al), GaussianEmbedding(bm, bl), reduce
        )

    assert torch.autograd.gradcheck(call(gaussian_similarity_matrix), leaves(a, b))
    for function in ROWS:
        assert torch.autograd.gradcheck(call(function), leaves(a, c))


# Precision


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
@pytest.mark.parametrize(("n", "d"), [(16, 384), (200, 1)])
@both
def test_a_gaussian_is_like_itself(reduce, n, d, scale):
    x = gaussians(n, d, dtype=torch.float32, log_variance=scale)
    x = GaussianEmbedding(x.mean, x.log_variance.clamp(-12, 12))
    assert torch.equal(gaussian_similarity_matrix(x, x, reduce).diagonal(), torch.ones(n))
    for function in ROWS:
        assert torch.equal(function(x, x, reduce), torch.ones(n))
    double = x.to(torch.float64)
    own = gaussian_similarity_matrix(double, double, reduce).diagonal()
    # Of products, what cancels is 1e16 times as large.
    assert_near(own, torch.ones(n, dtype=torch.float64), 0 if reduce == "mean_of_sims" else 1e-8)


@pytest.mark.parametrize("apart", [0.0, 1e-8, 1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "d"), [(24, 48), (200, 1)])
@both
def test_no_similarity_exceeds_one(reduce, n, d, dtype, apart):
    a, other = gaussians(n, d, dtype=dtype, log_variance=3), gaussians(n, d, dtype=dtype, seed=1)
    b = GaussianEmbedding(a.mean + apart * other.mean, a.log_variance + apart * other.log_variance)
    for function in ALL:
        assert function(a, b, reduce).max() <= 1
        assert function(a, b, reduce).min() > 0


@pytest.mark.parametrize("log", [0.0, -6.0, -12.0])
@pytest.mark.parametrize("apart", [1.0, 0.03, 0.001])
@both
def test_float32_keeps_its_digits_where_variances_are_small(reduce, log, apart):
    """Expanding the square in float32 loses up to half a percent here."""
    place, noise = gaussians(1, 256, seed=1).mean.tanh(), gaussians(20, 256, seed=2)
    a = GaussianEmbedding(
        (place + apart * noise.mean).float(), (log + 0.1 * noise.log_variance).float()
    )
    far = a.mean.flip(0)[:10] + 2  # the mean of all is then no help
    b = GaussianEmbedding(torch.cat([a.mean.flip(0)[:10], far]), a.log_variance.flip(0))
    got = gaussian_similarity_matrix(a, b, reduce).double()
    want = naive(a.to(torch.float64), b.to(torch.float64), reduce)
    torch.testing.assert_close(got, want, rtol=2e-6, atol=0 if reduce == "sim_of_sum" else 1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@both
def test_extreme_variances_stay_finite(reduce, dtype):
    logs = torch.tensor([12.0, -12.0, 12.0, -12.0, 0.0], dtype=dtype)[:, None].expand(-1, 8)
    a = trainable(GaussianEmbedding(gaussians(5, 8).mean.to(dtype), logs))
    b = trainable(GaussianEmbedding(gaussians(5, 8, seed=1).mean.to(dtype), logs.flip(0)))
    for function in ALL:
        got = function(a, b, reduce)
        assert torch.isfinite(got).all()
        assert (got >= 0).all()
        for gradient in torch.autograd.grad(got.sum(), leaves(a, b)):
            assert torch.isfinite(gradient).all()
            assert gradient.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@both
def test_half_precision_is_computed_in_float32(reduce, dtype):
    a, b = gaussians(6, 32, dtype=dtype), gaussians(6, 32, dtype=dtype, seed=1)
    for function in ALL:
        got = function(a, b, reduce)
        assert got.dtype == torch.float32
        assert_near(got.double(), function(a.to(torch.float64), b.to(torch.float64), reduce), 1e-6)
        mixed = GaussianEmbedding(
            a.mean, a.log_variance.double()
        )  # under autocast a mean can be the narrower
        assert function(mixed, b, reduce).dtype == function(b, mixed, reduce).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@both
def test_autocast_does_not_downcast(reduce, dtype):
    a, b = (trainable(gaussians(6, 64, seed=seed, dtype=dtype)) for seed in (0, 1))
    for function in ALL:
        want = function(a, b, reduce)
        want_gradients = torch.autograd.grad(want.sum(), leaves(a, b))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert (
                a.mean @ b.mean.T
            ).dtype == torch.bfloat16 or dtype == torch.float64  # autocast is really on
            got = function(a, b, reduce)
            gradients = torch.autograd.grad(got.sum(), leaves(a, b))
        assert got.dtype == dtype
        assert_near([got, *gradients], [want, *want_gradients], 0)


def test_wrong_shapes_and_unknown_reductions_are_refused():
    a = gaussians(3, 4)
    for function in ALL:
        with pytest.raises(ValueError, match=r"got \(3, 4\) and \(3, 5\)"):
            function(a, gaussians(3, 5))
        with pytest.raises(ValueError, match=r"got 'mean_of_sim'$"):
            function(a, a, reduce="mean_of_sim")
    for function in ROWS:
        with pytest.raises(ValueError, match=r"got \(3, 4\) and \(2, 4\)"):
            function(a, gaussians(2, 4))
