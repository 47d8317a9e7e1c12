"""SimCSE: a sentence is a point; what means the same is near, everything else in the batch is far."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.methods.base import MakeOptimizer, Method
from lightning_cse.methods.schedules import Schedule
from lightning_cse.similarity import cosine
from lightning_cse.tokens import Tokens


class SimCSE(Method):
    r"""Supervised SimCSE: anchor, positive and hard negative, one vector each, compared by cosine.

    A head, ``tanh(Wx + b)``, freshly initialised, sits on the pooled vector and is kept at test.

    Source: Gao et al. 2021, section 4, and the authors' code (head, negatives of all rows).  Differs: the head
    starts as torch's linear layers do; theirs starts at N(0, 0.02).
    """

    roles: tuple[str, ...] = ("anchor", "positive", "negative")
    pairs: ClassVar = {"primary": ("anchor", "positive")}

    def __init__(
        self, encoder: SentenceEncoder, loss: nn.Module, *, optimizer: MakeOptimizer, schedule: Schedule
    ) -> None:
        super().__init__(encoder, loss, optimizer=optimizer, schedule=schedule)
        self.head = nn.Sequential(nn.Linear(encoder.width, encoder.width), nn.Tanh())
        self.template = encoder.template()

    @property
    def templates(self) -> tuple[Template, ...]:
        """The only one."""
        return (self.template,)

    def encode(self, *roles: Tokens) -> list[PointEmbedding]:
        """Embed every role's sentences in one pass."""
        return [PointEmbedding(self.project(vector)) for vector in self.pooled(*roles)]

    def pooled(self, *roles: Tokens) -> list[Tensor]:
        """Return the encoder's vectors of every role's sentences, from one pass."""
        vectors: list[Tensor] = self.encoder([(tokens, self.template) for tokens in roles], most=self.tokens_at_once)
        return vectors

    def project(self, vector: Tensor) -> Tensor:
        """Put the head on a vector."""
        # In float32 also under autocast: a vector rounded to bfloat16 makes ties between scores.
        with torch.autocast(self.device.type, enabled=False):
            projected: Tensor = self.head(vector)
            return projected

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the three roles of a batch and compare them."""
        anchor, positive, negative = self.encode(*(batch["roles"][role] for role in self.roles))
        loss = self.loss(anchor.vector, positive.vector, negative.vector)
        return self.output(loss, batch["index"], anchor=anchor, positive=positive, negative=negative)

    def similarity(self, a: PointEmbedding, b: PointEmbedding) -> Tensor:
        """Return the cosine row by row."""
        return cosine(a.vector, b.vector)

    def entailment_score(self, premise: PointEmbedding, hypothesis: PointEmbedding) -> Tensor:
        """Return the cosine row by row: a point has no direction."""
        return cosine(premise.vector, hypothesis.vector)


class UnsupervisedSimCSE(SimCSE):
    r"""Unsupervised SimCSE: the positive is the anchor itself, seen through another dropout mask.

    Both passes are one call of the encoder, in which every sentence of every pass has a mask of its own. The head is
    there in training only: at test, and for the diagnostics, a sentence is its pooled vector.

    Source: Gao et al. 2021, section 3, and the authors' code (one direction, head dropped at test).  Differs: the start
    of the head, as in `SimCSE`.
    """

    roles = ("anchor",)
    pairs: ClassVar = {"primary": ("anchor", "anchor")}
    needs_dropout = True

    def encode(self, *roles: Tokens) -> list[PointEmbedding]:
        """Embed every role's sentences in one pass, without the head."""
        return [PointEmbedding(vector) for vector in self.pooled(*roles)]

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the sentences of a batch twice and compare the two."""
        tokens = batch["roles"]["anchor"]
        anchor, positive = (PointEmbedding(self.project(vector)) for vector in self.pooled(tokens, tokens))
        loss = self.loss(anchor.vector, positive.vector)
        return self.output(loss, batch["index"], anchor=anchor, positive=positive)
