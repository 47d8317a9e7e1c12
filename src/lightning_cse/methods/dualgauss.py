"""DualGauss: two Gaussians per sentence; DualCSE's loss with GaussCSE's similarity."""

from typing import cast

from lightning_cse.encoders import SentenceEncoder
from lightning_cse.losses import DualContrastive
from lightning_cse.methods.dualcse import DualCSE
from lightning_cse.models import DualGaussianModel
from lightning_cse.models.dual import Architecture
from lightning_cse.similarity import GaussianSimilarity


class DualGauss(DualCSE):
    """DualCSE with a Gaussian in place of each vector, compared by the KL similarity.

    A pair is scored by the similarity of the candidate to the anchor. The premise is wide enough to
    cover both what it says and what it implies, which distinguishes it from its hypothesis.

    Source: ours; no paper has it. Embeddings and heads are GaussCSE's, views and loss DualCSE's.
    """

    papers = ("oda2026dualcse", "yoda2024gausscse")
    compares = GaussianSimilarity

    def build_model(
        self, encoder: SentenceEncoder, loss: DualContrastive, architecture: Architecture
    ) -> DualGaussianModel:
        """Return the model, which compares embeddings as the loss does."""
        similarity = cast(GaussianSimilarity, loss.similarity)
        return DualGaussianModel(encoder, architecture=architecture, reduce=similarity.reduce)
