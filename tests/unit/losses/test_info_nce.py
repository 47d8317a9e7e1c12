"""InfoNCE against a loop, closed forms, invariances; its gradients, precision and errors."""

from __future__ import annotations

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lightning_cse.losses import InfoNCE


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def cos(x: Tensor, y: Tensor) -> float:
    return (x @ y / (x @ x).sqrt() / (y @ y).sqrt()).item()


def loop(anchor: Tensor, positive: Tensor, negative: Tensor | None, temperature: float) -> float:
    """The formula, spelled out in float64."""
    n, total = len(anchor), 0.0
    for i in range(n):
        denominator = 0.0
        for j in range(n):
            denominator += math.exp(cos(anchor[i], positive[j]) / temperature)
        for j in range(0 if negative is None else len(negative)):
            denominator += math.exp(cos(anchor[i], negative[j]) / temperature)
        total -= math.log(math.exp(cos(anchor[i], positive[i]) / temperature) / denominator)
    return total / n


@given(
    n=st.integers(2, 5),
    d=st.integers(1, 6),
    temperature=st.sampled_from([0.02, 0.05, 1.0]),
    k=st.integers(0, 7),
    seed=st.integers(0, 10_000),
)
def test_against_loop(n, d, temperature, k, seed):
    a, p = normal(2, n, d, seed=seed)
    negative = normal(k, d, seed=seed + 1) if k else None
    got = InfoNCE(temperature)(a, p, negative)
    assert got.shape == ()
    assert got.item() == pytest.approx(loop(a, p, negative, temperature), abs=1e-9)


@pytest.mark.parametrize("n", [2, 4, 9])
def test_identical_embeddings_give_the_log_of_the_number_of_candidates(n):
    x = normal(1, 5).expand(n, -1)
    assert InfoNCE()(x, x).item() == pytest.approx(math.log(n))
    assert InfoNCE()(x, x, x).item() == pytest.approx(math.log(2 * n))
    for k in (1, n - 1, n + 3):
        assert InfoNCE()(x, x, x[:1].expand(k, -1)).item() == pytest.approx(math.log(n + k))


def test_orthogonal_pairs():
    x = torch.eye(4, dtype=torch.float64)
    assert InfoNCE(0.5)(x, x).item() == pytest.approx(math.log(1 + 3 * math.exp(-2)))
    assert InfoNCE(0.5)(x, x, -x).item() == pytest.approx(math.log(1 + 6 * math.exp(-2) + math.exp(-4)))


def test_batch_order_does_not_matter():
    a, p, g = normal(3, 6, 5)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(1))
    assert InfoNCE()(a[order], p[order]).item() == pytest.approx(InfoNCE()(a, p).item())
    assert InfoNCE()(a[order], p[order], g[order]).item() == pytest.approx(InfoNCE()(a, p, g).item())


def test_order_of_negatives_does_not_matter():
    """Negatives are shared by all rows: a row's own weighs no more than another's."""
    a, p, g = normal(3, 6, 5)
    assert InfoNCE()(a, p, g.flip(0)).item() == pytest.approx(InfoNCE()(a, p, g).item())


def test_one_negative_weighs_the_same_in_every_row():
    """There are no n copies of it, and no row has it for its own."""
    a, p, g = normal(3, 6, 5)
    one = g[:1]
    total = 0.0
    for i in range(6):
        candidates = [cos(a[i], x) / 0.05 for x in [*p, *one]]
        total += math.log(sum(map(math.exp, candidates))) - candidates[i]
    assert InfoNCE()(a, p, one).item() == pytest.approx(total / 6)
    assert InfoNCE()(a, p, one).item() > InfoNCE()(a, p).item()


def test_rotation_does_not_matter():
    a, p, g = normal(3, 6, 5)
    q = torch.linalg.qr(normal(5, 5, seed=1)).Q
    assert InfoNCE()(a @ q, p @ q, g @ q).item() == pytest.approx(InfoNCE()(a, p, g).item())


def test_one_direction_only():
    a, p, _ = normal(3, 6, 5)
    assert InfoNCE()(a, p).item() != pytest.approx(InfoNCE()(p, a).item())


