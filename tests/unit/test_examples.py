"""The geometries, losses and the task under examples/: formulas against closed forms and loops."""

import importlib
import math
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from oracles import normal

from lightning_cse.data.rows import dataset_of
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import ConfigError
from lightning_cse.losses import InfoNCE
from lightning_cse.methods import Schedule
from lightning_cse.models import PointModel
from lightning_cse.tokens import Tokens


@pytest.fixture(scope="module")
def example(repository):
    """Import a module of an example, whose folder is on the path for these tests only."""
    folders = [
        str(repository / "examples" / name)
        for name in ("entailment_geometry", "hierarchy", "losses")
    ]
    sys.path[:0] = folders
    names = ("boxes", "poincare", "entailment", "hierarchy", "matryoshka", "distillation")
    yield importlib.import_module
    for folder in folders:
        sys.path.remove(folder)

    for name in names:
        sys.modules.pop(name, None)


# The Poincaré ball ---------------------------------------------------------------------------


def length(x):
    return math.sqrt(sum(number * number for number in x.tolist()))


def hyperbolic(a, b):
    """The distance of two points by its formula."""
    room = (1 - length(a) ** 2) * (1 - length(b) ** 2)
    return math.acosh(1 + 2 * length(a - b) ** 2 / room)


def test_a_vector_leads_to_a_point_at_twice_its_length(example):
    poincare = example("poincare")
    tangents = normal(6, 3)
    points = poincare.exponential(tangents)
    for tangent, point in zip(tangents, points, strict=True):
        assert torch.allclose(point / length(point), tangent / length(tangent))
        origin = torch.zeros(3, dtype=torch.float64)
        assert poincare.distance(origin, point).item() == pytest.approx(
            2 * length(tangent), rel=1e-5
        )

    assert poincare.exponential(100 * tangents).norm(dim=-1).max() == pytest.approx(1 - 1e-3)
    assert torch.equal(poincare.exponential(0 * tangents), 0 * tangents)


def test_scores_match_a_loop_and_prefer_general_hypotheses(example):
    poincare = example("poincare")
    premises = poincare.PoincareEmbedding(poincare.exponential(normal(4, 3) / 2))
    hypotheses = poincare.PoincareEmbedding(poincare.exponential(normal(5, 3, seed=1) / 2))
    matrix = poincare.log_entailment_matrix(premises, hypotheses)
    for i, p in enumerate(premises.point):
        for j, h in enumerate(hypotheses.point):
            want = -(1 + length(h) - length(p)) * hyperbolic(p, h)
            assert matrix[i, j].item() == pytest.approx(want, rel=1e-6)

    ray = torch.tensor([[0.3, 0.0], [0.8, 0.0]])
    general, special = ray[:1], ray[1:]
    assert poincare.log_entailment(special, general) > poincare.log_entailment(general, special)


def test_gradients_are_finite_for_equal_points_and_at_the_rim(example):
    poincare = example("poincare")
    tangents = torch.tensor([[0.0, 0.0], [50.0, 0.0], [50.0, 0.0]], requires_grad=True)
    points = poincare.exponential(tangents)
    poincare.log_entailment(points[:, None], points).sum().backward()
    assert tangents.grad.isfinite().all()


# Boxes, and the loss of both -----------------------------------------------------------------


def test_a_box_within_another_lies_in_it_wholly(example):
    boxes = example("boxes")
    center = torch.zeros(1, 3)
    inner = boxes.BoxEmbedding(center, torch.full((1, 3), -1.0))
    outer = boxes.BoxEmbedding(center, torch.full((1, 3), 1.0))
    share = boxes.log_overlap_matrix(inner, outer).exp()
    back = boxes.log_overlap_matrix(outer, inner).exp()
    assert share.item() == pytest.approx(1.0)
    size = [math.log1p(math.exp(math.exp(x))) for x in (-1.0, 1.0)]
    assert back.item() == pytest.approx(size[0] / size[1])


@pytest.mark.parametrize("reverse", [True, False])
def test_loss_matches_a_loop(reverse, example):
    def score(a, b):
        return a.vector @ b.vector.T - a.vector.norm(dim=1)[:, None]

    loss = example("entailment").EntailmentContrastive(score, 0.5, reverse=reverse)
    premise, entailment, contradiction = (PointEmbedding(x) for x in normal(3, 4, 3))
    total = 0.0
    for i, p in enumerate(premise.vector):
        norm = length(p)
        scores = [float(p @ x) - norm for x in (*entailment.vector, *contradiction.vector)]
        if reverse:
            scores += [float(p @ h) - length(h) for h in entailment.vector]

        total += math.log(sum(math.exp(s / 0.5) for s in scores)) - scores[i] / 0.5

    result = loss(premise, entailment, contradiction)
    assert result.item() == pytest.approx(total / 4, rel=1e-9)


