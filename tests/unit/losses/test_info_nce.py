"""InfoNCE against a loop, closed forms and invariances; shapes that do not fit."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import cos, normal
from torch import Tensor

from lightning_cse.errors import ConfigError
from lightning_cse.losses import InfoNCE


def loop(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor | None,
    temperature: float,
    weight: float = 0.0,
) -> float:
    """The formula, spelled out in float64."""
    total = 0.0
    for i, row in enumerate(anchor):
        logits = [cos(row, candidate) / temperature for candidate in positive]
        for j, candidate in enumerate(() if negative is None else negative):
            logits.append(cos(row, candidate) / temperature + weight * (i == j))
        total -= logits[i] - math.log(sum(map(math.exp, logits)))
    return total / len(anchor)


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


@pytest.mark.parametrize("weight", [-1.5, 0.7, 3.0])
def test_the_weight_is_added_to_the_own_hard_negatives_logit_alone(weight):
    a, p, g = normal(3, 4, 3)
    loss = InfoNCE(hard_negative_weight=weight)(a, p, g)
    assert loss.item() == pytest.approx(loop(a, p, g, 0.05, weight), rel=1e-12)


@pytest.mark.parametrize("n", [2, 4, 9])
def test_identical_embeddings_give_the_log_of_the_number_of_candidates(n):
    x = normal(1, 5).expand(n, -1)
    assert InfoNCE()(x, x).item() == pytest.approx(math.log(n))
    for k in (1, n, n + 3):
        assert InfoNCE()(x, x, x[:1].expand(k, -1)).item() == pytest.approx(math.log(n + k))


def test_negatives_are_shared_by_all_rows_and_anchors_are_no_candidates():
    a, p, g = normal(3, 6, 5)
    assert InfoNCE()(a, p, g.flip(0)).item() == pytest.approx(InfoNCE()(a, p, g).item())
    assert InfoNCE()(a, p).item() != pytest.approx(InfoNCE()(p, a).item())


@pytest.mark.parametrize(
    ("shapes", "got"),
    [
        ([(3, 4), (2, 4)], "n >= 2, got (3, 4) and (2, 4)"),
        ([(3, 4), (3, 5)], "n >= 2, got (3, 4) and (3, 5)"),
        ([(1, 4), (1, 4)], "n >= 2, got (1, 4) and (1, 4)"),
        ([(4,), (4,)], "n >= 2, got (4,) and (4,)"),
        *(
            ([(3, 4), (3, 4), shape], f"k >= 1 and the anchors' d, got {shape} for anchors (3, 4)")
            for shape in ((0, 4), (3, 5), (4,), (1, 3, 4))
        ),
    ],
)
def test_wrong_shapes_are_refused(shapes, got):
    with pytest.raises(ValueError, match=re.escape(got)):
        InfoNCE()(*(torch.ones(shape) for shape in shapes))


@pytest.mark.parametrize(
    ("negatives", "message"),
    [(0, "there is no hard negative"), (2, "there are 2 for 3"), (4, "there are 4 for 3")],
)
def test_a_weight_needs_a_hard_negative_a_row(negatives, message):
    given = [torch.ones(negatives, 3)] if negatives else []
    with pytest.raises(
        ConfigError, match=rf"hard_negative_weight: 0\.5 needs one .*, but {message}"
    ):
        InfoNCE(hard_negative_weight=0.5)(torch.eye(3), torch.eye(3), *given)
