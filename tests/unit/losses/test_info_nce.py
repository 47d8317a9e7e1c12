"""InfoNCE against a loop, and the weight of hard negatives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import cos, cross_entropy, normal

from lightning_cse.losses import InfoNCE


def loop(anchor, positive, negative, temperature, weight=0.0):
    total = 0.0
    for i, row in enumerate(anchor):
        logits = [cos(row, candidate) for candidate in positive]
        for j, candidate in enumerate(negative):
            logits.append(cos(row, candidate) + weight * temperature * (i == j))

        total += cross_entropy(logits[i], logits, temperature)

    return total / len(anchor)


@given(
    n=st.integers(2, 5),
    d=st.integers(1, 6),
    temperature=st.sampled_from([0.02, 0.05, 1.0]),
    k=st.integers(0, 7),
    seed=st.integers(0, 10_000),
)
def test_loss_matches_loop(n, d, temperature, k, seed):
    anchor, positive = normal(2, n, d, seed=seed)
    negative = normal(k, d, seed=seed + 1)
    got = InfoNCE(temperature)(anchor, positive, negative if k else None)
    assert got.shape == ()
    assert got.item() == pytest.approx(loop(anchor, positive, negative, temperature), abs=1e-9)


@pytest.mark.parametrize("weight", [-1.5, 0.7, 3.0])
def test_weight_is_added_to_the_own_hard_negative(weight):
    tensors = normal(3, 4, 3)
    loss = InfoNCE(hard_negative_weight=weight)(*tensors)
    assert loss.item() == pytest.approx(loop(*tensors, 0.05, weight), rel=1e-12)
