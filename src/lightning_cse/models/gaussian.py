"""A sentence is a diagonal Gaussian, and one that entails another is the wider of the two."""

from typing import Literal

from torch import Tensor, nn

from lightning_cse.embeddings import GaussianEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.models.base import Model, View, in_float32
from lightning_cse.similarity import (
    Reduce,
    cosine,
    gaussian_similarity,
    symmetric_gaussian_similarity,
)
from lightning_cse.tokens import Tokens

StsSimilarity = Literal["cosine_of_means", "symmetric"]


class GaussianHeads(nn.Module):
    r"""Two heads on a pooled vector v: the mean and the log variance of each dimension of a
    Gaussian.

    .. math:: \mu = \tanh(W_\mu v + b_\mu), \qquad \log \sigma^2 = W_\sigma v + b_\sigma

    with v and both results of shape ``(n, width)``.

    Source: GaussCSE, the authors' code (the paper has no tanh, and calls the second head's output
    the variance).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.log_variance = nn.Linear(width, width)

    def forward(self, vector: Tensor) -> GaussianEmbedding:
        """Return the Gaussians of some vectors."""
        return GaussianEmbedding(
            in_float32(self.mean, vector), in_float32(self.log_variance, vector)
        )


class GaussianModel(Model):
    """One Gaussian per sentence, from two heads on the pooled vector; ``reduce`` is that of
    `gaussian_similarity`.

    ``sts_similarity`` selects the similarity: ``cosine_of_means``, or ``symmetric``, from the mean
    of the divergences in both directions. (Authors' code; neither is in the paper.)
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        *,
        reduce: Reduce = "mean_of_sims",
        sts_similarity: StsSimilarity = "cosine_of_means",
    ) -> None:
        super().__init__(encoder)
        self.reduce: Reduce = reduce
        self.sts_similarity = sts_similarity
        self.heads = GaussianHeads(encoder.width)

    def encode(self, *roles: Tokens) -> list[GaussianEmbedding]:
        """Embed every role's sentences in one pass."""
        return [self.heads(vector) for vector in self.pooled(*roles)]

    def view_layers(self) -> dict[str, View]:
        """Return how the mean is computed."""
        return {"mean": View(self.encoder, self.templates[0], (self.heads.mean,))}

    def similarity(self, a: GaussianEmbedding, b: GaussianEmbedding) -> Tensor:
        """Return the cosine of the means, or the symmetric similarity, row by row."""
        if self.sts_similarity == "symmetric":
            return symmetric_gaussian_similarity(a, b, reduce=self.reduce)

        return cosine(a.mean, b.mean)

    def entailment_score(self, premise: GaussianEmbedding, hypothesis: GaussianEmbedding) -> Tensor:
        """Return sim(hypothesis || premise) row by row."""
        return gaussian_similarity(hypothesis, premise, reduce=self.reduce)

    def log_determinant(self, sentence: GaussianEmbedding) -> Tensor:
        r"""Return :math:`\sum_d \log \sigma_d^2`, a measure of the width of a sentence's
        Gaussian.
        """
        return sentence.log_variance.sum(dim=-1)
