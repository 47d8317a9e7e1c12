"""Prompt pooling, averages of two layers, and frozen embeddings, against the backbone's own forward."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import BertModel, DistilBertConfig, DistilBertModel, RobertaModel

from lightning_cse.encoders import SentenceEncoder, load_encoder, tiny_encoder
from lightning_cse.encoders import encoder as encoder_module
from lightning_cse.encoders.templates import PROMPTS, Sequences
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

Pad = Callable[..., Tokens]
SENTENCES = [
    "A cat.",
    "The dog chased the cat across the yard while it rained on all of us.",
    "Hi",
    "",
    "Are you coming to the party tonight?",
    "Hi there",
]
PROMPTBERT = 'This sentence : "{}" means {mask} .'


def near(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


@pytest.fixture(params=["packed", "padded"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[SentenceEncoder], None]:
    """Send an encoder down one of its two ways, in several passes through the backbone."""
    monkeypatch.setattr(encoder_module, "TOKENS_AT_ONCE", 40)

    def send(encoder: SentenceEncoder) -> None:
        assert encoder._windows
        if request.param == "padded":
            encoder._packed = encoder._padded  # type: ignore[method-assign]

    return send


def own(encoder: SentenceEncoder, text: str, **inputs: Tensor) -> Tensor:
    """The backbone's last states of one text that the tokenizer encoded by itself: (length, d)."""
    encoded = encoder.tokenizer.tokenizer(text, return_tensors="pt")
    states: Tensor = encoder.backbone(**encoded, **inputs).last_hidden_state[0]
    return states


def own_mask(encoder: SentenceEncoder, text: str, **inputs: Tensor) -> Tensor:
    tokenizer = encoder.tokenizer.tokenizer
    (place,) = (torch.tensor(tokenizer(text)["input_ids"]) == tokenizer.mask_token_id).nonzero().flatten().tolist()
    return own(encoder, text, **inputs)[place]


def written(encoder: SentenceEncoder, prompt: str, sentence: str) -> str:
    return prompt.replace("{}", sentence).replace("{mask}", encoder.tokenizer.tokenizer.mask_token)


# Prompt pooling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompts", [None, [PROMPTBERT]])
@torch.no_grad()
def test_prompt_equals_the_backbones_own_forward(
    minilm_folder: Path, pad: Pad, path: Callable[[SentenceEncoder], None], prompts: list[str] | None
) -> None:
    encoder = load_encoder(name="m", source=str(minilm_folder), pooling="prompt", prompts=prompts).eval()
    path(encoder)
    assert len(encoder.templates) == len(prompts or PROMPTS)
    got = encoder([(pad(encoder, SENTENCES), template) for template in encoder.templates])
    for vectors, prompt in zip(got, prompts or PROMPTS, strict=True):
        near(vectors, torch.stack([own_mask(encoder, written(encoder, prompt, s)) for s in SENTENCES]))
        assert vectors.dtype == torch.float32


@torch.no_grad()
def test_the_text_of_the_paper_in_bert(minilm_folder: Path, pad: Pad) -> None:
    encoder = load_encoder(name="m", source=str(minilm_folder), pooling="prompt").eval()
    (got,) = encoder([(pad(encoder, ["It rained."]), encoder.template())])
    near(got[0], own_mask(encoder, 'this sentence : "It rained." means [MASK]'))
    assert encoder.template() == encoder.templates[0] != encoder.templates[1]


@torch.no_grad()
def test_prompt_with_a_byte_level_tokenizer(
    roberta_folder: Path, pad: Pad, path: Callable[[SentenceEncoder], None]
) -> None:
    encoder = load_encoder(name="r", source=str(roberta_folder), pooling="prompt", max_length=64).eval()
    path(encoder)
    template = encoder.template()
    (got,) = encoder([(pad(encoder, SENTENCES), template)])
    for vector, ids in zip(got, encoder.tokenizer(SENTENCES), strict=True):
        ids = [*template.prefix, *ids[: 64 - len(template)], *template.suffix]
        assert ids[-2] == encoder.tokenizer.tokenizer.mask_token_id
        near(vector, encoder.backbone(input_ids=torch.tensor([ids])).last_hidden_state[0, -2])


