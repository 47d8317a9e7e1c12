"""ImpScore: how far the meaning of a sentence is from what it says, on top of an encoder."""

import logging
import warnings
from itertools import chain
from typing import Any, ClassVar, TypedDict, Unpack

import torch
from torch import Tensor, nn

from lightning_cse.data.columns import PAIR_SENTENCES as ROLES
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.methods.base import MakeOptimizer, Method, Schedule
from lightning_cse.models import ImpScoreModel
from lightning_cse.models.base import SENTENCES_AT_ONCE
from lightning_cse.models.impscore import Direction, Distance
from lightning_cse.tokens import Tokens

log = logging.getLogger(__name__)


class Maps(TypedDict, total=False):
    """The options that are passed on to `ImpScoreModel`."""

    dim: int
    implicitness_metric: Distance
    pragmatic_metric: Distance
    frozen: bool
    normalize: bool


class ImpScore(Method):
    r"""Semantic and pragmatic vectors, linear maps of the sentence vector; I is their distance.

    The maps and distances are those of `ImpScoreModel`. A row has two pairs of an implicit and an
    explicit sentence. In each pair, the implicit sentence must have the larger implicitness, by a
    margin. The first pair must have the smaller pragmatic distance, by another margin.

    If the encoder is frozen, every distinct training sentence is encoded once, when training
    starts, and batches look up the vectors. Neither the vectors (``width`` float32 numbers per
    sentence) nor a frozen encoder is part of a checkpoint.

    Source: ImpScore (Wang et al. 2025), method, and the authors' code.  Differs: nothing in the
    method. Their encoder, all-mpnet-base-v2, scales its vectors itself. It is not known how
    DualCSE's baseline "ImpScore (INLI)" encodes sentences, nor whether its encoder is trained.

    The loss takes the implicitness of the four sentences of a row and the pragmatic distances of
    its two pairs. ``direction`` is the ``space`` of `ImpScoreModel`. ``frozen=False`` trains the
    encoder, as the other methods do.
    """

    papers = ("wang2025impscore",)
    model: ImpScoreModel
    roles = ROLES
    spread = ROLES[:2]  # the implicit sentence is usually the same in both pairs
    pairs: ClassVar = {"pragmatic": ROLES[:2], "semantic": ROLES[:2]}

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: nn.Module,
        *,
        optimizer: MakeOptimizer,
        schedule: Schedule,
        chunk_size: int | None = None,
        direction: Direction = "p2s",
        **maps: Unpack[Maps],
    ) -> None:
        super().__init__(
            ImpScoreModel(encoder, space=direction, **maps),
            loss,
            optimizer=optimizer,
            schedule=schedule,
            chunk_size=chunk_size,
        )
        # The vectors of distinct training sentences, and their numbers by role and row.
        self._vectors: Tensor | None = None
        self._row_numbers: Tensor | None = None

    def on_fit_start(self) -> None:
        """Encode the training sentences once if the encoder is frozen; else start as any method."""
        if not self.model.frozen:
            super().on_fit_start()
            return

        # When training starts, Lightning warns about modules in evaluation mode; a frozen encoder
        # has to be.
        warnings.filterwarnings("ignore", message=r"Found \d+ module\(s\) in eval mode")
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        with self.trainer.precision_plugin.forward_context(), torch.no_grad():
            self._encode_once(data)

    def on_fit_end(self) -> None:
        """Release the vectors that were kept."""
        super().on_fit_end()
        self._vectors = None

    def _encode_once(self, data: Any) -> None:
        # A sentence has other tokens where its role has another instruction.
        tokenizers = {role: data.tokenizer_of(role) for role in self.roles}
        columns = []
        for role, tokenize in tokenizers.items():
            columns.append([(tokenize.digest, sentence) for sentence in data.train[role]])

        numbers = {key: index for index, key in enumerate(dict.fromkeys(chain(*columns)))}
        log.info(
            "the %d distinct sentences of %d training rows are encoded once",
            len(numbers),
            len(columns[0]),
        )
        most = min(data.max_tokens or self.model.encoder.max_length, self.model.encoder.max_length)
        ids: list[list[int]] = [[]] * len(numbers)
        for digest, tokenize in {
            tokenize.digest: tokenize for tokenize in tokenizers.values()
        }.items():
            keys = [key for key in numbers if key[0] == digest]
            tokenised = tokenize([sentence for _, sentence in keys])
            for key, tokens in zip(keys, tokenised, strict=True):
                ids[numbers[key]] = tokens[:most]

        vectors = []
        for start in range(0, len(ids), SENTENCES_AT_ONCE):
            tokens = Tokens.pad(ids[start : start + SENTENCES_AT_ONCE])
            vectors += self.model.pooled(tokens.to(self.device))

        row_numbers = [list(map(numbers.__getitem__, column)) for column in columns]
        self._vectors = torch.cat(vectors)
        self._row_numbers = torch.tensor(row_numbers, device=self.device)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the four roles of a batch, and rank their implicitness and distances."""
        model = self.model
        index = batch["index"]
        if self._vectors is None or self._row_numbers is None:
            embeddings = self.embed(batch)
        else:
            row_numbers = self._row_numbers[:, index.to(self.device)]
            embeddings = {}
            for role, rows in zip(self.roles, row_numbers, strict=True):
                embeddings[role] = model.project(self._vectors[rows])

        pos_implicit, pos_explicit, neg_implicit, neg_explicit = embeddings.values()
        loss = self.loss(
            *(model.implicitness(sentence) for sentence in embeddings.values()),
            pos_distance=model.pragmatic_distance(pos_implicit, pos_explicit),
            neg_distance=model.pragmatic_distance(neg_implicit, neg_explicit),
        )

        return self.output(loss, index, **embeddings)
