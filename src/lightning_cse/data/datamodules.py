"""Corpora as training batches by role, and as what is held out to watch the training."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from lightning_cse.data.loader import Batch, BatchLoader
from lightning_cse.data.roles import RoleRows, TrainingRows
from lightning_cse.data.rows import Rows, SourceFile
from lightning_cse.data.sources import all_pairs, read_sources, without_pairs
from lightning_cse.data.token_cache import TokenisedSentences, tokenise
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.tokens import Tokenize, Tokens

log = logging.getLogger(__name__)

SUBSET_SEED = 0
"""Draws the rows of a smaller training set: the same ones for every method and seed."""

HELD_OUT_SEED = 0
"""Draws the rows that are held out of a corpus without a dev split: the same ones for every method and seed."""


ANCHORS = ("anchor", "sentence", "premise")
"""What the first sentence of a row is called, by corpus."""


class Augmentation(Protocol):
    """What makes another view of a sentence from its tokens."""

    def __call__(self, ids: Sequence[int], sentence: str) -> list[int]:
        """Return the tokens of the other view; the same for the same sentence, always."""
        ...


class ContrastiveData(pl.LightningDataModule):
    """Rows with sentences by role, tokenised once; a batch is ``{"roles": {role: Tokens}, "index": rows}``.

    A row may lack some roles (None in their columns): a role's ``Tokens.rows`` says to which rows of the batch its
    sentences belong.

    ``counts`` is the account of the training rows: corpus rows ``read`` = ``used`` + all that were ``dropped: reason``,
    and ``training_rows``, which may be made of several corpus rows each.

    Args:
        train: the splits that are trained on, ``corpus/split`` each.
        rows: how rows of the corpora become training rows with a column a role.
        tokenize: sentences to bare token ids.
        batch_size: rows a batch.
        drop_last: whether a trailing, smaller batch is dropped.
        seed: draws the order of the rows.
        data_dir: where the corpora are.
        cache_dir: where token ids are kept; nowhere if None.
        held_out: the splits that are watched and never trained on.
        held_out_share: in place of ``held_out``, a share of the sentences of the first role, drawn once for all methods
            and seeds; they are held out with all their rows.
        excluded: splits whose sentence pairs must not be trained on; rows that have one are dropped and counted.
        train_rows: train on so many rows only, drawn once for all methods and seeds (rows made of the same corpus rows,
            as two triplets of one INLI premise, are drawn together and count as one).
        held_out_rows: watch only the first so many held-out rows.
        max_tokens: cut training sentences to so many tokens, special ones not counted.
        augmentation: makes the role ``positive`` from each anchor's tokens, once; the tokens become text, and are made
            anew from it, as any corpus's.
        watched_in: watch only held-out rows whose anchor is one in each of these sources too, so that all settings of a
            domain are watched on the same sentences: those that have LLM rows.
        llm_rows_together: LLM rows, those that have every role, wait until so many have come, see `BatchLoader`; None:
            they stay in the batch they are drawn for.

    Raises:
        ConfigError: if a name of a split is not of the form ``corpus/split``, not exactly one of ``held_out`` and
            ``held_out_share`` is given, or there is an augmentation beside LLM rows.
        DataError: as `read_corpus`, or if no row is left.
    """

    def __init__(
        self,
        *,
        train: Sequence[str],
        rows: RoleRows,
        tokenize: Tokenize,
        batch_size: int,
        drop_last: bool,
        seed: int,
        data_dir: str,
        cache_dir: str | None = None,
        held_out: Sequence[str] | None = None,
        held_out_share: float | None = None,
        excluded: Sequence[str] = (),
        train_rows: int | None = None,
        held_out_rows: int | None = None,
        max_tokens: int | None = None,
        augmentation: Augmentation | None = None,
        watched_in: Sequence[str] = (),
        llm_rows_together: int | None = None,
    ) -> None:
        super().__init__()
        if (held_out is None) == (held_out_share is None):
            raise ConfigError(["data.held_out: give splits, or data.held_out_share, and not both"])
        self.roles = rows.roles
        self.tokenize = tokenize
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.seed = seed
        self.data_dir = Path(data_dir)
        self.cache_dir = None if cache_dir is None else Path(cache_dir).expanduser()
        self.max_tokens = max_tokens
        self.held_out_rows = held_out_rows
        self.llm_rows_together = llm_rows_together
        self._watched_in = tuple(watched_in)
        built, self._excluded_files = self._read(train, excluded, rows)
        if held_out is not None:
            self.held_out = rows(read_sources(held_out, self.data_dir, key="data.held_out")).rows
        else:
            built, apart = _hold_out(built, held_out_share or 0.0, of=rows.roles[0])
            self.held_out = apart.rows
        used = built if train_rows is None else _subset(built, train_rows)
        self.train = used.rows
        if augmentation is not None:
            self._augment(augmentation)
        lost = {"dropped: data.train_rows": built.used - used.used} if len(used.rows) < len(built.rows) else {}
        self.counts = {**built.rows.counts, **lost, "used": used.used, "training_rows": len(used.rows)}
        self._roles = self.roles
        self._tokens: dict[str, RoleTokens] = {}
        self._loader: BatchLoader | None = None
        self._position: dict[str, Any] | None = None

    def _read(
        self, train: Sequence[str], excluded: Sequence[str], rows: RoleRows
    ) -> tuple[TrainingRows, tuple[SourceFile, ...]]:
        read = read_sources(train, self.data_dir, key="data.train")
        evaluated = read_sources(excluded, self.data_dir, key="data.excluded")
        pairs = all_pairs(evaluated)
        clean = [without_pairs(table, pairs) for table in read]
        leaks = sum(map(len, read)) - sum(map(len, clean))
        if leaks:
            log.info("%d training rows have a sentence pair of %s and are left out", leaks, ", ".join(excluded))
        return rows(clean), tuple(file for table in evaluated for file in table.files)

    def _augment(self, augmentation: Augmentation) -> None:
        """Give every row, trained on or held out, an augmented anchor as its positive."""
        if "negative" in self.roles:
            raise ConfigError(["data.augmentation: LLM rows have their positive already; use the plain corpus"])
        augmented = []
        for rows in (self.train, self.held_out):
            anchors = rows.column("anchor")
            ids = [augmentation(ids, sentence) for ids, sentence in zip(self.tokenize(anchors), anchors, strict=True)]
            augmented.append(rows.with_columns(anchor=anchors, positive=self.tokenize.decode(ids)))
        self.train, self.held_out = augmented
        self.roles = ("anchor", "positive")

    def watched(self, roles: Sequence[str]) -> Rows:
        """Return the first ``held_out_rows`` held-out rows that have all these roles.

        Raises:
            DataError: if there are fewer than two.
        """
        columns = [self.held_out.column(role) for role in roles]
        among = [
            set(rows.column(next(name for name in ANCHORS if name in rows.names)))
            for rows in read_sources(self._watched_in, self.data_dir, key="data.watched_in")
        ]
        anchors = self.held_out.column("anchor") if among else []
        chosen = [
            row
            for row, sentences in enumerate(zip(*columns, strict=True))
            if None not in sentences and all(anchors[row] in some for some in among)
        ]
        if len(chosen) < 2:
            raise DataError(
                f"data: {len(chosen)} of {len(self.held_out)} held-out rows have the roles {', '.join(roles)}"
                + (" and an anchor in data.watched_in" if among else "")
                + ", and at least 2 are needed: raise data.held_out_share"
            )
        return self.held_out.select(chosen[: self.held_out_rows])

    def use(self, roles: Sequence[str]) -> None:
        """Have batches hold these roles, those that a method trains on; by default all that the rows have.

        Raises:
            ConfigError: if the rows lack one of them.
        """
        lacking = [role for role in roles if role not in self.train.names]
        if lacking:
            raise ConfigError(
                [f"data: the method trains on the roles {tuple(roles)}, but the rows of this data have {self.roles}"]
            )
        self._roles = tuple(roles)
        self._tokens = {}

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file that rows came from, by its name in the official layout."""
        files = (*self.train.files, *self.held_out.files, *self._excluded_files)
        return {file.name: file.sha256 for file in files}

    def setup(self, stage: str | None = None) -> None:
        """Tokenise the training rows, unless that was done."""
        if not self._tokens:
            self._tokens = {
                role: RoleTokens.of(self.train.column(role), self.tokenize, self.cache_dir) for role in self._roles
            }

    def longer_than(self, limit: int) -> int:
        """Count the training sentences of more than ``limit`` tokens, or of more than ``max_tokens``."""
        limit = limit if self.max_tokens is None else min(limit, self.max_tokens)
        return int(sum(np.count_nonzero(tokens.sentences.lengths > limit) for tokens in self._tokens.values()))

    @property
    def sentences(self) -> int:
        """The number of training sentences, over the roles in use."""
        return sum(len(tokens.sentences) for tokens in self._tokens.values())

    def train_dataloader(self) -> BatchLoader:
        """Return the loader of training batches, at the position of the checkpoint that was loaded, if one was."""
        if len(self.train) < self.batch_size:
            log.warning(
                "data.batch_size=%d, but there are only %d training rows: all are one batch",
                self.batch_size,
                len(self.train),
            )
        self._loader = BatchLoader(
            len(self.train),
            self.collate,
            batch_size=self.batch_size,
            drop_last=self.drop_last,
            seed=self.seed,
            gathered=self._complete() if self.llm_rows_together is not None else None,
            together=self.llm_rows_together or 1,
        )
        if self._position is not None:
            self._loader.load_state_dict(self._position)
        return self._loader

    def _complete(self) -> Tensor | None:
        """Return which rows have every role that the rows have, where not all do: (rows,)."""
        complete = np.all([[s is not None for s in self.train.column(role)] for role in self.roles], axis=0)
        return None if complete.all() or not complete.any() else torch.from_numpy(complete)

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
        rows = index.numpy()
        return {
            "roles": {role: tokens.take(rows, self.max_tokens) for role, tokens in self._tokens.items()},
            "index": index,
        }


