"""LENGTH: a longer sentence is more implicit than a shorter one, and entails it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lightning_cse.embeddings import PointEmbedding


class Length(nn.Module):
    """The number of words (separated by white space) as implicitness, of characters for the
    direction of entailment.

    Source: DualCSE, baseline LENGTH: words, with ties wrong, give its 99.90 on INLI test;
    GaussCSE, length baseline: characters, with a strictly longer premise, give its 69.14 on
    SICK.
    """

    def embed(self, sentences: Sequence[str]) -> PointEmbedding:
        """Return the numbers of words and of characters: (n, 2)."""
        return PointEmbedding(
            torch.tensor([[float(len(s.split())), float(len(s))] for s in sentences])
        )

    def implicitness(self, sentence: PointEmbedding) -> Tensor:
        """Return the numbers of words: (n,)."""
        return sentence.vector[:, 0]

    def direction(self, premise: PointEmbedding, hypothesis: PointEmbedding) -> Tensor:
        """Return how many characters the premise is longer than the hypothesis: (n,)."""
        return premise.vector[:, 1] - hypothesis.vector[:, 1]