@torch.no_grad()
def test_the_mask_survives_truncation(pad: Pad) -> None:
    long = "the dog and the cat and the yard " * 4
    encoder = tiny_encoder(pooling="prompt", max_length=24).eval()
    template = encoder.template()
    room = 24 - len(template)
    ids = [*template.prefix, *encoder.tokenizer([long])[0][:room], *template.suffix]
    (got,) = encoder([(pad(encoder, [long]), template)])
    near(got[0], encoder.backbone(input_ids=torch.tensor([ids])).last_hidden_state[0, -2])


def test_one_template_without_a_prompt(encoder: SentenceEncoder) -> None:
    assert encoder.templates == (encoder.template(),)
    assert encoder.template().pooled is None


def test_gradients_of_a_prompt_equal_the_padded_ones(pad: Pad, monkeypatch: pytest.MonkeyPatch) -> None:
    for denoise in (False, True):
        encoder = tiny_encoder(pooling="prompt", denoise=denoise).eval()
        requests = [(pad(encoder, SENTENCES), template) for template in encoder.templates]

        def gradients(encoder: SentenceEncoder = encoder, requests: list[object] = requests) -> list[Tensor]:
            total = sum((vectors**2).sum() for vectors in encoder(requests))  # type: ignore[arg-type]
            return list(torch.autograd.grad(total, list(encoder.parameters())))  # type: ignore[arg-type]

        packed = gradients()
        monkeypatch.setattr(encoder, "_windows", False)
        for mine, theirs in zip(packed, gradients(), strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-3)


# Denoising -----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_denoised_equals_two_forwards_with_positions(
    minilm_folder: Path, pad: Pad, path: Callable[[SentenceEncoder], None]
) -> None:
    encoder = load_encoder(name="m", source=str(minilm_folder), pooling="prompt", denoise=True).eval()
    path(encoder)
    requests = [(pad(encoder, SENTENCES), template) for template in encoder.templates]
    for vectors, prompt in zip(encoder(requests), PROMPTS, strict=True):
        start = len(encoder.tokenizer.tokenizer(prompt.partition("{}")[0])["input_ids"]) - 1
        for vector, sentence, ids in zip(vectors, SENTENCES, encoder.tokenizer(SENTENCES), strict=True):
            empty = written(encoder, prompt, "")
            positions = torch.arange(len(encoder.tokenizer.tokenizer(empty)["input_ids"]))
            positions[start:] += len(ids)
            bias = own_mask(encoder, empty, position_ids=positions[None])
            near(vector, own_mask(encoder, written(encoder, prompt, sentence)) - bias)


@torch.no_grad()
def test_denoised_roberta_with_positions_behind_the_padding_id(
    roberta_folder: Path, pad: Pad, path: Callable[[SentenceEncoder], None]
) -> None:
    options = {"name": "r", "source": str(roberta_folder), "pooling": "prompt", "max_length": 64}
    plain, denoised = load_encoder(**options).eval(), load_encoder(**options, denoise=True).eval()  # type: ignore[arg-type]
    path(denoised)
    template = plain.template()
    (got,) = denoised([(pad(plain, ["Hi"]), template)])
    (length,) = map(len, plain.tokenizer(["Hi"]))
    ids = torch.tensor([[*template.prefix, *template.suffix]])
    positions = torch.arange(len(template)) + 2 + length * (torch.arange(len(template)) >= len(template.prefix))
    bias = plain.backbone(input_ids=ids, position_ids=positions[None]).last_hidden_state[0, -2]
    (whole,) = plain([(pad(plain, ["Hi"]), template)])
    near(got, whole - bias)


