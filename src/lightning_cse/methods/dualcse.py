"""DualCSE: two vectors per sentence, for what it says (explicit) and what it implies (implicit)."""

import logging
from typing import Any, ClassVar, Unpack

from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import ConfigError
from lightning_cse.losses import DualContrastive
from lightning_cse.methods.base import Method, Training
from lightning_cse.models import DualModel
from lightning_cse.models.dual import Architecture
from lightning_cse.similarity import CosineSimilarity

log = logging.getLogger(__name__)


class DualCSE(Method):
    r"""Explicit vector r and implicit vector u, trained on premises with three kinds of hypotheses.

    A row may lack any of the hypotheses, as in corpora other than INLI: the loss then leaves out
    their terms. Contradictions that the loss does not use are not encoded.

    Source: DualCSE (arXiv 2510.09293), method.  Differs: nothing known. The paper specifies neither
    the details of the pair encoding (segment ids, final separator) nor the reduction of the loss
    (here the mean).

    ``architecture`` is one encoder (``cross``) or two (``bi``), as in `DualModel`.
    """

    papers: tuple[str, ...] = ("oda2026dualcse",)
    roles: tuple[str, ...] = (
        "premise",
        "explicit_entailment",
        "implied_entailment",
        "contradiction",
    )
    optional = roles[1:]
    pairs: ClassVar = {
        "explicit": ("premise", "explicit_entailment"),
        "implicit": ("premise", "implied_entailment"),
    }
    compares: type = CosineSimilarity

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: DualContrastive,
        *,
        architecture: Architecture = "cross",
        **training: Unpack[Training],
    ) -> None:
        if not isinstance(loss.similarity, self.compares):
            similarity = self.compares.__name__
            got = type(loss.similarity).__name__
            raise ConfigError(
                [f"method.loss.similarity: {type(self).__name__} needs a {similarity}, got a {got}"]
            )

        if architecture == "cross" and not encoder.has_segments:
            log.info(
                "%s has no segment ids: a separator alone (its end token, if the tokenizer writes "
                "none between two texts) sets the two words apart",
                encoder.name,
            )

        super().__init__(self.build_model(encoder, loss, architecture), loss, **training)
        if not loss.contradiction:
            self.roles = self.roles[:3]

    def build_model(
        self, encoder: SentenceEncoder, loss: DualContrastive, architecture: Architecture
    ) -> DualModel:
        """Return the model, which compares embeddings as the loss does."""
        return DualModel(encoder, architecture=architecture)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the premises and hypotheses of a batch, and compare them."""
        embeddings = self.embed(batch)
        rows = {role: batch["roles"][role].rows for role in embeddings}
        loss = self.loss(**embeddings, rows=rows)

        return self.output(loss, batch["index"], **embeddings)
