"""NGCSE: which sentences are compared with which, against a loop over the rows of a batch."""

import pytest
import torch
from method_steps import logged_step, method_of
from oracles import cross_entropy

from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import ConfigError, EncoderError
from lightning_cse.losses import HierarchicalTriplet, InfoNCE
from lightning_cse.methods import NGCSE
from lightning_cse.methods.ngcse import ROW_KINDS
from lightning_cse.tokens import Tokens

ALONE, AUGMENTED, LABELLED, STS = ROW_KINDS
SPREAD = ("anchor", "positive", "negative")
ANCHORS = [
    "The ferry leaves at noon.",
    "Moss covers the old wall.",
    "Two brothers ran the mill.",
    "Salt was dear then.",
]
LLM = [1, 3]
WRITTEN = {
    "positive": ["The old wall is overgrown with moss.", "In those days salt cost a lot."],
    "intermediate": ["Moss covers a wall.", "Salt cost a lot."],
    "negative": ["The wall was painted last year.", "Salt was given away then."],
}
TRIPLET = {"contrastive": "hierarchical_triplet"}


def make(
    roles, *, dropout=0.1, pooling="cls", margins=None, contrastive="single_positive", **options
):
    if margins is None and contrastive == "hierarchical_triplet":
        margins = (0.3, 0.4)

    return method_of(
        NGCSE,
        InfoNCE(),
        HierarchicalTriplet(*margins or ()),
        encoder=tiny_encoder(dropout=dropout, pooling=pooling),
        roles=roles,
        contrastive=contrastive,
        **{"llm_positive": "intermediate", "beta": 1.0} | options,
    ).eval()


def tokens(method, sentences, rows=None):
    return Tokens.pad(method.model.encoder.tokenizer(sentences), rows=rows)


def batch(method, llm=LLM):
    """Anchors, of which some have sentences by an LLM."""
    roles = {"anchor": tokens(method, ANCHORS)}
    for role in method.roles[1:]:
        roles[role] = tokens(method, (WRITTEN[role] * 2)[: len(llm)], list(llm))

    return {"roles": roles, "index": torch.arange(len(ANCHORS))}


def heads(method, sentences, template=0):
    """The normalised vectors that the loss compares, in float64, one sentence at a time."""
    rows = []
    for sentence in sentences:
        request = (tokens(method, [sentence]), method.templates[template])
        (vector,) = method.model.encoder([request])
        rows.append(method.head.double()(vector.double()))

    method.head.float()

    return torch.nn.functional.normalize(torch.cat(rows), dim=1).detach()


def row_losses(anchor, candidates):
    """InfoNCE of each anchor, whose positive is the candidate of its number."""
    similarities = (anchor @ candidates.T).tolist()
    return [cross_entropy(row[i], row, 0.05) for i, row in enumerate(similarities)]


def info_nce(anchor, positive, negative=None):
    """InfoNCE, where every negative is one for all rows."""
    candidates = positive if negative is None else torch.cat([positive, negative])
    return sum(row_losses(anchor, candidates)) / len(anchor)


def completed(anchor, written):
    """The positives: those of LLM rows, and the anchors themselves."""
    positive = anchor.clone()
    positive[LLM] = written

    return positive


@pytest.mark.parametrize("llm_positive", ["intermediate", "positive"])
@pytest.mark.parametrize("beta", [0.25, 0.0])
def test_triplet_loss_is_added_on_llm_rows(llm_positive, beta):
    method = make(STS, **TRIPLET, llm_positive=llm_positive, beta=beta)
    anchor = heads(method, ANCHORS)
    written = {role: heads(method, sentences) for role, sentences in WRITTEN.items()}
    contrastive = info_nce(anchor, completed(anchor, written[llm_positive]))
    high, middle, low = ((anchor[LLM] * vectors).sum(dim=1) for vectors in written.values())
    margins = (middle - high + 0.3).relu() + (low - middle + 0.4).relu()
    triplet = margins.mean().item() / 2

    _, logged = logged_step(method, batch(method))
    want = {"train/contrastive": contrastive, "train/loss": contrastive + beta * triplet}
    if beta:
        want["train/hierarchical_triplet"] = triplet

    assert logged == pytest.approx({"step": 1, **want}, rel=1e-5)
    assert ("negative" in method.roles) == bool(beta), "what is not used is not encoded"


def test_triplet_loss_with_the_negatives_of_the_paper():
    """NGCSE, eq. 7: the triplet loss is added to the whole contrastive loss, eq. 1."""
    method = make(STS, **TRIPLET, contrastive_negatives=True)
    positive = completed(heads(method, ANCHORS), heads(method, WRITTEN["intermediate"]))
    negative = heads(method, WRITTEN["negative"])
    _, logged = logged_step(method, batch(method))
    contrastive = info_nce(heads(method, ANCHORS), positive, negative)
    assert logged["train/contrastive"] == pytest.approx(contrastive, rel=1e-5)
    _, without = logged_step(make(STS, **TRIPLET), batch(method))
    assert logged["train/hierarchical_triplet"] == without["train/hierarchical_triplet"]


