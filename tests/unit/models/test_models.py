"""Every model: embeddings, questions against formulas of their own, building it again from its
settings.
"""

import math

import pytest
import torch
from oracles import SENTENCES

from lightning_cse.embeddings import DualEmbedding, DualGaussianEmbedding, GaussianEmbedding
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import EncoderError
from lightning_cse.models import (
    DualGaussianModel,
    DualModel,
    GaussianModel,
    ImpScoreModel,
    PointModel,
    build,
)
from lightning_cse.similarity import cosine, gaussian_similarity
from lightning_cse.tokens import Tokens

MAPS = ("p2s", "s2p", "third_space")
MODELS = [
    (PointModel, {}),
    (PointModel, {"has_head": True}),
    (GaussianModel, {"reduce": "sim_of_sum", "sts_similarity": "symmetric"}),
    (DualModel, {"architecture": "cross"}),
    (DualModel, {"architecture": "bi"}),
    (DualGaussianModel, {"architecture": "cross", "reduce": "sim_of_sum"}),
    (DualGaussianModel, {"architecture": "bi"}),
    (ImpScoreModel, {"dim": 8, "space": "third_space"}),
    (ImpScoreModel, {"dim": 8, "frozen": False, "normalize": False, "pragmatic_metric": "cosine"}),
]


def make(model_class, **options):
    torch.manual_seed(0)
    return model_class(tiny_encoder(), **options).eval()


def tokens(model, sentences=SENTENCES):
    return Tokens.pad(model.encoder.tokenizer(sentences))


# All models


@pytest.mark.parametrize(("model_class", "options"), MODELS)
def test_settings_and_weights_build_the_same_model_again(model_class, options):
    model = make(model_class, **options)
    settings = model.settings()
    assert settings["_target_"] == f"{model_class.__module__}.{model_class.__name__}"
    assert {key: settings[key] for key in options} == options
    assert all(isinstance(value, str | int | bool) for value in settings.values())
    torch.manual_seed(1)
    rebuilt = build(tiny_encoder(), settings).eval()
    assert type(rebuilt) is model_class
    assert rebuilt.settings() == settings
    rebuilt.load_state_dict(model.state_dict())
    torch.testing.assert_close(
        rebuilt.embed(SENTENCES).fields(), model.embed(SENTENCES).fields(), atol=0, rtol=0
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"_target_": "no_such_module.Model"},
        {"_target_": "lightning_cse.models.PointModel", "tanh": True},
        {"_target_": "timeit:timeit"},
    ],
)
def test_build_refuses_unknown_models_and_calls_no_other_code(settings, monkeypatch):
    monkeypatch.setattr("timeit.timeit", lambda *_: pytest.fail("it was called"))
    with pytest.raises(EncoderError, match=r"cannot be imported or built|is in no module"):
        build(tiny_encoder(), settings)


# Gaussians


def gaussians(n=6, d=4):
    return GaussianEmbedding(*torch.randn(2, n, d, dtype=torch.float64))


def test_a_hypothesis_is_scored_against_its_premise():
    model = make(GaussianModel)
    torch.manual_seed(1)
    premise, hypothesis = gaussians(), gaussians()
    variance_ratio = (hypothesis.log_variance - premise.log_variance).exp()
    shift = (hypothesis.mean - premise.mean) ** 2 / premise.log_variance.exp()
    kl = 0.5 * (variance_ratio + shift - 1 - variance_ratio.log())
    torch.testing.assert_close(
        model.entailment_score(premise, hypothesis), (1 / (1 + kl)).mean(dim=1)
    )
    torch.testing.assert_close(model.log_determinant(premise), premise.log_variance.sum(dim=1))
    assert torch.equal(model.similarity(premise, hypothesis), cosine(premise.mean, hypothesis.mean))


# Two vectors or two Gaussians


def test_dual_scores_are_the_papers():
    model = make(DualModel)
    torch.manual_seed(1)
    p, h = (DualEmbedding(torch.randn(6, 4), torch.randn(6, 4)) for _ in range(2))
    want = torch.maximum(cosine(p.explicit, h.explicit), cosine(p.implicit, h.explicit))
    assert torch.equal(model.entailment_score(p, h), want)
    assert torch.equal(model.implicitness(p), 1 - cosine(p.explicit, p.implicit).double())


def test_dual_gaussian_scores_are_the_same_with_the_similarity_of_gaussians():
    model = make(DualGaussianModel)
    torch.manual_seed(1)
    p, h = (DualGaussianEmbedding(*torch.randn(4, 6, 5)) for _ in range(2))
    want = torch.maximum(
        gaussian_similarity(h.explicit, p.explicit), gaussian_similarity(h.explicit, p.implicit)
    )
    assert torch.equal(model.entailment_score(p, h), want)
    assert not torch.equal(model.entailment_score(h, p), want), "entailment has a direction"
    assert torch.equal(
        model.implicitness(p), 1 - gaussian_similarity(p.implicit, p.explicit).double()
    )
    assert torch.equal(model.log_determinant(p), p.explicit_log_variance.sum(1))


# ImpScore


def by_hand(a, b, metric):
    a, b = a.double(), b.double()
    if metric == "euclidean":
        return math.sqrt(float(((a - b) ** 2).sum()))

    return 1 - float(a @ b / (a @ a).sqrt() / (b @ b).sqrt())


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("direction", MAPS)
def test_implicitness_and_pragmatic_distance_are_the_papers(direction, metric):
    metrics = {"implicitness_metric": metric, "pragmatic_metric": metric}
    model = make(ImpScoreModel, dim=8, space=direction, **metrics)
    (x,) = model.encoder([(tokens(model), model.encoder.template())])
    x = x / x.norm(dim=1, keepdim=True)
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    p = x @ weights["pragmatic.weight"].T
    s = x @ weights["semantic.weight"].T
    mapped_p = p if direction == "s2p" else p @ weights["from_pragmatic.weight"].T
    mapped_s = s if direction == "p2s" else s @ weights["from_semantic.weight"].T
    got = model.embed(SENTENCES)
    want = [by_hand(*pair, metric) for pair in zip(mapped_s, mapped_p, strict=True)]
    assert model.implicitness(got).tolist() == pytest.approx(want, abs=1e-4)
    order = torch.tensor([2, 0, 1, 4, 3])
    apart = [-by_hand(*pair, metric) for pair in zip(p, p[order], strict=True)]
    assert model.similarity(got, got[order]).tolist() == pytest.approx(apart, abs=1e-4)
