"""NGCSE: contrastive learning on a corpus; for some sentences, an LLM has written others, from near to far."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.errors import ConfigError, EncoderError
from lightning_cse.methods.base import MakeOptimizer, Method
from lightning_cse.methods.schedules import Schedule
from lightning_cse.models import PointModel
from lightning_cse.models.base import in_float32
from lightning_cse.tokens import Tokens

ROLES: Final = ("anchor", "positive", "intermediate", "negative")
ROW_KINDS: Final = (ROLES[:1], ROLES[:2], ("anchor", "positive", "negative"), ROLES)
"""The roles that rows of a data set may have: a sentence alone; augmented; labelled or NLI pattern; STS pattern."""


class NGCSE(Method):
    r"""NGCSE: InfoNCE on every row, and a hierarchical triplet loss on the rows that an LLM has written.

    .. math:: L = L_C + \beta L_{HT}

    A row is an anchor, which is its own positive under another dropout mask (and, with prompts, in the second
    template); an anchor with a positive (augmented or labelled); an anchor with a positive and a negative; or, from an
    LLM, an anchor with positive, intermediate and negative. :math:`L_C` is InfoNCE over all rows of the batch, where
    the negatives of some rows are candidates for all rows. ``contrastive`` defines the loss of LLM rows:

    - ``hierarchical_triplet``: the contrastive positive is ``llm_positive``; the negative is not used in
      :math:`L_C`, and :math:`L_{HT}` is added on LLM rows only (`losses.HierarchicalTriplet`);
    - ``single_positive``: the positive is ``llm_positive``, the negative is a hard negative, and there is no
      :math:`L_{HT}`;
    - ``multiple_positive``: a first pass over all rows uses the positive, a second pass over LLM rows the
      intermediate; negatives are candidates in the second pass only. The loss of an LLM row is the mean of both.

    The vector of a sentence is the pooled vector. In training only, a linear map without activation is applied to it;
    its weight and bias are initialised from :math:`N(0, 0.006^2)`.

    Source: NGCSE, eq. 1 and 6 and Table 3, and the authors' code.  Differs: the latest state of that code uses the
    intermediate as the contrastive positive even without the triplet loss; the paper, and the alignment in the code,
    use the positive. No script is known for ``multiple_positive``; it is the branch of the code that fits the name.

    Args:
        encoder: maps sentences to vectors; the authors' code freezes its embedding layers (``freeze_embeddings``).
        loss: :math:`L_C`.
        hierarchical_triplet: :math:`L_{HT}`.
        beta: the weight of :math:`L_{HT}`; 0 leaves it out.
        roles: the roles that a row may have, one of `ROW_KINDS`.
        contrastive: see above; without an intermediate in ``roles``, it must be ``single_positive``.
        llm_positive: ``positive`` or, with the triplet loss, ``intermediate``.
    """

    papers = ("li2024ngcse",)

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: nn.Module,
        hierarchical_triplet: nn.Module,
        *,
        beta: float,
        roles: Sequence[str],
        contrastive: Literal["hierarchical_triplet", "single_positive", "multiple_positive"],
        llm_positive: Literal["intermediate", "positive"],
        optimizer: MakeOptimizer,
        schedule: Schedule,
        chunk_size: int | None = None,
    ) -> None:
        written = "intermediate" in roles
        if tuple(roles) not in ROW_KINDS:
            raise ConfigError(
                [f"method.roles: {', '.join(roles)} is not one of the kinds of rows {ROW_KINDS}"]
            )
        if contrastive != "single_positive" and not written:
            raise ConfigError(
                [
                    f"method.contrastive: {contrastive} needs an intermediate, and method.roles has none"
                ]
            )
        if not beta >= 0:
            raise ConfigError([f"method.beta: must be a number >= 0, got {beta}"])
        super().__init__(
            PointModel(encoder), loss, optimizer=optimizer, schedule=schedule, chunk_size=chunk_size
        )
        self.hierarchical_triplet = hierarchical_triplet
        self.beta = beta
        self.has_triplet = contrastive == "hierarchical_triplet"
        self.has_negative = "negative" in roles and not self.has_triplet
        self.positives: tuple[str, ...] = (llm_positive,) if written else tuple(roles[1:2])
        if contrastive == "multiple_positive":
            self.positives = ("positive", "intermediate")
        used = {"anchor", *self.positives}  # what is not used is not encoded
        used |= (
            {"negative"}
            if self.has_negative
            else set(ROLES)
            if self.has_triplet and beta
            else set()
        )
        self.roles = tuple(role for role in ROLES if role in used)
        self.optional = ("negative",) if self.has_negative and not written else ()
        # In rows without negatives, a positive is a second view of its anchor and so has the second template.
        self.second_template = 0 if "negative" in roles else -1
        self.aligned = (*self.positives, "anchor")[
            0
        ]  # the authors measure the pair that a setting trains on
        spread = tuple(role for role in roles if role != "intermediate" or self.has_triplet)
        self.spread = spread if "negative" in roles else ("anchor",)
        self.needs_dropout = tuple(roles) == ("anchor",) and len(encoder.templates) == 1
        self._views_are_the_same = not encoder.has_dropout and len(encoder.templates) == 1
        self.head = nn.Linear(encoder.width, encoder.width)
        for parameter in self.head.parameters():
            nn.init.normal_(parameter, std=0.006)

    @property
    def pairs(self) -> dict[str, tuple[str, str]]:
        """The anchor and its positive, or the anchor twice if it is its own positive."""
        return {"primary": ("anchor", self.aligned)}

    @property
    def templates(self) -> tuple[Template, ...]:
        """The templates of the encoder; the first is that of a sentence alone."""
        return self.model.encoder.templates

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed all sentences of a batch, and compare them."""
        tokens: dict[str, Tokens] = batch["roles"]
        again = self._without_positive(tokens)
        vectors = self._project({**tokens, "again": again})
        anchor, negative = vectors["anchor"], vectors.get("negative") if self.has_negative else None

        positive = _rows(
            vectors, {"again": again, **{role: tokens[role] for role in self.positives[:1]}}
        )
        second_pass = len(self.positives) > 1
        contrastive = self.loss(anchor, positive, None if second_pass else negative)
        if second_pass and "intermediate" in vectors:
            # The loss of an LLM row is the mean of both passes: add half the difference, times the share of LLM rows.
            written, others = (
                anchor[tokens["intermediate"].rows],
                [vectors["again"]] if "again" in vectors else [],
            )
            first = self.loss(written, vectors["positive"], *others)
            second = self.loss(
                written, vectors["intermediate"], torch.cat([vectors["negative"], *others])
            )
            contrastive = contrastive + (second - first) * len(written) / (2 * len(anchor))
        parts = {"contrastive": contrastive}
        if self.has_triplet and self.beta and "intermediate" in vectors:
            written = anchor[tokens["intermediate"].rows]
            parts["hierarchical_triplet"] = self.hierarchical_triplet(
                written, *(vectors[role] for role in ROLES[1:])
            )
        loss = contrastive + self.beta * parts.get("hierarchical_triplet", 0.0)
        named = {role: PointEmbedding(vector) for role, vector in vectors.items()}
        return self.output(loss, batch["index"], parts, **named)

    def _without_positive(self, tokens: Mapping[str, Tokens]) -> Tokens:
        """Return the anchors that are their own positive, under another dropout mask or in another template."""
        anchor = tokens["anchor"]
        alone = torch.ones(len(anchor), dtype=torch.bool, device=anchor.rows.device)
        for role in self.positives:
            alone[tokens[role].rows] = False
        if self._views_are_the_same and bool(alone.any()):
            raise EncoderError(
                f"{int(alone.sum())} of {len(alone)} rows of this batch are their own positive through another dropout "
                "mask, but the encoder has no dropout: set encoder.dropout=0.1"
            )
        return anchor.select(alone)

    def _project(self, tokens: Mapping[str, Tokens]) -> dict[str, Tensor]:
        """Encode every role that has sentences, and apply the head."""
        templates, place = self.templates, {"again": -1, "positive": self.second_template}
        requests = {
            role: (some, templates[place.get(role, 0)])
            for role, some in tokens.items()
            if len(some)
        }
        pooled = self.model.encoder(list(requests.values()))
        return {
            role: in_float32(self.head, vector)
            for role, vector in zip(requests, pooled, strict=True)
        }


def _rows(vectors: Mapping[str, Tensor], parts: Mapping[str, Tokens]) -> Tensor:
    """Return one vector per row of the batch, from roles that each cover some of the rows."""
    there = {role: tokens for role, tokens in parts.items() if len(tokens)}
    order = torch.cat([tokens.rows for tokens in there.values()])
    return torch.cat([vectors[role] for role in there])[torch.argsort(order)]
