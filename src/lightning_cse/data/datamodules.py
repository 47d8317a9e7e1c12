"""Corpora as training batches by role, and as what is held out to watch the training."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from lightning_cse.data.loader import Batch, BatchLoader
from lightning_cse.data.readers import read_corpus
from lightning_cse.data.rows import Rows
from lightning_cse.data.token_cache import TokenisedSentences, tokenise
from lightning_cse.errors import ConfigError, did_you_mean
from lightning_cse.tokens import Tokenize, Tokens

log = logging.getLogger(__name__)

SUBSET_SEED = 0
"""Draws the rows of a smaller training set: the same ones for every method and seed."""


class RoleRows(Protocol):
    """How rows of a corpus become training rows with a column a role."""

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of a training row."""
        ...

    def __call__(self, rows: Rows) -> Rows:
        """Return the training rows."""
        ...


class ContrastiveData(pl.LightningDataModule):
    """Rows with sentences by role, tokenised once; a batch is ``{"roles": {role: Tokens}, "index": rows}``.

    Args:
        corpus: a name that `read_corpus` knows.
        rows: how rows of the corpus become training rows with a column a role.
        tokenize: sentences to bare token ids.
        batch_size: rows a batch.
        drop_last: whether a trailing, smaller batch is dropped.
        seed: draws the order of the rows.
        data_dir: where the corpora are.
        cache_dir: where token ids are kept; nowhere if None.
        train_split: the split that is trained on.
        held_out_split: the split that is never trained on.
        train_rows: train on so many rows only, drawn once for all methods and seeds.
        held_out_rows: watch only the first so many held-out rows.
    """

    def __init__(
        self,
        *,
        corpus: str,
        rows: RoleRows,
        tokenize: Tokenize,
        batch_size: int,
        drop_last: bool,
        seed: int,
        data_dir: str,
        cache_dir: str | None = None,
        train_split: str = "train",
        held_out_split: str = "val",
        train_rows: int | None = None,
        held_out_rows: int | None = None,
    ) -> None:
        super().__init__()
        self.corpus = corpus
        self.roles = rows.roles
        self.tokenize = tokenize
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.seed = seed
        self.data_dir = Path(data_dir)
        self.cache_dir = None if cache_dir is None else Path(cache_dir).expanduser()
        read = read_corpus(corpus, train_split, self.data_dir)
        used = read if train_rows is None else _subset(read, train_rows)
        self.train = rows(used)
        self.counts = {**used.counts, "used": len(used), "training_rows": len(self.train)}
        self.held_out = rows(read_corpus(corpus, held_out_split, self.data_dir)[:held_out_rows])
        self._tokens: dict[str, TokenisedSentences] = {}
        self._loader: BatchLoader | None = None
        self._position: dict[str, Any] | None = None

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file that rows came from, by its name in the official layout."""
        return {file.name: file.sha256 for rows in (self.train, self.held_out) for file in rows.files}

    def setup(self, stage: str | None = None) -> None:
        """Tokenise the training rows, unless that was done."""
        if not self._tokens:
            self._tokens = {
                role: tokenise(self.train.column(role), self.tokenize, self.cache_dir) for role in self.roles
            }

    def longer_than(self, limit: int) -> int:
        """Count the training sentences of more than ``limit`` tokens."""
        return int(sum(np.count_nonzero(tokens.lengths > limit) for tokens in self._tokens.values()))

    @property
    def sentences(self) -> int:
        """The number of training sentences, over all roles."""
        return len(self.train) * len(self.roles)

    def train_dataloader(self) -> BatchLoader:
        """Return the loader of training batches, at the position of the checkpoint that was loaded, if one was."""
        self._loader = BatchLoader(
            len(self.train), self.collate, batch_size=self.batch_size, drop_last=self.drop_last, seed=self.seed
        )
        if self._position is not None:
            self._loader.load_state_dict(self._position)
        return self._loader

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position, for the checkpoint.

        Lightning saves it too, but does not restore it where the number of steps was asked for before: the loader is
        made to answer that, and a loader that is there gets no state.
        """
        return {} if self._loader is None else self._loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the position for the loader, which is made later."""
        self._position = state_dict

    def collate(self, index: Tensor) -> Batch:
        """Return the batch of these rows."""
        rows = index.tolist()
        roles = {role: Tokens.pad([tokens[row] for row in rows]) for role, tokens in self._tokens.items()}
        return {"roles": roles, "index": index}


@dataclass(frozen=True)
class INLIQuadruples:
    """INLI as DualCSE trains on it: premise, explicit and implied entailment, contradiction."""

    roles: ClassVar[tuple[str, ...]] = ("premise", "explicit_entailment", "implied_entailment", "contradiction")

    def __call__(self, rows: Rows) -> Rows:
        """Return the rows as they are: the roles are columns of INLI."""
        return rows


POSITIVES = {
    "explicit": ("explicit_entailment",),
    "implied": ("implied_entailment",),
    "both": ("explicit_entailment", "implied_entailment"),
}


@dataclass(frozen=True)
class INLITriplets:
    """INLI as supervised SimCSE trains on it: premise, an entailment, contradiction.

    Args:
        positive: ``explicit``, ``implied``, or ``both`` (two triplets a premise). The DualCSE paper does not say which
            entailment its baseline SimCSE (INLI) has; with ``both`` it sees the same sentences as DualCSE.

    Raises:
        ConfigError: for any other positive.
    """

    roles: ClassVar[tuple[str, ...]] = ("anchor", "positive", "negative")
    positive: str = "both"

    def __post_init__(self) -> None:
        if self.positive not in POSITIVES:
            near = did_you_mean(self.positive, POSITIVES)
            raise ConfigError([f"data.rows.positive: {self.positive!r} is not one of {sorted(POSITIVES)}{near}"])

    def __call__(self, rows: Rows) -> Rows:
        """Return one triplet, or two, a premise."""
        columns = POSITIVES[self.positive]
        repeated = rows.select([row for row in range(len(rows)) for _ in columns])
        return repeated.with_columns(
            anchor=repeated.column("premise"),
            positive=[row[column] for row in rows for column in columns],
            negative=repeated.column("contradiction"),
        )


def _subset(rows: Rows, count: int) -> Rows:
    if count > len(rows):
        log.warning("data.train_rows=%d, but there are only %d rows; all are used", count, len(rows))
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(SUBSET_SEED))[:count]
    return rows.select(sorted(order.tolist()), reason="data.train_rows")
