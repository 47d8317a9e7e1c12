"""What every loss promises: closed forms, invariances, gradients, precision, checked options."""

import math
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from oracles import normal
from torch import nn

from lightning_cse.embeddings import (
    DualEmbedding,
    DualGaussianEmbedding,
    GaussianEmbedding,
    PointEmbedding,
)
from lightning_cse.losses import (
    CosineRegression,
    DualContrastive,
    GaussianContrastive,
    HierarchicalTriplet,
    ImplicitnessRanking,
    InfoNCE,
    NTXent,
    SoftInfoNCE,
    SoftmaxClassification,
)
from lightning_cse.similarity import GaussianSimilarity

# The multiples of n that count the candidates of each term; margin losses have none.
CANDIDATES = {
    "simcse unsupervised": [1],
    "simcse supervised": [2],
    "dual": [3, 3, 1, 1, 1],
    "dual without contradiction": [2, 2, 1, 1],
    "dual without intra": [2, 2],
    "dual without both": [1, 1],
    "dualgauss": [3, 3, 1, 1, 1],
    "gauss ent mean_of_sims": [1],
    "gauss ent+con mean_of_sims": [2],
    "gauss ent+rev mean_of_sims": [2],
    "gauss ent+con+rev mean_of_sims": [3],
    "gauss ent sim_of_sum": [1],
    "gauss ent+con+rev sim_of_sum": [3],
    "triplet": [],
    "ranking": [],
    "ntxent": [2],
}
MARGINS = {"triplet": (5e-3 + 1e-2) / 2, "ranking": 0.5 + 0.5 + 0.7}
PAIRS = ("classification", "regression", "scored")
"""Losses that take the label or the score of each row, too."""
every_loss = pytest.mark.parametrize("name", [*CANDIDATES, *PAIRS])


@dataclass
class Case:
    """A loss as a function of tensors; consecutive tensors make embeddings of a class."""

    loss: nn.Module
    count: int
    embedding_class: Any = None
    fields: int = 1
    targets: torch.Tensor | None = None

    def draw(self, n=3, d=4, dtype=torch.float64):
        shape = (n,) if isinstance(self.loss, ImplicitnessRanking) else (n, d)
        tensors = normal(self.count, *shape, dtype=dtype).unbind()
        return [tensor.requires_grad_() for tensor in tensors]

    def __call__(self, *tensors, rows=slice(None)):
        roles = tensors
        if self.embedding_class:
            starts = range(0, len(tensors), self.fields)
            roles = [self.embedding_class(*tensors[k : k + self.fields]) for k in starts]
        if self.targets is not None:
            roles = [*roles, self.targets[: len(tensors[0])][rows]]

        return self.loss(*roles)


def make(name, temperature=0.05, width=4):
    if name == "classification":
        torch.manual_seed(0)
        return Case(SoftmaxClassification(width), 2, targets=torch.arange(8) % 3)

    if name in PAIRS:
        loss = SoftInfoNCE(temperature, smooth_others=True)
        loss = CosineRegression() if name == "regression" else loss
        return Case(loss, 2, targets=torch.linspace(0, 1, 8))

    class_name, *options = name.split(" ", 1)
    text = options[0] if options else ""
    if class_name == "ntxent":
        return Case(NTXent(temperature), 2)

    if class_name == "simcse":
        return Case(InfoNCE(temperature), 3 if text == "supervised" else 2)

    if class_name == "gauss":
        sets, reduce = text.split()
        loss = GaussianContrastive(temperature, sets.split("+"), reduce)
        return Case(loss, 6 if "con" in sets else 4, GaussianEmbedding, 2)

    if class_name == "dualgauss":
        loss = DualContrastive(temperature, similarity=GaussianSimilarity())
        return Case(loss, 16, DualGaussianEmbedding, 4)

    if class_name == "dual":
        loss = DualContrastive(
            temperature,
            contradiction=text not in ("without contradiction", "without both"),
            intra_sentence=text not in ("without intra", "without both"),
        )
        return Case(loss, 8, DualEmbedding, 2)

    if class_name == "triplet":
        return Case(HierarchicalTriplet(), 4)

    return Case(ImplicitnessRanking(), 6)


@pytest.mark.parametrize("name", CANDIDATES)
@pytest.mark.parametrize("n", [2, 5])
def test_equal_rows_give_the_closed_form(name, n):
    case = make(name)
    row = case.draw(1)[0].detach()
    same = row.expand(n, *row.shape[1:])
    without = 1 if name == "ntxent" else 0  # a vector is no candidate for itself
    want = sum(math.log(k * n - without) for k in CANDIDATES[name]) + MARGINS.get(name, 0.0)
    assert case(*[same] * case.count).item() == pytest.approx(want)


@every_loss
def test_gradients(name):
    case = make(name, temperature=0.5)
    case.loss.double()
    assert torch.autograd.gradcheck(case, case.draw())


