"""Two vectors per sentence: what it says (explicit) and what it implies (implicit)."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_cse.embeddings import DualEmbedding, Embedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.models.base import Model, View
from lightning_cse.similarity import cosine
from lightning_cse.tokens import Tokens

Architecture = Literal["cross", "bi"]


class DualModel(Model):
    """Explicit vector r and implicit vector u of a sentence, compared by cosine.

    ``cross``: one encoder reads ``[CLS] s [SEP] explicit`` for r and ``[CLS] s [SEP] implicit`` for
    u (the tokenizer's own pair encoding). ``bi``: two encoders, initially with the same weights,
    read ``[CLS] s``: one for r, one for u.
    """

    compare: Callable[[Any, Any], Tensor] = staticmethod(cosine)

    def __init__(self, encoder: SentenceEncoder, *, architecture: Architecture = "cross") -> None:
        super().__init__(encoder)
        self.architecture = architecture
        self.implicit_encoder = copy.deepcopy(encoder) if architecture == "bi" else None
        if architecture == "bi":
            self.explicit_template = self.implicit_template = encoder.template()
        else:
            self.explicit_template = encoder.template("explicit")
            self.implicit_template = encoder.template("implicit")

    @property
    def templates(self) -> tuple[Template, ...]:
        """The explicit and the implicit template."""
        return self.explicit_template, self.implicit_template

    def encode(self, *roles: Tokens) -> Sequence[Embedding]:
        """Embed every role's sentences."""
        return [DualEmbedding(r, u) for r, u in self.vectors(*roles)]

    def vectors(self, *roles: Tokens) -> list[tuple[Tensor, Tensor]]:
        """Return r and u of every role's sentences, from one pass (cross) or one pass per encoder
        (bi).
        """
        most = self.tokens_at_once
        explicit = [(tokens, self.explicit_template) for tokens in roles]
        implicit = [(tokens, self.implicit_template) for tokens in roles]
        if self.implicit_encoder is None:
            vectors = self.encoder(explicit + implicit, most=most)
            return list(zip(vectors[: len(roles)], vectors[len(roles) :], strict=True))

        says = self.encoder(explicit, most=most)
        implies = self.implicit_encoder(implicit, most=most)
        if roles[0].is_shared:
            # DDP needs a gradient of every parameter, even if no term of a batch has this view.
            says[0] = says[0] + 0 * sum(u.sum() for u in implies)

        return list(zip(says, implies, strict=True))

    def view_layers(self) -> dict[str, View]:
        """Return how the explicit and the implicit vector are computed."""
        return {
            "explicit": View(self.encoder, self.explicit_template),
            "implicit": View(self.implicit_encoder or self.encoder, self.implicit_template),
        }

    def similarity(self, a: Any, b: Any) -> Tensor:
        r"""Return the similarity of the explicit views, :math:`\cos(r_a, r_b)`, row by row."""
        return self.compare(a.explicit, b.explicit)

    def entailment_score(self, premise: Any, hypothesis: Any) -> Tensor:
        r"""Return the larger of two similarities, :math:`\max(\cos(r_p, r_h), \cos(u_p, r_h))`:
        said or implied.
        """
        explicit = self.compare(premise.explicit, hypothesis.explicit)
        implicit = self.compare(premise.implicit, hypothesis.explicit)

        return torch.maximum(explicit, implicit)

    def implicitness(self, sentence: Any) -> Tensor:
        r"""Return :math:`1 - \cos(r_s, u_s)`: the further apart, the more is implied."""
        # In float64: a similarity near 0 would be lost beside 1, and different implicitnesses would
        # tie.
        return 1 - self.compare(sentence.explicit, sentence.implicit).double()