@pytest.mark.parametrize(("module", "name"), [("boxes", "BoxModel"), ("poincare", "PoincareModel")])
def test_rows_are_scored_as_the_matrix_that_is_trained(module, name, example):
    geometry = example(module)
    torch.manual_seed(0)
    model = getattr(geometry, name)(tiny_encoder(pooling="mean")).eval()
    ids = model.encoder.tokenizer(["A dog runs.", "An animal moves.", "It rains."])
    premise, hypothesis = model.encode(Tokens.pad(ids), Tokens.pad(ids[1:] + ids[:1]))
    matrix = {"boxes": "log_overlap_matrix", "poincare": "log_entailment_matrix"}[module]
    trained = getattr(geometry, matrix)(premise, hypothesis).exp()
    score = model.entailment_score(premise, hypothesis)
    assert torch.allclose(trained.diagonal(), score)
    assert ((score > 0) & (score <= 1)).all()
    assert torch.allclose(
        model.similarity(premise, hypothesis), model.similarity(hypothesis, premise)
    )


# Losses --------------------------------------------------------------------------------------


def test_matryoshka_is_the_mean_over_vectors_cut_by_hand(example):
    loss = InfoNCE(temperature=0.5)
    anchor, positive = normal(2, 4, 8)
    by_hand = [loss(anchor[:, :width], positive[:, :width]).item() for width in (8, 4, 2)]
    cut = example("matryoshka").Matryoshka(loss, [1.0, 0.5, 0.25])
    result = cut(anchor=anchor, positive=positive)
    assert result.item() == pytest.approx(sum(by_hand) / 3, rel=1e-9)


def test_distillation_matches_a_loop_and_is_zero_for_the_teacher_itself(example):
    loss = example("distillation").SimilarityDistillation(temperature=0.5)
    student, teacher = normal(2, 3, 3)
    total = 0.0
    for own, target in zip(student.tolist(), teacher.tolist(), strict=True):
        p, q = ([math.exp(x / 0.5) for x in row] for row in (target, own))
        p, q = ([x / sum(row) for x in row] for row in (p, q))
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))

    assert loss(student, teacher).item() == pytest.approx(total / 3, rel=1e-9)
    assert loss(teacher, teacher).item() == pytest.approx(0.0, abs=1e-12)


def test_teacher_is_in_no_checkpoint_and_has_the_same_tokenizer(example, monkeypatch):
    distillation = example("distillation")
    teacher = PointModel(tiny_encoder(pooling="mean"))
    loaded = SimpleNamespace(answers=teacher)
    monkeypatch.setattr(distillation.lightning_cse, "load", lambda *_, **__: loaded)

    def method():
        return distillation.DistilledSimCSE(
            tiny_encoder(pooling="mean"),
            InfoNCE(),
            teacher="large",
            distillation=distillation.SimilarityDistillation(0.05),
            weight=1.0,
            optimizer=partial(torch.optim.AdamW, lr=1e-3),
            schedule=Schedule(),
        )

    trained = set(map(id, method().parameters()))
    assert not any("teacher" in name for name in method().state_dict())
    assert not trained & set(map(id, teacher.parameters()))

    teacher.encoder.tokenizer.digest = "another"
    with pytest.raises(ConfigError, match="large has another tokenizer"):
        method()


# The hierarchy -------------------------------------------------------------------------------


class Known:
    """A model that knows how near each hypothesis is."""

    def __init__(self, near):
        self.near = near

    def embed(self, sentences):
        return PointEmbedding(torch.tensor([[self.near.get(s, 0.0)] for s in sentences]))

    def similarity(self, a, b):
        return b.vector[:, 0]


def test_hierarchy_counts_premises_whose_hypotheses_are_in_order(example, tmp_path):
    hierarchy = example("hierarchy")
    from lightning_cse.baselines.length import Length
    from lightning_cse.evaluation import Embedded

    rows = dataset_of(
        {
            "premise": ["p one", "p two", "p three"],
            "explicit_entailment": ["a1", "a2", "a3"],
            "implied_entailment": ["b1", "b2", "b3"],
            "neutral": ["c1", "c2", "c3"],
            "contradiction": ["d1", "d2", "d3"],
        }
    )
    task = hierarchy.Hierarchy(data_dir=str(tmp_path), question="similarity")
    task.rows = lambda split: hierarchy.pairs_of(rows)
    near = {"a1": 3.0, "b1": 2.0, "c1": 1.0, "a2": 3.0, "b2": 1.0, "c2": 2.0, "a3": 1.0}
    model = Known(near)  # the third premise: 1, 0, 0, and a tie is wrong
    assert task.suits(model)
    assert not hierarchy.Hierarchy(data_dir=str(tmp_path)).suits(model)
    sentences = [*rows["premise"], *hierarchy.pairs_of(rows)["hypothesis"]]
    metrics = task.evaluate(Embedded(model, sentences), "test").metrics
    assert metrics["ordered"] == pytest.approx(1 / 3)
    assert metrics["explicit_first"] == 1.0
    assert metrics["implied_first"] == pytest.approx(1 / 3)

    levels = [2, 2, 2, 1, 1, 1, 0, 0, 0]
    result = task.evaluate(Embedded(model, sentences), "test")
    assert result.predictions["level"] == levels
    assert result.predictions["score"] == [3, 3, 1, 2, 1, 0, 1, 2, 0]

    length_of = task.evaluate(Embedded(Length(), sentences), "test").predictions["score"]
    assert length_of[0] == -abs(len("p one") - len("a1"))
