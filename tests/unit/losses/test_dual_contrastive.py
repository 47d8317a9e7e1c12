"""DualContrastive against a loop in all four ablations, closed forms, invariances, rows that lack a hypothesis."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import cos, normal

from lightning_cse.embeddings import DualEmbedding, DualGaussianEmbedding, GaussianEmbedding
from lightning_cse.losses import DualContrastive
from lightning_cse.similarity import GaussianSimilarity

HYPOTHESES = ("explicit_entailment", "implied_entailment", "contradiction")
ablations = pytest.mark.parametrize(
    "options",
    [{"contradiction": c, "intra_sentence": i} for c in (True, False) for i in (True, False)],
    ids=str,
)
Options = dict[str, bool]


def make(n: int, d: int, seed: int = 0) -> list[DualEmbedding]:
    """Premise, explicit entailment, implied entailment, contradiction."""
    return [DualEmbedding(*pair) for pair in normal(4, 2, n, d, seed=seed)]


def loop(
    value: Callable[[Any, int, Any, int], float],
    p: Any,
    hypotheses: dict[str, Any],
    rows: dict[str, list[int]],
    contradiction: bool = True,
    intra_sentence: bool = True,
) -> float:
    """The terms that each row has, spelled out; ``value`` is exp(similarity / temperature) of anchor and candidate."""

    def term(anchor: Any, i: int, positive: Any, k: int, *others: Any) -> float:
        candidates = [
            value(anchor, i, view, j) for view in (positive, *others) for j in range(len(view))
        ]
        return -math.log(value(anchor, i, positive, k) / sum(candidates))

    negatives = (
        [hypotheses["contradiction"].explicit]
        if contradiction and "contradiction" in hypotheses
        else []
    )
    total = 0.0
    for role, h in hypotheses.items():
        if role == "contradiction" and not contradiction:
            continue
        for k, i in enumerate(rows[role]):
            if role != "contradiction":
                views = (
                    (p.explicit, p.implicit)
                    if role == "explicit_entailment"
                    else (p.implicit, p.explicit)
                )
                others = [*negatives, views[1]] if intra_sentence else negatives
                total += term(views[0], i, h.explicit, k, *others)
            if intra_sentence:
                total += term(h.explicit, k, h.implicit, k)
    return total / len(p)


def of_cosines(temperature: float) -> Callable[[Any, int, Any, int], float]:
    return lambda a, i, b, j: math.exp(cos(a[i], b[j]) / temperature)


def of_gaussians(reduce: str) -> Callable[[Any, int, Any, int], float]:
    """Return exp of the similarity of a candidate, given first, to its anchor, by torch's own divergence."""

    def value(anchor: GaussianEmbedding, i: int, candidate: GaussianEmbedding, j: int) -> float:
        normals = [
            torch.distributions.Normal(g.mean[k], torch.exp(g.log_variance[k] / 2))
            for g, k in ((candidate, j), (anchor, i))
        ]
        kl = torch.distributions.kl_divergence(*normals)
        return math.exp((1 / (1 + kl)).mean() if reduce == "mean_of_sims" else 1 / (1 + kl.sum()))

    return value


def whole(roles: list[Any]) -> tuple[Any, dict[str, Any], dict[str, list[int]]]:
    """Premise, hypotheses and their rows, where no row lacks one."""
    hypotheses = dict(zip(HYPOTHESES, roles[1:], strict=True))
    return roles[0], hypotheses, {role: list(range(len(roles[0]))) for role in HYPOTHESES}


@ablations
@given(
    n=st.integers(2, 4),
    d=st.integers(1, 5),
    temperature=st.sampled_from([0.05, 1.0]),
    seed=st.integers(0, 10_000),
)
def test_against_loop(options, n, d, temperature, seed):
    roles = make(n, d, seed)
    got = DualContrastive(temperature, **options)(*roles)
    assert got.shape == ()
    assert got.item() == pytest.approx(
        loop(of_cosines(temperature), *whole(roles), **options), abs=1e-8
    )


@ablations
@pytest.mark.parametrize("reduce", ["mean_of_sims", "sim_of_sum"])
def test_gaussians_against_loop(options: Options, reduce: str) -> None:
    roles = [DualGaussianEmbedding(*fields) for fields in normal(4, 4, 3, 4, seed=3)]
    got = DualContrastive(1.0, similarity=GaussianSimilarity(reduce), **options)(*roles)
    assert got.item() == pytest.approx(
        loop(of_gaussians(reduce), *whole(roles), **options), abs=1e-9
    )


@ablations
@pytest.mark.parametrize(
    "rows",
    [
        {"explicit_entailment": [0, 2, 3], "implied_entailment": [1, 2], "contradiction": [3]},
        {"explicit_entailment": [3, 1], "contradiction": [0, 1, 2, 3]},
        {"implied_entailment": [0, 1, 2, 3]},
        {"explicit_entailment": [2]},
        {"contradiction": [1, 2]},
        {
            "explicit_entailment": [3, 0, 1, 2],
            "implied_entailment": [3, 0, 1, 2],
            "contradiction": [3, 0, 1, 2],
        },
    ],
    ids=[
        "some of each",
        "no implied one",
        "implied alone",
        "one sentence",
        "no entailment",
        "all in another order",
    ],
)
def test_rows_that_lack_a_hypothesis_lack_its_terms(
    rows: dict[str, list[int]], options: Options
) -> None:
    p, *others = make(4, 5)
    there = {
        role: other[: len(rows[role])]
        for role, other in zip(HYPOTHESES, others, strict=True)
        if role in rows
    }
    got = DualContrastive(1.0, **options)(
        p, **there, rows={role: torch.tensor(k) for role, k in rows.items()}
    )
    assert got.item() == pytest.approx(loop(of_cosines(1.0), p, there, rows, **options), abs=1e-9)


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


def test_a_batch_without_any_term_costs_nothing_and_can_be_learned_from() -> None:
    premise = DualEmbedding(*(tensor.requires_grad_() for tensor in normal(2, 3, 4).unbind()))
    loss = DualContrastive(intra_sentence=False)(premise, rows={})
    loss.backward()
    assert loss.item() == 0
    assert not premise.explicit.grad.any()


def test_a_contradiction_is_needed_unless_it_is_off() -> None:
    *roles, contradiction = make(3, 4)
    with pytest.raises(ValueError, match="set contradiction=False"):
        DualContrastive()(*roles)
    without = DualContrastive(contradiction=False)
    assert without(*roles).item() == without(*roles, contradiction).item()


@pytest.mark.parametrize(
    ("lengths", "rows", "got"),
    [
        (
            (3, 2, 3, 3),
            {},
            r"one explicit_entailment for each premise.* premise \(3, 4\), explicit_entailment \(2, 4\)",
        ),
        ((3, 3, 3, 2), {}, r"one contradiction for each premise.* contradiction \(2, 4\)"),
        ((1, 1, 1, 1), {}, r"n >= 2.* got premise \(1, 4\)"),
        ((4, 3), {"explicit_entailment": torch.tensor([0, 1])}, r"rows\['explicit_entailment'\]"),
        (
            (4, 3),
            {"explicit_entailment": torch.tensor([0, 0, 1])},
            r"rows\['explicit_entailment'\]",
        ),
    ],
)
def test_wrong_shapes_are_refused(
    lengths: tuple[int, ...], rows: dict[str, torch.Tensor], got: str
) -> None:
    with pytest.raises(ValueError, match=got):
        DualContrastive()(*(make(n, 4)[0] for n in lengths), rows=rows or None)