@dataclass(frozen=True)
class RoleTokens:
    """The tokenised sentences of one role, and for each training row which of them is its own, or -1."""

    sentences: TokenisedSentences
    place: np.ndarray

    @classmethod
    def of(cls, column: Sequence[str | None], tokenize: Tokenize, cache_dir: Path | None) -> RoleTokens:
        """Tokenise the sentences there are."""
        there = np.array([sentence is not None for sentence in column], dtype=bool)
        sentences = tokenise([sentence for sentence in column if sentence is not None], tokenize, cache_dir)
        return cls(sentences, np.where(there, np.cumsum(there) - 1, -1))

    def take(self, rows: np.ndarray, most: int | None) -> Tokens:
        """Return the tokens of these training rows, each cut to ``most``."""
        places = self.place[rows]
        own = np.flatnonzero(places >= 0)
        return Tokens.pad([self.sentences[place][:most] for place in places[own]], rows=own.tolist())


def _subset(built: TrainingRows, count: int) -> TrainingRows:
    units = built.units
    if count > len(units):
        log.warning("data.train_rows=%d, but there are only %d rows; all are used", count, len(units))
    order = torch.randperm(len(units), generator=torch.Generator().manual_seed(SUBSET_SEED))[:count]
    return built.select(row for unit in sorted(order.tolist()) for row in units[unit])


