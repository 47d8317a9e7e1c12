"""What formulas and models are checked with: random numbers of a seed, cosines spelled out, a few sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import tiny_encoder


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers, the same for the same seed, drawn in float64 whatever the dtype."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def cos(x: Tensor, y: Tensor) -> float:
    """The cosine of two vectors, in float64."""
    x, y = x.double(), y.double()
    return (x @ y / (x @ x).sqrt() / (y @ y).sqrt()).item()


SENTENCES = [
    "The kettle is on, if you would like to stay.",
    "She would rather walk.",
    "Nobody had told the new teacher about the bell.",
    "He fixed the gate before breakfast.",
    "Is the last train gone?",
]
"""Five sentences of different lengths."""


class Numbers:
    """A model for which a sentence is the number behind its last blank, and the length of its first word."""

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed(self, sentences: Sequence[str]) -> PointEmbedding:
        self.embedded += sentences
        return PointEmbedding(torch.tensor([[float(s.split()[-1]), float(len(s.split()[0]))] for s in sentences]))


def save_tiny(folder: Path) -> Path:
    """Save the tiny encoder as save_pretrained leaves it, and return its folder."""
    encoder = tiny_encoder()
    encoder.backbone.save_pretrained(folder)
    encoder.tokenizer.tokenizer.save_pretrained(folder)
    return folder
