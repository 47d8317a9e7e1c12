"""Sentences to vectors: transformer backbone, pooling, and the templates around a sentence."""

from lightning_cse.encoders.encoder import SentenceEncoder, Tokenizer, load_encoder
from lightning_cse.encoders.templates import Template
from lightning_cse.encoders.tiny import tiny_encoder

__all__ = ["SentenceEncoder", "Template", "Tokenizer", "load_encoder", "tiny_encoder"]
