"""Dropout with fast masks: the distribution of torch's, decided by torch's random state."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from lightning_cse.encoders.packing import LANES, FastDropout, is_fast, keep_mask, make_dropout_fast

DTYPES = [torch.bfloat16, torch.float32]


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", DTYPES)
def test_keep_rate_and_mean(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    count = 400_000
    dropped = FastDropout(p)(torch.ones(count, dtype=dtype))
    kept = (dropped != 0).double().mean().item()
    deviation = (p * (1 - p) / count) ** 0.5
    assert kept == pytest.approx(1 - p, abs=5 * deviation)
    # bfloat16 rounds the scale 1 / (1 - p) to 8 bits, so the mean of ones is off by as much.
    rounding = 2**-9 if dtype == torch.bfloat16 else 1e-6
    assert dropped.double().mean().item() == pytest.approx(1, abs=5 * deviation / (1 - p) + rounding)


def test_scale_is_that_of_the_probability_drawn() -> None:
    torch.manual_seed(0)
    p = 1 / 3
    drawn = round(p * LANES) / LANES
    dropped = FastDropout(p)(torch.ones(1000))
    assert drawn != p
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / (1 - drawn)).item()}


def test_unbiased_in_bfloat16_over_many_values() -> None:
    torch.manual_seed(0)
    x = torch.rand(1_000_000) + 0.5
    dropped = FastDropout(0.1)(x.bfloat16())
    assert (dropped.double().mean() / x.bfloat16().double().mean()).item() == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_seed_decides_and_calls_differ(dtype: torch.dtype) -> None:
    module, x = FastDropout(0.5), torch.ones(64, 7, dtype=dtype)
    torch.manual_seed(3)
    first, second = module(x), module(x)
    torch.manual_seed(3)
    assert torch.equal(module(x), first)
    assert not torch.equal(first, second)
    torch.manual_seed(4)
    assert not torch.equal(module(x), first)


def test_torchs_random_state_brings_a_mask_back() -> None:
    module, x = FastDropout(0.5), torch.ones(100)
    module(x)
    state = torch.get_rng_state()
    want = [module(x) for _ in range(3)]
    torch.set_rng_state(state)
    assert all(torch.equal(module(x), w) for w in want)


def test_neighbours_and_calls_are_independent() -> None:
    torch.manual_seed(0)
    one, two = (keep_mask((200_000,), 0.5).double() + 0.5 for _ in range(2))
    for other in (two, one.roll(1), one.roll(4)):
        assert abs((one * other).mean().item()) < 5 * 0.25 / 200_000**0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_goes_through_the_same_mask(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(50, 20, dtype=dtype, requires_grad=True)
    dropped = FastDropout(0.3)(x)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())
    assert 0 < (x.grad == 0).sum() < x.numel()


def test_gradient_of_a_strided_input() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 4, requires_grad=True)
    dropped = FastDropout(0.5)(x.t())
    dropped.backward(torch.ones(6, 4).t())
    keep = dropped.detach() != 0
    assert torch.allclose(dropped.detach(), torch.where(keep, 2 * x.detach().t(), 0.0))
    assert torch.allclose(x.grad, 2 * keep.t().float())


@pytest.mark.parametrize("dtype", DTYPES)
def test_identity_without_dropout(dtype: torch.dtype) -> None:
    x = torch.randn(5, 5, dtype=dtype)
    state = torch.get_rng_state()
    assert torch.equal(FastDropout(0.0)(x), x)
    assert torch.equal(FastDropout(0.5).eval()(x), x)
    assert torch.equal(torch.get_rng_state(), state)


def test_everything_dropped() -> None:
    assert not FastDropout(1.0)(torch.ones(8)).any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_dtypes_are_torchs(dtype: torch.dtype) -> None:
    x = torch.ones(1000, dtype=dtype)
    assert not is_fast(x, 0.1)
    torch.manual_seed(0)
    got = FastDropout(0.1)(x)
    torch.manual_seed(0)
    assert torch.equal(got, nn.Dropout(0.1)(x))


def test_copies_and_replaces() -> None:
    root = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.25)), nn.Dropout(0.5)).eval()
    make_dropout_fast(root)
    kinds = [module for module in root.modules() if isinstance(module, nn.Dropout)]
    assert [(type(module), module.p, module.training) for module in kinds] == [
        (FastDropout, 0.25, False),
        (FastDropout, 0.5, False),
    ]
    twin = copy.deepcopy(root).train()
    torch.manual_seed(1)
    assert not root.training
    assert twin(torch.ones(2, 2)).shape == (2, 2)
    assert list(twin.state_dict()) == list(root.state_dict())
