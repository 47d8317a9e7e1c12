"""Every method: finite scalar loss, gradients, named outputs, and which roles it embeds."""

from types import SimpleNamespace

import pytest
import torch
from method_steps import batch_of, method_of
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

CUTOFF, SHUFFLE = FeatureCutoff(0.2), ShuffledPositions()


def make(name):
    method_name, _, option = name.partition(" ")
    if method_name == "promptbert":
        return method_of(PromptBERT, InfoNCE(), encoder=tiny_encoder(pooling="prompt"))
    if method_name == "infocse":
        return method_of(InfoCSE, InfoNCE(), weight=0.1, share=0.4)
    if method_name == "consert":
        encoder = tiny_encoder(pooling="last_two")
        return method_of(ConSERT, NTXent(), encoder=encoder, first=CUTOFF, second=SHUFFLE)
    if method_name == "gausscse":
        sets, _, with_simcse = option.partition(" and ")
        loss = GaussianContrastive(sets=sets.split("+"))
        return method_of(GaussCSE, loss, simcse=InfoNCE() if with_simcse else None)
    if method_name == "dualgauss":
        loss = DualContrastive(similarity=GaussianSimilarity())
        return method_of(DualGauss, loss, architecture=option)
    if method_name == "dualcse":
        return method_of(DualCSE, DualContrastive(), architecture=option)

    return method_of({"simcse": SimCSE, "simcse_unsup": UnsupervisedSimCSE}[name], InfoNCE())


DUAL = ("dualcse cross", "dualcse bi", "dualgauss cross", "dualgauss bi")
TWO_VIEWS = ("simcse_unsup", "promptbert", "consert", "infocse")
GAUSS = ("gausscse ent+con+rev", "gausscse ent", "gausscse ent and simcse")
NAMES = (*DUAL, *TWO_VIEWS, *GAUSS, "simcse")


@pytest.mark.parametrize("name", NAMES)
def test_step_has_a_finite_loss_gradients_and_named_outputs(name):
    method = make(name).train()
    outputs = method.training_step(batch_of(method), 0)
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


@pytest.mark.parametrize("name", ["dualcse bi", "dualgauss cross"])
def test_step_of_rows_without_roles_is_the_loss_of_the_others(name):
    method = make(name).eval()
    roles = batch_of(method)["roles"]
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
    inputs = batch_of(method)
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
    loss = method.training_step(batch_of(method), 0)["loss"]
    want = torch.autograd.grad(loss, parameters)
    norm = torch.nn.utils.get_total_norm(want)
    optimizer = torch.optim.AdamW(parameters, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(method.training_step(batch_of(method), 0)["loss"]).backward()
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
