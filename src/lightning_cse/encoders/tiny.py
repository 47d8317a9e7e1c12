"""A small random encoder for tests and ``+debug=tiny``: trained in no time, of no use otherwise."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import as_file, files
from typing import Any

import torch
from transformers import BertConfig, BertModel, BertTokenizer

from lightning_cse.encoders.encoder import SentenceEncoder
from lightning_cse.encoders.packing import set_dropout


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
    """Return a random BERT over the sample corpus's word pieces; ``seed`` alone decides its weights."""
    with as_file(files("lightning_cse.encoders") / "tiny_vocab.txt") as path:
        vocabulary = path.read_bytes()
        tokenizer = BertTokenizer(vocab=str(path), do_lower_case=True)
    sizes: dict[str, Any] = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": 256, "vocab_size": len(vocabulary.splitlines())}
    config = BertConfig(**sizes, initializer_range=0.3)  # at BERT's 0.02 all sentences would get one vector
    set_dropout(config, dropout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        backbone = BertModel(config, add_pooling_layer=False)
    weights = hashlib.sha256(f"tiny BERT, width {width}, {layers} layers, seed {seed}".encode()).hexdigest()
    options: dict[str, Any] = {"prompts": prompts, "denoise": denoise, "freeze_embeddings": freeze_embeddings}
    options |= {"digests": {"weights": weights, "tokenizer": hashlib.sha256(vocabulary).hexdigest()}}
    return SentenceEncoder(backbone, tokenizer, name=name, pooling=pooling, max_length=max_length, **options)
