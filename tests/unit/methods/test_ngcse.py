"""NGCSE: which sentences are compared with which, row by row, against a loop over the rows of a batch."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import ConfigError, EncoderError
from lightning_cse.losses import HierarchicalTriplet, InfoNCE
from lightning_cse.methods import NGCSE, Schedule
from lightning_cse.methods.ngcse import ROW_KINDS
from lightning_cse.tokens import Tokens

ALONE, AUGMENTED, LABELLED, STS = ROW_KINDS
ANCHORS = [
    "The ferry leaves at noon.",
    "Moss covers the old wall.",
    "Two brothers ran the mill.",
    "Salt was dear then.",
]
LLM = (1, 3)  # rows that an LLM has written
WRITTEN = {
    "positive": ["The old wall is overgrown with moss.", "In those days salt cost a lot."],
    "intermediate": ["Moss covers a wall.", "Salt cost a lot."],
    "negative": ["The wall was painted last year.", "Salt was given away then."],
}


def make(roles: Sequence[str], *, dropout: float | None = 0.0, **options: Any) -> NGCSE:
    """A method whose two passes over a sentence agree unless it has dropout."""
    given = {
        "contrastive": "single_positive",
        "llm_positive": "intermediate",
        "beta": 1.0,
    } | options
    pooling = given.pop("pooling", "cls")
    torch.manual_seed(0)
    encoder = tiny_encoder(dropout=dropout, pooling=pooling)
    triplet = HierarchicalTriplet(margin_positive=0.3, margin_negative=0.4)
    optimizer = partial(torch.optim.AdamW, lr=1e-3)
    return NGCSE(
        encoder, InfoNCE(), triplet, roles=roles, optimizer=optimizer, schedule=Schedule(), **given
    )


def batch(method: NGCSE, llm: Sequence[int] = LLM) -> dict[str, Any]:
    tokenise = method.model.encoder.tokenizer
    roles = {"anchor": Tokens.pad(tokenise(ANCHORS))}
    for role in method.roles[1:]:
        roles[role] = Tokens.pad(
            tokenise([WRITTEN[role][k] for k in range(len(llm))]), rows=list(llm)
        )
    return {"roles": roles, "index": torch.arange(len(ANCHORS))}


def heads(method: NGCSE, sentences: Sequence[str], template: int = 0) -> Tensor:
    """The vectors that the loss sees, in float64, one sentence at a time."""
    rows = []
    for ids in method.model.encoder.tokenizer(sentences):
        (vector,) = method.model.encoder([(Tokens.pad([ids]), method.templates[template])])
        rows.append(method.head.double()(vector.double()))
    method.head.float()
    return torch.nn.functional.normalize(torch.cat(rows), dim=1).detach()


def loop(anchor: Tensor, positive: Tensor, negative: Tensor | None) -> float:
    """InfoNCE, row by row; every negative is one for all rows."""
    total = 0.0
    for i in range(len(anchor)):
        columns = [math.exp(float(anchor[i] @ p) / 0.05) for p in positive]
        columns += (
            [math.exp(float(anchor[i] @ n) / 0.05) for n in negative]
            if negative is not None
            else []
        )
        total -= math.log(math.exp(float(anchor[i] @ positive[i]) / 0.05) / sum(columns))
    return total / len(anchor)


def second(anchor: Tensor, written: Tensor) -> Tensor:
    completed = anchor.clone()
    completed[list(LLM)] = written
    return completed


@pytest.mark.parametrize("llm_positive", ["intermediate", "positive"])
@pytest.mark.parametrize("beta", [1.0, 0.25, 0.0])
def test_the_triplet_loss_is_on_llm_rows_alone_and_their_negatives_leave_the_contrastive_loss(
    llm_positive: str, beta: float
) -> None:
    method = make(
        STS, contrastive="hierarchical_triplet", llm_positive=llm_positive, beta=beta, dropout=0.1
    ).eval()
    anchor = heads(method, ANCHORS)
    written = {role: heads(method, sentences) for role, sentences in WRITTEN.items()}
    a, b, c = (
        [float(anchor[row] @ written[role][k]) for k, row in enumerate(LLM)] for role in WRITTEN
    )
    near = sum(max(0.0, y - x + 0.3) for x, y in zip(a, b, strict=True)) / 2
    far = sum(max(0.0, z - y + 0.4) for y, z in zip(b, c, strict=True)) / 2
    want = loop(anchor, second(anchor, written[llm_positive]), None)
    outputs = method.training_step(batch(method), 0)
    assert outputs["loss"].item() == pytest.approx(want + beta * (near + far) / 2, rel=1e-5)
    assert outputs["parts"]["contrastive"].item() == pytest.approx(want, rel=1e-5)
    if beta:
        assert outputs["parts"]["hierarchical_triplet"].item() == pytest.approx(
            (near + far) / 2, rel=1e-5
        )
    else:  # what is not used is not encoded
        assert "negative" not in method.roles
        assert "hierarchical_triplet" not in outputs["parts"]


@pytest.mark.parametrize("llm_positive", ["intermediate", "positive"])
def test_one_positive_and_hard_negatives_for_all_rows(llm_positive: str) -> None:
    method = make(STS, llm_positive=llm_positive, dropout=0.1).eval()
    anchor, negative = heads(method, ANCHORS), heads(method, WRITTEN["negative"])
    want = loop(anchor, second(anchor, heads(method, WRITTEN[llm_positive])), negative)
    assert method.training_step(batch(method), 0)["loss"].item() == pytest.approx(want, rel=1e-5)
    assert method.roles == ("anchor", llm_positive, "negative")


def rows_of(anchor: Tensor, candidates: Tensor, own: Sequence[int]) -> list[float]:
    """The loss of each anchor whose positive is the candidate of its number, row by row."""
    logits = [[math.exp(float(a @ c) / 0.05) for c in candidates] for a in anchor]
    return [-math.log(row[place] / sum(row)) for row, place in zip(logits, own, strict=True)]


@pytest.mark.parametrize("llm", [LLM, (2,), (0, 1, 2, 3), ()])
def test_the_second_of_several_positives_is_of_llm_rows_alone_and_brings_their_negatives(
    llm: Sequence[int],
) -> None:
    """The authors' code: a loss of the other rows, and the mean of two of LLM rows, each by its share of the rows."""
    method = make(STS, contrastive="multiple_positive", dropout=0.1).eval()
    others = [row for row in range(4) if row not in llm]
    anchor = heads(method, ANCHORS)
    lines = {role: (sentences * 2)[: len(llm)] for role, sentences in WRITTEN.items()}
    given = {"anchor": batch(method, llm=())["roles"]["anchor"]}
    given |= {
        r: Tokens.pad(method.model.encoder.tokenizer(s), rows=list(llm)) for r, s in lines.items()
    }
    near, middle, far = (heads(method, some) if llm else anchor[:0] for some in lines.values())
    first = rows_of(anchor[others], torch.cat([anchor[others], near]), range(len(others)))
    passes = [torch.cat([near, anchor[others]]), torch.cat([middle, far, anchor[others]])]
    written = [rows_of(anchor[list(llm)], candidates, range(len(llm))) for candidates in passes]
    want = (sum(first) + sum(map(sum, written)) / 2) / 4
    step = method.training_step({"roles": given, "index": torch.arange(4)}, 0)
    assert step["loss"].item() == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("roles", [ALONE, AUGMENTED, LABELLED])
