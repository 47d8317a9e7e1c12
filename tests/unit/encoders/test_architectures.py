"""Encoders of many architectures: dropout, the first layers, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from encoder_kinds import KINDS, save_kind
from torch import nn

from lightning_cse.encoders import SentenceEncoder, load_encoder, tiny_encoder
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
PLACES = (
    "attention_dropout",
    "embedding_dropout",
    "mlp_dropout",
)  # of ModernBERT; 0 in its own config


def load(folder: Path, **options: Any) -> SentenceEncoder:
    return load_encoder(
        **{"name": "x", "source": str(folder), "pooling": "mean", "max_length": 32} | options
    )


def save(config: hf.PreTrainedConfig, folder: Path) -> Path:
    """Save a random model with the tiny tokenizer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf.AutoModel.from_config(config).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each architecture."""
    made = {name: save_kind(name, tmp_path_factory.mktemp(name)) for name in KINDS}
    return made | {
        key: save_kind("modernbert", tmp_path_factory.mktemp(key), **{key: 0.5}) for key in PLACES
    }


def passes_differ(encoder: SentenceEncoder) -> bool:
    tokens = Tokens.pad(encoder.train().tokenizer(["the cat and the dog", "hi"]))
    one, two = (encoder([(tokens, encoder.template())])[0] for _ in range(2))
    return not torch.equal(one, two)


@pytest.mark.parametrize("name", [*KINDS, *PLACES])
def test_an_architectures_own_dropout(name: str, folders: dict[str, Path]) -> None:
    encoder = load(folders[name])
    assert encoder.has_dropout is passes_differ(encoder) is (name not in ("albert", "modernbert"))


@pytest.mark.parametrize("name", ["tiny", *KINDS])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_dropout_reaches_every_place(name: str, dropout: float, folders: dict[str, Path]) -> None:
    encoder = (
        tiny_encoder(dropout=dropout) if name == "tiny" else load(folders[name], dropout=dropout)
    )
    assert {module.p for module in encoder.modules() if isinstance(module, nn.Dropout)} == {dropout}
    assert encoder.has_dropout is passes_differ(encoder) is (dropout > 0)


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_the_first_layers(name: str, folders: dict[str, Path]) -> None:
    whole, cut = load(folders[name]).eval(), load(folders[name], layers=2).eval()
    tokens = Tokens.pad(whole.tokenizer(["the cat and the dog", "hi"]))
    inputs = {
        "input_ids": tokens.ids,
        "attention_mask": tokens.mask.long(),
        "output_hidden_states": True,
    }
    states, got = whole.backbone(**inputs).hidden_states, cut.backbone(**inputs).hidden_states
    assert (len(states), len(got)) == (4, 3)
    if name != "modernbert":  # the last state of its own is behind a norm
        torch.testing.assert_close(got[2][tokens.mask], states[2][tokens.mask])


def test_layers_have_digests_of_their_own_and_a_folder_of_their_own(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    whole, one, two, again = (load(folders["bert"], layers=layers) for layers in (None, 1, 2, 2))
    assert len({encoder.digests["weights"] for encoder in (whole, one, two)}) == 3
    assert two.digests == again.digests
    assert two.digests["tokenizer"] == whole.digests["tokenizer"]
    two.backbone.save_pretrained(tmp_path)
    two.tokenizer.tokenizer.save_pretrained(tmp_path)
    assert load(tmp_path).backbone.config.num_hidden_layers == 2


@pytest.mark.parametrize("layers", [0, 4, True, "2"])
def test_layers_that_the_model_does_not_have(layers: Any, folders: dict[str, Path]) -> None:
    with pytest.raises(
        EncoderError, match=r"encoder\.layers: must be null or an integer from 1 to 3, got"
    ):
        load(folders["bert"], layers=layers)


def test_missing_parameters_of_a_kept_layer_are_an_error(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = save(hf.BertConfig(**SIZES | {"num_hidden_layers": 1}), tmp_path)
    (folder / "config.json").write_text(json.dumps(hf.BertConfig(**SIZES).to_dict()))
    assert load(folder, layers=1).backbone.config.num_hidden_layers == 1
    with pytest.raises(
        EncoderError,
        match="16 parameters of BertModel are missing from the weights or have another",
    ):
        load(folder, layers=2)


REFUSED = [
    (
        hf.GPT2Config(vocab_size=WORDS, n_embd=16, n_layer=1, n_head=2),
        "the gpt2 in .* is a decoder, whose tokens",
    ),
    (hf.BertConfig(**SIZES, is_decoder=True), "the bert in .* is a decoder"),
    (
        hf.T5Config(vocab_size=WORDS, d_model=16, num_layers=1, num_heads=2, d_ff=32, d_kv=8),
        "t5 .* encoder-decoder",
    ),
    (
        hf.BertConfig(**SIZES | {"vocab_size": WORDS - 1}),
        f"ids up to {WORDS - 1}, but the embedding has {WORDS - 1} row",
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("config", "message"), REFUSED, ids=lambda value: getattr(value, "model_type", None)
)
def test_refused(config: hf.PreTrainedConfig, message: str, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=message):
        load(save(config, tmp_path))