def _hold_out(built: TrainingRows, share: float, *, of: str) -> tuple[TrainingRows, TrainingRows]:
    """Return what is left to train on, and a share of the sentences of a role (at least two) with all their rows.

    Rows that share a sentence, several triplets of a premise say, are on one side. Both keep the order of the corpus.
    The same share of the rows that were added to a corpus is held out too, by a draw of its own.
    """
    if not 0 < share < 1:
        raise ConfigError([f"data.held_out_share: {share} is no share in (0, 1)"])
    sentences = built.rows.column(of)
    own = len(sentences) if built.own is None else built.own
    units = _together(sentences, range(own))
    number = max(2, round(share * len(units)))
    if number > len(units) - 2:
        raise DataError(f"data.held_out_share: {share} of {len(units)} sentences leaves too few on one side")
    apart = _drawn(units, number)
    added = _together(sentences, range(own, len(sentences)))
    apart |= _drawn(added, round(share * len(added)))
    kept = built.select(row for row in range(len(sentences)) if row not in apart)
    lost = {"dropped: held out": built.used - kept.used}
    rows = kept.rows.recounted({**kept.rows.counts, **lost})
    return TrainingRows(rows, kept.sources), built.select(sorted(apart))


def _together(sentences: Sequence[str], rows: Iterable[int]) -> list[list[int]]:
    """Return the rows of each distinct sentence."""
    together: dict[str, list[int]] = {}
    for row in rows:
        together.setdefault(sentences[row], []).append(row)
    return list(together.values())


def _drawn(units: Sequence[Sequence[int]], number: int) -> set[int]:
    order = torch.randperm(len(units), generator=torch.Generator().manual_seed(HELD_OUT_SEED)).tolist()
    return {row for unit in order[:number] for row in units[unit]}
