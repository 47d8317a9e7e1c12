"""SimCSE: a sentence is a point, close to what means the same and far from the others."""

from typing import Any, ClassVar, Unpack

from torch import nn

from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.methods.base import Method, Training
from lightning_cse.models import PointModel
from lightning_cse.models.base import in_float32


class SimCSE(Method):
    r"""Supervised SimCSE: anchor, positive and hard negatives, one vector each, compared by cosine.

    A row may have no hard negative, or several; all are candidates for all rows. A freshly
    initialised head, ``tanh(Wx + b)``, is applied to the pooled vector and kept at test. Without
    ``head``, the pooled vector itself is trained: a new head undoes what a sentence encoder has
    learned.

    Source: Gao et al. 2021, section 4, and the authors' code (head, negatives of all
    rows).  Differs: the head is initialised as torch's linear layers are; theirs from N(0, 0.02).
    """

    papers = ("gao2021simcse",)
    model: PointModel
    roles = ("anchor", "positive", "negative")
    optional = roles[2:]
    pairs: ClassVar = {"primary": ("anchor", "positive")}

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: nn.Module,
        *,
        head: bool = True,
        **training: Unpack[Training],
    ) -> None:
        super().__init__(PointModel(encoder, has_head=head), loss, **training)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the roles of a batch and compare them."""
        embeddings = self.embed(batch)
        vectors = {role: embedding.vector for role, embedding in embeddings.items()}
        loss = self.loss(**vectors)

        return self.output(loss, batch["index"], **embeddings)


class UnsupervisedSimCSE(Method):
    r"""Unsupervised SimCSE: the positive is the anchor itself under another dropout mask.

    Both passes are one call of the encoder, in which every sentence of every pass has its own mask.
    The head is used in training only: at test, and in the diagnostics, the embedding of a sentence
    is its pooled vector.

    Source: Gao et al. 2021, section 3, and the authors' code (one direction, head dropped at
    test).  Differs: the initialisation of the head, as in `SimCSE`.
    """

    papers = ("gao2021simcse",)
    model: PointModel
    roles = ("anchor",)
    pairs: ClassVar = {"primary": ("anchor", "anchor")}
    needs_dropout = True

    def __init__(
        self, encoder: SentenceEncoder, loss: nn.Module, **training: Unpack[Training]
    ) -> None:
        super().__init__(PointModel(encoder), loss, **training)
        self.head = nn.Sequential(nn.Linear(encoder.width, encoder.width), nn.Tanh())

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the sentences of a batch twice, and compare the two embeddings."""
        tokens = batch["roles"]["anchor"]
        pooled = self.model.pooled(tokens, tokens)
        anchor, positive = (PointEmbedding(in_float32(self.head, vector)) for vector in pooled)
        loss = self.loss(anchor.vector, positive.vector)

        return self.output(loss, batch["index"], anchor=anchor, positive=positive)
