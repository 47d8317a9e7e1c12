"""DualCSE: two vectors a sentence, what it says (explicit) and what it implies (implicit)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from lightning_cse.embeddings import DualEmbedding, Embedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.errors import ConfigError
from lightning_cse.losses import DualContrastive
from lightning_cse.methods.base import MakeOptimizer, Method
from lightning_cse.methods.schedules import Schedule
from lightning_cse.similarity import CosineSimilarity
from lightning_cse.tokens import Tokens


class DualCSE(Method):
    r"""Explicit vector r and implicit vector u of a sentence, trained on premises with four kinds of hypotheses.

    ``architecture="cross"``: one encoder reads ``[CLS] s [SEP] explicit`` for r and ``[CLS] s [SEP] implicit`` for u
    (the tokenizer's own pair encoding). ``architecture="bi"``: two encoders from the same weights read ``[CLS] s``,
    one for r, one for u.

    A row may lack any of the hypotheses, as rows of corpora other than INLI do: the loss then lacks their terms.
    Contradictions that the loss does not use are not encoded.

    Source: DualCSE (arXiv 2510.09293), method.  Differs: nothing known; the paper leaves the pair encoding's details
    (segment ids, final separator) open, and the loss's reduction (mean here).
    """

    roles: tuple[str, ...] = ("premise", "explicit_entailment", "implied_entailment", "contradiction")
    optional = roles[1:]
    compares: type = CosineSimilarity
    pairs: ClassVar = {"explicit": ("premise", "explicit_entailment"), "implicit": ("premise", "implied_entailment")}

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: DualContrastive,
        *,
        optimizer: MakeOptimizer,
        schedule: Schedule,
        architecture: Literal["cross", "bi"] = "cross",
    ) -> None:
        super().__init__(encoder, loss, optimizer=optimizer, schedule=schedule)
        if not isinstance(loss.similarity, self.compares):
            given, needed = type(loss.similarity).__name__, self.compares.__name__
            raise ConfigError([f"method.loss.similarity: {type(self).__name__} needs a {needed}, got a {given}"])
        if not loss.contradiction:
            self.roles = self.roles[:3]
        self.compare = loss.similarity.rows
        self.implicit_encoder = copy.deepcopy(encoder) if architecture == "bi" else None
        words = (None, None) if architecture == "bi" else ("explicit", "implicit")
        self.explicit_template, self.implicit_template = (encoder.template(word) for word in words)

    @property
    def templates(self) -> tuple[Template, ...]:
        """The explicit and the implicit one."""
        return self.explicit_template, self.implicit_template

    def encode(self, *roles: Tokens) -> Sequence[Embedding]:
        """Embed every role's sentences."""
        return [DualEmbedding(r, u) for r, u in self.vectors(*roles)]

    def vectors(self, *roles: Tokens) -> list[tuple[Tensor, Tensor]]:
        """Return r and u of every role's sentences, from one pass (cross), or from one pass an encoder (bi)."""
        most = self.tokens_at_once
        explicit = [(tokens, self.explicit_template) for tokens in roles]
        implicit = [(tokens, self.implicit_template) for tokens in roles]
        if self.implicit_encoder is None:
            vectors = self.encoder(explicit + implicit, most=most)
        else:
            vectors = self.encoder(explicit, most=most) + self.implicit_encoder(implicit, most=most)
        return list(zip(vectors[: len(roles)], vectors[len(roles) :], strict=True))

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the premises of a batch and the hypotheses they have, and compare them."""
        there = {role: batch["roles"][role] for role in self.roles if len(batch["roles"][role])}
        embeddings = dict(zip(there, self.encode(*there.values()), strict=True))
        loss = self.loss(**embeddings, rows={role: tokens.rows for role, tokens in there.items()})
        return self.output(loss, batch["index"], **embeddings)

    def similarity(self, a: Any, b: Any) -> Tensor:
        r"""Return the similarity of the explicit views, :math:`\cos(r_a, r_b)`, row by row."""
        return self.compare(a.explicit, b.explicit)

    def entailment_score(self, premise: Any, hypothesis: Any) -> Tensor:
        r"""Return the larger of two similarities, :math:`\max(\cos(r_p, r_h), \cos(u_p, r_h))`: said or implied."""
        said = self.compare(premise.explicit, hypothesis.explicit)
        implied = self.compare(premise.implicit, hypothesis.explicit)
        return torch.maximum(said, implied)

    def implicitness(self, sentence: Any) -> Tensor:
        r"""Return :math:`1 - \cos(r_s, u_s)`: the further apart, the more is implied."""
        # In double: a similarity near 0 would be lost beside 1, and sentences tie that do not.
        return 1 - self.compare(sentence.explicit, sentence.implicit).double()
