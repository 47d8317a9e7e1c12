"""Every method: finite scalar loss, gradients, one pass for all roles, and the answers evaluation asks for."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from lightning_cse.embeddings import DualEmbedding, PointEmbedding
from lightning_cse.encoders import tiny_encoder
from lightning_cse.losses import DualContrastive, InfoNCE
from lightning_cse.methods import DualCSE, Method, Schedule, SimCSE
from lightning_cse.similarity import cosine
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
    return DualCSE(tiny_encoder(), DualContrastive(), architecture=name.removeprefix("dualcse_"), **common)


def batch(method: Method) -> dict:
    ids = method.encoder.tokenizer(SENTENCES)
    roles = {role: Tokens.pad(ids[k:] + ids[:k]) for k, role in enumerate(method.roles)}
    return {"roles": roles, "index": torch.arange(len(SENTENCES))}


NAMES = ("dualcse_cross", "dualcse_bi", "simcse")


@pytest.mark.parametrize("name", NAMES)
def test_a_step_gives_a_finite_loss_gradients_and_the_named_outputs(name: str) -> None:
    method = make(name).train()
    outputs = method.training_step(batch(method), 0)
    assert set(outputs) == {"loss", "index", "embeddings"}
    assert set(outputs["embeddings"]) == set(method.roles)
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
    assert torch.equal(method.implicitness(p), 1 - cosine(p.explicit, p.implicit))
    assert torch.equal(method.similarity(p, h), method.similarity(h, p))


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
