"""HierarchicalTriplet and ImplicitnessRanking against loops, closed forms and invariances; wrong shapes."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import cos, normal
from torch import Tensor

from lightning_cse.losses import HierarchicalTriplet, ImplicitnessRanking


def at(*cosines: float) -> list[Tensor]:
    """An anchor, and one vector at each of these cosines from it."""
    return [torch.tensor([[c, math.sqrt(1 - c * c)]], dtype=torch.float64) for c in (1.0, *cosines)]


@given(
    n=st.integers(1, 6),
    d=st.integers(1, 6),
    margins=st.tuples(st.sampled_from([0.0, 5e-3, 0.5]), st.sampled_from([0.0, 1e-2, 0.3])),
    seed=st.integers(0, 10_000),
)
def test_triplet_against_loop(n, d, margins, seed):
    tensors, total = normal(4, n, d, seed=seed), 0.0
    for anchor, positive, intermediate, negative in zip(*tensors, strict=True):
        a, b, c = cos(anchor, positive), cos(anchor, intermediate), cos(anchor, negative)
        total += 0.5 * (max(0.0, b - a + margins[0]) + max(0.0, c - b + margins[1]))
    got = HierarchicalTriplet(*margins)(*tensors)
    assert got.shape == ()
    assert got.item() == pytest.approx(total / n, abs=1e-12)


@pytest.mark.parametrize(
    ("cosines", "want"),
    [
        ((0.9, 0.5, 0.1), 0.0),  # in order, with room
        ((0.5, 0.6, 0.1), (0.1 + 0.02) / 2),  # the intermediate is closer than the positive
        ((0.9, 0.3, 0.4), (0.1 + 0.04) / 2),  # the negative is closer than the intermediate
        (
            (0.5, 0.5, 0.8),
            (0.02 + 0.3 + 0.04) / 2,
        ),  # the negative is closer than the positive, which it never meets
        ((0.1, 0.5, 0.9), (0.4 + 0.02 + 0.4 + 0.04) / 2),  # the wrong way round
        ((0.51, 0.5, 0.47), (0.01 + 0.01) / 2),  # in order, within both margins
    ],
)
def test_triplet_of_known_cosines(cosines, want):
    loss = HierarchicalTriplet(margin_positive=0.02, margin_negative=0.04)
    assert loss(*at(*cosines)).item() == pytest.approx(want, abs=1e-12)


def test_triplet_of_identical_embeddings_costs_half_the_margins():
    x = normal(5, 4)
    assert HierarchicalTriplet()(x, x, x, x).item() == pytest.approx((5e-3 + 1e-2) / 2)


def test_triplets_in_order_have_no_gradient():
    good, bad = at(0.9, 0.5, 0.1), at(0.1, 0.5, 0.9)
    tensors = [torch.cat(pair).requires_grad_() for pair in zip(good, bad, strict=True)]
    HierarchicalTriplet()(*tensors).backward()
    assert all(tensor.grad[0].abs().max() == 0 for tensor in tensors)
    assert all(tensors[role].grad[1].abs().max() > 0 for role in (1, 3))


@pytest.mark.parametrize(
    "shapes", [[(3, 4), (3, 4), (2, 4), (3, 4)], [(3, 4)] * 3 + [(3, 5)], [(0, 4)] * 4, [(4,)] * 4]
)
def test_triplet_of_wrong_shapes_is_refused(shapes):
    with pytest.raises(ValueError, match=re.escape(f"n >= 1, got {', '.join(map(str, shapes))}")):
        HierarchicalTriplet()(*(torch.ones(shape) for shape in shapes))


def drawn(n: int, seed: int = 0) -> Tensor:
    """Implicitness of four sentences and two distances, a row of the result each."""
    return torch.rand(6, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).mul(
        2
    )


@given(
    n=st.integers(1, 8),
    margin=st.sampled_from([0.0, 0.5, 1.3]),
    pragmatic_margin=st.sampled_from([0.0, 0.7]),
    alpha=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 10_000),
)
def test_ranking_against_loop(n, margin, pragmatic_margin, alpha, seed):
    rows, total = drawn(n, seed), 0.0
    for implicit, explicit, other_implicit, other_explicit, near, far in rows.T.tolist():
        total += max(0.0, margin - (implicit - explicit)) + max(
            0.0, margin - (other_implicit - other_explicit)
        )
        total += alpha * max(0.0, pragmatic_margin - (far - near))
    got = ImplicitnessRanking(margin, pragmatic_margin, alpha)(*rows)
    assert got.shape == ()
    assert got.item() == pytest.approx(total / n, abs=1e-12)


@pytest.mark.parametrize(
    ("numbers", "want"),
    [
        ((1.0, 0.2, 1.0, 0.3, 0.1, 1.0), 0.0),  # in order, with room
        ((0.6, 0.2, 1.0, 0.3, 0.1, 1.0), 0.1),  # the positive pair is 0.4 apart
        ((1.0, 0.2, 0.5, 0.3, 0.1, 1.0), 0.3),  # the negative pair is 0.2 apart
        ((1.0, 0.2, 1.0, 0.3, 0.1, 0.5), 3 * 0.3),  # the distances are 0.4 apart
        ((0.2, 0.6, 0.3, 0.5, 0.9, 0.4), 0.9 + 0.7 + 3 * 1.2),  # all the wrong way round
        ((0.4,) * 6, 0.5 + 0.5 + 3 * 0.7),
    ],
)
def test_ranking_of_known_numbers(numbers, want):
    given_numbers = [torch.tensor([number], dtype=torch.float64) for number in numbers]
    assert ImplicitnessRanking(alpha=3.0)(*given_numbers).item() == pytest.approx(want, abs=1e-12)


def test_ranking_is_the_same_when_shifted_and_not_with_arguments_exchanged():
    rows, loss = drawn(6, seed=1), ImplicitnessRanking(alpha=0.5)
    want = pytest.approx(loss(*rows).item(), abs=1e-12)
    shift = torch.tensor([7.0, 7.0, -2.0, -2.0, 3.0, 3.0], dtype=torch.float64)[:, None]
    assert loss(*(rows + shift)).item() == want
    assert loss(*rows[[2, 3, 0, 1, 4, 5]]).item() == want, "the two pairs rank alike"
    orders = (
        [0, 1, 2, 3, 4, 5],
        [1, 0, 2, 3, 4, 5],
        [0, 1, 3, 2, 4, 5],
        [0, 1, 2, 3, 5, 4],
        [4, 1, 2, 3, 0, 5],
    )
    assert len({round(loss(*rows[order]).item(), 9) for order in orders}) == len(orders)


def test_ranking_of_wrong_shapes_is_refused():
    for place in range(6):
        rows = list(drawn(3))
        rows[place] = torch.zeros(3, 1)
        with pytest.raises(ValueError, match=re.escape("(3, 1)")):
            ImplicitnessRanking()(*rows)
    with pytest.raises(ValueError, match="n >= 1"):
        ImplicitnessRanking()(*drawn(0))
