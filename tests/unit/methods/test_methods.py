"""Every method: finite scalar loss, gradients, named outputs, and which roles it embeds."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from oracles import SENTENCES
from transformers import get_linear_schedule_with_warmup

from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import ConfigError
from lightning_cse.losses import DualContrastive, GaussianContrastive, InfoNCE
from lightning_cse.methods import (
    DualCSE,
    DualGauss,
    GaussCSE,
    Method,
    Schedule,
    SimCSE,
    UnsupervisedSimCSE,
)
from lightning_cse.similarity import GaussianSimilarity
from lightning_cse.tokens import Tokens

COMMON: dict[str, Any] = {"optimizer": partial(torch.optim.AdamW, lr=1e-3), "schedule": Schedule()}


def make(name: str) -> Method:
    torch.manual_seed(0)
    if name == "simcse":
        return SimCSE(tiny_encoder(), InfoNCE(), **COMMON)
    if name == "simcse_unsup":
        return UnsupervisedSimCSE(tiny_encoder(), InfoNCE(), **COMMON)
    if name.startswith("gausscse"):
        sets = name.split("_")[1:] or ["ent", "con", "rev"]
        simcse = InfoNCE() if "simcse" in sets else None
        loss = GaussianContrastive(sets=[s for s in sets if s != "simcse"])
        return GaussCSE(tiny_encoder(), loss, simcse=simcse, **COMMON)
    kind, _, architecture = name.partition("_")
    if kind == "dualgauss":
        loss = DualContrastive(similarity=GaussianSimilarity())
        return DualGauss(tiny_encoder(), loss, architecture=architecture, **COMMON)
    return DualCSE(tiny_encoder(), DualContrastive(), architecture=architecture, **COMMON)


def batch(method: Method) -> dict:
    ids = method.model.encoder.tokenizer(SENTENCES)
    roles = {role: Tokens.pad(ids[k:] + ids[:k]) for k, role in enumerate(method.roles)}
    return {"roles": roles, "index": torch.arange(len(SENTENCES))}


DUAL = ("dualcse_cross", "dualcse_bi", "dualgauss_cross", "dualgauss_bi")
NAMES = (*DUAL, "simcse", "simcse_unsup", "gausscse", "gausscse_ent", "gausscse_ent_simcse")


@pytest.mark.parametrize("name", NAMES)
def test_a_step_gives_a_finite_loss_gradients_and_the_named_outputs(name: str) -> None:
    method = make(name).train()
    outputs = method.training_step(batch(method), 0)
    assert set(outputs) == {"loss", "index", "sentences", "parts", "embeddings"}
    assert outputs["sentences"] == sum(
        len(next(iter(e.values()))) for e in outputs["embeddings"].values()
    )
    positive = {"positive"} if name == "simcse_unsup" else set()  # the anchor once more
    assert set(outputs["embeddings"]) == set(method.roles) | positive
    outputs["loss"].backward()
    assert outputs["loss"].ndim == 0
    assert torch.isfinite(outputs["loss"])
    without = [
        n for n, p in method.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0
    ]
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


@pytest.mark.parametrize(
    ("kind", "similarity", "needed"),
    [(DualCSE, GaussianSimilarity(), "CosineSimilarity"), (DualGauss, None, "GaussianSimilarity")],
)
def test_a_similarity_of_the_wrong_kind_is_refused(
    kind: type, similarity: object, needed: str
) -> None:
    with pytest.raises(
        ConfigError, match=rf"method\.loss\.similarity: {kind.__name__} needs a {needed}, got a "
    ):
        kind(tiny_encoder(), DualContrastive(similarity=similarity), **COMMON)


@pytest.mark.parametrize("kind", ["sim_of_sum", "mean_of_sims"])
def test_the_model_compares_as_the_loss_does(kind: str) -> None:
    dual = DualGauss(tiny_encoder(), DualContrastive(similarity=GaussianSimilarity(kind)), **COMMON)
    single = GaussCSE(tiny_encoder(), GaussianContrastive(reduce=kind), **COMMON)
    assert dual.model.settings()["reduce"] == single.model.settings()["reduce"] == kind


@pytest.mark.parametrize("name", DUAL)
def test_a_step_of_rows_that_lack_roles_is_the_loss_of_those_they_have(name: str) -> None:
    method = make(name).eval()
    given = batch(method)
    own = {"explicit_entailment": [0, 3], "implied_entailment": [], "contradiction": [1, 2, 4]}
    for role, rows in own.items():
        given["roles"][role] = given["roles"][role].select(torch.tensor(rows, dtype=torch.long))
    outputs = method.training_step(given, 0)
    assert set(outputs["embeddings"]) == {"premise", "explicit_entailment", "contradiction"}
    assert outputs["sentences"] == 5 + 2 + 3
    premise, explicit, contradiction = method.model.encode(
        *(given["roles"][role] for role in ("premise", "explicit_entailment", "contradiction"))
    )
    rows = {"explicit_entailment": torch.tensor([0, 3]), "contradiction": torch.tensor([1, 2, 4])}
    want = method.loss(premise, explicit, contradiction=contradiction, rows=rows)
    assert outputs["loss"].item() == pytest.approx(want.item(), rel=1e-5)


def test_contradictions_that_the_loss_does_not_use_are_not_encoded() -> None:
    method = DualCSE(tiny_encoder(), DualContrastive(contradiction=False), **COMMON)
    assert method.roles == DualCSE.roles[:3]
    assert set(method.training_step(batch(method), 0)["embeddings"]) == set(method.roles)
    assert make("gausscse_ent_rev").roles == make("gausscse_ent").roles == ("premise", "entailment")
    assert make("gausscse_ent_con").roles == make("gausscse_ent_simcse").roles
    assert make("gausscse_ent_con").roles == ("premise", "entailment", "contradiction")


def test_the_schedule_warms_up_and_falls_to_zero() -> None:
    for warmup, total in (
        (0.1, 57),
        (0.1, 9),
        (0.25, 8),
        (0.0, 5),
        (0.1, 1),
    ):  # as the authors of GaussCSE call it
        optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=1.0)
        theirs = get_linear_schedule_with_warmup(optimizer, int(warmup * total), total).lr_lambdas[
            0
        ]
        ours = [Schedule(warmup=warmup)(step, total=total) for step in range(total + 1)]
        assert ours == [theirs(step) for step in range(total + 1)]
    rising = [Schedule(warmup=1)(step, total=5) for step in range(5)]
    assert rising == [0, 0.25, 0.5, 0.75, 1], (
        "0 at the first step, the set value at the last: GaussCSE's paper"
    )
    assert Schedule("constant")(9, total=10) == 1
    with pytest.raises(ConfigError, match=r"1\.5"):
        Schedule(warmup=1.5)


def test_gausscse_adds_simcse_on_the_means() -> None:
    with_it = make("gausscse_ent_con_simcse").eval()
    given = batch(with_it)
    p, e, c = with_it.model.encode(*(given["roles"][role] for role in with_it.roles))
    want = with_it.loss(p, e, c) + InfoNCE()(p.mean, e.mean, c.mean)
    torch.testing.assert_close(with_it.training_step(given, 0)["loss"], want)


def test_unsupervised_simcse_sees_two_masks_in_training_and_no_head_at_test() -> None:
    method = make("simcse_unsup").train()
    given = batch(method)
    step = method.training_step(given, 0)["embeddings"]
    assert not torch.allclose(step["anchor"]["vector"], step["positive"]["vector"])
    method.eval()
    pooled = method.model.pooled(given["roles"]["anchor"])[0]
    assert torch.equal(pooled, method.model.encode(given["roles"]["anchor"])[0].vector)
    anchor = method.training_step(given, 0)["embeddings"]["anchor"]["vector"]
    assert torch.equal(anchor, method.head(pooled).detach())
    supervised = make("simcse").eval()  # whose head stays
    assert not torch.equal(pooled, supervised.model.encode(given["roles"]["anchor"])[0].vector)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("algorithm", ["norm", "value", None])
def test_gradients_are_clipped_without_the_scale_of_float16(
    fused: bool, algorithm: str | None
) -> None:
    method = make("simcse").eval()  # without dropout
    parameters = [parameter for parameter in method.parameters() if parameter.requires_grad]
    method.training_step(batch(method), 0)["loss"].backward()
    want = [parameter.grad.clone() for parameter in parameters]
    method.zero_grad()
    optimizer, scaler = (
        torch.optim.AdamW(parameters, fused=fused),
        torch.amp.GradScaler("cpu", init_scale=1024.0),
    )
    method._trainer = SimpleNamespace(precision_plugin=SimpleNamespace(scaler=scaler))
    scaler.scale(method.training_step(batch(method), 0)["loss"]).backward()
    if not fused:
        scaler.unscale_(optimizer)  # as Lightning does
    method.configure_gradient_clipping(optimizer, 0.01, algorithm)
    if algorithm == "value":
        want = [gradient.clamp(-0.01, 0.01) for gradient in want]
    else:
        norm = torch.stack([gradient.norm() for gradient in want]).norm()
        want = [gradient * 0.01 / norm for gradient in want]
    for parameter, gradient in zip(parameters, want, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-7)
    assert scaler.step(optimizer) is None
