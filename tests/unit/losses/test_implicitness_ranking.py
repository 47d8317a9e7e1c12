"""ImplicitnessRanking against a loop, closed forms, invariances; its gradients, precision and errors."""

from __future__ import annotations

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lightning_cse.losses import ImplicitnessRanking


def given_rows(n: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Implicitness of four sentences and two distances, a row of the result each."""
    return torch.rand(6, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).mul(2).to(dtype)


def row(*numbers: float) -> list[Tensor]:
    return [torch.tensor([number], dtype=torch.float64) for number in numbers]


def loop(tensors: Tensor, margin: float, pragmatic_margin: float, alpha: float) -> float:
    """The formula, spelled out in float64."""
    total = 0.0
    for implicit, explicit, other_implicit, other_explicit, near, far in tensors.double().T.tolist():
        total += max(0.0, margin - (implicit - explicit)) + max(0.0, margin - (other_implicit - other_explicit))
        total += alpha * max(0.0, pragmatic_margin - (far - near))
    return total / tensors.shape[1]


@given(
    n=st.integers(1, 8),
    margin=st.sampled_from([0.0, 0.5, 1.3]),
    pragmatic_margin=st.sampled_from([0.0, 0.7]),
    alpha=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 10_000),
)
def test_against_loop(n, margin, pragmatic_margin, alpha, seed):
    rows = given_rows(n, seed)
    got = ImplicitnessRanking(margin, pragmatic_margin, alpha)(*rows)
    assert got.shape == ()
    assert got.item() == pytest.approx(loop(rows, margin, pragmatic_margin, alpha), abs=1e-12)


@pytest.mark.parametrize(
    ("numbers", "want"),
    [
        ((1.0, 0.2, 1.0, 0.3, 0.1, 1.0), 0.0),  # in order, with room
        ((0.6, 0.2, 1.0, 0.3, 0.1, 1.0), 0.1),  # the positive pair is 0.4 apart
        ((1.0, 0.2, 0.5, 0.3, 0.1, 1.0), 0.3),  # the negative pair is 0.2 apart
        ((1.0, 0.2, 1.0, 0.3, 0.1, 0.5), 3 * 0.3),  # the distances are 0.4 apart
        ((0.2, 0.6, 0.3, 0.5, 0.9, 0.4), 0.9 + 0.7 + 3 * 1.2),  # all the wrong way round
    ],
)
def test_known_numbers(numbers, want):
    assert ImplicitnessRanking(alpha=3.0)(*row(*numbers)).item() == pytest.approx(want, abs=1e-12)


def test_equal_numbers_cost_the_margins():
    same = torch.full((5,), 0.4, dtype=torch.float64)
    assert ImplicitnessRanking()(*[same] * 6).item() == pytest.approx(0.5 + 0.5 + 0.7)


def test_neither_order_nor_a_common_shift_matters():
    rows, loss = given_rows(6), ImplicitnessRanking()
    want = pytest.approx(loss(*rows).item(), abs=1e-12)
    assert loss(*rows[:, torch.tensor([3, 1, 5, 0, 2, 4])]).item() == want
    shift = torch.tensor([7.0, 7.0, -2.0, -2.0, 3.0, 3.0], dtype=torch.float64)[:, None]
    assert loss(*(rows + shift)).item() == want
    assert loss(*rows[[2, 3, 0, 1, 4, 5]]).item() == want, "the two pairs rank alike"


def test_no_two_arguments_are_exchanged():
    rows = given_rows(6, seed=1)
    loss = ImplicitnessRanking(alpha=0.5)
    orders = ([0, 1, 2, 3, 4, 5], [1, 0, 2, 3, 4, 5], [0, 1, 3, 2, 4, 5], [0, 1, 2, 3, 5, 4], [4, 1, 2, 3, 0, 5])
    assert len({round(loss(*rows[order]).item(), 9) for order in orders}) == len(orders)


def test_gradients():
    rows = [tensor.clone().requires_grad_() for tensor in given_rows(5, seed=2)]
    assert torch.autograd.gradcheck(ImplicitnessRanking(), rows)
    ImplicitnessRanking(margin=10.0, pragmatic_margin=10.0, alpha=0.5)(*rows).backward()
    for tensor, want in zip(rows, (-1, 1, -1, 1, 0.5, -0.5), strict=True):
        torch.testing.assert_close(tensor.grad, torch.full_like(tensor, want / 5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    rows = given_rows(9, dtype=dtype)
    got = ImplicitnessRanking()(*rows)
    assert got.dtype == torch.float32
    assert got.item() == pytest.approx(loop(rows, 0.5, 0.7, 1.0), rel=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ImplicitnessRanking()(*rows.float()).item() == pytest.approx(loop(rows, 0.5, 0.7, 1.0), rel=1e-6)


@pytest.mark.parametrize("name", ["margin", "pragmatic_margin", "alpha"])
@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan])
def test_margins_and_weight_are_checked(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be finite and not negative, got {value}"):
        ImplicitnessRanking(**{name: value})


@pytest.mark.parametrize("place", range(6))
def test_shapes_are_checked(place):
    rows = list(given_rows(3))
    rows[place] = torch.zeros(3, 1)
    with pytest.raises(ValueError, match=re.escape("(3, 1)")):
        ImplicitnessRanking()(*rows)
    with pytest.raises(ValueError, match="n >= 1"):
        ImplicitnessRanking()(*given_rows(0))


def test_options_are_told():
    assert repr(ImplicitnessRanking(alpha=2.0)) == ("ImplicitnessRanking(margin=0.5, pragmatic_margin=0.7, alpha=2.0)")
