"""DualCSE: two vectors a sentence, what it says (explicit) and what it implies (implicit)."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lightning_cse.embeddings import DualEmbedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.methods.base import MakeOptimizer, Method
from lightning_cse.methods.schedules import Schedule
from lightning_cse.similarity import cosine
from lightning_cse.tokens import Tokens


class DualCSE(Method):
    r"""Explicit vector r and implicit vector u of a sentence, trained on premises with four kinds of hypotheses.

    ``architecture="cross"``: one encoder reads ``[CLS] s [SEP] explicit`` for r and ``[CLS] s [SEP] implicit`` for u
    (the tokenizer's own pair encoding). ``architecture="bi"``: two encoders from the same weights read ``[CLS] s``,
    one for r, one for u.

    Source: DualCSE (arXiv 2510.09293), method.  Differs: nothing known; the paper leaves the pair encoding's details
    (segment ids, final separator) open, and the loss's reduction (mean here).
    """

    roles = ("premise", "explicit_entailment", "implied_entailment", "contradiction")
    pairs: ClassVar = {"explicit": ("premise", "explicit_entailment"), "implicit": ("premise", "implied_entailment")}

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: nn.Module,
        *,
        optimizer: MakeOptimizer,
        schedule: Schedule,
        architecture: Literal["cross", "bi"] = "cross",
    ) -> None:
        super().__init__(encoder, loss, optimizer=optimizer, schedule=schedule)
        self.implicit_encoder = copy.deepcopy(encoder) if architecture == "bi" else None
        words = (None, None) if architecture == "bi" else ("explicit", "implicit")
        self.explicit_template, self.implicit_template = (encoder.template(word) for word in words)

    @property
    def templates(self) -> tuple[Template, ...]:
        """The explicit and the implicit one."""
        return self.explicit_template, self.implicit_template

    def encode(self, *roles: Tokens) -> list[DualEmbedding]:
        """Embed every role's sentences: r and u in one pass (cross), or one pass an encoder (bi)."""
        most = self.tokens_at_once
        explicit = [(tokens, self.explicit_template) for tokens in roles]
        implicit = [(tokens, self.implicit_template) for tokens in roles]
        if self.implicit_encoder is None:
            vectors = self.encoder(explicit + implicit, most=most)
        else:
            vectors = self.encoder(explicit, most=most) + self.implicit_encoder(implicit, most=most)
        r, u = vectors[: len(roles)], vectors[len(roles) :]
        return [DualEmbedding(*views) for views in zip(r, u, strict=True)]

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the four roles of a batch and compare them."""
        premise, explicit, implied, contradiction = self.encode(*(batch["roles"][role] for role in self.roles))
        loss = self.loss(premise, explicit, implied, contradiction)
        return self.output(
            loss,
            batch["index"],
            premise=premise,
            explicit_entailment=explicit,
            implied_entailment=implied,
            contradiction=contradiction,
        )

    def similarity(self, a: DualEmbedding, b: DualEmbedding) -> Tensor:
        r"""Return :math:`\cos(r_a, r_b)` row by row."""
        return cosine(a.explicit, b.explicit)

    def entailment_score(self, premise: DualEmbedding, hypothesis: DualEmbedding) -> Tensor:
        r"""Return :math:`\max(\cos(r_p, r_h), \cos(u_p, r_h))`: said or implied."""
        said = cosine(premise.explicit, hypothesis.explicit)
        implied = cosine(premise.implicit, hypothesis.explicit)
        return torch.maximum(said, implied)

    def implicitness(self, sentence: DualEmbedding) -> Tensor:
        r"""Return :math:`1 - \cos(r_s, u_s)`: the further apart, the more is implied."""
        return 1 - cosine(sentence.explicit, sentence.implicit)
