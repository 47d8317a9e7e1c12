"""DualContrastive against a loop in all four ablations, also for rows that lack a hypothesis."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import cos, cross_entropy, normal, sim

from lightning_cse.embeddings import DualEmbedding, DualGaussianEmbedding
from lightning_cse.losses import DualContrastive
from lightning_cse.similarity import GaussianSimilarity

HYPOTHESES = ("explicit_entailment", "implied_entailment", "contradiction")
OPTIONS = [{"contradiction": c, "intra_sentence": i} for c in (True, False) for i in (True, False)]
ablations = pytest.mark.parametrize("options", OPTIONS, ids=str)


def make(n, d, seed=0):
    """Premise, explicit entailment, implied entailment, contradiction."""
    return [DualEmbedding(*pair) for pair in normal(4, 2, n, d, seed=seed)]


def loop(compare, temperature, premise, hypotheses, rows, contradiction=True, intra_sentence=True):
    """The terms that each row has; ``compare`` is the similarity of anchor i and candidate j."""

    def term(anchor, i, positive, k, *negatives):
        candidates = []
        for view in (positive, *negatives):
            candidates += [compare(anchor, i, view, j) for j in range(len(view))]

        return cross_entropy(compare(anchor, i, positive, k), candidates, temperature)

    views = {
        "explicit_entailment": (premise.explicit, premise.implicit),
        "implied_entailment": (premise.implicit, premise.explicit),
    }
    used = {role: h for role, h in hypotheses.items() if contradiction or role != "contradiction"}
    negatives = [used["contradiction"].explicit] if "contradiction" in used else []
    total = 0.0
    for role, hypothesis in used.items():
        for k, i in enumerate(rows[role]):
            if role in views:
                anchor, other_view = views[role]
                more = [*negatives, other_view] if intra_sentence else negatives
                total += term(anchor, i, hypothesis.explicit, k, *more)

            if intra_sentence:
                total += term(hypothesis.explicit, k, hypothesis.implicit, k)

    return total / len(premise)


def of_cosines(a, i, b, j):
    return cos(a[i], b[j])


@ablations
@given(
    n=st.integers(2, 4),
    d=st.integers(1, 5),
    temperature=st.sampled_from([0.05, 1.0]),
    seed=st.integers(0, 10_000),
)
def test_loss_matches_loop(options, n, d, temperature, seed):
    premise, *hypotheses = make(n, d, seed)
    got = DualContrastive(temperature, **options)(premise, *hypotheses)
    by_role = dict(zip(HYPOTHESES, hypotheses, strict=True))
    rows = {role: list(range(n)) for role in HYPOTHESES}
    want = loop(of_cosines, temperature, premise, by_role, rows, **options)
    assert got.shape == ()
    assert got.item() == pytest.approx(want, abs=1e-8)


@ablations
@pytest.mark.parametrize("reduce", ["mean_of_sims", "sim_of_sum"])
def test_loss_of_gaussians_matches_loop(options, reduce):
    premise, *hypotheses = [DualGaussianEmbedding(*fields) for fields in normal(4, 4, 3, 4, seed=3)]
    loss = DualContrastive(1.0, similarity=GaussianSimilarity(reduce), **options)

    def from_candidate(anchor, i, candidate, j):
        return sim(candidate, j, anchor, i, reduce)

    by_role = dict(zip(HYPOTHESES, hypotheses, strict=True))
    rows = {role: [0, 1, 2] for role in HYPOTHESES}
    want = loop(from_candidate, 1.0, premise, by_role, rows, **options)
    assert loss(premise, *hypotheses).item() == pytest.approx(want, abs=1e-9)


@ablations
@pytest.mark.parametrize(
    "rows",
    [
        {"explicit_entailment": [0, 2, 3], "implied_entailment": [1, 2], "contradiction": [3]},
        {"contradiction": [1, 2]},
        {role: [3, 0, 1, 2] for role in HYPOTHESES},
    ],
)
def test_rows_without_a_hypothesis_lack_its_terms(rows, options):
    premise, *hypotheses = make(4, 5)
    by_role = {}
    for role, hypothesis in zip(HYPOTHESES, hypotheses, strict=True):
        if role in rows:
            by_role[role] = hypothesis[: len(rows[role])]

    numbers = {role: torch.tensor(k) for role, k in rows.items()}
    got = DualContrastive(1.0, **options)(premise, **by_role, rows=numbers)
    want = loop(of_cosines, 1.0, premise, by_role, rows, **options)
    assert got.item() == pytest.approx(want, abs=1e-9)


def test_contradiction_is_required_unless_it_is_off():
    *roles, contradiction = make(3, 4)
    with pytest.raises(ValueError, match="set contradiction=False"):
        DualContrastive()(*roles)

    without = DualContrastive(contradiction=False)
    assert without(*roles).item() == without(*roles, contradiction).item()
