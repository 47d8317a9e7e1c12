"""Every method: finite scalar loss, gradients, named outputs, and which roles it embeds."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from oracles import SENTENCES
from transformers import get_linear_schedule_with_warmup

from lightning_cse.encoders import FeatureCutoff, ShuffledPositions, tiny_encoder
from lightning_cse.losses import DualContrastive, GaussianContrastive, InfoNCE, NTXent
from lightning_cse.methods import (
    ConSERT,
    DualCSE,
    DualGauss,
    GaussCSE,
    InfoCSE,
    PromptBERT,
    Schedule,
    SimCSE,
    UnsupervisedSimCSE,
)
from lightning_cse.similarity import GaussianSimilarity
from lightning_cse.tokens import Tokens

COMMON = {"optimizer": partial(torch.optim.AdamW, lr=1e-3), "schedule": Schedule()}


def make(name):
    torch.manual_seed(0)
    if name == "simcse":
        return SimCSE(tiny_encoder(), InfoNCE(), **COMMON)

    if name == "simcse_unsup":
        return UnsupervisedSimCSE(tiny_encoder(), InfoNCE(), **COMMON)

    if name == "promptbert":
        return PromptBERT(tiny_encoder(pooling="prompt"), InfoNCE(), **COMMON)

    if name == "infocse":
        return InfoCSE(tiny_encoder(), InfoNCE(), weight=0.1, share=0.4, **COMMON)

    if name == "consert":
        return ConSERT(
            tiny_encoder(pooling="last_two"),
            NTXent(),
            first=FeatureCutoff(0.2),
            second=ShuffledPositions(),
            **COMMON,
        )

    if name.startswith("gausscse"):
        sets = name.split("_")[1:] or ["ent", "con", "rev"]
        simcse = InfoNCE() if "simcse" in sets else None
        loss = GaussianContrastive(sets=[s for s in sets if s != "simcse"])

        return GaussCSE(tiny_encoder(), loss, simcse=simcse, **COMMON)

    method_name, _, architecture = name.partition("_")
    if method_name == "dualgauss":
        loss = DualContrastive(similarity=GaussianSimilarity())
        return DualGauss(tiny_encoder(), loss, architecture=architecture, **COMMON)

    return DualCSE(tiny_encoder(), DualContrastive(), architecture=architecture, **COMMON)


def batch(method):
    ids = method.model.encoder.tokenizer(SENTENCES)
    roles = {role: Tokens.pad(ids[k:] + ids[:k]) for k, role in enumerate(method.roles)}
    return {"roles": roles, "index": torch.arange(len(SENTENCES))}


DUAL = ("dualcse_cross", "dualcse_bi", "dualgauss_cross", "dualgauss_bi")
TWO_VIEWS = ("simcse_unsup", "promptbert", "consert", "infocse")
NAMES = (*DUAL, *TWO_VIEWS, "simcse", "gausscse", "gausscse_ent", "gausscse_ent_simcse")


@pytest.mark.parametrize("name", NAMES)
def test_step_has_a_finite_loss_gradients_and_named_outputs(name):
    method = make(name).train()
    outputs = method.training_step(batch(method), 0)
    embeddings = outputs["embeddings"]
    second_pass = {"positive"} if name in TWO_VIEWS else set()
    assert set(embeddings) == set(method.roles) | second_pass
    assert outputs["sentences"] == len(embeddings) * len(SENTENCES)
    assert outputs["loss"].ndim == 0
    assert torch.isfinite(outputs["loss"])
    outputs["loss"].backward()
    for parameter_name, parameter in method.named_parameters():
        learns = parameter.grad is not None and bool(parameter.grad.any())
        assert learns or "token_type" in parameter_name


@pytest.mark.parametrize("name", ["dualcse_bi", "dualgauss_cross"])
def test_step_of_rows_without_roles_is_the_loss_of_the_others(name):
    method = make(name).eval()
    roles = batch(method)["roles"]
    rows = {"explicit_entailment": torch.tensor([0, 3]), "contradiction": torch.tensor([1, 2, 4])}
    for role in method.roles[1:]:
        roles[role] = roles[role].select(rows.get(role, torch.tensor([], dtype=torch.long)))

    outputs = method.training_step({"roles": roles, "index": torch.arange(5)}, 0)
    assert set(outputs["embeddings"]) == {"premise", *rows}
    assert outputs["sentences"] == 5 + 2 + 3
    encoded = method.model.encode(roles["premise"], *(roles[role] for role in rows))
    want = method.loss(**dict(zip(("premise", *rows), encoded, strict=True)), rows=rows)
    assert outputs["loss"].item() == pytest.approx(want.item(), rel=1e-5)


@pytest.mark.parametrize(("warmup", "total"), [(0.1, 57), (0.25, 8), (0.0, 5), (0.1, 1)])
def test_schedule_matches_transformers(warmup, total):
    optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=1.0)
    (want,) = get_linear_schedule_with_warmup(optimizer, int(warmup * total), total).lr_lambdas
    schedule = Schedule(warmup=warmup)
    for step in range(total + 1):
        assert schedule(step, total=total) == want(step)


def test_schedule_rises_to_the_last_step_or_stays_constant():
    rising = [Schedule(warmup=1)(step, total=5) for step in range(5)]
    assert rising == [0, 0.25, 0.5, 0.75, 1], "as GaussCSE's paper describes it"
    assert Schedule("constant")(9, total=10) == 1


def test_unsupervised_simcse_has_two_masks_in_training_and_no_head_in_evaluation():
    method = make("simcse_unsup").train()
    inputs = batch(method)
    tokens = inputs["roles"]["anchor"]
    step = method.training_step(inputs, 0)["embeddings"]
    assert not torch.allclose(step["anchor"]["vector"], step["positive"]["vector"])
    method.eval()
    pooled = method.model.pooled(tokens)[0]
    assert torch.equal(pooled, method.model.encode(tokens)[0].vector)
    anchor = method.training_step(inputs, 0)["embeddings"]["anchor"]["vector"]
    assert torch.equal(anchor, method.head(pooled).detach())
    supervised = make("simcse").eval()  # whose head stays
    assert not torch.equal(pooled, supervised.model.encode(tokens)[0].vector)


@pytest.mark.parametrize("fused", [True, False])
def test_gradients_are_clipped_without_the_scale_of_float16(fused):
    method = make("simcse").eval()  # without dropout
    parameters = [parameter for parameter in method.parameters() if parameter.requires_grad]
    loss = method.training_step(batch(method), 0)["loss"]
    want = torch.autograd.grad(loss, parameters)
    norm = torch.nn.utils.get_total_norm(want)
    optimizer = torch.optim.AdamW(parameters, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(method.training_step(batch(method), 0)["loss"]).backward()
    plugin = SimpleNamespace(scaler=scaler)
    method._trainer = SimpleNamespace(precision_plugin=plugin, global_step=0)

    if not fused:
        scaler.unscale_(optimizer)  # as Lightning does

    method.configure_gradient_clipping(optimizer, 0.01, "norm")
    torch.testing.assert_close(
        [parameter.grad for parameter in parameters],
        [gradient * 0.01 / norm for gradient in want],
        rtol=1e-3,
        atol=1e-7,
    )
    scaler.step(optimizer)
