"""HierarchicalTriplet against a loop, closed forms, invariances; its gradients, precision and errors."""

from __future__ import annotations

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lightning_cse.losses import HierarchicalTriplet


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def at(*cosines: float) -> list[Tensor]:
    """An anchor, and one vector at each of these cosines from it."""
    return [torch.tensor([[c, math.sqrt(1 - c * c)]], dtype=torch.float64) for c in (1.0, *cosines)]


def loop(tensors: list[Tensor], margin_positive: float, margin_negative: float) -> float:
    """The formula, spelled out in float64."""

    def cos(x: Tensor, y: Tensor) -> float:
        x, y = x.double(), y.double()
        return (x @ y / (x @ x).sqrt() / (y @ y).sqrt()).item()

    total = 0.0
    for anchor, positive, intermediate, negative in zip(*tensors, strict=True):
        a, b, c = cos(anchor, positive), cos(anchor, intermediate), cos(anchor, negative)
        total += 0.5 * (max(0.0, b - a + margin_positive) + max(0.0, c - b + margin_negative))
    return total / len(tensors[0])


@given(
    n=st.integers(1, 6),
    d=st.integers(1, 6),
    margins=st.tuples(st.sampled_from([0.0, 5e-3, 0.5]), st.sampled_from([0.0, 1e-2, 0.3])),
    seed=st.integers(0, 10_000),
)
def test_against_loop(n, d, margins, seed):
    tensors = list(normal(4, n, d, seed=seed))
    got = HierarchicalTriplet(*margins)(*tensors)
    assert got.shape == ()
    assert got.item() == pytest.approx(loop(tensors, *margins), abs=1e-12)


@pytest.mark.parametrize(
    ("cosines", "want"),
    [
        ((0.9, 0.5, 0.1), 0.0),  # in order, with room
        ((0.5, 0.6, 0.1), (0.1 + 0.02) / 2),  # the intermediate is closer than the positive
        ((0.9, 0.3, 0.4), (0.1 + 0.04) / 2),  # the negative is closer than the intermediate
        ((0.1, 0.5, 0.9), (0.4 + 0.02 + 0.4 + 0.04) / 2),  # the wrong way round
        ((0.51, 0.5, 0.47), (0.01 + 0.01) / 2),  # in order, within both margins
        ((0.51, 0.5, 0.1), 0.01 / 2),  # the first margin alone
        ((0.9, 0.5, 0.47), 0.01 / 2),  # the second margin alone
    ],
)
def test_known_cosines(cosines, want):
    loss = HierarchicalTriplet(margin_positive=0.02, margin_negative=0.04)
    assert loss(*at(*cosines)).item() == pytest.approx(want, abs=1e-12)


def test_the_positive_never_meets_the_negative():
    """A negative above the positive costs what its distance from the intermediate says, and no more."""
    assert HierarchicalTriplet(0.0, 0.0)(*at(0.5, 0.5, 0.8)).item() == pytest.approx(0.15)


@pytest.mark.parametrize("n", [1, 5])
def test_identical_embeddings_cost_half_the_margins(n):
    x = normal(n, 4)
    assert HierarchicalTriplet()(x, x, x, x).item() == pytest.approx((5e-3 + 1e-2) / 2)
    assert HierarchicalTriplet(0.0, 0.0)(x, x, x, x).item() == pytest.approx(0.0, abs=1e-15)


def test_the_mean_is_over_rows():
    loss, rows = HierarchicalTriplet(), normal(4, 6, 5)
    one_by_one = [loss(*(role[i : i + 1] for role in rows)).item() for i in range(6)]
    assert loss(*rows).item() == pytest.approx(math.fsum(one_by_one) / 6)


def test_batch_order_rotation_and_length_do_not_matter():
    loss, rows = HierarchicalTriplet(0.1, 0.2), normal(4, 6, 5)
    want = pytest.approx(loss(*rows).item())
    order = torch.randperm(6, generator=torch.Generator().manual_seed(1))
    q = torch.linalg.qr(normal(5, 5, seed=1)).Q
    lengths = normal(4, 6, 1, seed=2).exp()
    assert loss(*rows[:, order]).item() == want
    assert loss(*(rows @ q)).item() == want
    assert loss(*(rows * lengths)).item() == want


def test_roles_are_not_interchangeable():
    loss, (s, p, m, g) = HierarchicalTriplet(0.1, 0.2), normal(4, 6, 5)
    values = {loss(s, *others).item() for others in ((p, m, g), (m, p, g), (p, g, m), (g, m, p))}
    assert len(values) == 4


def test_gradients():
    tensors = [tensor.clone().requires_grad_() for tensor in normal(4, 3, 4)]
    assert torch.autograd.gradcheck(HierarchicalTriplet(0.5, 0.5), tensors)


def test_satisfied_rows_have_no_gradient():
    good, bad = at(0.9, 0.5, 0.1), at(0.1, 0.5, 0.9)
    tensors = [torch.cat(pair).requires_grad_() for pair in zip(good, bad, strict=True)]
    HierarchicalTriplet()(*tensors).backward()
    for tensor in tensors:
        assert tensor.grad[0].abs().max() == 0
    for tensor in (tensors[1], tensors[3]):
        assert tensor.grad[1].abs().max() > 0


def test_zero_vectors_stay_finite():
    tensors = [tensor.clone() for tensor in normal(4, 4, 5, dtype=torch.float32)]
    for row, tensor in enumerate(tensors):
        tensor[row] = 0
        tensor.requires_grad_()
    loss = HierarchicalTriplet()(*tensors)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(tensor.grad).all() for tensor in tensors)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    """A margin of 5e-3 is lost between two cosines of bfloat16, whose neighbours near 1 are 4e-3 apart."""
    tensors = [tensor.clone().requires_grad_() for tensor in normal(4, 8, 64, dtype=dtype)]
    loss = HierarchicalTriplet()(*tensors)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(loop(tensors, 5e-3, 1e-2), abs=1e-6)
    loss.backward()
    assert tensors[0].grad is not None
    assert tensors[0].grad.dtype == dtype


def test_autocast_does_not_downcast():
    tensors = normal(4, 8, 64, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = HierarchicalTriplet()(*tensors)
    assert got.dtype == torch.float32
    assert got.item() == HierarchicalTriplet()(*tensors).item()


@pytest.mark.parametrize("name", ["margin_positive", "margin_negative"])
@pytest.mark.parametrize("margin", [-0.005, math.inf, math.nan])
def test_impossible_margins_are_refused(name, margin):
    with pytest.raises(ValueError, match=f"{name} must be finite and not negative, got {margin}"):
        HierarchicalTriplet(**{name: margin})


@pytest.mark.parametrize("role", range(1, 4))
def test_wrong_shapes_are_refused(role):
    shapes = [(3, 4)] * 4
    shapes[role] = (2, 4)
    with pytest.raises(ValueError, match=re.escape(f"n >= 1, got {', '.join(map(str, shapes))}")):
        HierarchicalTriplet()(*(torch.ones(shape) for shape in shapes))


@pytest.mark.parametrize("shape", [(0, 4), (4,)])
def test_no_rows_are_refused(shape):
    with pytest.raises(ValueError, match=re.escape(f"n >= 1, got {shape}")):
        HierarchicalTriplet()(*(torch.ones(shape) for _ in range(4)))


def test_options_are_named():
    with pytest.raises(TypeError, match="margin_postive"):
        HierarchicalTriplet(margin_postive=0.1)
    assert repr(HierarchicalTriplet()) == "HierarchicalTriplet(margin_positive=0.005, margin_negative=0.01)"
