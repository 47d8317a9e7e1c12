"""A sentence is a point of the Poincaré ball, and the general ones lie near its center."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from entailment import EntailmentCSE
from torch import Tensor, nn
from torch.nn.functional import normalize

from lightning_cse.embeddings import Embedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.models import Model
from lightning_cse.models.base import in_float32

RIM = 1e-3
"""Points stay this far from the rim, where float32 has no distances."""


@dataclass(frozen=True, eq=False, repr=False)
class PoincareEmbedding(Embedding):
    """Points of the ball, shorter than 1: (n, d)."""

    point: Tensor


def exponential(tangent: Tensor) -> Tensor:
    r"""Return where a vector at the center of the ball leads.

    .. math:: \exp_0(v) = \tanh(\lVert v \rVert) \frac{v}{\lVert v \rVert}

    for vectors (..., d), also the null vector. Points are pulled in to :math:`1 -` `RIM`.

    Source: Ganea et al. 2018, lemma 2, with curvature -1.
    """
    length = tangent.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    return tangent * (length.tanh().clamp(max=1 - RIM) / length)


def distance(a: Tensor, b: Tensor) -> Tensor:
    r"""Return the hyperbolic distance of points (..., d), which are broadcast.

    .. math:: d(a, b) = \text{arcosh}\left(1 + 2 \frac{\lVert a - b \rVert^2}
              {(1 - \lVert a \rVert^2)(1 - \lVert b \rVert^2)}\right)

    Source: Nickel and Kiela 2017, eq. 1.
    """
    room = (1 - a.square().sum(-1)) * (1 - b.square().sum(-1))
    excess = 2 * (a - b).square().sum(-1) / room
    # arcosh(1 + x) = log(1 + x + sqrt(x (x + 2))); the square root has no gradient at 0.
    return torch.log1p(excess + (excess * (excess + 2)).clamp(min=1e-12).sqrt())


def log_entailment(premise: Tensor, hypothesis: Tensor) -> Tensor:
    r"""Return how well premises entail hypotheses, at most 0; the shapes (..., d) are broadcast.

    .. math:: s(p, h) = -(1 + \lVert h \rVert - \lVert p \rVert) \, d(p, h)

    A hypothesis nearer to the center, a more general one, has the higher score.

    Source: Nickel and Kiela 2017, section 4.3, with :math:`\alpha = 1` in place of 1,000, in
    training too.
    """
    rise = hypothesis.norm(dim=-1) - premise.norm(dim=-1)
    return -(1 + rise) * distance(premise, hypothesis)


def log_entailment_matrix(premise: PoincareEmbedding, hypothesis: PoincareEmbedding) -> Tensor:
    """Return the score of each premise with each hypothesis: (n, m)."""
    return log_entailment(premise.point[:, None], hypothesis.point)


class PoincareModel(Model):
    """A linear layer on the pooled vector, of length one, gives the tangent of a point."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__(encoder)
        self.tangent = nn.Linear(encoder.width, encoder.width)

    def encode(self, *roles: Any) -> list[PoincareEmbedding]:
        """Embed every role's sentences in one pass."""
        tangents = [
            in_float32(self.tangent, normalize(vector, dim=-1)) for vector in self.pooled(*roles)
        ]
        return [PoincareEmbedding(exponential(tangent)) for tangent in tangents]

    def similarity(self, a: PoincareEmbedding, b: PoincareEmbedding) -> Tensor:
        """Return the negative distance row by row."""
        return -distance(a.point, b.point)

    def entailment_score(self, premise: PoincareEmbedding, hypothesis: PoincareEmbedding) -> Tensor:
        """Return the score row by row, from 0 to 1."""
        return log_entailment(premise.point, hypothesis.point).exp()


class PoincareCSE(EntailmentCSE):
    """Train a `PoincareModel`: an entailed hypothesis lies near its premise, toward the center."""

    kind = PoincareModel
    score = staticmethod(log_entailment_matrix)
    pairs: ClassVar = {"point": ("premise", "entailment")}
    papers = ("@misc{poincare, title = {Sentences in the Poincaré ball, an example}}",)
