"""A sentence is a point, and a classifier on two points predicts the label of a pair."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.losses import SoftmaxClassification
from lightning_cse.models.point import PointModel


class PairModel(PointModel):
    """The pooled vector of a sentence, compared by cosine, and a classifier on pairs of vectors.

    ``classes``, ``parts``, ``hidden`` and ``tanh`` are those of `SoftmaxClassification`.
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        *,
        classes: int = 3,
        parts: Sequence[str] = ("first", "second", "difference"),
        hidden: Sequence[int] = (),
        tanh: bool = False,
    ) -> None:
        super().__init__(encoder)
        self.classes = classes
        self.parts = list(parts)
        self.hidden = list(hidden)
        self.tanh = tanh
        self.classifier = SoftmaxClassification(
            encoder.width, classes, parts=self.parts, hidden=self.hidden, tanh=tanh
        )

    @torch.no_grad()
    def label_scores(self, a: PointEmbedding, b: PointEmbedding) -> Tensor:
        """Return the logits of each label for each row of ``a`` and the same of ``b``: (n, k)."""
        first, second = (embedding.vector.to(self.device) for embedding in (a, b))
        return self.classifier.logits(first, second).cpu()
