"""ImpScore: how far what a sentence means is from what it says, learnt on top of a sentence encoder."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lightning_cse.data import ContrastiveData
from lightning_cse.data.corpora.impscore import SENTENCES as ROLES
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.methods.base import MakeOptimizer, Method
from lightning_cse.methods.schedules import Schedule
from lightning_cse.models import ImpScoreModel
from lightning_cse.models.base import SENTENCES_AT_ONCE
from lightning_cse.models.impscore import Direction, Distance
from lightning_cse.tokens import Tokens

log = logging.getLogger(__name__)

ROWS_AT_ONCE = 256
"""Rows whose tokens are looked at together; few, because one long sentence pads all others to its length."""


class ImpScore(Method):
    r"""Semantic and pragmatic vector of a sentence, linear in its encoder's; implicitness is the distance of the two.

    The maps and the distances are those of `ImpScoreModel`. A row is two pairs of an implicit and an explicit sentence:
    the implicit one shall be the more implicit of the two by a margin, and the first pair shall be the closer in what
    is meant.

    Where the encoder is frozen, every training sentence is encoded once, when training starts, in an order that the
    data alone decide; a batch looks its vectors up. Sentences that are embedded again and again meanwhile, to watch the
    training, are encoded once too. The vectors take a row of ``width`` float32 numbers for each distinct sentence,
    those of the training on the method's device, and are part of no checkpoint; nor is a frozen encoder.

    Source: ImpScore (Wang et al. 2025), method, and the authors' code.  Differs: nothing in the method. Their encoder,
    all-mpnet-base-v2, scales its vectors itself. How DualCSE's baseline "ImpScore (INLI)" encodes sentences, and
    whether its encoder learns too, is not known.

    Args:
        encoder: sentences to vectors.
        loss: implicitness of a row's four sentences and pragmatic distance of its two pairs to a scalar.
        optimizer: as in `Method`.
        schedule: as in `Method`.
        dim: as in `ImpScoreModel`, and so the others.
        direction: its ``space``.
        implicitness_metric: see there.
        pragmatic_metric: see there.
        frozen: whether the encoder stays as it is; false trains it too, as the other methods do.
        normalize: see there.

    Raises:
        ConfigError: if ``dim`` is less than 1.
    """

    model: ImpScoreModel
    roles = ROLES
    spread = ROLES[:2]  # the implicit sentence is as a rule the same in both pairs
    pairs: ClassVar = {"pragmatic": ROLES[:2], "semantic": ROLES[:2]}

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: nn.Module,
        *,
        optimizer: MakeOptimizer,
        schedule: Schedule,
        dim: int = 64,
        direction: Direction = "p2s",
        implicitness_metric: Distance = "cosine",
        pragmatic_metric: Distance = "euclidean",
        frozen: bool = True,
        normalize: bool = True,
    ) -> None:
        if dim < 1:
            raise ConfigError([f"method.dim: must be an integer >= 1, got {dim}"])
        model = ImpScoreModel(
            encoder,
            dim=dim,
            space=direction,
            implicitness_metric=implicitness_metric,
            pragmatic_metric=pragmatic_metric,
            frozen=frozen,
            normalize=normalize,
        )
        super().__init__(model, loss, optimizer=optimizer, schedule=schedule)
        self._kept: _Kept | None = None

    def on_fit_start(self) -> None:
        """Encode the training sentences once if the encoder is frozen; else start as every method does."""
        if not self.model.frozen:
            super().on_fit_start()
            return
        self.train()
        # Lightning warns of every module in evaluation mode when training starts: the encoder is meant to be.
        warnings.filterwarnings("ignore", message=r"Found \d+ module\(s\) in eval mode")
        data = getattr(self.trainer, "datamodule", None)
        if isinstance(data, ContrastiveData):
            self.model.kept = {}
            with self.trainer.precision_plugin.forward_context():
                self._kept = self._encode_once(data)

    def on_fit_end(self) -> None:
        """Release the vectors that were kept."""
        self._kept = self.model.kept = None

    @torch.no_grad()
    def _encode_once(self, data: ContrastiveData) -> _Kept:
        count, most = len(data.train), self.model.encoder.max_length
        number: dict[tuple[int, ...], int] = {}
        places: dict[str, list[int]] = {role: [] for role in self.roles}
        for start in range(0, count, ROWS_AT_ONCE):
            batch = data.collate(torch.arange(start, min(count, start + ROWS_AT_ONCE)))
            for role, place in places.items():
                tokens: Tokens = batch["roles"][role]
                for ids, length in zip(tokens.ids.tolist(), tokens.mask.sum(1).tolist(), strict=True):
                    place.append(number.setdefault(tuple(ids[: min(length, most)]), len(number)))
        _check_rows({role: len(place) for role, place in places.items()}, count)
        distinct = list(number)
        log.info("the %d distinct sentences of %d training rows are encoded once", len(distinct), count)
        vectors = [
            self.model.pooled(Tokens.pad(distinct[start : start + SENTENCES_AT_ONCE]).to(self.device))[0]
            for start in range(0, len(distinct), SENTENCES_AT_ONCE)
        ]
        return _Kept(
            torch.cat(vectors), {role: torch.tensor(place, device=self.device) for role, place in places.items()}
        )

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the four roles of a batch, and rank implicitness and distances."""
        model, index = self.model, batch["index"]
        if self._kept is None:
            tokens: dict[str, Tokens] = {role: batch["roles"][role] for role in self.roles}
            _check_rows({role: len(some) for role, some in tokens.items()}, len(index))
            embeddings = model.encode(*tokens.values())
        else:
            embeddings = [model.project(self._kept.take(role, index)) for role in self.roles]
        pos_implicit, pos_explicit, neg_implicit, neg_explicit = embeddings
        loss = self.loss(
            *(model.implicitness(sentence) for sentence in embeddings),
            pos_distance=model.pragmatic_distance(pos_implicit, pos_explicit),
            neg_distance=model.pragmatic_distance(neg_implicit, neg_explicit),
        )
        return self.output(loss, index, **dict(zip(self.roles, embeddings, strict=True)))


@dataclass(frozen=True)
class _Kept:
    """Vectors of the distinct training sentences (sentences, width), and, by role, which of them each row has."""

    vectors: Tensor
    places: dict[str, Tensor]

    def take(self, role: str, index: Tensor) -> Tensor:
        """Return the vectors of a role in these training rows."""
        return self.vectors[self.places[role][index.to(self.vectors.device)]]


def _check_rows(sentences: dict[str, int], rows: int) -> None:
    """Refuse rows that lack a sentence: those of another row would stand in its place."""
    lacking = [f"{role} of {rows - count}" for role, count in sentences.items() if count != rows]
    if lacking:
        raise DataError(
            f"data: ImpScore trains on rows of four sentences, and of {rows} training rows some lack one: "
            f"{', '.join(lacking)}; leave these rows out"
        )