def test_gradients():
    a, p, g = (tensor.clone().requires_grad_() for tensor in normal(3, 3, 4))
    assert torch.autograd.gradcheck(InfoNCE(0.5), (a, p))
    assert torch.autograd.gradcheck(InfoNCE(0.5), (a, p, g))
    for k in (1, 5):
        negatives = normal(k, 4, seed=k).requires_grad_()
        assert torch.autograd.gradcheck(InfoNCE(0.5), (a, p, negatives))


def test_zero_vectors_and_small_temperatures_stay_finite():
    a, p, g = (tensor.clone() for tensor in normal(3, 4, 5, dtype=torch.float32))
    a[0], p[1], g[2] = 0, 0, 0
    tensors = [tensor.requires_grad_() for tensor in (a, p, g)]
    loss = InfoNCE(1e-3)(*tensors)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(tensor.grad).all() for tensor in tensors)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    a, p, g = (tensor.clone().requires_grad_() for tensor in normal(3, 8, 64, dtype=dtype))
    loss = InfoNCE()(a, p, g)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(loop(a.double(), p.double(), g.double(), 0.05), abs=1e-5)
    loss.backward()
    assert a.grad is not None
    assert a.grad.dtype == dtype


def test_autocast_does_not_downcast():
    a, p, g = normal(3, 8, 64, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = InfoNCE()(a, p, g)
    assert got.dtype == torch.float32
    assert got.item() == InfoNCE()(a, p, g).item()


@pytest.mark.parametrize("temperature", [0.0, -0.05, math.inf, math.nan])
def test_impossible_temperatures_are_refused(temperature):
    with pytest.raises(ValueError, match=f"temperature must be positive and finite, got {temperature}"):
        InfoNCE(temperature=temperature)


@pytest.mark.parametrize(
    ("shapes", "got"),
    [
        ([(3, 4), (2, 4)], r"\(3, 4\) and \(2, 4\)"),
        ([(3, 4), (3, 5)], r"\(3, 4\) and \(3, 5\)"),
        ([(3, 4), (2, 4), (3, 4)], r"\(3, 4\) and \(2, 4\)"),
        ([(1, 4), (1, 4)], r"\(1, 4\) and \(1, 4\)"),
        ([(4,), (4,)], r"\(4,\) and \(4,\)"),
    ],
)
def test_wrong_shapes_are_refused(shapes, got):
    with pytest.raises(ValueError, match=f"n >= 2, got {got}$"):
        InfoNCE()(*(torch.ones(shape) for shape in shapes))


@pytest.mark.parametrize("shape", [(0, 4), (3, 5), (4,), (1, 3, 4)])
def test_wrong_shapes_of_negatives_are_refused(shape):
    got = re.escape(f"k >= 1 and the anchors' d, got {shape} for anchors (3, 4)")
    with pytest.raises(ValueError, match=got):
        InfoNCE()(torch.ones(3, 4), torch.ones(3, 4), torch.ones(shape))


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="temprature"):
        InfoNCE(temprature=0.05)
    assert repr(InfoNCE(temperature=0.1)) == "InfoNCE(temperature=0.1, hard_negative_weight=0.0)"


@pytest.mark.parametrize("weight", [-1.5, 0.7, 3.0])
def test_the_weight_is_added_to_the_own_hard_negatives_logit_alone(weight: float) -> None:
    anchor, positive, negative = (normal(4, 3, seed=seed) for seed in range(3))
    total = 0.0
    for i in range(4):
        positives = [cos(anchor[i], positive[j]) / 0.05 for j in range(4)]
        negatives = [cos(anchor[i], negative[j]) / 0.05 + weight * (i == j) for j in range(4)]
        total -= positives[i] - math.log(sum(map(math.exp, positives + negatives)))
    loss = InfoNCE(hard_negative_weight=weight)(anchor, positive, negative)
    assert loss.item() == pytest.approx(total / 4, rel=1e-12)


def test_a_weight_needs_a_hard_negative_and_a_finite_value() -> None:
    with pytest.raises(ValueError, match=r"hard_negative_weight is 0\.5, but there is no hard negative"):
        InfoNCE(hard_negative_weight=0.5)(torch.eye(3), torch.eye(3))
    for k in (2, 4):
        with pytest.raises(ValueError, match=rf"hard_negative_weight is 0\.5, but there are {k} for 3 rows"):
            InfoNCE(hard_negative_weight=0.5)(torch.eye(3), torch.eye(3), torch.ones(k, 3))
    with pytest.raises(ValueError, match="must be finite, got nan"):
        InfoNCE(hard_negative_weight=math.nan)
