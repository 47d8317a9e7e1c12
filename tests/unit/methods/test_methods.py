"""Every method: finite scalar loss, gradients, one pass for all roles, and the answers evaluation asks for."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from lightning_cse.embeddings import DualEmbedding, DualGaussianEmbedding, GaussianEmbedding, PointEmbedding
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import ConfigError
from lightning_cse.losses import DualContrastive, GaussianContrastive, InfoNCE
from lightning_cse.methods import DualCSE, DualGauss, GaussCSE, Method, Schedule, SimCSE, UnsupervisedSimCSE
from lightning_cse.similarity import GaussianSimilarity, cosine, gaussian_similarity
from lightning_cse.tokens import Tokens

SENTENCES = [
    "The kettle is on, if you would like to stay.",
    "She would rather walk.",
    "Nobody had told the new teacher about the bell.",
    "He fixed the gate before breakfast.",
    "Is the last train gone?",
]


def make(name: str) -> Method:
    common = {"optimizer": partial(torch.optim.AdamW, lr=1e-3), "schedule": Schedule()}
    torch.manual_seed(0)
    if name == "simcse":
        return SimCSE(tiny_encoder(), InfoNCE(), **common)
    if name == "simcse_unsup":
        return UnsupervisedSimCSE(tiny_encoder(), InfoNCE(), **common)
    if name.startswith("gausscse"):
        sets = name.split("_")[1:] or ["ent", "con", "rev"]
        simcse = InfoNCE() if "simcse" in sets else None
        loss = GaussianContrastive(sets=[s for s in sets if s != "simcse"])
        return GaussCSE(tiny_encoder(), loss, simcse=simcse, **common)
    kind, _, architecture = name.partition("_")
    if kind == "dualgauss":
        loss = DualContrastive(similarity=GaussianSimilarity())
        return DualGauss(tiny_encoder(), loss, architecture=architecture, **common)
    return DualCSE(tiny_encoder(), DualContrastive(), architecture=architecture, **common)


def batch(method: Method) -> dict:
    ids = method.encoder.tokenizer(SENTENCES)
    roles = {role: Tokens.pad(ids[k:] + ids[:k]) for k, role in enumerate(method.roles)}
    return {"roles": roles, "index": torch.arange(len(SENTENCES))}


DUAL = ("dualcse_cross", "dualcse_bi", "dualgauss_cross", "dualgauss_bi")
NAMES = (*DUAL, "simcse", "simcse_unsup", "gausscse", "gausscse_ent", "gausscse_ent_simcse")


@pytest.mark.parametrize("name", NAMES)
def test_a_step_gives_a_finite_loss_gradients_and_the_named_outputs(name: str) -> None:
    method = make(name).train()
    outputs = method.training_step(batch(method), 0)
    assert set(outputs) == {"loss", "index", "sentences", "parts", "embeddings"}
    assert outputs["sentences"] == sum(len(next(iter(e.values()))) for e in outputs["embeddings"].values())
    positive = {"positive"} if name == "simcse_unsup" else set()  # the anchor once more
    assert set(outputs["embeddings"]) == set(method.roles) | positive
    outputs["loss"].backward()
    assert outputs["loss"].ndim == 0
    assert torch.isfinite(outputs["loss"])
    without = [n for n, p in method.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert without == [] or all("token_type" in n for n in without), "every parameter learns"


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_does_not_depend_on_the_order_of_rows(name: str) -> None:
    method = make(name).eval()
    given = batch(method)
    order = torch.tensor([3, 1, 4, 0, 2])
    turned = {r: Tokens(t.ids[order], t.mask[order], t.rows) for r, t in given["roles"].items()}
    one = method.training_step(given, 0)["loss"]
    other = method.training_step({"roles": turned, "index": order}, 0)["loss"]
    assert one.item() == pytest.approx(other.item(), rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_embed_agrees_with_encode_and_is_the_same_alone_and_in_company(name: str) -> None:
    method = make(name).eval()
    together = method.embed(SENTENCES)
    for k, sentence in enumerate(SENTENCES):
        alone = method.embed([sentence])
        for view, vectors in alone.views().items():
            torch.testing.assert_close(vectors[0], together.views()[view][k], atol=1e-5, rtol=1e-4)


def test_dualcse_scores_are_the_papers() -> None:
    method = make("dualcse_cross")
    torch.manual_seed(1)
    p, h = (DualEmbedding(torch.randn(6, 4), torch.randn(6, 4)) for _ in range(2))
    want = torch.maximum(cosine(p.explicit, h.explicit), cosine(p.implicit, h.explicit))
    assert torch.equal(method.entailment_score(p, h), want)
    assert torch.equal(method.implicitness(p), 1 - cosine(p.explicit, p.implicit).double())
    assert torch.equal(method.similarity(p, h), method.similarity(h, p))


def test_dualgauss_scores_are_dualcses_with_the_similarity_of_gausscse() -> None:
    method = make("dualgauss_cross")
    torch.manual_seed(1)
    p, h = (DualGaussianEmbedding(*torch.randn(4, 6, 5)) for _ in range(2))
    want = torch.maximum(gaussian_similarity(h.explicit, p.explicit), gaussian_similarity(h.explicit, p.implicit))
    assert torch.equal(method.entailment_score(p, h), want)
    assert not torch.equal(method.entailment_score(h, p), want), "entailment has a direction"
    assert torch.equal(method.implicitness(p), 1 - gaussian_similarity(p.implicit, p.explicit).double())
    assert torch.equal(method.similarity(p, h), method.similarity(h, p))
    assert torch.equal(method.log_determinant(p), p.explicit_log_variance.sum(1))


def test_implicitness_does_not_tie_where_similarities_are_small() -> None:
    method = make("dualgauss_cross")
    method.compare = GaussianSimilarity("sim_of_sum").rows
    torch.manual_seed(1)
    far = DualGaussianEmbedding(*(torch.randn(200, 64) * scale for scale in (1, 6, 1, 6)))
    similarities = GaussianSimilarity("sim_of_sum").rows(far.explicit, far.implicit)
    assert similarities.max() < 1e-5
    assert len(method.implicitness(far).unique()) == len(similarities.unique())


@pytest.mark.parametrize(
    ("kind", "similarity", "needed"),
    [(DualCSE, GaussianSimilarity(), "CosineSimilarity"), (DualGauss, None, "GaussianSimilarity")],
)
def test_a_similarity_of_the_wrong_kind_is_refused(kind: type, similarity: object, needed: str) -> None:
    common = {"optimizer": partial(torch.optim.AdamW, lr=1e-3), "schedule": Schedule()}
    with pytest.raises(ConfigError, match=rf"method\.loss\.similarity: {kind.__name__} needs a {needed}, got a "):
        kind(tiny_encoder(), DualContrastive(similarity=similarity), **common)


def test_checkpoints_of_gausscse_from_before_its_heads_were_a_module_fit() -> None:
    method, other = make("gausscse"), make("gausscse_ent")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    before = {name.replace("heads.", ""): value for name, value in method.state_dict().items()}
    assert before.keys() != method.state_dict().keys()
    other.load_state_dict(before)
    assert all(torch.equal(a, b) for a, b in zip(method.parameters(), other.parameters(), strict=True))


def test_dualgauss_has_a_pair_of_heads_for_each_encoder() -> None:
    cross, bi = make("dualgauss_cross"), make("dualgauss_bi")
    assert cross.implicit_heads is None
    assert not {id(p) for p in bi.heads.parameters()} & {id(p) for p in bi.implicit_heads.parameters()}


@pytest.mark.parametrize("name", DUAL)
def test_a_step_of_rows_that_lack_roles_is_the_loss_of_those_they_have(name: str) -> None:
    method = make(name).eval()
    given = batch(method)
    own = {"explicit_entailment": [0, 3], "implied_entailment": [], "contradiction": [1, 2, 4]}
    for role, rows in own.items():
        tokens = given["roles"][role].select(torch.tensor(rows, dtype=torch.long))
        given["roles"][role] = tokens
    outputs = method.training_step(given, 0)
    assert set(outputs["embeddings"]) == {"premise", "explicit_entailment", "contradiction"}
    assert outputs["sentences"] == 5 + 2 + 3
    premise, explicit, contradiction = method.encode(
        *(given["roles"][role] for role in ("premise", "explicit_entailment", "contradiction"))
    )
    rows = {"explicit_entailment": torch.tensor([0, 3]), "contradiction": torch.tensor([1, 2, 4])}
    want = method.loss(premise, explicit, contradiction=contradiction, rows=rows)
    assert outputs["loss"].item() == pytest.approx(want.item(), rel=1e-5)


def test_contradictions_that_the_loss_does_not_use_are_not_asked_for() -> None:
    common = {"optimizer": partial(torch.optim.AdamW, lr=1e-3), "schedule": Schedule()}
    method = DualCSE(tiny_encoder(), DualContrastive(contradiction=False), **common)
    assert method.roles == DualCSE.roles[:3]
    assert set(method.training_step(batch(method), 0)["embeddings"]) == set(method.roles)


def test_cross_reads_the_word_and_bi_has_two_encoders() -> None:
    cross, bi = make("dualcse_cross"), make("dualcse_bi")
    word = cross.encoder.tokenizer(["implicit"])[0]
    assert list(cross.implicit_template.suffix[-1 - len(word) : -1]) == word
    assert cross.implicit_encoder is None
    assert bi.explicit_template == bi.implicit_template
    same = all(
        torch.equal(a, b) for a, b in zip(bi.encoder.parameters(), bi.implicit_encoder.parameters(), strict=True)
    )
    assert same, "both start from the same weights"
    assert not {id(p) for p in bi.encoder.parameters()} & {id(p) for p in bi.implicit_encoder.parameters()}


def test_simcse_scores_are_cosines() -> None:
    method = make("simcse")
    torch.manual_seed(1)
    a, b = (PointEmbedding(torch.randn(6, 4)) for _ in range(2))
    assert torch.equal(method.entailment_score(a, b), cosine(a.vector, b.vector))
    assert not hasattr(method, "implicitness")


def test_the_schedule_warms_up_and_falls_to_zero() -> None:
    schedule = Schedule(warmup=0.2)
    factors = [schedule(step, total=10) for step in range(11)]
    assert factors[:2] == pytest.approx([1 / 3, 2 / 3])
    assert factors[2] == 1
    assert factors[-1] == 0
    assert Schedule("constant")(9, total=10) == 1


@pytest.mark.parametrize(("options", "part"), [({"name": "linea"}, "did you mean 'linear'"), ({"warmup": 1.5}, "1.5")])
def test_a_wrong_schedule_is_told(options: dict, part: str) -> None:
    with pytest.raises(Exception, match=part):
        Schedule(**options)


def gaussians(n: int = 6, d: int = 4) -> GaussianEmbedding:
    return GaussianEmbedding(torch.randn(n, d), torch.randn(n, d))


def test_gausscse_scores_a_hypothesis_against_its_premise() -> None:
    method = make("gausscse")
    torch.manual_seed(1)
    premise, hypothesis = gaussians(), gaussians()
    variance_ratio = (hypothesis.log_variance - premise.log_variance).exp()
    shift = (hypothesis.mean - premise.mean) ** 2 / premise.log_variance.exp()
    kl = 0.5 * (variance_ratio + shift - 1 - variance_ratio.log())
    torch.testing.assert_close(method.entailment_score(premise, hypothesis), (1 / (1 + kl)).mean(dim=1))
    torch.testing.assert_close(method.log_determinant(premise), premise.log_variance.sum(dim=1))
    assert torch.equal(method.similarity(premise, hypothesis), cosine(premise.mean, hypothesis.mean))


def test_gausscse_compares_symmetrically_where_asked() -> None:
    loss = GaussianContrastive(reduce="sim_of_sum")
    options = {"optimizer": partial(torch.optim.AdamW, lr=1e-3), "schedule": Schedule()}
    method = GaussCSE(tiny_encoder(), loss, sts_similarity="symmetric", **options)
    torch.manual_seed(1)
    a, b = gaussians(), gaussians()
    torch.testing.assert_close(method.similarity(a, b), method.similarity(b, a))
    assert not torch.allclose(method.entailment_score(a, b), method.entailment_score(b, a))
    with pytest.raises(ConfigError, match=r"method\.sts_similarity: 'symetric' .*did you mean 'symmetric'"):
        GaussCSE(tiny_encoder(), loss, sts_similarity="symetric", **options)


def test_gausscse_encodes_a_contradiction_only_where_it_is_used() -> None:
    assert make("gausscse_ent_rev").roles == make("gausscse_ent").roles == ("premise", "entailment")
    assert make("gausscse_ent_con").roles == make("gausscse_ent_simcse").roles
    assert make("gausscse_ent_con").roles == ("premise", "entailment", "contradiction")


def test_the_means_of_gausscse_are_bounded_and_its_heads_start_apart() -> None:
    method = make("gausscse").eval()
    embedding = method.embed(SENTENCES)
    assert embedding.mean.abs().max() < 1
    assert not torch.allclose(method.heads.mean[0].weight, method.heads.log_variance.weight)


def test_gausscse_adds_simcse_on_the_means() -> None:
    torch.manual_seed(0)
    with_it = make("gausscse_ent_con_simcse").eval()
    given = batch(with_it)
    p, e, c = with_it.encode(*(given["roles"][role] for role in with_it.roles))
    want = with_it.loss(p, e, c) + InfoNCE()(p.mean, e.mean, c.mean)
    torch.testing.assert_close(with_it.training_step(given, 0)["loss"], want)


def test_unsupervised_simcse_sees_two_masks_in_training_and_no_head_at_test() -> None:
    method = make("simcse_unsup").train()
    given = batch(method)
    step = method.training_step(given, 0)["embeddings"]
    assert not torch.allclose(step["anchor"]["vector"], step["positive"]["vector"])
    method.eval()
    (vector,) = method.pooled(given["roles"]["anchor"])
    assert torch.equal(method.encode(given["roles"]["anchor"])[0].vector, vector)
    assert not torch.allclose(method.project(vector), vector)
    supervised = make("simcse").eval()
    (vector,) = supervised.pooled(given["roles"]["anchor"])
    assert torch.equal(supervised.encode(given["roles"]["anchor"])[0].vector, supervised.project(vector))
