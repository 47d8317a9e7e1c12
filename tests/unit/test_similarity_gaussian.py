"""Gaussian similarity: values against loops, invariances, gradients, precision, memory, errors."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import divergences, gaussians, normal, reduced, sim

from lightning_cse import similarity
from lightning_cse.embeddings import GaussianEmbedding
from lightning_cse.similarity import (
    gaussian_similarity,
    gaussian_similarity_matrix,
    symmetric_gaussian_similarity,
)

ROWS = (gaussian_similarity, symmetric_gaussian_similarity)
every_function = pytest.mark.parametrize("function", [gaussian_similarity_matrix, *ROWS])
both_reductions = pytest.mark.parametrize("reduce", ["mean_of_sims", "sim_of_sum"])


def leaves(*embeddings):
    tensors = []
    for embedding in embeddings:
        tensors += embedding.fields().values()

    return tensors


def trainable(embedding):
    fields = embedding.fields().values()
    return GaussianEmbedding(*(value.clone().requires_grad_() for value in fields))


def pair(n, d, **options):
    return trainable(gaussians(n, d, **options)), trainable(gaussians(n, d, seed=1, **options))


def loop(a, b, reduce):
    got = torch.empty(len(a), len(b), dtype=torch.float64)
    for i in range(len(a)):
        for j in range(len(b)):
            got[i, j] = sim(a, i, b, j, reduce)

    return got


def naive(a, b, reduce):
    """The formula over a tensor of all pairs and dimensions, for autograd."""
    ratio = a.log_variance[:, None] - b.log_variance
    squares = (a.mean[:, None] - b.mean).square()
    k = (ratio.exp() + squares / b.log_variance.exp() - 1 - ratio) / 2

    return (1 / (1 + k)).mean(dim=-1) if reduce == "mean_of_sims" else 1 / (1 + k.sum(dim=-1))


def assert_near(got, want, atol=1e-12):
    torch.testing.assert_close(got, want, rtol=0, atol=atol)


# Values


@given(n=st.integers(1, 5), m=st.integers(1, 5), d=st.integers(1, 7), seed=st.integers(0, 10_000))
@both_reductions
def test_similarities_match_loops(reduce, n, m, d, seed):
    a, b, c = (gaussians(k, d, seed=seed + number) for number, k in enumerate((n, m, n)))
    got = gaussian_similarity_matrix(a, b, reduce)
    assert got.shape == (n, m)
    assert_near(got, loop(a, b, reduce))
    single = gaussian_similarity_matrix(a.to(torch.float32), b.to(torch.float32), reduce)
    assert_near(single.double(), got, 2e-6)
    assert_near(gaussian_similarity(a, c, reduce), naive(a, c, reduce).diagonal())
    symmetric = symmetric_gaussian_similarity(a, c, reduce)
    for i, value in enumerate(symmetric.tolist()):
        both_ways = zip(divergences(a, i, c, i), divergences(c, i, a, i), strict=True)
        want = reduced([(x + y) / 2 for x, y in both_ways], reduce)
        assert value == pytest.approx(want, abs=1e-12)


# Blocks and gradients


@pytest.mark.parametrize("numbers", [1, 26, 10_000])
@pytest.mark.parametrize(("n", "m", "d"), [(9, 4, 13), (1, 11, 5), (6, 6, 1)])
def test_block_size_does_not_matter(monkeypatch, numbers, n, m, d):
    a = trainable(gaussians(n, d))
    b = trainable(gaussians(m, d, seed=1))
    weights = normal(m, 2 * n, seed=2)[:, ::2].T  # the gradient is the transpose of a slice
    want = naive(a, b, "mean_of_sims")
    want_gradients = torch.autograd.grad((want * weights).sum(), leaves(a, b))
    monkeypatch.setattr(similarity, "_BLOCK_ON_CPU", numbers)
    got = gaussian_similarity_matrix(a, b)
    assert_near(got, want)
    assert_near(torch.autograd.grad((got * weights).sum(), leaves(a, b)), want_gradients)


@both_reductions
@every_function
def test_gradients(function, reduce):
    def call(a_mean, a_log, b_mean, b_log):
        return function(GaussianEmbedding(a_mean, a_log), GaussianEmbedding(b_mean, b_log), reduce)

    assert torch.autograd.gradcheck(call, leaves(*pair(3, 4)))


def test_second_derivative_is_an_error():
    a, b = pair(3, 4)
    total = gaussian_similarity_matrix(a, b).sum()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(total, leaves(a, b), create_graph=True)


# Precision


@pytest.mark.parametrize("apart", [0.0, 1e-8, 1e-6, 1e-2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "d"), [(24, 48), (200, 1)])
@both_reductions
@every_function
def test_no_similarity_exceeds_one(function, reduce, n, d, dtype, apart):
    a = gaussians(n, d, dtype=dtype, scale=3)
    second = gaussians(n, d, dtype=dtype, seed=1)
    b = GaussianEmbedding(
        a.mean + apart * second.mean, a.log_variance + apart * second.log_variance
    )
    got = function(a, b, reduce)
    assert got.max() <= 1
    assert got.min() > 0


@pytest.mark.parametrize("log", [0.0, -12.0])
@pytest.mark.parametrize("apart", [1.0, 0.001])
@both_reductions
def test_float32_is_accurate_for_small_variances(reduce, log, apart):
    """Expanding the square in float32 loses up to half a percent here."""
    positions = gaussians(1, 256, seed=1).mean.tanh()
    noise = gaussians(20, 256, seed=2)
    exact = GaussianEmbedding(positions + apart * noise.mean, log + 0.1 * noise.log_variance)
    a = exact.to(torch.float32)
    near = a.mean.flip(0)[:10]
    # Subtracting the mean of all does not help with two groups.
    b = GaussianEmbedding(torch.cat([near, near + 2]), a.log_variance.flip(0))
    got = gaussian_similarity_matrix(a, b, reduce).double()
    want = naive(a.to(torch.float64), b.to(torch.float64), reduce)
    torch.testing.assert_close(got, want, rtol=2e-6, atol=0 if reduce == "sim_of_sum" else 1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@both_reductions
@every_function
def test_extreme_variances_stay_finite(function, reduce, dtype):
    logs = torch.tensor([12.0, -12.0, 12.0, -12.0, 0.0], dtype=dtype)[:, None].expand(-1, 8)
    means = normal(2, 5, 8, dtype=dtype)
    a = trainable(GaussianEmbedding(means[0], logs))
    b = trainable(GaussianEmbedding(means[1], logs.flip(0)))
    got = function(a, b, reduce)
    assert torch.isfinite(got).all()
    assert (got >= 0).all()
    for gradient in torch.autograd.grad(got.sum(), leaves(a, b)):
        assert torch.isfinite(gradient).all()
        assert gradient.dtype == dtype


@both_reductions
@every_function
def test_autocast_does_not_downcast(function, reduce):
    a, b = pair(6, 64, dtype=torch.float32)
    want = function(a, b, reduce)
    want_gradients = torch.autograd.grad(want.sum(), leaves(a, b))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a.mean @ b.mean.T).dtype == torch.bfloat16, "autocast is on"
        got = function(a, b, reduce)
        gradients = torch.autograd.grad(got.sum(), leaves(a, b))

    assert_near([got, *gradients], [want, *want_gradients], 0)


@every_function
def test_wrong_shapes_and_reductions_are_errors(function):
    a = gaussians(3, 4)
    with pytest.raises(ValueError, match=r"got (4 and 5|\(3, 4\) and \(3, 5\))"):
        function(a, gaussians(3, 5))

    with pytest.raises(ValueError, match=r"got 'mean_of_sim'$"):
        function(a, a, reduce="mean_of_sim")
