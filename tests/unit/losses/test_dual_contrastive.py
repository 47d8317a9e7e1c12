"""DualContrastive against a loop in all four ablations, closed forms, invariances, the traps, gradients, errors."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lightning_cse.embeddings import DualEmbedding, DualGaussianEmbedding, GaussianEmbedding
from lightning_cse.losses import DualContrastive
from lightning_cse.similarity import GaussianSimilarity

ABLATIONS = [(True, True), (True, False), (False, True), (False, False)]
ablations = pytest.mark.parametrize(("contradiction", "intra_sentence"), ABLATIONS)


def make(n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[DualEmbedding]:
    """Premise, explicit entailment, implied entailment, contradiction."""
    generator = torch.Generator().manual_seed(seed)
    tensors = torch.randn(8, n, d, generator=generator, dtype=torch.float64).to(dtype)
    return [DualEmbedding(tensors[2 * k], tensors[2 * k + 1]) for k in range(4)]


def loop(roles: list[DualEmbedding], temperature: float, contradiction: bool, intra_sentence: bool) -> float:
    """The five terms, spelled out in float64."""
    p, e, m, c = (DualEmbedding(role.explicit.double(), role.implicit.double()) for role in roles)
    n = len(p)

    def v(a: Tensor, b: Tensor) -> float:
        return math.exp((a @ b / (a @ a).sqrt() / (b @ b).sqrt()).item() / temperature)

    total = 0.0
    for i in range(n):
        t1 = t2 = t3 = t4 = t5 = 0.0
        for j in range(n):
            t1 += v(p.explicit[i], e.explicit[j])
            t2 += v(p.implicit[i], m.explicit[j])
            if contradiction:
                t1 += v(p.explicit[i], c.explicit[j])
                t2 += v(p.implicit[i], c.explicit[j])
            if intra_sentence:
                t1 += v(p.explicit[i], p.implicit[j])
                t2 += v(p.implicit[i], p.explicit[j])
            t3 += v(e.explicit[i], e.implicit[j])
            t4 += v(m.explicit[i], m.implicit[j])
            t5 += v(c.explicit[i], c.implicit[j])
        total -= math.log(v(p.explicit[i], e.explicit[i]) / t1)
        total -= math.log(v(p.implicit[i], m.explicit[i]) / t2)
        if intra_sentence:
            total -= math.log(v(e.explicit[i], e.implicit[i]) / t3)
            total -= math.log(v(m.explicit[i], m.implicit[i]) / t4)
        if intra_sentence and contradiction:
            total -= math.log(v(c.explicit[i], c.implicit[i]) / t5)
    return total / n


@ablations
@given(n=st.integers(2, 4), d=st.integers(1, 5), temperature=st.sampled_from([0.05, 1.0]), seed=st.integers(0, 10_000))
def test_against_loop(contradiction, intra_sentence, n, d, temperature, seed):
    roles = make(n, d, seed)
    got = DualContrastive(temperature, contradiction=contradiction, intra_sentence=intra_sentence)(*roles)
    assert got.shape == ()
    assert got.item() == pytest.approx(loop(roles, temperature, contradiction, intra_sentence), abs=1e-8)


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize(
    ("contradiction", "intra_sentence", "want"),
    [
        (True, True, lambda n: 2 * math.log(3 * n) + 3 * math.log(n)),
        (True, False, lambda n: 2 * math.log(2 * n)),
        (False, True, lambda n: 2 * math.log(2 * n) + 2 * math.log(n)),
        (False, False, lambda n: 2 * math.log(n)),
    ],
)
def test_identical_embeddings_count_the_candidates(n, contradiction, intra_sentence, want):
    x = torch.ones(n, 4, dtype=torch.float64)
    same = DualEmbedding(x, x)
    loss = DualContrastive(contradiction=contradiction, intra_sentence=intra_sentence)
    assert loss(same, same, same, same).item() == pytest.approx(want(n))


@ablations
def test_batch_order_does_not_matter(contradiction, intra_sentence):
    roles, order = make(6, 5), torch.randperm(6, generator=torch.Generator().manual_seed(1))
    loss = DualContrastive(contradiction=contradiction, intra_sentence=intra_sentence)
    assert loss(*(role[order] for role in roles)).item() == pytest.approx(loss(*roles).item())


@ablations
def test_rotation_does_not_matter(contradiction, intra_sentence):
    roles, q = make(6, 5), torch.linalg.qr(make(5, 5, seed=1)[0].explicit).Q
    loss = DualContrastive(contradiction=contradiction, intra_sentence=intra_sentence)
    turned = [DualEmbedding(role.explicit @ q, role.implicit @ q) for role in roles]
    assert loss(*turned).item() == pytest.approx(loss(*roles).item())


def depends_on(loss: DualContrastive) -> set[str]:
    """Which of the eight vectors of a row the loss has a gradient for."""
    names = ["premise", "explicit_entailment", "implied_entailment", "contradiction"]
    roles = [
        DualEmbedding(role.explicit.clone().requires_grad_(), role.implicit.clone().requires_grad_())
        for role in make(3, 4)
    ]
    loss(*roles).backward()
    return {
        f"{name}.{view}"
        for name, role in zip(names, roles, strict=True)
        for view, tensor in role.views().items()
        if tensor.grad is not None and tensor.grad.abs().max() > 0
    }


def test_which_vectors_each_ablation_looks_at():
    base = {"premise.explicit", "premise.implicit", "explicit_entailment.explicit", "implied_entailment.explicit"}
    hypotheses = {"explicit_entailment.implicit", "implied_entailment.implicit"}
    contradiction = {"contradiction.explicit", "contradiction.implicit"}
    assert depends_on(DualContrastive()) == base | hypotheses | contradiction
    assert depends_on(DualContrastive(intra_sentence=False)) == base | {"contradiction.explicit"}
    assert depends_on(DualContrastive(contradiction=False)) == base | hypotheses
    assert depends_on(DualContrastive(contradiction=False, intra_sentence=False)) == base


def test_premises_repel_across_rows():
    """Turning another row's implicit premise vector towards this row's explicit one costs (only T1 and T2 see it)."""
    x = torch.eye(8, dtype=torch.float64)
    premise = DualEmbedding(x[[0, 1]], x[[2, 3]])
    crossed = DualEmbedding(x[[0, 1]], x[[1, 0]])  # u of each row is r of the other
    entailment, contradiction = DualEmbedding(x[[4, 5]], x[[4, 5]]), DualEmbedding(x[[6, 7]], x[[6, 7]])
    loss = DualContrastive(temperature=1.0)
    apart = loss(premise, entailment, entailment, contradiction).item()
    together = loss(crossed, entailment, entailment, contradiction).item()
    assert together - apart == pytest.approx(2 * (math.log(5 + math.e) - math.log(6)))


def test_contradiction_is_not_looked_at_when_off():
    *roles, contradiction = make(4, 5)
    loss = DualContrastive(contradiction=False)
    assert loss(*roles).item() == loss(*roles, contradiction).item() == loss(*roles, contradiction=None).item()


@ablations
def test_gradients(contradiction, intra_sentence):
    loss = DualContrastive(0.5, contradiction=contradiction, intra_sentence=intra_sentence)
    tensors = [tensor.clone().requires_grad_() for role in make(2, 3) for tensor in role.fields().values()]

    def of_tensors(*tensors: Tensor) -> Tensor:
        return loss(*(DualEmbedding(tensors[k], tensors[k + 1]) for k in range(0, 8, 2)))

    assert torch.autograd.gradcheck(of_tensors, tensors)


def test_zero_vectors_and_small_temperatures_stay_finite():
    tensors = [tensor.clone() for role in make(3, 4, dtype=torch.float32) for tensor in role.fields().values()]
    for k, tensor in enumerate(tensors):
        tensor[k % 3] = 0
        tensor.requires_grad_()
    loss = DualContrastive(1e-3)(*(DualEmbedding(tensors[k], tensors[k + 1]) for k in range(0, 8, 2)))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(tensor.grad).all() for tensor in tensors)


def test_bfloat16_is_computed_in_float32():
    roles = make(6, 64, dtype=torch.bfloat16)
    got = DualContrastive()(*roles)
    assert got.dtype == torch.float32
    assert got.item() == pytest.approx(loop(roles, 0.05, True, True), abs=1e-4)


def test_autocast_does_not_downcast():
    roles = make(6, 64, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = DualContrastive()(*roles)
    assert got.dtype == torch.float32
    assert got.item() == DualContrastive()(*roles).item()


def test_a_missing_contradiction_names_the_option():
    roles = make(3, 4)[:3]
    with pytest.raises(ValueError, match="set contradiction=False"):
        DualContrastive()(*roles)


@pytest.mark.parametrize(
    ("lengths", "got"),
    [
        (
            (3, 2, 3, 3),
            r"one explicit_entailment for each premise.* got premise \(3, 4\), explicit_entailment \(2, 4\)",
        ),
        ((3, 3, 3, 2), r"one contradiction for each premise.* contradiction \(2, 4\)"),
        ((1, 1, 1, 1), r"n >= 2.* got premise \(1, 4\)"),
    ],
)
def test_wrong_shapes_are_refused(lengths, got):
    with pytest.raises(ValueError, match=got):
        DualContrastive()(*(make(n, 4)[0] for n in lengths))


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf])
def test_impossible_temperatures_are_refused(temperature):
    with pytest.raises(ValueError, match=f"got {temperature}"):
        DualContrastive(temperature)


def test_options_are_named():
    with pytest.raises(TypeError, match="intra_sentances"):
        DualContrastive(intra_sentances=False)
    with pytest.raises(TypeError, match="positional"):
        DualContrastive(0.05, False)
    assert repr(DualContrastive(intra_sentence=False)) == (
        "DualContrastive(temperature=0.05, contradiction=True, intra_sentence=False, similarity=CosineSimilarity())"
    )


# Rows that lack a hypothesis ---------------------------------------------------------------------------------------


HYPOTHESES = ("explicit_entailment", "implied_entailment", "contradiction")

Rows = dict[str, list[int]]


def lacking_loop(
    p: DualEmbedding, there: dict[str, DualEmbedding], rows: Rows, contradiction: bool, intra_sentence: bool
) -> float:
    """The terms that each row has, spelled out; sums over a hypothesis run over the sentences there are."""

    def s(a: Tensor, b: Tensor) -> float:
        return math.exp((a @ b / (a @ a).sqrt() / (b @ b).sqrt()).item())

    def others(anchor: Tensor, view: Tensor) -> float:
        negatives = there["contradiction"].explicit if contradiction and "contradiction" in there else ()
        return sum(s(anchor, c) for c in negatives) + sum(s(anchor, x) for x in (view if intra_sentence else ()))

    total = 0.0
    for i in range(len(p)):
        for role in HYPOTHESES:
            if i not in rows.get(role, []) or (role == "contradiction" and not contradiction):
                continue
            k, h = rows[role].index(i), there[role]
            if role != "contradiction":
                views = (p.explicit, p.implicit) if role == "explicit_entailment" else (p.implicit, p.explicit)
                candidates = sum(s(views[0][i], other) for other in h.explicit)
                total -= math.log(s(views[0][i], h.explicit[k]) / (candidates + others(views[0][i], views[1])))
            if intra_sentence:
                total -= math.log(s(h.explicit[k], h.implicit[k]) / sum(s(h.explicit[k], u) for u in h.implicit))
    return total / len(p)


@ablations
@pytest.mark.parametrize(
    "rows",
    [
        {"explicit_entailment": [0, 2, 3], "implied_entailment": [1, 2], "contradiction": [3]},
        {"explicit_entailment": [3, 1], "contradiction": [0, 1, 2, 3]},
        {"implied_entailment": [0, 1, 2, 3]},
        {"explicit_entailment": [2]},
        {"contradiction": [1, 2]},
    ],
    ids=["some of each", "no implied one", "implied alone", "one sentence", "no entailment"],
)
def test_rows_that_lack_a_hypothesis_lack_its_terms(rows: Rows, contradiction: bool, intra_sentence: bool) -> None:
    p, *others = make(4, 5)
    there = {role: other[: len(rows[role])] for role, other in zip(HYPOTHESES, others, strict=True) if role in rows}
    loss = DualContrastive(1.0, contradiction=contradiction, intra_sentence=intra_sentence)
    got = loss(p, **there, rows={role: torch.tensor(places) for role, places in rows.items()})
    assert got.item() == pytest.approx(lacking_loop(p, there, rows, contradiction, intra_sentence), abs=1e-9)


@ablations
def test_rows_that_have_everything_may_say_so(contradiction, intra_sentence):
    roles = make(5, 4)
    loss = DualContrastive(contradiction=contradiction, intra_sentence=intra_sentence)
    every = {role: torch.arange(5) for role in HYPOTHESES}
    assert loss(*roles, rows=every).item() == loss(*roles).item()
    order = torch.tensor([3, 0, 4, 1, 2])
    turned = {role: other[order] for role, other in zip(HYPOTHESES, roles[1:], strict=True)}
    assert loss(roles[0], **turned, rows=dict.fromkeys(HYPOTHESES, order)).item() == pytest.approx(loss(*roles).item())


def test_a_batch_without_any_term_costs_nothing_and_can_be_learned_from():
    premise = DualEmbedding(*(tensor.requires_grad_() for tensor in make(3, 4)[0].fields().values()))
    loss = DualContrastive(intra_sentence=False)(premise, rows={})
    loss.backward()
    assert loss.item() == 0
    assert not premise.explicit.grad.any()


@pytest.mark.parametrize(
    ("rows", "got"),
    [
        ({"explicit_entailment": torch.tensor([0, 1])}, r"rows\['explicit_entailment'\]"),
        ({"explicit_entailment": torch.tensor([0, 0, 1])}, r"rows\['explicit_entailment'\]"),
    ],
    ids=["too few", "one row twice"],
)
def test_rows_that_do_not_fit_are_refused(rows, got):
    premise, explicit = make(4, 5)[:2]
    with pytest.raises(ValueError, match=got):
        DualContrastive()(premise, explicit[:3], rows=rows)


# Gaussians -----------------------------------------------------------------------------------------------------------


def gaussians(n: int, d: int) -> list[DualGaussianEmbedding]:
    generator = torch.Generator().manual_seed(3)
    draw = torch.randn(16, n, d, generator=generator, dtype=torch.float64)
    return [DualGaussianEmbedding(*draw[4 * k : 4 * k + 4]) for k in range(4)]


@ablations
@pytest.mark.parametrize("reduce", ["mean_of_sims", "sim_of_sum"])
def test_gaussians_against_a_loop(contradiction, intra_sentence, reduce):
    p, e, m, c = gaussians(3, 4)

    def v(candidate: GaussianEmbedding, j: int, anchor: GaussianEmbedding, i: int) -> float:
        """Return exp of sim(candidate || anchor)."""
        normal = [
            torch.distributions.Normal(g.mean[k], torch.exp(g.log_variance[k] / 2))
            for g, k in ((candidate, j), (anchor, i))
        ]
        kl = torch.distributions.kl_divergence(*normal)
        return math.exp((1 / (1 + kl)).mean() if reduce == "mean_of_sims" else 1 / (1 + kl.sum()))

    total = 0.0
    for i in range(3):
        for anchor, other, h in ((p.explicit, p.implicit, e), (p.implicit, p.explicit, m)):
            below = sum(v(h.explicit, j, anchor, i) for j in range(3))
            below += sum(v(c.explicit, j, anchor, i) for j in range(3)) if contradiction else 0
            below += sum(v(other, j, anchor, i) for j in range(3)) if intra_sentence else 0
            total -= math.log(v(h.explicit, i, anchor, i) / below)
        for h in ([e, m, c] if contradiction else [e, m]) if intra_sentence else []:
            total -= math.log(v(h.implicit, i, h.explicit, i) / sum(v(h.implicit, j, h.explicit, i) for j in range(3)))
    loss = DualContrastive(
        1.0, contradiction=contradiction, intra_sentence=intra_sentence, similarity=GaussianSimilarity(reduce)
    )
    assert loss(p, e, m, c).item() == pytest.approx(total / 3, abs=1e-9)