def test_triplet_loss_uses_the_first_of_several_negatives():
    method = make(STS, **TRIPLET)
    inputs = batch(method)
    want = method.training_step(inputs, 0)["loss"].item()
    more = ["The wall fell down.", *WRITTEN["negative"][::-1]]
    rows = [*LLM, *LLM, LLM[0]]
    inputs["roles"]["negative"] = tokens(method, [*WRITTEN["negative"], *more], rows)
    assert method.training_step(inputs, 0)["loss"].item() == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("llm_positive", ["intermediate", "positive"])
def test_single_positive_with_hard_negatives_for_all_rows(llm_positive):
    method = make(STS, llm_positive=llm_positive)
    anchor = heads(method, ANCHORS)
    positive = completed(anchor, heads(method, WRITTEN[llm_positive]))
    want = info_nce(anchor, positive, heads(method, WRITTEN["negative"]))
    assert method.training_step(batch(method), 0)["loss"].item() == pytest.approx(want, rel=1e-5)
    assert method.roles == ("anchor", llm_positive, "negative")


@pytest.mark.parametrize("llm", [LLM, [0, 1, 2, 3], []])
def test_second_positive_has_its_own_pass_over_llm_rows(llm):
    """The authors' code: the loss of an LLM row is the mean of two passes, negatives in one."""
    method = make(STS, contrastive="multiple_positive")
    inputs = batch(method, llm)
    anchor = heads(method, ANCHORS)
    single_rows = anchor[[row for row in range(4) if row not in llm]]
    near = middle = far = anchor[:0]
    if llm:
        sentences = ((lines * 2)[: len(llm)] for lines in WRITTEN.values())
        near, middle, far = (heads(method, lines) for lines in sentences)

    plain = row_losses(single_rows, torch.cat([single_rows, near]))
    first = row_losses(anchor[llm], torch.cat([near, single_rows]))
    second = row_losses(anchor[llm], torch.cat([middle, far, single_rows]))
    want = (sum(plain) + (sum(first) + sum(second)) / 2) / 4
    assert method.training_step(inputs, 0)["loss"].item() == pytest.approx(want, rel=1e-5)


def test_anchor_is_its_own_positive_under_another_dropout_mask():
    method = make(ALONE, dropout=0.3).train()
    assert method.needs_dropout
    vectors = method.training_step(batch(method), 0)["embeddings"]
    pair = (vectors[role]["vector"] for role in ("anchor", "again"))
    assert (torch.nn.functional.cosine_similarity(*pair) < 0.9999).all()
    without = make(STS, dropout=0.0)
    with pytest.raises(EncoderError, match=r"2 of 4 rows of this batch.*encoder\.dropout=0\.1"):
        without.training_step(batch(without), 0)

    assert not make(AUGMENTED).needs_dropout


@pytest.mark.parametrize(
    ("roles", "options", "aligned", "spread"),
    [
        (ALONE, {}, "anchor", ("anchor",)),
        (LABELLED, {}, "positive", LABELLED),
        (STS, {}, "intermediate", SPREAD),
        (STS, {"contrastive": "multiple_positive"}, "positive", SPREAD),
        (STS, TRIPLET, "intermediate", STS),
    ],
)
def test_diagnostics_measure_the_trained_pair(roles, options, aligned, spread):
    method = make(roles, **options)
    assert method.pairs == {"primary": ("anchor", aligned)}
    assert method.spread == tuple(spread)


@pytest.mark.parametrize(
    ("roles", "options", "message"),
    [
        (("anchor", "negative"), {}, r"method\.roles: .* got \['anchor', 'negative'\]"),
        (ALONE, TRIPLET, r"method\.contrastive: .* needs an intermediate"),
        (STS, {"beta": -1.0}, r"method\.beta: .* -1\.0"),
        (STS, {"contrastive_negatives": True}, r"contrastive_negatives: .*hierarchical_triplet"),
    ],
)
def test_settings_that_do_not_fit_are_errors(roles, options, message):
    with pytest.raises(ConfigError, match=message):
        make(roles, **options)


def test_settings_without_effect_are_named(caplog):
    make(ALONE)
    assert caplog.text == ""
    make(ALONE, margins=(5e-3, 5e-2))
    assert "no effect with method.contrastive=single_positive" in caplog.text


def test_prompts_give_the_second_view_the_second_template():
    method = make(STS, pooling="prompt", dropout=0.0, **TRIPLET)
    positive = completed(heads(method, ANCHORS, 1), heads(method, WRITTEN["intermediate"]))
    _, logged = logged_step(method, batch(method))
    assert logged["train/contrastive"] == pytest.approx(
        info_nce(heads(method, ANCHORS), positive), rel=1e-5
    )

    method = make(AUGMENTED, pooling="prompt", dropout=0.0)
    roles = {"anchor": tokens(method, ANCHORS), "positive": tokens(method, ANCHORS[::-1])}
    got = method.training_step({"roles": roles, "index": torch.arange(4)}, 0)["loss"].item()
    want = info_nce(heads(method, ANCHORS), heads(method, ANCHORS[::-1], 1))
    assert got == pytest.approx(want, rel=1e-5)