@torch.no_grad()
def test_an_empty_sentence_is_all_template(pad: Pad) -> None:
    encoder = tiny_encoder(pooling="prompt", denoise=True).eval()
    (got,) = encoder([(pad(encoder, ["", "Hi"]), encoder.template())])
    near(got[0], torch.zeros(encoder.width))
    assert got[1].norm() > 0.1


def test_each_length_is_encoded_once(pad: Pad, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_encoder(pooling="prompt", denoise=True).eval()
    seen: list[int] = []
    encode = encoder._packed

    def counted(sequences: Sequences, most: int | None) -> object:
        seen.append(len(sequences.ids))
        return encode(sequences, most)

    monkeypatch.setattr(encoder, "_packed", counted)
    tokens = Tokens.pad([[7], [8], [7, 8], [9]])
    first, second = encoder.templates
    encoder([(tokens, first), (tokens, second)])
    assert seen == [2 * 4 + 2 + 2]  # two lengths of either template


def test_gradient_flows_through_the_template_alone(pad: Pad) -> None:
    encoder = tiny_encoder(pooling="prompt", denoise=True).eval()
    table = encoder.backbone.get_input_embeddings().weight
    mask = encoder.tokenizer.tokenizer.mask_token_id
    got = []
    for denoise in (True, False):
        encoder.denoise = denoise
        (vectors,) = encoder([(pad(encoder, ["Hi there"]), encoder.template())])
        (gradient,) = torch.autograd.grad(vectors[0, 0], [table])
        got.append(gradient[mask])
    assert (got[0] - got[1]).abs().max() > 1e-4


# Averages of two layers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pooling", "earlier"), [("first_last", 1), ("embedding_last", 0)])
@pytest.mark.parametrize("kind", ["minilm", "roberta"])
@torch.no_grad()
def test_averages_of_two_layers(
    minilm_folder: Path,
    roberta_folder: Path,
    pad: Pad,
    path: Callable[[SentenceEncoder], None],
    kind: str,
    pooling: str,
    earlier: int,
) -> None:
    folder = {"minilm": minilm_folder, "roberta": roberta_folder}[kind]
    encoder = load_encoder(name="m", source=str(folder), pooling=pooling, max_length=64).eval()
    path(encoder)
    (got,) = encoder([(pad(encoder, SENTENCES), encoder.template())])
    for vector, sentence in zip(got, SENTENCES, strict=True):
        encoded = encoder.tokenizer.tokenizer(sentence, truncation=True, max_length=64, return_tensors="pt")
        states = encoder.backbone(**encoded, output_hidden_states=True).hidden_states
        assert len(states) == encoder.backbone.config.num_hidden_layers + 1
        near(vector, ((states[earlier] + states[-1]) / 2)[0].mean(0))


# Frozen embeddings ---------------------------------------------------------------------------------------------------

FROZEN = {
    f"embeddings.{name}"
    for name in (
        "word_embeddings.weight",
        "position_embeddings.weight",
        "token_type_embeddings.weight",
        "LayerNorm.weight",
        "LayerNorm.bias",
    )
}


@pytest.mark.parametrize(("fixture", "kind"), [("bert_folder", BertModel), ("roberta_folder", RobertaModel)])
def test_frozen_embeddings(
    request: pytest.FixtureRequest, pad: Pad, path: Callable[[SentenceEncoder], None], fixture: str, kind: type
) -> None:
    folder: Path = request.getfixturevalue(fixture)
    encoder = load_encoder(name="x", source=str(folder), max_length=24, freeze_embeddings=True)
    assert type(encoder.backbone) is kind
    path(encoder)
    named = dict(encoder.backbone.named_parameters())
    assert {name for name, p in named.items() if not p.requires_grad} == FROZEN
    assert all(name.startswith("encoder.layer.") for name in set(named) - FROZEN)

    before = {name: p.detach().clone() for name, p in named.items()}
    grown: list[bool] = []
    encoder.backbone.embeddings.register_forward_hook(lambda *args: grown.append(args[-1].requires_grad))
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=0.1, weight_decay=0.1)
    (vectors,) = encoder.train()([(pad(encoder, SENTENCES), encoder.template())])
    vectors.pow(2).sum().backward()
    optimizer.step()
    assert grown
    assert not any(grown)  # so nothing of their gradient is computed
    assert all(named[name].grad is None for name in FROZEN)
    # A key's bias shifts a row of scores as a whole, and so may learn nothing but rounding.
    learning = {name for name in named if not torch.equal(named[name], before[name])}
    assert learning | {name for name in named if name.endswith("key.bias")} == set(named) - FROZEN


