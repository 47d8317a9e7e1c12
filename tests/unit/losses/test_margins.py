"""HierarchicalTriplet and ImplicitnessRanking against loops and known values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import cos, normal

from lightning_cse.losses import HierarchicalTriplet, ImplicitnessRanking


@given(
    n=st.integers(1, 6),
    d=st.integers(1, 6),
    margins=st.tuples(st.sampled_from([0.0, 5e-3, 0.5]), st.sampled_from([0.0, 1e-2, 0.3])),
    seed=st.integers(0, 10_000),
)
def test_triplet_loss_matches_loop(n, d, margins, seed):
    tensors = normal(4, n, d, seed=seed)
    total = 0.0
    for anchor, *vectors in zip(*tensors, strict=True):
        high, middle, low = (cos(anchor, vector) for vector in vectors)
        total += max(0.0, middle - high + margins[0]) / 2 + max(0.0, low - middle + margins[1]) / 2

    got = HierarchicalTriplet(*margins)(*tensors)
    assert got.shape == ()
    assert got.item() == pytest.approx(total / n, abs=1e-12)


@given(
    n=st.integers(1, 8),
    margin=st.sampled_from([0.0, 0.5, 1.3]),
    pragmatic_margin=st.sampled_from([0.0, 0.7]),
    alpha=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 10_000),
)
def test_ranking_loss_matches_loop(n, margin, pragmatic_margin, alpha, seed):
    rows = normal(6, n, seed=seed).abs()
    total = 0.0
    for implicit, explicit, other_implicit, other_explicit, near, far in rows.T.tolist():
        total += max(0.0, margin - (implicit - explicit))
        total += max(0.0, margin - (other_implicit - other_explicit))
        total += alpha * max(0.0, pragmatic_margin - (far - near))

    got = ImplicitnessRanking(margin, pragmatic_margin, alpha)(*rows)
    assert got.shape == ()
    assert got.item() == pytest.approx(total / n, abs=1e-12)
