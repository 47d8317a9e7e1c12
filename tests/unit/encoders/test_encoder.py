"""One pass over all sentences of a step gives what each sentence gives alone."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lightning_cse.encoders import SentenceEncoder, load_encoder, tiny_encoder
from lightning_cse.encoders import encoder as encoder_module
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

Pad = Callable[..., Tokens]
SENTENCES = [
    "A cat.",
    "The dog chased the cat across the yard while it rained on all of us.",
    "Are you coming to the party tonight?",
    "Hi",
    "",
    "She said it was warm; nobody took off a coat, not even the children by the door.",
]


def near(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Force several passes through the backbone even for a handful of sentences."""
    monkeypatch.setattr(encoder_module, "TOKENS_AT_ONCE", 40)


# Grouping and order --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unpadded", [True, False])
@pytest.mark.parametrize("most", [None, 1, 50])
@torch.no_grad()
def test_all_at_once_equals_one_by_one(
    encoder: SentenceEncoder, pad: Pad, monkeypatch: pytest.MonkeyPatch, unpadded: bool, most: int | None
) -> None:
    single, pair = encoder.template(), encoder.template("implicit")
    want = [torch.cat([encoder([(pad(encoder, [s]), t)])[0] for s in SENTENCES]) for t in (single, pair)]
    monkeypatch.setattr(encoder, "_windows", unpadded)
    got = encoder([(pad(encoder, SENTENCES), single), (pad(encoder, SENTENCES), pair)], most=most)
    near(got[0], want[0])
    near(got[1], want[1])
    assert all(vectors.dtype == torch.float32 for vectors in got)


@torch.no_grad()
def test_order_of_sentences_and_of_requests_does_not_matter(
    encoder: SentenceEncoder, pad: Pad, few_at_once: None
) -> None:
    template, other = encoder.template("explicit"), encoder.template()
    sentences = SENTENCES * 3
    base, alone = encoder([(pad(encoder, sentences), template), (pad(encoder, SENTENCES[:2]), other)])
    assert (base.shape, alone.shape) == ((18, encoder.width), (2, encoder.width))
    order = random.Random(0).sample(range(len(sentences)), len(sentences))
    shuffled = pad(encoder, [sentences[k] for k in order])
    first, second = encoder([(pad(encoder, SENTENCES[:2]), other), (shuffled, template)])
    near(second, base[order])
    near(first, alone)


