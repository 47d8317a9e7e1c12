"""NGCSE: contrastive learning on a corpus with sentences by an LLM, from near to far."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from lightning_cse.devices import to_device
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.errors import ConfigError, EncoderError
from lightning_cse.losses import HierarchicalTriplet
from lightning_cse.methods.base import Method, Training
from lightning_cse.models import PointModel
from lightning_cse.models.base import in_float32
from lightning_cse.tokens import Tokens

log = logging.getLogger(__name__)

ROLES = ("anchor", "positive", "intermediate", "negative")
ROW_KINDS = (ROLES[:1], ROLES[:2], ("anchor", "positive", "negative"), ROLES)
"""The roles of rows: a sentence alone; augmented; labelled or NLI pattern; STS pattern."""

Contrastive = Literal["hierarchical_triplet", "single_positive", "multiple_positive"]


class NGCSE(Method):
    r"""NGCSE: InfoNCE on every row, and a hierarchical triplet loss on LLM rows.

    .. math:: L = L_C + \beta L_{HT}

    A row is an anchor, which is its own positive under another dropout mask (and, with prompts, in
    the second template); an anchor with a positive (augmented or labelled); an anchor with a
    positive and a negative; or, from an LLM, an anchor with positive, intermediate and negative.
    :math:`L_C` is InfoNCE over all rows of the batch, where the negatives of some rows are
    candidates for all rows. ``contrastive`` defines the loss of LLM rows:

    - ``hierarchical_triplet``: the contrastive positive is ``llm_positive``, and :math:`L_{HT}` is
      added on LLM rows only (`losses.HierarchicalTriplet`), with the first negative if a row has
      several; the negative is used in :math:`L_C` only with ``contrastive_negatives``;
    - ``single_positive``: the positive is ``llm_positive``, the negative is a hard negative, and
      there is no :math:`L_{HT}`;
    - ``multiple_positive``: a first pass over all rows uses the positive, a second pass over LLM
      rows the intermediate; negatives are candidates in the second pass only. The loss of an LLM
      row is the mean of both.

    The vector of a sentence is the pooled vector. In training only, a linear map without activation
    is applied to it; its weight and bias are initialised from :math:`N(0, 0.006^2)`.

    Source: NGCSE, eq. 1 and 6 and Table 3, and the authors' code.  Differs: the latest state of
    that code uses the intermediate as the contrastive positive even without the triplet loss; the
    paper, and the alignment in the code, use the positive. The code leaves the negative out of
    :math:`L_C` with the triplet loss; the paper, which adds :math:`L_{HT}` to its eq. 1, does not.
    No script is known for ``multiple_positive``; it is the branch of the code that fits the name.

    Args:
        encoder: maps sentences to vectors; the authors' code freezes its embedding layers
            (``freeze_embeddings``).
        loss: :math:`L_C`.
        hierarchical_triplet: :math:`L_{HT}`.
        beta: the weight of :math:`L_{HT}`; 0 leaves it out.
        roles: the roles that a row may have, one of `ROW_KINDS`.
        contrastive: see above; without an intermediate in ``roles``, it must be
            ``single_positive``.
        llm_positive: ``positive`` or, with the triplet loss, ``intermediate``.
        contrastive_negatives: with the triplet loss, also use the negative of LLM rows in
            :math:`L_C`, as in the paper.

    Raises:
        ConfigError: if these do not fit together. ``beta`` and ``hierarchical_triplet`` without the
            triplet loss, which ignores them, are a warning.
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
        contrastive: Contrastive,
        llm_positive: Literal["intermediate", "positive"],
        contrastive_negatives: bool = False,
        **training: Unpack[Training],
    ) -> None:
        _check(roles, contrastive, beta, hierarchical_triplet)
        if contrastive_negatives and contrastive != "hierarchical_triplet":
            raise ConfigError(
                [
                    "method.contrastive_negatives: set method.contrastive=hierarchical_triplet; "
                    f"{contrastive} uses the negatives anyway"
                ]
            )

        super().__init__(PointModel(encoder), loss, **training)
        self.hierarchical_triplet = hierarchical_triplet
        self.beta = beta
        self.has_triplet = contrastive == "hierarchical_triplet"
        self.has_negative = "negative" in roles and (contrastive_negatives or not self.has_triplet)
        self.positives = _positives(roles, contrastive, llm_positive)
        self.roles = self._encoded_roles()
        if self.has_negative and "intermediate" not in roles:
            self.optional = ("negative",)

        # A positive without negatives is a second view of its anchor: it has the second template.
        self.second_template = 0 if "negative" in roles else -1
        self.needs_dropout = tuple(roles) == ("anchor",) and len(encoder.templates) == 1
        # The authors measure the alignment of the pair that a setting trains on.
        self.aligned = self.positives[0] if self.positives else "anchor"
        self.spread = self._spread_roles(roles)
        self.head = nn.Linear(encoder.width, encoder.width)
        for parameter in self.head.parameters():
            nn.init.normal_(parameter, std=0.006)

    def _encoded_roles(self) -> tuple[str, ...]:
        """Return the roles that the loss uses; others are not encoded."""
        if self.has_triplet and self.beta:
            return ROLES

        used = {"anchor", *self.positives}
        if self.has_negative:
            used.add("negative")

        return tuple(role for role in ROLES if role in used)

    def _spread_roles(self, roles: Sequence[str]) -> tuple[str, ...]:
        """Return the roles whose uniformity the authors measure."""
        if "negative" not in roles:
            return ("anchor",)

        return tuple(role for role in roles if role != "intermediate" or self.has_triplet)

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
        second_view = self._without_positive(tokens)
        vectors = self._project({**tokens, "again": second_view})
        positives = {"again": second_view, **{role: tokens[role] for role in self.positives[:1]}}
        positive = _rows(vectors, positives)

        loss = contrastive = self._contrastive(tokens, vectors, positive)
        parts = {"contrastive": contrastive}
        if self.has_triplet and self.beta and "intermediate" in vectors:
            parts["hierarchical_triplet"] = self._triplet(tokens, vectors)
            loss = contrastive + self.beta * parts["hierarchical_triplet"]

        embeddings = {role: PointEmbedding(vector) for role, vector in vectors.items()}

        return self.output(loss, batch["index"], parts, **embeddings)

    def _contrastive(
        self, tokens: Mapping[str, Tokens], vectors: Mapping[str, Tensor], positive: Tensor
    ) -> Tensor:
        """Return the contrastive loss of the batch, in one pass or two."""
        anchor = vectors["anchor"]
        has_second_pass = len(self.positives) > 1
        negative = vectors.get("negative") if self.has_negative else None
        loss: Tensor = self.loss(anchor, positive, None if has_second_pass else negative)
        if not has_second_pass or "intermediate" not in vectors:
            return loss

        # The loss of an LLM row is the mean of both passes: add half the difference, times the
        # share of LLM rows.
        written = anchor[to_device(tokens["intermediate"].rows, anchor.device)]
        more_negatives = [vectors["again"]] if "again" in vectors else []
        candidates = torch.cat([vectors["negative"], *more_negatives])
        first: Tensor = self.loss(written, vectors["positive"], *more_negatives)
        second: Tensor = self.loss(written, vectors["intermediate"], candidates)

        return loss + (second - first) * len(written) / (2 * len(anchor))

    def _triplet(self, tokens: Mapping[str, Tokens], vectors: Mapping[str, Tensor]) -> Tensor:
        """Return the hierarchical triplet loss of the LLM rows."""
        anchor = vectors["anchor"]
        written = anchor[to_device(tokens["intermediate"].rows, anchor.device)]
        # Of several negatives, the first of all rows come first.
        negative = vectors["negative"][: len(written)]
        loss: Tensor = self.hierarchical_triplet(
            written, vectors["positive"], vectors["intermediate"], negative
        )

        return loss

    def _without_positive(self, tokens: Mapping[str, Tokens]) -> Tokens:
        """Return the anchors that are their own positive, in a second view."""
        anchor = tokens["anchor"]
        alone = np.ones(len(anchor), dtype=bool)
        for role in self.positives:
            alone[tokens[role].rows] = False

        has_one_view = len(self.templates) == 1 and not self.model.encoder.has_dropout
        if has_one_view and alone.any():
            raise EncoderError(
                f"{alone.sum()} of {len(alone)} rows of this batch are their own positive "
                "through another dropout mask, but the encoder has no dropout: set "
                "encoder.dropout=0.1"
            )

        return anchor.select(alone)

    def _project(self, tokens: Mapping[str, Tokens]) -> dict[str, Tensor]:
        """Encode every role that has sentences, and apply the head."""
        templates = self.templates
        numbers = {"again": -1, "positive": self.second_template}
        requests = {}
        for role, sentences in tokens.items():
            if len(sentences):
                requests[role] = (sentences, templates[numbers.get(role, 0)])

        pooled = self.model.encoder(list(requests.values()))
        vectors = zip(requests, pooled, strict=True)

        return {role: in_float32(self.head, vector) for role, vector in vectors}


