"""What every loss promises beside its formula: gradients, precision, finite values, named and checked options."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from oracles import normal
from torch import Tensor, nn

from lightning_cse.embeddings import DualEmbedding, DualGaussianEmbedding, GaussianEmbedding
from lightning_cse.losses import (
    DualContrastive,
    GaussianContrastive,
    HierarchicalTriplet,
    ImplicitnessRanking,
    InfoNCE,
)
from lightning_cse.similarity import GaussianSimilarity

REDUCES = ("mean_of_sims", "sim_of_sum")
SETS = (["ent"], ["ent", "con"], ["ent", "rev"], ["ent", "con", "rev"])
ABLATIONS = [
    {"contradiction": c, "intra_sentence": i} for c in (True, False) for i in (True, False)
]


class Case:
    """A loss as a function of tensors; ``kind`` is the embedding that consecutive tensors make."""

    def __init__(self, loss: nn.Module, tensors: int, kind: Any = None, fields: int = 1) -> None:
        self.loss, self.tensors, self.kind, self.fields = loss, tensors, kind, fields

    def draw(self, n: int = 3, d: int = 4, dtype: torch.dtype = torch.float64) -> list[Tensor]:
        shape = (n,) if isinstance(self.loss, ImplicitnessRanking) else (n, d)
        return [
            tensor.requires_grad_() for tensor in normal(self.tensors, *shape, dtype=dtype).unbind()
        ]

    def __call__(self, *tensors: Tensor) -> Tensor:
        starts = range(0, len(tensors), self.fields)
        roles: Sequence[Any] = (
            [self.kind(*tensors[k : k + self.fields]) for k in starts] if self.kind else tensors
        )
        return self.loss(*roles)


def cases(temperature: float) -> dict[str, Case]:
    dual = {
        f"dual {options}": Case(DualContrastive(temperature, **options), 8, DualEmbedding, 2)
        for options in ABLATIONS
    }
    dualgauss = DualContrastive(temperature, similarity=GaussianSimilarity())
    gauss = {
        f"gauss {sets} {reduce}": Case(
            GaussianContrastive(temperature, sets, reduce), 6, GaussianEmbedding, 2
        )
        for sets in SETS
        for reduce in REDUCES
    }
    return {
        "simcse unsupervised": Case(InfoNCE(temperature), 2),
        "simcse supervised": Case(InfoNCE(temperature), 3),
        **dual,
        "dualgauss": Case(dualgauss, 16, DualGaussianEmbedding, 4),
        **gauss,
        "triplet": Case(HierarchicalTriplet(0.5, 0.5), 4),
        "ranking": Case(ImplicitnessRanking(), 6),
    }


NAMES = list(cases(1.0))
each = pytest.mark.parametrize("name", NAMES)


@each
def test_gradients(name: str) -> None:
    case = cases(0.5)[name]
    used = case.draw()
    if name.startswith("gauss") and "con" not in name:
        used = used[:4]
    assert torch.autograd.gradcheck(case, used)


@each
def test_the_order_of_rows_does_not_matter(name: str) -> None:
    case = cases(0.05)[name]
    tensors, order = case.draw(6), torch.tensor([3, 1, 5, 0, 2, 4])
    assert case(*(tensor[order] for tensor in tensors)).item() == pytest.approx(
        case(*tensors).item(), rel=1e-12
    )


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    case = cases(0.05)[name]
    tensors = case.draw(8, 64, dtype)
    loss = case(*tensors)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(
        case(*(tensor.double() for tensor in tensors)).item(), rel=1e-5, abs=1e-6
    )
    loss.backward()
    assert {tensor.grad.dtype for tensor in tensors if tensor.grad is not None} == {dtype}


@each
def test_autocast_does_not_downcast(name: str) -> None:
    case = cases(0.05)[name]
    tensors = case.draw(8, 64, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = case(*tensors)
    assert got.dtype == torch.float32
    assert got.item() == case(*tensors).item()


@each
def test_zero_vectors_extreme_variances_and_small_temperatures_stay_finite(name: str) -> None:
    case = cases(1e-3)[name]
    gaussian = "gauss" in name
    tensors = [tensor.detach().clone() for tensor in case.draw(4, dtype=torch.float32)]
    for k, tensor in enumerate(tensors):
        if not gaussian:
            tensor[k % 4] = 0
        elif k % 2:  # a log variance
            tensor[:] = torch.tensor([12.0, -12.0, 0.0, 12.0]).roll(k // 2)[:, None]
        tensor.requires_grad_()
    loss = case(*tensors)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(tensor.grad).all() for tensor in tensors if tensor.grad is not None)


@pytest.mark.parametrize("kind", [InfoNCE, DualContrastive, GaussianContrastive])
@pytest.mark.parametrize("temperature", [0.0, -0.05, math.inf, math.nan])
def test_impossible_temperatures_are_refused(kind: type[nn.Module], temperature: float) -> None:
    with pytest.raises(
        ValueError, match=f"temperature must be positive and finite, got {temperature}"
    ):
        kind(temperature=temperature)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (HierarchicalTriplet, ("margin_positive", "margin_negative")),
        (ImplicitnessRanking, ("margin", "pragmatic_margin", "alpha")),
    ],
)
@pytest.mark.parametrize("value", [-0.005, math.inf, math.nan])
def test_impossible_margins_are_refused(
    kind: type[nn.Module], names: tuple[str, ...], value: float
) -> None:
    for name in names:
        with pytest.raises(
            ValueError, match=f"{name} must be finite and not negative, got {value}"
        ):
            kind(**{name: value})
