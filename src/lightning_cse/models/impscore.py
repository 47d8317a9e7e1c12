"""Semantic and pragmatic vectors of a sentence; implicitness is their distance."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from lightning_cse.embeddings import PragmaticEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import EncoderError
from lightning_cse.models.base import Model, Normalize, View, in_float32
from lightning_cse.similarity import cosine
from lightning_cse.tokens import Tokens

Direction = Literal["p2s", "s2p", "third_space"]
Distance = Literal["cosine", "euclidean"]


class ImpScoreModel(Model):
    r"""Linear maps without bias: P and S from the sentence vector x to ``dim`` dimensions, and T
    within these.

    .. math:: p = P x, \qquad s = S x, \qquad I = d(s, T p), \qquad D = d'(p_1, p_2)

    I is the implicitness of a sentence, D the pragmatic distance of two sentences: how far apart
    their meanings are. A distance is :math:`1 - \cos`, or Euclidean. A frozen encoder has no
    gradient and no dropout, and is not part of the state dict.

    Source: ImpScore (Wang et al. 2025), method, and the authors' code, which has the third space's
    two maps. Differs: the score for entailment, minus the pragmatic distance, is ours.

    ``space`` selects the vectors compared for I: s and Tp (``p2s``), Ts and p (``s2p``), or, in a
    third space with two maps, :math:`T_s s` and :math:`T_p p` (``third_space``). ``normalize``
    scales sentence vectors to length one, which matters to Euclidean distances.
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        *,
        dim: int = 64,
        space: Direction = "p2s",
        implicitness_metric: Distance = "cosine",
        pragmatic_metric: Distance = "euclidean",
        frozen: bool = True,
        normalize: bool = True,
    ) -> None:
        super().__init__(encoder)
        self.dim = dim
        self.space = space
        self.implicitness_metric = implicitness_metric
        self.pragmatic_metric = pragmatic_metric
        self.frozen = frozen
        self.normalize = normalize
        self.pragmatic = _xavier(encoder.width, dim)
        self.semantic = _xavier(encoder.width, dim)
        self.from_pragmatic = nn.Identity() if space == "s2p" else _xavier(dim, dim)
        self.from_semantic = nn.Identity() if space == "p2s" else _xavier(dim, dim)
        if frozen:
            if encoder.adapter:
                raise EncoderError(
                    "encoder.adapter: a frozen encoder trains no adapter; set method.frozen=false"
                )

            encoder.requires_grad_(False)
            encoder.eval()

    def train(self, mode: bool = True) -> ImpScoreModel:
        """Set the mode of all modules except a frozen encoder, which stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()

        return self

    def encode(self, *roles: Tokens) -> list[PragmaticEmbedding]:
        """Embed every role's sentences in one pass."""
        return [self.project(vector) for vector in self.pooled(*roles)]

    def pooled(self, *roles: Tokens) -> list[Tensor]:
        """Return the sentence vectors of every role, from one pass; without gradients if the
        encoder is frozen.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            vectors = super().pooled(*roles)
            if self.normalize:
                vectors = [nn.functional.normalize(vector, dim=-1) for vector in vectors]

            return vectors

    def view_layers(self) -> dict[str, View]:
        """Return how the pragmatic and the semantic vector are computed."""
        template = self.templates[0]
        scaled = (Normalize(),) if self.normalize else ()

        return {
            "pragmatic": View(self.encoder, template, (*scaled, self.pragmatic)),
            "semantic": View(self.encoder, template, (*scaled, self.semantic)),
        }

    def project(self, vector: Tensor) -> PragmaticEmbedding:
        """Apply the two maps to sentence vectors."""
        return PragmaticEmbedding(
            in_float32(self.semantic, vector), in_float32(self.pragmatic, vector)
        )

    def implicitness(self, sentence: PragmaticEmbedding) -> Tensor:
        """Return the distance of the semantic and the pragmatic vector, in the space where they are
        compared: (n,).
        """
        weight = self.pragmatic.weight
        # Embeddings are in main memory in evaluation.
        moved = sentence.to(weight.device, weight.dtype)
        semantic = in_float32(self.from_semantic, moved.semantic)
        pragmatic = in_float32(self.from_pragmatic, moved.pragmatic)
        distance = _distance(semantic, pragmatic, self.implicitness_metric)

        return distance.to(sentence.semantic.device)

    def pragmatic_distance(self, a: PragmaticEmbedding, b: PragmaticEmbedding) -> Tensor:
        """Return the distance of the pragmatic vectors row by row."""
        return _distance(a.pragmatic, b.pragmatic, self.pragmatic_metric)

    def similarity(self, a: PragmaticEmbedding, b: PragmaticEmbedding) -> Tensor:
        """Return minus the pragmatic distance row by row."""
        return -self.pragmatic_distance(a, b)

    entailment_score = similarity


def _xavier(width: int, dim: int) -> nn.Linear:
    layer = nn.Linear(width, dim, bias=False)
    nn.init.xavier_uniform_(layer.weight)
    return layer


def _distance(a: Tensor, b: Tensor, metric: Distance) -> Tensor:
    if metric == "cosine":
        return 1 - cosine(a, b)

    distance: Tensor = torch.linalg.vector_norm((a - b).float(), dim=-1)
    return distance
