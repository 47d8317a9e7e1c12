"""Sentences to vectors: transformer backbone, pooling, and the templates around a sentence."""

from lightning_cse.encoders.encoder import SentenceEncoder, Tokenizer, load_encoder
from lightning_cse.encoders.saved import read_max_length, read_pooling
from lightning_cse.encoders.templates import PROMPTS, Template
from lightning_cse.encoders.tiny import tiny_encoder

__all__ = [
    "PROMPTS",
    "SentenceEncoder",
    "Template",
    "Tokenizer",
    "load_encoder",
    "read_max_length",
    "read_pooling",
    "tiny_encoder",
]
