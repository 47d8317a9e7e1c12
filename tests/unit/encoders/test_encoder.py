"""One pass over all sentences of a step gives what the backbone's own forward gives for each sentence alone."""

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BertModel, RobertaModel

from lightning_cse.encoders import SentenceEncoder, load_encoder, tiny_encoder
from lightning_cse.encoders import encoder as encoder_module
from lightning_cse.encoders.pooling import pool
from lightning_cse.encoders.templates import PROMPTS
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

Load = Callable[..., SentenceEncoder]
Send = Callable[[SentenceEncoder], SentenceEncoder]
KINDS = ["minilm", "tiny", "roberta"]
SENTENCES = [
    "A cat.",
    "The dog chased the cat across the yard while it rained on all of us.",
    "Are you coming to the party tonight?",
    "Hi",
    "",
    "She said it was warm; nobody took off a coat, not even the children by the door.",
]


def near(got: Tensor, want: Tensor, atol: float = 1e-5, rtol: float = 1e-5) -> None:
    torch.testing.assert_close(got, want, atol=atol, rtol=rtol)


def pad(encoder: SentenceEncoder, sentences: list[str] = SENTENCES) -> Tokens:
    """Tokenise sentences for an encoder, as the data module would."""
    return Tokens.pad(encoder.tokenizer(sentences))


def padded(encoder: SentenceEncoder) -> SentenceEncoder:
    """Send an encoder down the way of a GPU."""
    encoder._packed = encoder._padded  # type: ignore[method-assign]
    return encoder


@pytest.fixture(params=["packed", "padded"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Send:
    """Send an encoder down one of its two ways, in several passes through the backbone."""
    monkeypatch.setattr(encoder_module, "TOKENS_AT_ONCE", 40)
    return padded if request.param == "padded" else lambda encoder: encoder


def states(encoder: SentenceEncoder, ids: list[int], **inputs: Any) -> tuple[Tensor, ...]:
    """The backbone's own states of one sequence, a layer each: (length, d)."""
    made = encoder.backbone(input_ids=torch.tensor([ids]), output_hidden_states=True, **inputs)
    return tuple(layer[0] for layer in made.hidden_states)


# All at once


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [None, 1, 50])
@torch.no_grad()
def test_all_at_once_equals_one_by_one(load: Load, path: Send, kind: str, most: int | None) -> None:
    encoder = load(kind, pooling="mean")
    templates = [encoder.template(), encoder.template("implicit")]
    want = [torch.cat([encoder([(pad(encoder, [s]), t)])[0] for s in SENTENCES]) for t in templates]
    order = random.Random(0).sample(range(len(SENTENCES)), len(SENTENCES))
    shuffled = pad(encoder, [SENTENCES[k] for k in order])
    got = path(encoder)([(shuffled, templates[0]), (pad(encoder), templates[1])], most=most)
    near(got[0], want[0][order])
    near(got[1], want[1])
    assert all(vectors.dtype == torch.float32 for vectors in got)


@pytest.mark.parametrize(
    ("pooling", "earlier"), [("cls", None), ("first_last", 1), ("embedding_last", 0)]
)
@pytest.mark.parametrize("kind", ["minilm", "roberta"])
@torch.no_grad()
def test_poolings_of_the_backbones_own_states(
    load: Load, path: Send, kind: str, pooling: str, earlier: int | None
) -> None:
    encoder = path(load(kind, pooling=pooling))
    (got,) = encoder([(pad(encoder), encoder.template())])
    for vector, sentence in zip(got, SENTENCES, strict=True):
        ids = encoder.tokenizer.tokenizer(sentence, truncation=True, max_length=64)["input_ids"]
        layers = states(encoder, ids)
        near(
            vector,
            layers[-1][0] if earlier is None else ((layers[earlier] + layers[-1]) / 2).mean(0),
        )


HIDDEN = torch.tensor(
    [[[1.0, 2.0], [3.0, 4.0], [99.0, 99.0]], [[0.0, 0.0], [3.0, 3.0], [6.0, 9.0]]]
)
MASK = torch.tensor([[True, True, False], [True, True, True]])


@pytest.mark.parametrize(
    ("pooling", "want"),
    [
        ("cls", [[1.0, 2.0], [0.0, 0.0]]),
        ("mean", [[2.0, 3.0], [3.0, 4.0]]),
        ("prompt", [[3.0, 4.0], [6.0, 9.0]]),
    ],
)
def test_pooled_by_hand(pooling: str, want: list[list[float]]) -> None:
    places = torch.tensor([1, 2])
    assert pool(pooling, HIDDEN, MASK, places).tolist() == want
    assert pool(pooling, HIDDEN.bfloat16(), MASK, places).dtype == torch.float32


@pytest.mark.parametrize(
    ("kind", "options"),
    [(kind, {}) for kind in KINDS]
    + [("tiny", {"pooling": "prompt", "denoise": denoise}) for denoise in (False, True)],
)
def test_gradients_of_packed_sentences_equal_those_of_padded_ones(
    load: Load, kind: str, options: dict[str, Any]
) -> None:
    encoder = load(kind, **options)
    parameters = list(encoder.parameters())
    target = torch.randn(len(SENTENCES), encoder.width, generator=torch.Generator().manual_seed(0))

    def gradients() -> list[Tensor]:
        (vectors,) = encoder([(pad(encoder), encoder.template())])
        found = torch.autograd.grad((vectors * target).sum(), parameters, allow_unused=True)
        return [
            torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)
        ]

    packed = gradients()
    padded(encoder)
    for mine, theirs in zip(packed, gradients(), strict=True):
        near(mine, theirs, atol=1e-4, rtol=1e-3)