def test_gradients_equal_the_padded_ones(encoder: SentenceEncoder, pad: Pad, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [(pad(encoder, SENTENCES), encoder.template())]
    parameters = list(encoder.parameters())
    target = torch.randn(len(SENTENCES), encoder.width, generator=torch.Generator().manual_seed(0))

    def gradients() -> list[Tensor]:
        (vectors,) = encoder(requests)
        return [
            torch.zeros_like(p) if g is None else g
            for p, g in zip(
                parameters, torch.autograd.grad((vectors * target).sum(), parameters, allow_unused=True), strict=True
            )
        ]

    got = gradients()
    monkeypatch.setattr(encoder, "_windows", False)
    for mine, theirs in zip(got, gradients(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-3)


def test_every_parameter_learns(tiny: SentenceEncoder, pad: Pad) -> None:
    (vectors,) = tiny.train()([(pad(tiny, SENTENCES), tiny.template("explicit"))])
    vectors.pow(2).sum().backward()
    assert [name for name, p in tiny.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_roberta_positions_start_behind_the_padding_id(roberta: SentenceEncoder, pad: Pad) -> None:
    sentence = "Hi"
    ids = torch.tensor([roberta.tokenizer.tokenizer(sentence)["input_ids"]])
    own = roberta.backbone(input_ids=ids).last_hidden_state[:, 0]
    (mine,) = roberta([(pad(roberta, [sentence]), roberta.template())])
    near(mine, own)


@torch.no_grad()
def test_truncated_like_the_tokenizers_own(tiny: SentenceEncoder, pad: Pad) -> None:
    short = tiny_encoder(max_length=8).eval()
    ids = tiny.tokenizer.tokenizer(SENTENCES[1], truncation=True, max_length=8, return_tensors="pt")
    (got,) = short([(pad(short, [SENTENCES[1]]), short.template())])
    near(got, short.backbone(**ids).last_hidden_state[:, 0])


# Against sentence-transformers ---------------------------------------------------------------------------------------


@torch.no_grad()
def test_minilm_equals_sentence_transformers(minilm: SentenceEncoder, minilm_folder: Path, pad: Pad) -> None:
    from sentence_transformers import SentenceTransformer

    want = SentenceTransformer(str(minilm_folder), device="cpu").encode(SENTENCES, convert_to_tensor=True)
    (got,) = minilm([(pad(minilm, SENTENCES), minilm.template())])
    near(nn.functional.normalize(got), nn.functional.normalize(want))


# Dropout -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_two_passes_differ_in_training_and_agree_in_evaluation(
    encoder: SentenceEncoder, pad: Pad, precision: torch.dtype
) -> None:
    requests = [(pad(encoder, SENTENCES), encoder.template())]

    def passes() -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", precision, enabled=precision != torch.float32), torch.no_grad():
            return encoder(requests)[0], encoder(requests)[0]

    assert encoder.has_dropout
    assert torch.equal(*passes())
    one, two = passes_in_training(encoder, passes)
    assert (one - two).norm(dim=1).min() > 1e-3


def passes_in_training(encoder: SentenceEncoder, passes: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    encoder.train()
    try:
        return passes()
    finally:
        encoder.eval()


def test_a_doubled_batch_gives_different_rows(tiny: SentenceEncoder, pad: Pad) -> None:
    tokens = pad(tiny, SENTENCES)
    one, two = tiny.train()([(tokens, tiny.template()), (tokens, tiny.template())])
    assert (one - two).norm(dim=1).min() > 1e-3
    (same,) = tiny([(pad(tiny, ["Hi", "Hi"]), tiny.template())])
    assert not torch.equal(same[0], same[1])


def test_the_seed_decides(tiny: SentenceEncoder, pad: Pad, few_at_once: None) -> None:
    requests = [(pad(tiny, SENTENCES), tiny.template())]
    tiny.train()
    torch.manual_seed(1)
    first = tiny(requests)[0]
    state = torch.get_rng_state()
    second = tiny(requests)[0]
    torch.manual_seed(1)
    assert torch.equal(tiny(requests)[0], first)
    torch.set_rng_state(state)
    assert torch.equal(tiny(requests)[0], second)


@pytest.mark.parametrize(("dropout", "has"), [(0.0, False), (0.3, True)])
def test_dropout_option_reaches_every_place(pad: Pad, dropout: float, has: bool) -> None:
    encoder = tiny_encoder(dropout=dropout).train()
    assert encoder.has_dropout is has
    assert {m.p for m in encoder.modules() if isinstance(m, nn.Dropout)} == {dropout}
    requests = [(pad(encoder, SENTENCES), encoder.template())]
    assert torch.equal(encoder(requests)[0], encoder(requests)[0]) is not has


def test_a_copy_is_an_encoder_of_its_own(tiny: SentenceEncoder, pad: Pad) -> None:
    twin = copy.deepcopy(tiny)
    requests = [(pad(tiny, SENTENCES), tiny.template())]
    near(twin(requests)[0], tiny(requests)[0])
    with torch.no_grad():
        next(iter(twin.backbone.encoder.parameters())).add_(1)
    assert not torch.allclose(twin(requests)[0], tiny(requests)[0])


# What is refused -----------------------------------------------------------------------------------------------------


def test_unknown_pooling_names_the_known_ones() -> None:
    with pytest.raises(EncoderError, match=r"must be one of cls, .*prompt, got 'maen' - did you mean 'mean'"):
        tiny_encoder(pooling="maen")


def test_max_length_beyond_the_positions(roberta_folder: Path) -> None:
    with pytest.raises(EncoderError, match=r"max_length: 257 is more than the 256 positions of tiny"):
        tiny_encoder(max_length=257)
    with pytest.raises(EncoderError, match=r"max_length: 65 is more than the 64 positions of r"):
        load_encoder(name="r", source=str(roberta_folder), max_length=65)


def test_all_positions_can_be_used(roberta: SentenceEncoder, pad: Pad) -> None:
    (vectors,) = roberta([(pad(roberta, ["word " * 200]), roberta.template())])
    assert torch.isfinite(vectors).all()


def test_template_that_leaves_no_room() -> None:
    with pytest.raises(EncoderError, match=r"max_length: 2 leaves no room beside 2 special tokens"):
        tiny_encoder(max_length=2)


def test_tokenizer_without_padding() -> None:
    tiny = tiny_encoder()
    tokenizer = copy.deepcopy(tiny.tokenizer.tokenizer)
    tokenizer.pad_token = None
    with pytest.raises(EncoderError, match="no padding token"):
        SentenceEncoder(tiny.backbone, tokenizer, name="x", pooling="cls", max_length=9, digests=tiny.digests)


# The tiny encoder ----------------------------------------------------------------------------------------------------


def test_tiny_is_decided_by_its_seed_and_leaves_the_random_state() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    one, same, other = tiny_encoder(seed=1), tiny_encoder(seed=1), tiny_encoder(seed=2)
    assert torch.equal(torch.get_rng_state(), state)
    weights = [torch.cat([p.flatten() for p in encoder.parameters()]) for encoder in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert one.digests == same.digests != other.digests


def test_bare_tokens_have_no_specials(encoder: SentenceEncoder) -> None:
    ids = encoder.tokenizer(["Hi", "word " * 400])
    specials = set(encoder.tokenizer.tokenizer.all_special_ids) - {encoder.tokenizer.tokenizer.unk_token_id}
    assert not specials & {token for sentence in ids for token in sentence}
    assert len(ids[1]) >= 400
