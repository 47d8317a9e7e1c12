"""What all geometries of entailment share: the loss, and the method that trains a model with it."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lightning_cse.embeddings import Embedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.methods import Method
from lightning_cse.models import Model

Score = Callable[[Embedding, Embedding], Tensor]
"""How well each premise entails each hypothesis, from 0 to 1 in logarithms: (n, m)."""


class EntailmentContrastive(nn.Module):
    r"""In-batch softmax over entailment scores: a premise entails its own hypothesis.

    .. math:: \ell_i = -\log \frac{e^{s(p_i, h_i)/\tau}}
              {\sum_j \left(e^{s(p_i, h_j)/\tau} + e^{s(p_i, c_j)/\tau}
              + e^{s(h_j, p_i)/\tau}\right)}

    with premises :math:`p`, hypotheses that they entail :math:`h`, contradictions :math:`c`, and
    the score :math:`s` of a geometry. The last term, without which no direction is learned, is left
    out with ``reverse=False``.

    Source: GaussCSE, ent + con + rev, with another score.
    """

    def __init__(self, score: Score, temperature: float, *, reverse: bool = True) -> None:
        super().__init__()
        self.score = score
        self.temperature = temperature
        self.reverse = reverse

    def forward(self, premise: Any, entailment: Any, contradiction: Any) -> Tensor:
        """Return the mean loss of the rows."""
        blocks = [self.score(premise, entailment), self.score(premise, contradiction)]
        if self.reverse:
            blocks.append(self.score(entailment, premise).T)

        logits = torch.cat(blocks, dim=1) / self.temperature
        return cross_entropy(logits, torch.arange(len(logits), device=logits.device))


class EntailmentCSE(Method):
    """Train a model of entailment on premises, entailed hypotheses and contradictions.

    A geometry names its ``kind`` of model, the ``score`` of all premises with all hypotheses, and
    ``pairs``, the view that alignment is measured in.
    """

    roles = ("premise", "entailment", "contradiction")
    pairs: ClassVar[dict[str, tuple[str, str]]] = {}
    kind: ClassVar[type[Model]]
    score: ClassVar[Score]

    def __init__(
        self, encoder: SentenceEncoder, *, temperature: float, reverse: bool, **options: Any
    ) -> None:
        loss = EntailmentContrastive(type(self).score, temperature, reverse=reverse)
        super().__init__(self.kind(encoder), loss, **options)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the roles of a batch and compare them."""
        embeddings = self.embed(batch)
        return self.output(self.loss(**embeddings), batch["index"], **embeddings)