def test_every_parameter_learns() -> None:
    tiny = tiny_encoder()
    (vectors,) = tiny.train()([(pad(tiny), tiny.template("explicit"))])
    vectors.pow(2).sum().backward()
    assert [name for name, p in tiny.named_parameters() if p.grad is None or not p.grad.any()] == []


# Dropout


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_two_passes_differ_in_training_and_agree_in_evaluation(
    load: Load, kind: str, precision: torch.dtype
) -> None:
    encoder = load(kind)
    tokens, template = pad(encoder, [*SENTENCES, SENTENCES[0]]), encoder.template()
    with torch.autocast("cpu", precision, enabled=precision != torch.float32):
        assert torch.equal(*(encoder([(tokens, template)])[0] for _ in range(2)))
        one, two = encoder.train()([(tokens, template), (tokens, template)])
    assert (one - two).norm(dim=1).min() > 1e-3
    assert not torch.equal(one[0], one[-1]), "also within a request"


def test_the_seed_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_module, "TOKENS_AT_ONCE", 40)
    tiny = tiny_encoder().train()
    requests = [(pad(tiny), tiny.template())]
    torch.manual_seed(1)
    first = tiny(requests)[0]
    state = torch.get_rng_state()
    second = tiny(requests)[0]
    torch.manual_seed(1)
    assert torch.equal(tiny(requests)[0], first)
    torch.set_rng_state(state)
    assert torch.equal(tiny(requests)[0], second)


# Prompts


@pytest.mark.parametrize("denoise", [False, True])
@pytest.mark.parametrize("kind", ["minilm", "roberta"])
@torch.no_grad()
def test_a_prompt_less_its_own_vector_at_the_positions_behind_the_sentence(
    load: Load, path: Send, kind: str, denoise: bool
) -> None:
    encoder = path(load(kind, pooling="prompt", denoise=denoise))
    first = 2 if kind == "roberta" else 0  # positions start behind the padding id
    got = encoder([(pad(encoder), template) for template in encoder.templates])
    for vectors, template in zip(got, encoder.templates, strict=True):
        start, place = len(template.prefix), -(template.pooled or 0)
        for vector, ids in zip(vectors, encoder.tokenizer(SENTENCES), strict=True):
            ids = ids[: 64 - len(template)]
            want = states(encoder, [*template.prefix, *ids, *template.suffix])[-1][place]
            positions = torch.arange(len(template)) + first
            positions[start:] += len(ids)
            bias = states(
                encoder, [*template.prefix, *template.suffix], position_ids=positions[None]
            )[-1][place]
            near(vector, want - bias if denoise else want)


def test_gradient_flows_through_the_template_alone() -> None:
    encoder = tiny_encoder(pooling="prompt", denoise=True).eval()
    table = encoder.backbone.get_input_embeddings().weight
    gradients = []
    for denoise in (True, False):
        encoder.denoise = denoise
        (vectors,) = encoder([(pad(encoder, ["Hi there"]), encoder.template())])
        (gradient,) = torch.autograd.grad(vectors[0, 0], [table])
        gradients.append(gradient[encoder.tokenizer.tokenizer.mask_token_id])
    assert (gradients[0] - gradients[1]).abs().max() > 1e-4


# Frozen embeddings

TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm")
FROZEN = {f"embeddings.{name}.weight" for name in TABLES} | {"embeddings.LayerNorm.bias"}


