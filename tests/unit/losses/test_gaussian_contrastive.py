"""GaussCSE's loss: against a loop, closed forms, invariances, direction, and what is refused."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import normal

from lightning_cse.embeddings import GaussianEmbedding
from lightning_cse.losses import GaussianContrastive

SETTINGS = [("ent",), ("ent", "con"), ("ent", "rev"), ("ent", "con", "rev")]
every_setting = pytest.mark.parametrize("sets", SETTINGS, ids="+".join)
both = pytest.mark.parametrize("reduce", ["mean_of_sims", "sim_of_sum"])


def gaussians(n: int, d: int, seed: int = 0) -> GaussianEmbedding:
    return GaussianEmbedding(*normal(2, n, d, seed=seed))


def triplets(n: int, d: int, seed: int = 0) -> list[GaussianEmbedding]:
    return [gaussians(n, d, 3 * seed + k) for k in range(3)]


def sim(a: GaussianEmbedding, i: int, b: GaussianEmbedding, j: int, reduce: str) -> float:
    """One similarity, spelled out."""
    divergences = []
    for h in range(a.mean.shape[1]):
        s, t = math.exp(a.log_variance[i, h]), math.exp(b.log_variance[j, h])
        divergences.append(
            (s / t + (a.mean[i, h].item() - b.mean[j, h].item()) ** 2 / t - 1 - math.log(s / t)) / 2
        )
    if reduce == "sim_of_sum":
        return 1 / (1 + sum(divergences))
    return sum(1 / (1 + k) for k in divergences) / len(divergences)


def loop(
    roles: list[GaussianEmbedding], temperature: float, sets: tuple[str, ...], reduce: str
) -> float:
    """The formula, spelled out."""
    p, e, c = roles
    total = 0.0
    for i in range(len(p)):
        denominator = 0.0
        for j in range(len(p)):
            denominator += math.exp(sim(e, j, p, i, reduce) / temperature)
            if "con" in sets:
                denominator += math.exp(sim(c, j, p, i, reduce) / temperature)
            if "rev" in sets:
                denominator += math.exp(sim(p, j, e, i, reduce) / temperature)
        total -= math.log(math.exp(sim(e, i, p, i, reduce) / temperature) / denominator)
    return total / len(p)


@given(
    n=st.integers(2, 4),
    d=st.integers(1, 4),
    temperature=st.sampled_from([0.02, 0.05, 1.0]),
    seed=st.integers(0, 10_000),
)
@every_setting
@both
def test_against_loop(sets, reduce, n, d, temperature, seed):
    roles = triplets(n, d, seed)
    got = GaussianContrastive(temperature, sets, reduce)(*roles)
    assert got.shape == ()
    assert got.item() == pytest.approx(loop(roles, temperature, sets, reduce), abs=1e-9)
    assert GaussianContrastive(temperature, sets[::-1], reduce)(*roles).item() == pytest.approx(
        got.item()
    )


@every_setting
@both
@pytest.mark.parametrize("n", [2, 5])
def test_identical_embeddings_give_the_log_of_the_number_of_candidates(sets, reduce, n):
    x = gaussians(1, 6)[torch.zeros(n, dtype=torch.long)]
    assert GaussianContrastive(sets=sets, reduce=reduce)(x, x, x).item() == pytest.approx(
        math.log(len(sets) * n)
    )


def test_a_wide_premise_is_cheaper_than_a_wide_entailment():
    narrow = GaussianEmbedding(gaussians(4, 8).mean, torch.full((4, 8), -1.0, dtype=torch.float64))
    wide = GaussianEmbedding(narrow.mean, torch.ones(4, 8, dtype=torch.float64))
    loss = GaussianContrastive(sets=["ent", "rev"])
    assert loss(wide, narrow).item() < loss(narrow, wide).item() - 1


def test_contradictions_are_needed_where_they_are_used_and_not_looked_at_elsewhere():
    p, e, _ = triplets(4, 5)
    for sets in (("ent",), ("ent", "rev")):
        loss = GaussianContrastive(sets=sets)
        assert loss(p, e, gaussians(1, 2)).item() == loss(p, e).item()
    with pytest.raises(
        ValueError, match=r"sets \['ent', 'con'\] needs the contradiction .* leave \"con\" out"
    ):
        GaussianContrastive(sets=["ent", "con"])(p, e)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"sets": ["ent", "cont"]},
            r"^sets must be a list of ent, con, rev with 'ent', .*, got \['ent', 'cont'\]$",
        ),
        ({"sets": ("con", "rev")}, r"with 'ent', .*got \('con', 'rev'\)$"),
        ({"sets": ()}, r"with 'ent', .*got \(\)$"),
        ({"sets": "ent"}, r"must be a list .*, got 'ent'$"),
        ({"reduce": "sim_of_sums"}, r"got 'sim_of_sums'$"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GaussianContrastive(**options)


@pytest.mark.parametrize(
    "shapes", [[(3, 4), (2, 4), (3, 4)], [(3, 4), (3, 5), (3, 4)], [(3, 4)] * 2 + [(6, 4)]]
)
def test_wrong_shapes_are_refused(shapes):
    with pytest.raises(
        ValueError, match=r"n >= 2, got premise \(3, 4\), entailment .* contradiction \(\d, 4\)$"
    ):
        GaussianContrastive()(*(gaussians(*shape) for shape in shapes))
    with pytest.raises(ValueError, match=r"n >= 2, got premise \(1, 4\)"):
        GaussianContrastive()(*triplets(1, 4))
