"""A sentence is a point: the encoder's pooled vector, or a head on it."""

from torch import Tensor, nn

from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.models.base import Model, View, in_float32
from lightning_cse.similarity import cosine
from lightning_cse.tokens import Tokens


class PointModel(Model):
    r"""One vector per sentence, compared by cosine: the pooled vector, or SimCSE's head
    :math:`\tanh(Wx + b)` on it.
    """

    def __init__(self, encoder: SentenceEncoder, *, has_head: bool = False) -> None:
        super().__init__(encoder)
        self.has_head = has_head
        self.head: nn.Module | None = None
        if has_head:
            self.head = nn.Sequential(nn.Linear(encoder.width, encoder.width), nn.Tanh())

    def encode(self, *roles: Tokens) -> list[PointEmbedding]:
        """Embed every role's sentences in one pass."""
        vectors = self.pooled(*roles)
        if self.head is not None:
            vectors = [in_float32(self.head, vector) for vector in vectors]

        return [PointEmbedding(vector) for vector in vectors]

    def view_layers(self) -> dict[str, View]:
        """Return how the only view is computed."""
        layers = () if self.head is None else (self.head,)
        return {"primary": View(self.encoder, self.templates[0], layers)}

    def similarity(self, a: PointEmbedding, b: PointEmbedding) -> Tensor:
        """Return the cosine row by row."""
        return cosine(a.vector, b.vector)

    entailment_score = similarity  # a point has no direction
