"""An encoder as it was loaded, compared by cosine."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_cse.embeddings import Embedding, PointEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.methods.base import EVALUATION_TOKENS, embed
from lightning_cse.similarity import cosine
from lightning_cse.tokens import Tokens


class PlainEncoder:
    """The pooled vector of an encoder that was not trained here."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        self.encoder = encoder.eval()
        self.template = encoder.template()

    @torch.no_grad()
    def embed(self, sentences: Sequence[str]) -> Embedding:
        """Embed sentences without dropout."""
        return embed(sentences, self.encoder, self._encode, next(self.encoder.parameters()).device)

    def _encode(self, tokens: Tokens) -> list[Embedding]:
        return [PointEmbedding(vector) for vector in self.encoder([(tokens, self.template)], most=EVALUATION_TOKENS)]

    def features(self, embedding: PointEmbedding) -> Tensor:
        """Return what a classifier is fitted on, the vectors as they are: (n, d)."""
        return embedding.vector

    def similarity(self, a: PointEmbedding, b: PointEmbedding) -> Tensor:
        """Return the cosine row by row."""
        return cosine(a.vector, b.vector)

    def entailment_score(self, premise: PointEmbedding, hypothesis: PointEmbedding) -> Tensor:
        """Return the cosine row by row."""
        return cosine(premise.vector, hypothesis.vector)
