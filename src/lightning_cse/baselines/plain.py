"""An encoder as it was loaded, compared by cosine."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.methods.base import EVALUATION_TOKENS
from lightning_cse.similarity import cosine
from lightning_cse.tokens import Tokens


class PlainEncoder:
    """The pooled vector of an encoder that was not trained here."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        self.encoder = encoder.eval()
        self.template = encoder.template()

    @torch.no_grad()
    def embed(self, sentences: Sequence[str]) -> PointEmbedding:
        """Embed sentences without dropout."""
        device = next(self.encoder.parameters()).device
        tokens = Tokens.pad(self.encoder.tokenizer(sentences)).to(device)
        (vector,) = self.encoder([(tokens, self.template)], most=EVALUATION_TOKENS)
        return PointEmbedding(vector.float().cpu())

    def similarity(self, a: PointEmbedding, b: PointEmbedding) -> Tensor:
        """Return the cosine row by row."""
        return cosine(a.vector, b.vector)

    def entailment_score(self, premise: PointEmbedding, hypothesis: PointEmbedding) -> Tensor:
        """Return the cosine row by row."""
        return cosine(premise.vector, hypothesis.vector)