def test_without_llm_rows_it_is_simcse_with_another_head(roles: Sequence[str]) -> None:
    method = make(roles, dropout=0.1).eval()
    tokenise = method.model.encoder.tokenizer
    sentences = {"anchor": ANCHORS, "positive": ANCHORS[::-1], "negative": WRITTEN["negative"] * 2}
    given = {role: Tokens.pad(tokenise(sentences[role])) for role in method.roles}
    vectors = {role: heads(method, sentences[role]) for role in method.roles}
    want = loop(
        vectors["anchor"], vectors.get("positive", vectors["anchor"]), vectors.get("negative")
    )
    step = method.training_step({"roles": given, "index": torch.arange(4)}, 0)
    assert step["loss"].item() == pytest.approx(want, rel=1e-5)


def test_a_batch_without_llm_rows_has_the_contrastive_loss_only() -> None:
    method = make(STS, contrastive="hierarchical_triplet", dropout=0.1).eval()
    anchor = heads(method, ANCHORS)
    outputs = method.training_step(batch(method, llm=()), 0)
    assert outputs["loss"].item() == pytest.approx(loop(anchor, anchor, None), rel=1e-5)
    assert set(outputs["parts"]) == {"contrastive"}
    assert outputs["sentences"] == 2 * len(ANCHORS)


