"""A sentence is a box: an axis-aligned region around a center, and one entails another if it lies
within.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from entailment import EntailmentCSE
from torch import Tensor, nn
from torch.nn.functional import softplus

from lightning_cse.embeddings import Embedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.models import Model, View
from lightning_cse.models.base import in_float32
from lightning_cse.similarity import cosine


@dataclass(frozen=True, eq=False, repr=False)
class BoxEmbedding(Embedding):
    """Center and log side lengths of boxes: (n, d) each."""

    center: Tensor
    log_size: Tensor
    _views: ClassVar = {"center": "center"}


def log_overlap(
    center: Tensor, log_size: Tensor, other_center: Tensor, other_log_size: Tensor
) -> Tensor:
    r"""Return the log share of a box that lies within another one, averaged over dimensions.

    .. math:: \frac{1}{d} \sum_h \log \frac{\text{softplus}(\min(b_h, b'_h) - \max(a_h, a'_h))}
              {\text{softplus}(b_h - a_h)}

    for a box from a to b and another from a' to b'. Disjoint boxes still have a gradient, by the
    softplus. The shapes (..., d) are broadcast.
    """
    size = log_size.exp()
    other_size = other_log_size.exp()
    low = torch.maximum(center - size / 2, other_center - other_size / 2)
    high = torch.minimum(center + size / 2, other_center + other_size / 2)
    return (softplus(high - low).log() - softplus(size).log()).mean(dim=-1)


def log_overlap_matrix(premise: BoxEmbedding, hypothesis: BoxEmbedding) -> Tensor:
    """Return the log share of each premise's box within each hypothesis's: (n, m)."""
    center, log_size = premise.center[:, None], premise.log_size[:, None]
    return log_overlap(center, log_size, hypothesis.center, hypothesis.log_size)


class BoxModel(Model):
    """Two linear layers on the pooled vector give the center and the log side lengths of a box."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__(encoder)
        self.center = nn.Linear(encoder.width, encoder.width)
        self.log_size = nn.Linear(encoder.width, encoder.width)

    def encode(self, *roles: Any) -> list[BoxEmbedding]:
        """Embed every role's sentences in one pass."""
        vectors = self.pooled(*roles)
        return [
            BoxEmbedding(in_float32(self.center, vector), in_float32(self.log_size, vector))
            for vector in vectors
        ]

    def view_layers(self) -> dict[str, View]:
        """Return how the center is computed, so that it can be exported."""
        return {"center": View(self.encoder, self.templates[0], (self.center,))}

    def similarity(self, a: BoxEmbedding, b: BoxEmbedding) -> Tensor:
        """Return the cosine of the centers row by row."""
        return cosine(a.center, b.center)

    def entailment_score(self, premise: BoxEmbedding, hypothesis: BoxEmbedding) -> Tensor:
        """Return the geometric mean over dimensions of how much of the premise lies within the
        hypothesis.
        """
        boxes = (premise.center, premise.log_size, hypothesis.center, hypothesis.log_size)
        return log_overlap(*boxes).exp()


class BoxCSE(EntailmentCSE):
    """Train a `BoxModel`: the box of a premise lies within that of a hypothesis it entails."""

    kind = BoxModel
    score = staticmethod(log_overlap_matrix)
    pairs: ClassVar = {"center": ("premise", "entailment")}
    papers = ("@misc{boxes, title = {Box embeddings of sentences, an example}}",)
