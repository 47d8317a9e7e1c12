"""GaussCSE's loss: against a loop, closed forms, invariances, direction; its gradients, precision and errors."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightning_cse.embeddings import GaussianEmbedding
from lightning_cse.losses import GaussianContrastive

SETTINGS = [("ent",), ("ent", "con"), ("ent", "rev"), ("ent", "con", "rev")]
REDUCES = ["mean_of_sims", "sim_of_sum"]
every_setting = pytest.mark.parametrize("sets", SETTINGS, ids="+".join)
both = pytest.mark.parametrize("reduce", REDUCES)


def gaussians(n: int, d: int, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> GaussianEmbedding:
    generator = torch.Generator().manual_seed(seed)
    return GaussianEmbedding(*torch.randn(2, n, d, generator=generator, dtype=torch.float64).to(dtype))


def triplets(n: int, d: int, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[GaussianEmbedding]:
    return [gaussians(n, d, seed=3 * seed + k, dtype=dtype) for k in range(3)]


def trainable(embeddings: list[GaussianEmbedding]) -> list[Tensor]:
    return [value.clone().requires_grad_() for embedding in embeddings for value in embedding.fields().values()]


def from_leaves(tensors: list[Tensor]) -> list[GaussianEmbedding]:
    return [GaussianEmbedding(mean, log) for mean, log in zip(tensors[::2], tensors[1::2], strict=True)]


def sim(a: GaussianEmbedding, i: int, b: GaussianEmbedding, j: int, reduce: str) -> float:
    """One similarity, spelled out."""
    divergences = []
    for h in range(a.mean.shape[1]):
        s, t = math.exp(a.log_variance[i, h]), math.exp(b.log_variance[j, h])
        divergences.append((s / t + (a.mean[i, h].item() - b.mean[j, h].item()) ** 2 / t - 1 - math.log(s / t)) / 2)
    if reduce == "sim_of_sum":
        return 1 / (1 + sum(divergences))
    return sum(1 / (1 + k) for k in divergences) / len(divergences)


def loop(
    p: GaussianEmbedding,
    e: GaussianEmbedding,
    c: GaussianEmbedding,
    temperature: float,
    sets: tuple[str, ...],
    how: str,
) -> float:
    """The formula, spelled out."""
    n, total = len(p), 0.0
    for i in range(n):
        denominator = 0.0
        for j in range(n):
            denominator += math.exp(sim(e, j, p, i, how) / temperature)
            if "con" in sets:
                denominator += math.exp(sim(c, j, p, i, how) / temperature)
            if "rev" in sets:
                denominator += math.exp(sim(p, j, e, i, how) / temperature)
        total -= math.log(math.exp(sim(e, i, p, i, how) / temperature) / denominator)
    return total / n


@settings(deadline=None)
@given(
    n=st.integers(2, 4),
    d=st.integers(1, 4),
    temperature=st.sampled_from([0.02, 0.05, 1.0]),
    seed=st.integers(0, 10_000),
)
@every_setting
@both
def test_against_loop(sets, reduce, n, d, temperature, seed):
    p, e, c = triplets(n, d, seed=seed)
    got = GaussianContrastive(temperature, sets, reduce)(p, e, c)
    assert got.shape == ()
    assert got.item() == pytest.approx(loop(p, e, c, temperature, sets, reduce), abs=1e-9)


@every_setting
@both
@pytest.mark.parametrize("n", [2, 5])
def test_identical_embeddings_give_the_log_of_the_number_of_candidates(sets, reduce, n):
    x = gaussians(1, 6)[torch.zeros(n, dtype=torch.long)]
    assert GaussianContrastive(sets=sets, reduce=reduce)(x, x, x).item() == pytest.approx(math.log(len(sets) * n))


@both
def test_one_dimension_by_hand(reduce):
    """Premises N(0, 1) and N(4, 1), entailments of half that variance, contradictions at the other premise."""
    log_half = math.log(0.5)
    p = GaussianEmbedding(torch.tensor([[0.0], [4.0]]), torch.zeros(2, 1))
    e = GaussianEmbedding(torch.tensor([[0.0], [4.0]]), torch.full((2, 1), log_half))
    c = GaussianEmbedding(torch.tensor([[4.0], [0.0]]), torch.zeros(2, 1))

    def v(divergence: float) -> float:
        return math.exp(1 / (1 + divergence))

    here, there = (0.5 - 1 - log_half) / 2, (0.5 + 16 - 1 - log_half) / 2
    ent = v(here) + v(there)
    con = v(0) + v(16 / 2)
    rev = v((2 - 1 + log_half) / 2) + v((2 + 32 - 1 + log_half) / 2)
    for sets, denominator in zip(SETTINGS, (ent, ent + con, ent + rev, ent + con + rev), strict=True):
        got = GaussianContrastive(1.0, sets, reduce)(p, e, c)
        assert got.item() == pytest.approx(math.log(denominator / v(here)), abs=1e-6)


@every_setting
@both
def test_batch_order_does_not_matter(sets, reduce):
    roles = triplets(6, 5)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(1))
    loss = GaussianContrastive(sets=sets, reduce=reduce)
    assert loss(*(role[order] for role in roles)).item() == pytest.approx(loss(*roles).item(), abs=1e-12)


def test_order_of_contradictions_does_not_matter():
    """They are shared by all rows: a row's own weighs no more than another's."""
    p, e, c = triplets(6, 5)
    turned = c[torch.arange(5, -1, -1)]
    assert GaussianContrastive()(p, e, turned).item() == pytest.approx(GaussianContrastive()(p, e, c).item())


@both
def test_translation_and_scale_do_not_matter(reduce):
    shift, scale = torch.linspace(-3, 3, 5), torch.linspace(0.2, 2, 5, dtype=torch.float64)
    roles = triplets(6, 5)
    moved = [GaussianEmbedding((x.mean + shift) * scale, x.log_variance + 2 * scale.log()) for x in roles]
    loss = GaussianContrastive(reduce=reduce)
    assert loss(*moved).item() == pytest.approx(loss(*roles).item(), abs=1e-10)


@every_setting
@both
def test_premises_learn_to_be_the_wider(sets, reduce):
    """Only the reversed set tells which of two sentences entails the other."""
    premise, noise = gaussians(8, 16), gaussians(8, 16, seed=1)
    entailment = GaussianEmbedding(premise.mean + 0.3 * noise.mean, premise.log_variance)
    tensors = trainable([premise, entailment, gaussians(8, 16, seed=2)])
    loss, optimizer = GaussianContrastive(sets=sets, reduce=reduce), torch.optim.Adam(tensors, lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        loss(*from_leaves(tensors)).backward()
        optimizer.step()
    wider = (tensors[1] - tensors[3]).mean().item()
    assert wider > 0.3 if "rev" in sets else abs(wider) < 0.1


def test_a_wide_premise_is_cheaper_than_a_wide_entailment():
    narrow = GaussianEmbedding(gaussians(4, 8).mean, torch.full((4, 8), -1.0, dtype=torch.float64))
    wide = GaussianEmbedding(narrow.mean, torch.ones(4, 8, dtype=torch.float64))
    loss = GaussianContrastive(sets=["ent", "rev"])
    assert loss(wide, narrow).item() < loss(narrow, wide).item() - 1


@pytest.mark.parametrize("sets", [("rev", "con", "ent"), ["con", "ent", "rev"]])
def test_order_of_sets_does_not_matter(sets):
    roles = triplets(4, 5)
    assert GaussianContrastive(sets=sets)(*roles).item() == pytest.approx(GaussianContrastive()(*roles).item())


@pytest.mark.parametrize("sets", [("ent",), ("ent", "rev")])
def test_contradictions_not_asked_for_are_not_looked_at(sets):
    p, e, _ = triplets(4, 5)
    loss = GaussianContrastive(sets=sets)
    assert loss(p, e, gaussians(1, 2)).item() == loss(p, e).item()


@every_setting
@both
def test_gradients(sets, reduce):
    loss = GaussianContrastive(0.5, sets, reduce)
    tensors = trainable(triplets(3, 2)[: 3 if "con" in sets else 2])
    assert torch.autograd.gradcheck(lambda *given: loss(*from_leaves(list(given))), tensors)


@both
def test_extreme_variances_stay_finite(reduce):
    logs = torch.tensor([12.0, -12.0, 0.0, 12.0])[:, None].expand(-1, 6)
    tensors = trainable(
        [GaussianEmbedding(x.mean, logs.roll(k, 0)) for k, x in enumerate(triplets(4, 6, dtype=torch.float32))]
    )
    loss = GaussianContrastive(reduce=reduce)(*from_leaves(tensors))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(tensor.grad).all() for tensor in tensors)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@both
def test_half_precision_is_computed_in_float32(reduce, dtype):
    roles = triplets(4, 16, dtype=dtype)
    tensors = trainable(roles)
    loss = GaussianContrastive(reduce=reduce)(*from_leaves(tensors))
    assert loss.dtype == torch.float32
    wide = [role.to(torch.float64) for role in roles]
    assert loss.item() == pytest.approx(loop(*wide, 0.05, SETTINGS[-1], reduce), abs=1e-5)
    loss.backward()
    assert {tensor.grad.dtype for tensor in tensors} == {dtype}


@both
def test_autocast_does_not_downcast(reduce):
    roles = triplets(8, 64, dtype=torch.float32)
    loss = GaussianContrastive(reduce=reduce)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = loss(*roles)
    assert got.dtype == torch.float32
    assert got.item() == loss(*roles).item()


@pytest.mark.parametrize("temperature", [0.0, -0.05, math.inf, math.nan])
def test_impossible_temperatures_are_refused(temperature):
    with pytest.raises(ValueError, match=f"temperature must be positive and finite, got {temperature}"):
        GaussianContrastive(temperature=temperature)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["ent", "cont"], r"no 'cont' - did you mean 'con'\? \(there are: ent, con, rev\)$"),
        (["ent", "hard"], r"no 'hard' \(there are: ent, con, rev\)$"),
        (["ent", "rev", "rev"], r"each set once, .* got \['ent', 'rev', 'rev'\]$"),
        (("con", "rev"), r"and 'ent', .*got \['con', 'rev'\]$"),
        ((), r"and 'ent', .*got \[\]$"),
        ("ent", r"must be a list such as .*, got 'ent'$"),
    ],
)
def test_impossible_sets_are_refused(sets, message):
    with pytest.raises(ValueError, match=message):
        GaussianContrastive(sets=sets)


def test_unknown_reductions_are_refused():
    with pytest.raises(ValueError, match=r"got 'sim_of_sums' - did you mean 'sim_of_sum'\?$"):
        GaussianContrastive(reduce="sim_of_sums")


@pytest.mark.parametrize("sets", [("ent", "con"), ("rev", "ent", "con")])
def test_missing_contradictions_are_refused(sets):
    p, e, _ = triplets(3, 4)
    names = ", ".join(f"'{name}'" for name in sets)
    with pytest.raises(ValueError, match=rf"sets \[{names}\] needs the contradiction .* leave \"con\" out"):
        GaussianContrastive(sets=sets)(p, e)


@pytest.mark.parametrize(
    ("shapes", "got"),
    [
        ([(3, 4), (2, 4), (3, 4)], r"premise \(3, 4\), entailment \(2, 4\), contradiction \(3, 4\)"),
        ([(3, 4), (3, 5), (3, 4)], r"premise \(3, 4\), entailment \(3, 5\), contradiction \(3, 4\)"),
        ([(3, 4), (3, 4), (6, 4)], r"premise \(3, 4\), entailment \(3, 4\), contradiction \(6, 4\)"),
        ([(1, 4), (1, 4), (1, 4)], r"premise \(1, 4\), entailment \(1, 4\), contradiction \(1, 4\)"),
    ],
)
def test_wrong_shapes_are_refused(shapes, got):
    with pytest.raises(ValueError, match=f"n >= 2, got {got}$"):
        GaussianContrastive()(*(gaussians(*shape) for shape in shapes))


def test_options_are_shown():
    assert repr(GaussianContrastive(0.1, ["ent", "rev"], "sim_of_sum")) == (
        "GaussianContrastive(temperature=0.1, sets=('ent', 'rev'), reduce=sim_of_sum)"
    )
    with pytest.raises(TypeError, match="temprature"):
        GaussianContrastive(temprature=0.05)