@pytest.mark.parametrize(
    ("fixture", "kind"), [("bert_folder", BertModel), ("roberta_folder", RobertaModel)]
)
def test_frozen_embeddings(
    request: pytest.FixtureRequest, path: Send, fixture: str, kind: type
) -> None:
    folder: Path = request.getfixturevalue(fixture)
    encoder = path(
        load_encoder(name="x", source=str(folder), max_length=24, freeze_embeddings=True)
    )
    assert type(encoder.backbone) is kind
    named = dict(encoder.backbone.named_parameters())
    assert {name for name, p in named.items() if not p.requires_grad} == FROZEN
    before = {name: p.detach().clone() for name, p in named.items()}
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=0.1, weight_decay=0.1)
    (vectors,) = encoder.train()([(pad(encoder), encoder.template())])
    vectors.pow(2).sum().backward()
    optimizer.step()
    assert all(named[name].grad is None for name in FROZEN)
    # A key's bias shifts a row of scores as a whole, and so may learn nothing but rounding.
    learning = {name for name in named if not torch.equal(named[name], before[name])}
    assert learning | {name for name in named if name.endswith("key.bias")} == set(named) - FROZEN


# What is refused

ROOM = len(tiny_encoder(pooling="prompt").template())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "maen"}, r"must be one of cls, .*prompt, got 'maen' - did you mean 'mean'"),
        ({"max_length": 257}, r"max_length: 257 is more than the 256 positions of tiny"),
        ({"max_length": 2}, r"max_length: 2 leaves no room beside 2 special tokens"),
        (
            {"pooling": "prompt", "max_length": ROOM},
            rf"max_length: {ROOM} leaves no room beside {ROOM} tokens of the",
        ),
        (
            {"pooling": "mean", "prompts": list(PROMPTS)},
            "prompts, .*denoise: need encoder.pooling=prompt, got mean",
        ),
        (
            {"pooling": "mean", "denoise": True},
            "prompts, .*denoise: need encoder.pooling=prompt, got mean",
        ),
        (
            {"pooling": "prompt", "prompts": "{} {mask}"},
            "prompts: must be a list of prompts, or null for NGCSE's two",
        ),
        (
            {"pooling": "prompt", "prompts": []},
            "prompts: must be a list of prompts, or null for NGCSE's two",
        ),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(EncoderError, match=message):
        tiny_encoder(**options)


def test_a_second_segment_beside_a_prompt() -> None:
    with pytest.raises(
        EncoderError, match="pooling: this method puts 'implicit' behind a sentence; choose cls or"
    ):
        tiny_encoder(pooling="prompt").template("implicit")


def test_parts_that_an_encoder_needs() -> None:
    tiny = tiny_encoder()
    options = {"name": "odd", "pooling": "cls", "max_length": 9, "digests": tiny.digests}
    tokenizer = copy.deepcopy(tiny.tokenizer.tokenizer)
    tokenizer.pad_token = None
    with pytest.raises(EncoderError, match="odd: its tokenizer has no padding token"):
        SentenceEncoder(tiny.backbone, tokenizer, **options)
    del tiny.backbone.embeddings
    tiny.backbone.get_input_embeddings = torch.nn.Identity
    with pytest.raises(EncoderError, match=r"freeze_embeddings: odd has no module `embeddings`"):
        SentenceEncoder(tiny.backbone, tiny.tokenizer.tokenizer, **options, freeze_embeddings=True)


# The tiny encoder, and bare tokens


def test_tiny_is_decided_by_its_seed_and_leaves_the_random_state() -> None:
    state = torch.get_rng_state()
    one, same, other = tiny_encoder(seed=1), tiny_encoder(seed=1), tiny_encoder(seed=2)
    assert torch.equal(torch.get_rng_state(), state)
    weights = [
        torch.cat([p.flatten() for p in encoder.parameters()]) for encoder in (one, same, other)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert one.digests == same.digests != other.digests


@pytest.mark.parametrize("kind", KINDS)
def test_bare_tokens_have_no_specials_and_nothing_is_cut(load: Load, kind: str) -> None:
    tokenizer = load(kind).tokenizer
    ids = tokenizer(["Hi", "word " * 400])
    specials = set(tokenizer.tokenizer.all_special_ids) - {tokenizer.tokenizer.unk_token_id}
    assert not specials & {token for sentence in ids for token in sentence}
    assert len(ids[1]) >= 400
    assert tokenizer([]) == []