def test_the_rows_of_a_batch_may_come_in_any_order() -> None:
    method = make(STS, contrastive="hierarchical_triplet", dropout=0.1).eval()
    given = batch(method)
    order = torch.tensor([3, 0, 2, 1])
    place = torch.argsort(order)
    first = given["roles"]["anchor"]
    turned = {"anchor": Tokens(first.ids[order], first.mask[order], torch.arange(4))}
    for role in method.roles[1:]:
        tokens = given["roles"][role]
        turned[role] = Tokens(tokens.ids, tokens.mask, place[tokens.rows])
    one, other = (
        method.training_step({"roles": r, "index": order}, 0)["loss"]
        for r in (given["roles"], turned)
    )
    assert one.item() == pytest.approx(other.item(), rel=1e-5)


def test_an_anchor_is_its_own_positive_through_another_mask() -> None:
    method = make(ALONE, dropout=0.3).train()
    assert method.needs_dropout
    outputs = method.training_step(batch(method), 0)
    own = torch.nn.functional.cosine_similarity(
        *(outputs["embeddings"][r]["vector"] for r in ("anchor", "again"))
    )
    assert (own < 0.9999).all()
    with pytest.raises(EncoderError, match=r"2 of 4 rows of this batch.*encoder\.dropout=0\.1"):
        make(STS).training_step(batch(make(STS)), 0)
    assert not make(AUGMENTED).needs_dropout


def test_every_part_learns_but_the_head_is_gone_at_test() -> None:
    method = make(STS, contrastive="hierarchical_triplet", dropout=0.1).train()
    method.training_step(batch(method), 0)["loss"].backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in method.head.parameters())
    method.eval()
    (pooled,) = method.model.encoder(
        [(Tokens.pad(method.model.encoder.tokenizer(ANCHORS)), method.templates[0])]
    )
    torch.testing.assert_close(method.model.embed(ANCHORS).vector, pooled)


@pytest.mark.parametrize(
    ("roles", "options", "aligned", "spread"),
    [
        (ALONE, {}, "anchor", ("anchor",)),
        (AUGMENTED, {}, "positive", ("anchor",)),
        (LABELLED, {}, "positive", LABELLED),
        (STS, {"llm_positive": "positive"}, "positive", ("anchor", "positive", "negative")),
        (STS, {"llm_positive": "intermediate"}, "intermediate", ("anchor", "positive", "negative")),
        (STS, {"contrastive": "multiple_positive"}, "positive", ("anchor", "positive", "negative")),
        (STS, {"contrastive": "hierarchical_triplet"}, "intermediate", STS),
        (STS, {"contrastive": "hierarchical_triplet", "llm_positive": "positive"}, "positive", STS),
    ],
)
def test_what_is_watched_is_the_pair_that_is_trained(
    roles: Sequence[str], options: dict[str, str], aligned: str, spread: Sequence[str]
) -> None:
    method = make(roles, **options)
    assert (method.pairs, method.spread) == ({"primary": ("anchor", aligned)}, tuple(spread))
    assert method.positives[:1] == ((aligned,) if aligned != "anchor" else ())


@pytest.mark.parametrize(
    ("roles", "options", "message"),
    [
        (("anchor", "negative"), {}, r"method\.roles: anchor, negative is not one"),
        (
            ALONE,
            {"contrastive": "hierarchical_triplet"},
            r"method\.contrastive: .* needs an intermediate",
        ),
        (STS, {"beta": -1.0}, r"method\.beta: .* -1\.0"),
    ],
)
def test_what_does_not_fit_is_refused(
    roles: Sequence[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(roles, **options)


def test_with_prompts_the_second_view_of_a_sentence_has_the_second_template() -> None:
    method = make(STS, pooling="prompt", contrastive="hierarchical_triplet").eval()
    anchor, again = heads(method, ANCHORS), heads(method, ANCHORS, template=1)
    written = heads(method, WRITTEN["intermediate"])
    parts = method.training_step(batch(method), 0)[
        "parts"
    ]  # no dropout needed: the templates differ
    assert parts["contrastive"].item() == pytest.approx(
        loop(anchor, second(again, written), None), rel=1e-5
    )

    augmented = make(AUGMENTED, pooling="prompt").eval()
    tokens = augmented.model.encoder.tokenizer
    given = {"anchor": Tokens.pad(tokens(ANCHORS)), "positive": Tokens.pad(tokens(ANCHORS[::-1]))}
    loss = augmented.training_step({"roles": given, "index": torch.arange(4)}, 0)["loss"]
    want = loop(heads(augmented, ANCHORS), heads(augmented, ANCHORS[::-1], template=1), None)
    assert loss.item() == pytest.approx(want, rel=1e-5)
