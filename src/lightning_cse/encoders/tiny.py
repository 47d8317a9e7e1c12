"""A small random encoder for tests and ``+debug=tiny``: it learns nothing worth having, in no time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import as_file, files

import torch
from transformers import BertConfig, BertModel, BertTokenizer

from lightning_cse.encoders.encoder import SentenceEncoder


def tiny_encoder(
    *,
    name: str = "tiny",
    pooling: str = "cls",
    max_length: int = 128,
    width: int = 32,
    layers: int = 2,
    dropout: float | None = None,
    prompts: Sequence[str] | None = None,
    denoise: bool = False,
    freeze_embeddings: bool = False,
    seed: int = 0,
) -> SentenceEncoder:
    """Build a random BERT of a few thousand parameters over the word pieces of the sample corpus.

    The weights depend on ``seed`` alone, and the global random state is left as it was.
    """
    with as_file(files("lightning_cse.encoders") / "tiny_vocab.txt") as path:
        vocabulary = path.read_bytes()
        tokenizer = BertTokenizer(vocab=str(path), do_lower_case=True)
    config = BertConfig(
        vocab_size=len(vocabulary.splitlines()),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=256,
        initializer_range=0.3,  # at BERT's 0.02 so small a model gives all sentences one vector
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        backbone = BertModel(config, add_pooling_layer=False)
    digests = {
        "weights": hashlib.sha256(f"tiny BERT, width {width}, {layers} layers, seed {seed}".encode()).hexdigest(),
        "tokenizer": hashlib.sha256(vocabulary).hexdigest(),
    }
    return SentenceEncoder(
        backbone,
        tokenizer,
        name=name,
        pooling=pooling,
        max_length=max_length,
        digests=digests,
        dropout=dropout,
        prompts=prompts,
        denoise=denoise,
        freeze_embeddings=freeze_embeddings,
    )
