"""GaussianContrastive against a loop, and the direction that it teaches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import cross_entropy, gaussians, sim

from lightning_cse.losses import GaussianContrastive

every_setting = pytest.mark.parametrize(
    "sets", [("ent",), ("ent", "con"), ("ent", "rev"), ("ent", "con", "rev")], ids="+".join
)


def triplets(n, d, seed=0):
    return [gaussians(n, d, seed=3 * seed + k) for k in range(3)]


def loop(roles, temperature, sets, reduce):
    p, e, c = roles
    pairs = {"ent": (e, p), "con": (c, p), "rev": (p, e)}
    total = 0.0
    for i in range(len(p)):
        candidates = []
        for name in sets:
            candidate, anchor = pairs[name]
            candidates += [sim(candidate, j, anchor, i, reduce) for j in range(len(p))]

        total += cross_entropy(sim(e, i, p, i, reduce), candidates, temperature)

    return total / len(p)


@every_setting
@pytest.mark.parametrize("reduce", ["mean_of_sims", "sim_of_sum"])
@given(
    n=st.integers(2, 4),
    d=st.integers(1, 4),
    temperature=st.sampled_from([0.02, 0.05, 1.0]),
    seed=st.integers(0, 10_000),
)
def test_loss_matches_loop(sets, reduce, n, d, temperature, seed):
    roles = triplets(n, d, seed)
    got = GaussianContrastive(temperature, sets, reduce)(*roles)
    assert got.shape == ()
    assert got.item() == pytest.approx(loop(roles, temperature, sets, reduce), abs=1e-9)
    reordered = GaussianContrastive(temperature, sets[::-1], reduce)(*roles)
    assert reordered.item() == pytest.approx(got.item())


@pytest.mark.parametrize(
    "options", [{"sets": ["ent", "cont"]}, {"sets": ("con", "rev")}, {"reduce": "sim_of_sums"}]
)
def test_unknown_options_are_errors(options):
    with pytest.raises(ValueError, match=r"must be .* got "):
        GaussianContrastive(**options)
