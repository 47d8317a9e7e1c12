"""Encoders of many architectures: dropout, the first layers, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

from lightning_cse.encoders import load_encoder, tiny_encoder
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

TOKENIZER = tiny_encoder().tokenizer.tokenizer
WORDS = len(TOKENIZER)
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
RELATIVE = SIZES | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
DISTIL = {"vocab_size": WORDS, "dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 64}
ENCODERS: dict[str, hf.PreTrainedConfig] = {
    "bert": hf.BertConfig(**SIZES),
    "roberta": hf.RobertaConfig(**SIZES),
    "xlm-roberta": hf.XLMRobertaConfig(**SIZES),
    "mpnet": hf.MPNetConfig(**SIZES),
    "distilbert": hf.DistilBertConfig(**DISTIL),
    "electra": hf.ElectraConfig(**SIZES, embedding_size=8),
    "albert": hf.AlbertConfig(**SIZES, embedding_size=8),
    "deberta": hf.DebertaConfig(**RELATIVE),
    "deberta-v2": hf.DebertaV2Config(**RELATIVE),
    "modernbert": hf.ModernBertConfig(**SIZES, cls_token_id=2, sep_token_id=3),
}
WITHOUT = ("albert", "modernbert")  # their own dropout is 0


def save(config: hf.PreTrainedConfig, folder: Path) -> Path:
    """Save a random model with the tiny tokenizer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf.AutoModel.from_config(config).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each of `ENCODERS`."""
    return {name: save(config, tmp_path_factory.mktemp(name)) for name, config in ENCODERS.items()}


def load(folder: Path, **options: Any) -> Any:
    return load_encoder(name="x", source=str(folder), pooling="mean", max_length=32, **options)


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("dropout", [None, 0.0, 0.3])
def test_dropout_reaches_every_place(name: str, dropout: float | None, folders: dict[str, Path]) -> None:
    encoder = load(folders[name], dropout=dropout).train()
    expected = (dropout or 0) > 0 if dropout is not None else name not in WITHOUT
    probabilities = {module.p for module in encoder.modules() if isinstance(module, nn.Dropout)}
    if dropout is not None:
        assert probabilities == {dropout}
    tokens = Tokens.pad(encoder.tokenizer(["the cat and the dog", "hi"]))
    one, two = (encoder([(tokens, encoder.template())])[0] for _ in range(2))
    assert encoder.has_dropout is expected
    assert torch.equal(one, two) is not expected


@pytest.mark.parametrize("key", ["attention_dropout", "embedding_dropout", "mlp_dropout"])
def test_any_one_dropout_counts(key: str, folders: dict[str, Path], tmp_path: Path) -> None:
    config = hf.ModernBertConfig(**ENCODERS["modernbert"].to_dict() | {key: 0.5})
    encoder = load(save(config, tmp_path)).train()
    tokens = Tokens.pad(encoder.tokenizer(["the cat and the dog", "hi"]))
    one, two = (encoder([(tokens, encoder.template())])[0] for _ in range(2))
    assert encoder.has_dropout
    assert not torch.equal(one, two)


@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_the_first_layers(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    whole, cut = load(folders[name]).eval(), load(folders[name], layers=2).eval()
    tokens = Tokens.pad(whole.tokenizer(["the cat and the dog", "hi"]))
    inputs = {"input_ids": tokens.ids, "attention_mask": tokens.mask.long()}
    states = whole.backbone(**inputs, output_hidden_states=True).hidden_states
    got = cut.backbone(**inputs, output_hidden_states=True).hidden_states
    assert (len(states), len(got)) == (4, 3)
    if name != "modernbert":  # the last state of its own is behind a norm
        torch.testing.assert_close(got[2][tokens.mask], states[2][tokens.mask])
    assert cut.digests["tokenizer"] == whole.digests["tokenizer"]
    again = load(folders[name], layers=2), load(folders[name], layers=1), whole
    assert [each.digests["weights"] == cut.digests["weights"] for each in again] == [True, False, False]
    cut.backbone.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    assert load(tmp_path).backbone.config.num_hidden_layers == 2


@pytest.mark.parametrize("layers", [0, 4, -1, True, 1.0, "2"])
def test_layers_that_the_model_does_not_have(layers: Any, folders: dict[str, Path]) -> None:
    with pytest.raises(EncoderError, match=r"encoder\.layers: must be null or an integer from 1 to 3, got"):
        load(folders["bert"], layers=layers)


def test_missing_parameters_of_a_kept_layer_are_an_error(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = save(hf.BertConfig(**SIZES | {"num_hidden_layers": 1}), tmp_path)
    (folder / "config.json").write_text(json.dumps(ENCODERS["bert"].to_dict()))
    assert load(folder, layers=1).backbone.config.num_hidden_layers == 1
    with pytest.raises(
        EncoderError, match=r"16 parameters of BertModel are missing from the weights or have another shape: encoder"
    ):
        load(folder, layers=2)


REFUSED = [
    (hf.GPT2Config(vocab_size=WORDS, n_embd=16, n_layer=1, n_head=2), "the gpt2 in .* is a decoder, whose tokens"),
    (hf.LlamaConfig(**SIZES), "the llama in .* is a decoder"),
    (hf.BertConfig(**SIZES, is_decoder=True), "the bert in .* is a decoder"),
    (hf.T5Config(vocab_size=WORDS, d_model=16, num_layers=1, num_heads=2, d_ff=32, d_kv=8), "t5 .* encoder-decoder"),
    (hf.BartConfig(vocab_size=WORDS, d_model=16, encoder_layers=1, decoder_layers=1), "the bart .* encoder-decoder"),
    (hf.BertConfig(**SIZES | {"num_hidden_layers": 0}), r"config\.json: num_hidden_layers must be at least 1, got 0"),
    (
        hf.BertConfig(**SIZES | {"vocab_size": WORDS - 1}),
        f"ids up to {WORDS - 1}, but the embedding has {WORDS - 1} rows",
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("config", "message"), REFUSED, ids=lambda value: getattr(value, "model_type", None))
def test_refused(config: hf.PreTrainedConfig, message: str, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=message):
        load(save(config, tmp_path))