def test_embeddings_learn_unless_frozen(tiny: SentenceEncoder) -> None:
    assert all(p.requires_grad for p in tiny.parameters())
    assert not all(p.requires_grad for p in tiny_encoder(freeze_embeddings=True).parameters())


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_second_segment_beside_a_prompt() -> None:
    encoder = tiny_encoder(pooling="prompt")
    with pytest.raises(
        EncoderError, match="pooling: this method puts 'implicit' behind a sentence; choose cls or mean"
    ):
        encoder.template("implicit")


@pytest.mark.parametrize("option", [{"prompts": list(PROMPTS)}, {"denoise": True}])
def test_options_of_a_prompt_without_one(option: dict[str, object]) -> None:
    with pytest.raises(
        EncoderError, match=r"encoder\.prompts, encoder\.denoise: need encoder\.pooling=prompt, got mean"
    ):
        tiny_encoder(pooling="mean", **option)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompts", ["{} {mask}", []])
def test_prompts_that_are_no_list(prompts: object) -> None:
    with pytest.raises(
        EncoderError, match=r"encoder\.prompts: must be a list of prompts, or null for NGCSE's two; got"
    ):
        tiny_encoder(pooling="prompt", prompts=prompts)  # type: ignore[arg-type]


def test_a_prompt_that_leaves_no_room() -> None:
    length = len(tiny_encoder(pooling="prompt").template())
    with pytest.raises(
        EncoderError, match=rf"max_length: {length} leaves no room beside {length} tokens of the prompt"
    ):
        tiny_encoder(pooling="prompt", max_length=length)
    assert len(tiny_encoder(pooling="prompt", max_length=length + 1).templates) == 2


def distil(**options: object) -> SentenceEncoder:
    tiny = tiny_encoder()
    size = len(tiny.tokenizer.tokenizer)
    config = DistilBertConfig(vocab_size=size, dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=64)
    return SentenceEncoder(
        DistilBertModel(config),
        tiny.tokenizer.tokenizer,
        name="distil",
        max_length=32,
        digests={"weights": "w", "tokenizer": "t"},
        pooling="prompt",
        **options,  # type: ignore[arg-type]
    ).eval()


@torch.no_grad()
def test_a_backbone_that_is_never_packed(pad: Pad) -> None:
    encoder = distil()
    (got,) = encoder([(pad(encoder, SENTENCES), encoder.template())])
    near(got, torch.stack([own_mask(encoder, written(encoder, PROMPTS[0], s)) for s in SENTENCES]))


def test_denoising_needs_positions_that_can_be_set() -> None:
    with pytest.raises(EncoderError, match=r"the positions of a distilbert cannot be set; those of bert, roberta"):
        distil(denoise=True)


def test_freezing_needs_a_module_of_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = tiny_encoder()
    backbone = tiny.backbone
    backbone.tables = backbone.embeddings
    del backbone.embeddings
    with pytest.raises(EncoderError, match=r"freeze_embeddings: odd has no module `embeddings`"):
        SentenceEncoder(
            backbone,
            tiny.tokenizer.tokenizer,
            name="odd",
            pooling="cls",
            max_length=32,
            digests=tiny.digests,
            freeze_embeddings=True,
        )
