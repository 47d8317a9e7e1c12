"""DualGauss: two Gaussians a sentence, what it says and what it implies; DualCSE's loss, GaussCSE's similarity."""

from __future__ import annotations

import copy
from typing import Literal

from torch import Tensor

from lightning_cse.embeddings import DualGaussianEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.losses import DualContrastive
from lightning_cse.methods.base import MakeOptimizer
from lightning_cse.methods.dualcse import DualCSE
from lightning_cse.methods.heads import GaussianHeads
from lightning_cse.methods.schedules import Schedule
from lightning_cse.similarity import GaussianSimilarity, cosine
from lightning_cse.tokens import Tokens


class DualGauss(DualCSE):
    r"""DualCSE with a Gaussian in place of each vector, compared by the KL similarity from the candidate to the anchor.

    The loss, the rule of entailment and implicitness are DualCSE's with :math:`\mathrm{sim}(b \Vert a)` where it has
    :math:`\cos(a, b)`: for a premise p and a hypothesis h, with Gaussians R (explicit) and U (implicit),

    .. math:: \max(\mathrm{sim}(R_h \Vert R_p), \mathrm{sim}(R_h \Vert U_p)), \qquad
              1 - \mathrm{sim}(U_s \Vert R_s),

    so that the premise, wide enough to cover both what it says and what it implies, can be told from the hypothesis.

    Source: ours; no paper has it. Embeddings and heads are GaussCSE's, views and loss DualCSE's.

    Args:
        encoder: sentences to vectors.
        loss: DualCSE's, with the Gaussian similarity.
        optimizer: as in `Method`.
        schedule: as in `Method`.
        architecture: as in `DualCSE`; each encoder has heads of its own.
    """

    compares = GaussianSimilarity

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: DualContrastive,
        *,
        optimizer: MakeOptimizer,
        schedule: Schedule,
        architecture: Literal["cross", "bi"] = "cross",
    ) -> None:
        super().__init__(encoder, loss, optimizer=optimizer, schedule=schedule, architecture=architecture)
        self.heads = GaussianHeads(encoder.width)
        self.implicit_heads = copy.deepcopy(self.heads) if architecture == "bi" else None

    def encode(self, *roles: Tokens) -> list[DualGaussianEmbedding]:
        """Embed every role's sentences."""
        implicit = self.implicit_heads or self.heads
        return [DualGaussianEmbedding.of(self.heads(r), implicit(u)) for r, u in self.vectors(*roles)]

    def similarity(self, a: DualGaussianEmbedding, b: DualGaussianEmbedding) -> Tensor:
        """Return the cosine of the explicit means row by row, which is symmetric, as GaussCSE's is."""
        return cosine(a.explicit_mean, b.explicit_mean)

    def log_determinant(self, sentence: DualGaussianEmbedding) -> Tensor:
        r"""Return :math:`\sum_d \log \sigma_d^2` of the explicit Gaussian, how wide it is."""
        return sentence.explicit_log_variance.sum(dim=-1)
