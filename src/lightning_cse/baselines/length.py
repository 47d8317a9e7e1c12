"""LENGTH: the longer sentence implies more, and entails the shorter one."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lightning_cse.embeddings import PointEmbedding


class Length(nn.Module):
    """The number of words (separated by white space) as implicitness, of characters as the direction of entailment.

    Source: DualCSE, baseline LENGTH: words, and ties wrong, give its 99.90 on INLI test; GaussCSE, length baseline:
    characters, a strictly longer premise, give its 69.14 on SICK.
    """

    def embed(self, sentences: Sequence[str]) -> PointEmbedding:
        """Return the numbers of words and of characters: (n, 2)."""
        return PointEmbedding(torch.tensor([[float(len(s.split())), float(len(s))] for s in sentences]))

    def implicitness(self, sentence: PointEmbedding) -> Tensor:
        """Return the numbers of words: (n,)."""
        return sentence.vector[:, 0]

    def direction(self, premise: PointEmbedding, hypothesis: PointEmbedding) -> Tensor:
        """Return by how many characters the premise is longer: (n,)."""
        return premise.vector[:, 1] - hypothesis.vector[:, 1]
