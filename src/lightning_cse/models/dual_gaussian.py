"""Two Gaussians per sentence: what it says and what it implies."""

import copy
from dataclasses import replace

from torch import Tensor

from lightning_cse.embeddings import DualGaussianEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.models.base import View
from lightning_cse.models.dual import Architecture, DualModel
from lightning_cse.models.gaussian import GaussianHeads
from lightning_cse.similarity import GaussianSimilarity, Reduce, cosine
from lightning_cse.tokens import Tokens


class DualGaussianModel(DualModel):
    r"""The dual model with a Gaussian in place of each vector.

    Entailment and implicitness are those of `DualModel`, with :math:`\mathrm{sim}(b \Vert a)` in
    place of :math:`\cos(a, b)`: for a premise p and a hypothesis h, with Gaussians R (explicit) and
    U (implicit),

    .. math:: \max(\mathrm{sim}(R_h \Vert R_p), \mathrm{sim}(R_h \Vert U_p)), \qquad
              1 - \mathrm{sim}(U_s \Vert R_s)

    ``architecture`` is as in `DualModel`; each encoder has its own heads. ``reduce`` is as in
    `gaussian_similarity`.
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        *,
        architecture: Architecture = "cross",
        reduce: Reduce = "mean_of_sims",
    ) -> None:
        super().__init__(encoder, architecture=architecture)
        self.reduce = reduce
        self.compare = GaussianSimilarity(reduce).rows
        self.heads = GaussianHeads(encoder.width)
        self.implicit_heads = copy.deepcopy(self.heads) if architecture == "bi" else None

    def encode(self, *roles: Tokens) -> list[DualGaussianEmbedding]:
        """Embed every role's sentences."""
        implicit = self.implicit_heads or self.heads
        pairs = self.vectors(*roles)

        return [DualGaussianEmbedding.of(self.heads(r), implicit(u)) for r, u in pairs]

    def view_layers(self) -> dict[str, View]:
        """Return how the two means are computed."""
        views = super().view_layers()
        implicit = self.implicit_heads or self.heads

        return {
            "explicit": replace(views["explicit"], layers=(self.heads.mean,)),
            "implicit": replace(views["implicit"], layers=(implicit.mean,)),
        }

    def similarity(self, a: DualGaussianEmbedding, b: DualGaussianEmbedding) -> Tensor:
        """Return the cosine of the explicit means row by row, which is symmetric, as in
        `GaussianModel`.
        """
        return cosine(a.explicit_mean, b.explicit_mean)

    def log_determinant(self, sentence: DualGaussianEmbedding) -> Tensor:
        r"""Return :math:`\sum_d \log \sigma_d^2` of the explicit Gaussian, a measure of its
        width.
        """
        return sentence.explicit_log_variance.sum(dim=-1)