@every_loss
def test_order_of_rows_does_not_matter(name):
    case = make(name)
    tensors = case.draw(6)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    case.loss.double()
    permuted = case(*(tensor[order] for tensor in tensors), rows=order)
    assert permuted.item() == pytest.approx(case(*tensors).item(), rel=1e-12)


@every_loss
def test_half_precision_is_computed_in_float32(name):
    case = make(name, width=64)
    tensors = case.draw(8, 64, torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = case(*tensors)

    case.loss.double()
    want = case(*(tensor.double() for tensor in tensors)).item()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(want, rel=1e-5, abs=1e-6)


@every_loss
def test_extreme_inputs_stay_finite(name):
    """Zero vectors, log variances of 12 and -12, and a small temperature."""
    case = make(name, temperature=1e-3)
    extremes = torch.tensor([12.0, -12.0, 0.0, 12.0])
    tensors = []
    for k, tensor in enumerate(case.draw(4, dtype=torch.float32)):
        changed = tensor.detach().clone()
        if "gauss" not in name:
            changed[k % 4] = 0
        elif k % 2:  # a log variance
            changed[:] = extremes.roll(k // 2)[:, None]

        tensors.append(changed.requires_grad_())

    loss = case(*tensors)
    loss.backward()
    gradients = [tensor.grad for tensor in tensors if tensor.grad is not None]
    assert torch.isfinite(loss)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize(
    ("loss_class", "option"),
    [
        (InfoNCE, "temperature"),
        (NTXent, "temperature"),
        (HierarchicalTriplet, "margin_positive"),
        (ImplicitnessRanking, "margin"),
    ],
)
def test_options_out_of_range_are_errors(loss_class, option):
    values = [-0.005, math.inf, math.nan]
    if option == "temperature":
        values.append(0.0)
    else:
        loss_class(**{option: 0.0})

    for value in values:
        with pytest.raises(ValueError, match=f"{option} must be .*finite.*, got {value}"):
            loss_class(**{option: value})


@pytest.mark.parametrize(
    ("name", "number", "change"),
    [
        ("simcse unsupervised", 3, (2, 4)),
        ("simcse unsupervised", 1, None),
        ("simcse supervised", 3, (3, 5)),
        ("ntxent", 3, (2, 4)),
        ("ntxent", 1, None),
        ("gauss ent+con+rev mean_of_sims", 3, (6, 4)),
        ("triplet", 3, (2, 4)),
        ("ranking", 3, (3, 1)),
        ("classification", 3, (2, 4)),
        ("regression", 3, (2, 4)),
        ("scored", 1, None),
    ],
)
def test_wrong_shapes_are_errors(name, number, change):
    case = make(name)
    tensors = case.draw(number)
    if change:
        tensors[-case.fields :] = [torch.ones(change)] * case.fields

    with pytest.raises(ValueError, match=r"^need .*got \(\d"):
        case(*tensors)


@pytest.mark.parametrize("name", ["simcse supervised", "ntxent", "triplet", *PAIRS])
def test_points_are_as_good_as_their_vectors(name):
    case = make(name)
    tensors = case.draw()
    points = replace(case, embedding_class=PointEmbedding)
    assert torch.equal(points(*tensors), case(*tensors))


@pytest.mark.parametrize("name", PAIRS)
def test_a_target_for_each_row(name):
    case = make(name)
    case.targets = case.targets[:2]
    with pytest.raises(ValueError, match=r"each of 3 rows, got \(2,\)"):
        case(*case.draw(3))


A = torch.ones(2, 3)
GAUSSIAN = GaussianEmbedding(A, A)


@pytest.mark.parametrize(
    ("loss", "value", "message"),
    [
        (InfoNCE(), (GAUSSIAN, A), "anchor must be a tensor (n, d) or a PointEmbedding, got Gauss"),
        (InfoNCE(), (A, [A]), "positive must be a tensor (n, d) or a PointEmbedding, got list"),
        (InfoNCE(), (A, A, GAUSSIAN), "negative must be a tensor (n, d) or a PointEmbedding, got"),
        (NTXent(), (A, GAUSSIAN), "positive must be a tensor (n, d) or a PointEmbedding, got"),
        (HierarchicalTriplet(), (A, A, None, A), "intermediate must be a tensor (n, d) or a"),
        (CosineRegression(), (A, [A, A], A[:, 0]), "second must be a tensor (n, d) or a PointEmb"),
        (GaussianContrastive(), (A, GAUSSIAN), "premise must be a GaussianEmbedding (mean, log_v"),
        (GaussianContrastive(), (GAUSSIAN, A), "entailment must be a GaussianEmbedding (mean, lo"),
        (DualContrastive(), (A, A, A, A), "premise must be a DualEmbedding (explicit, implicit)"),
    ],
)
def test_another_kind_is_named(loss, value, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        loss(*value)
