"""Causal models as encoders: vectors equal transformers' own, packed and padded; gradients flow."""

import pytest
import torch
import transformers as hf
from encoder_kinds import (
    DECODERS,
    KINDS,
    PATHS,
    gradients_of,
    load,
    pad_groups,
    save_kind,
    vectors_of,
)
from sentence_transformers import SentenceTransformer

from lightning_cse.analysis.exporting import export
from lightning_cse.encoders.architecture import MODEL_TYPES
from lightning_cse.encoders.pooling import EARLIER_STATES
from lightning_cse.encoders.templates import PROMPT_EOL, Template
from lightning_cse.engine.load import load as load_model
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

POOLINGS = ("last_token", "mean", "first_last", "prompt")
TEXTS = [
    "The ferry leaves at noon.",
    "Nobody had told the new teacher that the bell rings twice, once for the children.",
    "Is that yours?",
    "Über 🙃 naïveté.",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A saved model of every kind of decoder."""
    return {name: save_kind(name, tmp_path_factory.mktemp("kinds") / name) for name in DECODERS}


def inputs_of(folder, pooling, side):
    """The ids that a tokenizer and, where it is pooled, an end token give, padded on a side."""
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    if pooling == "prompt":
        before, behind = PROMPT_EOL.split("{}")
        pieces = [tokenizer(before.rstrip())["input_ids"]]
        pieces.append(tokenizer(behind, add_special_tokens=False)["input_ids"])
        bodies = tokenizer(TEXTS, add_special_tokens=False)["input_ids"]
        rows = [pieces[0] + body + pieces[1] for body in bodies]
    else:
        end = [tokenizer.eos_token_id] if pooling == "last_token" else []
        rows = [ids + end for ids in tokenizer(TEXTS)["input_ids"]]

    width = max(map(len, rows))
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        span = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[number, span] = torch.tensor(row)
        mask[number, span] = 1

    return ids, mask


def expected(folder, pooling, side):
    """The vectors of transformers' own forward."""
    model = hf.AutoModel.from_pretrained(folder).eval()
    ids, mask = inputs_of(folder, pooling, side)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    output = model(
        input_ids=ids, attention_mask=mask, position_ids=positions, output_hidden_states=True
    )
    hidden = output.last_hidden_state
    if pooling in ("last_token", "prompt"):
        last = (mask * torch.arange(mask.shape[1])).argmax(1)
        return hidden[torch.arange(len(ids)), last]
    if pooling in EARLIER_STATES:
        hidden = (hidden + output.hidden_states[EARLIER_STATES[pooling]]) / 2

    return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", DECODERS)
def test_vectors_equal_transformers_whatever_side_it_pads(name, side, path, folders, monkeypatch):
    for pooling in POOLINGS:
        encoder = load(folders[name], pooling=pooling).eval()
        assert encoder.passes().name == ("padded" if name == "gpt2" else "packed")
        PATHS[path](encoder, monkeypatch)
        want = expected(folders[name], pooling, side)
        assert torch.dist(vectors_of(encoder, TEXTS), want) < 1e-5 * want.norm()
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.dist(vectors_of(encoder, TEXTS), want) < 0.06 * want.norm()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", [name for name in DECODERS if name != "gpt2"])
def test_gradients_reach_every_weight_packed_and_padded(name, dropout, folders, monkeypatch):
    encoder = load(folders[name], pooling="last_token", dropout=dropout).train()
    packed = gradients_of(encoder, TEXTS)
    assert all(gradient.abs().sum() > 0 for gradient in packed)
    if dropout:
        assert encoder.has_dropout
        return

    pad_groups(encoder, monkeypatch)
    torch.testing.assert_close(gradients_of(encoder, TEXTS), packed, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("qwen2", {"pooling": "cls"}, "first token of qwen2 .* sees no other token"),
        ("llama", {"pooling": "cls_pooler"}, "no pooler"),
        ("llama", {"pooling": "prompt", "prompts": ["{} means {mask}"]}, "has no {mask}"),
        ("llama", {"pooling": "prompt", "prompts": ["A text: {}"]}, "text behind it"),
    ],
)
def test_what_an_architecture_cannot_do_is_refused(name, options, message, folders):
    with pytest.raises(EncoderError, match=message):
        load(folders[name], **options)


def test_a_recurrent_model_stays_causal(folders, tmp_path):
    config = hf.MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=400, state_size=4)
    hf.AutoModel.from_config(config).save_pretrained(tmp_path)
    hf.AutoTokenizer.from_pretrained(folders["qwen2"]).save_pretrained(tmp_path)
    assert load(tmp_path, pooling="last_token").is_causal


def test_an_encoder_decoder_is_refused(tmp_path):
    folder = save_kind("bert", tmp_path / "t5")
    hf.T5Config().save_pretrained(folder)
    with pytest.raises(EncoderError, match=r"t5 .* is an encoder-decoder"):
        load(folder)


def test_two_texts_have_the_tokenizers_separator_or_its_end_token(folders):
    qwen, llama = (load(folders[name], pooling="last_token") for name in ("qwen2", "llama"))
    end, start = qwen.tokenizer.tokenizer.eos_token_id, llama.tokenizer.tokenizer.bos_token_id
    suffix = qwen.template("explicit").suffix
    assert suffix == (end, *qwen.tokenizer(["explicit"])[0], end)
    assert llama.template("explicit").suffix[0] == start


@pytest.mark.parametrize("room", [1, 4, 100])
@pytest.mark.parametrize("name", ["qwen2", "llama"])
def test_the_end_token_survives_a_cut(name, room, folders):
    tokenizer = hf.AutoTokenizer.from_pretrained(folders[name])
    template = Template.from_tokenizer(tokenizer).ended(tokenizer)
    assert template.ended(tokenizer) == template, "one that is there is kept"
    bare = Tokens.pad(tokenizer(TEXTS, add_special_tokens=False)["input_ids"])
    cut = template.apply(bare, len(template) + room)
    last = cut.ids[torch.arange(len(TEXTS)), cut.pooled]
    assert (last == tokenizer.eos_token_id).all()
    assert (cut.pooled == cut.lengths - 1).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision_are_loaded_in_float32(dtype, folders, tmp_path):
    model = hf.AutoModel.from_pretrained(folders["qwen2"], dtype=dtype)
    model.save_pretrained(tmp_path)
    hf.AutoTokenizer.from_pretrained(folders["qwen2"]).save_pretrained(tmp_path)
    encoder = load(tmp_path, pooling="last_token")
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}


@pytest.mark.parametrize("pooling", ["last_token", "mean", "prompt"])
@pytest.mark.parametrize("name", ["qwen2", "llama"])
def test_exported_vectors_equal_ours(name, pooling, folders, tmp_path):
    model = load_model(folders[name], pooling=pooling, max_length=40)
    export(model, tmp_path / "exported")
    exported = SentenceTransformer(str(tmp_path / "exported"), device="cpu")
    got = torch.from_numpy(exported.encode(TEXTS))
    want = torch.from_numpy(model.encode(TEXTS))
    assert torch.dist(got, want) < 1e-5 * want.norm()


def test_every_packed_architecture_is_tested():
    families = {**KINDS, **DECODERS}.values()
    assert {family.config.model_type for family in families} >= {*MODEL_TYPES}