def _positives(
    roles: Sequence[str], contrastive: Contrastive, llm_positive: str
) -> tuple[str, ...]:
    """Return the roles of the contrastive positives, one for each pass."""
    if contrastive == "multiple_positive":
        return ("positive", "intermediate")
    if "intermediate" in roles:
        return (llm_positive,)

    return tuple(roles[1:2])


def _check(
    roles: Sequence[str], contrastive: Contrastive, beta: float, hierarchical_triplet: nn.Module
) -> None:
    if tuple(roles) not in ROW_KINDS:
        choices = " or ".join(str(list(names)) for names in ROW_KINDS)
        raise ConfigError([f"method.roles: need {choices}, got {list(roles)}"])

    if contrastive != "single_positive" and "intermediate" not in roles:
        raise ConfigError(
            [f"method.contrastive: {contrastive} needs an intermediate, and method.roles has none"]
        )

    if not beta >= 0:
        raise ConfigError([f"method.beta: must be a number >= 0, got {beta}"])

    is_default = beta in (0, 1) and repr(hierarchical_triplet) == repr(HierarchicalTriplet())
    if contrastive != "hierarchical_triplet" and not is_default:
        # The final experiments set margins, which stay when another loss is chosen (Table 3).
        log.warning(
            "method.beta and method.hierarchical_triplet have no effect with "
            "method.contrastive=%s; hierarchical_triplet would use them",
            contrastive,
        )


def _rows(vectors: Mapping[str, Tensor], parts: Mapping[str, Tokens]) -> Tensor:
    """Return one vector per row of the batch, from roles that each cover some of the rows."""
    roles = [role for role, tokens in parts.items() if len(tokens)]
    rows = np.concatenate([parts[role].rows for role in roles])
    stacked = torch.cat([vectors[role] for role in roles])

    return stacked[to_device(np.argsort(rows), stacked.device)]
