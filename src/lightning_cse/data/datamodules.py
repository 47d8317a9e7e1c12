"""Corpora as training batches by role, and as what is held out to watch the training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from lightning_cse.data.drawing import fewer_llm_rows, hold_out, subset, with_another_anchor
from lightning_cse.data.loader import Batch, BatchLoader, Draws
from lightning_cse.data.roles import SOURCE, RoleRows
from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import LEAK, all_pairs, read_sources, without_pairs
from lightning_cse.data.token_cache import TokenisedSentences, tokenise
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.tokens import Tokenize, Tokens

log = logging.getLogger(__name__)

ANCHORS = ("anchor", "sentence", "premise")
"""What the first sentence of a row is called, by corpus."""

MOST_TIMES = 1000
"""The largest weight: more would be a mistake, whose epochs would fill the memory."""


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
    and ``training_rows``, which may be made of several corpus rows each; where rows lack a role, ``rows with <role>``
    for each; where sources have weights, ``rows an epoch``, of all and of each source.

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
        llm_rows: train on so many LLM rows only, those that have every role, drawn once for all methods and seeds; of
            the others the anchor stays.
        watched_in: watch only held-out rows whose anchor is one in each of these sources too, so that all settings of a
            domain are watched on the same sentences: those that have LLM rows.
        llm_rows_together: LLM rows, those that have every role, wait until so many have come, see `BatchLoader`; None:
            they stay in the batch they are drawn for.
        weights: how often a row is drawn an epoch, one number a source of ``train``, such as 2 or 0.5, see `Draws`;
            None: each row once.

    Raises:
        ConfigError: if a name of a split is not of the form ``corpus/split``, not exactly one of ``held_out`` and
            ``held_out_share`` is given, there is an augmentation beside LLM rows, a weight is not in (0, 1000], there
            are more or fewer of them than sources, or they do not go with the rows.
        DataError: as `read_corpus` and `Draws`, or if no row is left.
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
        llm_rows: int | None = None,
        watched_in: Sequence[str] = (),
        llm_rows_together: int | None = None,
        weights: Sequence[float] | None = None,
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
        self._by_share = held_out is None
        self.llm_rows_together = llm_rows_together
        read = read_sources(train, self.data_dir, key="data.train")
        weighted = _checked(weights, train)
        if weighted is not None:
            read = [table.with_column(SOURCE, [source] * len(table)) for source, table in enumerate(read)]
        self._excluded, self._watched = (
            read_sources(sources, self.data_dir, key=key, may_be_empty=True)
            for sources, key in ((excluded, "data.excluded"), (watched_in, "data.watched_in"))
        )
        pairs = all_pairs(self._excluded)
        built = rows([without_pairs(table, pairs) for table in read])
        if held_out is not None:
            apart = rows(read_sources(held_out, self.data_dir, key="data.held_out"))
        else:
            built, apart = hold_out(built, held_out_share or 0.0, of=rows.roles[0])
        built, apart = (with_another_anchor(part) for part in (built, apart))
        built = built.without(pairs)
        leaks = built.rows.counts.get(f"dropped: {LEAK}", 0)
        if leaks:
            log.info("%d training rows have a sentence pair of %s and are left out", leaks, ", ".join(excluded))
        if llm_rows is not None:
            built = fewer_llm_rows(built, llm_rows, self.roles)
        if train_rows is not None:
            built = subset(built, train_rows)
        self.train, self.held_out = built.rows, apart.rows
        if augmentation is not None:
            self._augment(augmentation)
        self.counts = {**built.rows.counts, "used": built.used, "training_rows": len(built.rows)}
        if self.has_llm_rows:
            self.counts["llm_rows"] = int(self._complete.sum())
        elif not bool(self._complete.all()):
            there = {role: sum(sentence is not None for sentence in self.train.column(role)) for role in self.roles}
            self.counts |= {f"rows with {role}": count for role, count in there.items() if count < len(self.train)}
        self._draws = None if weighted is None else self._weigh(built.rows, weighted, [str(name) for name in train])
        self._roles = self.roles
        self._tokens: dict[str, RoleTokens] = {}
        self._loader: BatchLoader | None = None
        self._position: dict[str, Any] | None = None

    def _weigh(self, rows: Rows, weights: Sequence[float], names: Sequence[str]) -> Draws:
        """Return how often the rows are drawn; the account and the log say what the weights make of the sources."""
        faults = []
        if SOURCE not in rows.names:
            faults.append(
                "data.weights: these training rows do not say which source they are from, because some may be made of "
                "rows of several; use data=quadruples, or weights of null"
            )
        if self.llm_rows_together is not None:
            faults.append("data.weights: not together with data.llm_rows_together, which moves rows between batches")
        if faults:
            raise ConfigError(faults)
        sources = np.array(rows.column(SOURCE), dtype=np.int64)
        draws = Draws(sources, weights, names, batch_size=self.batch_size, seed=self.seed)
        counts = {"rows an epoch": len(draws)}
        parts = []
        for source, (name, weight, count) in enumerate(zip(names, weights, draws.by_source, strict=True)):
            key = f"rows an epoch: {name}"
            counts[key] = counts.get(key, 0) + count
            parts.append(f"{count} of {name} ({np.count_nonzero(sources == source)} rows of weight {weight:g})")
        self.counts |= counts
        log.info("an epoch draws %d rows: %s", len(draws), ", ".join(parts))
        return draws

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
        among = [set(rows.column(next(name for name in ANCHORS if name in rows.names))) for rows in self._watched]
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
                + ", and at least 2 are needed: "
                + ("raise data.held_out_share" if self._by_share else "give data.held_out splits that have them")
            )
        return self.held_out.select(chosen[: self.held_out_rows])

    def use(self, roles: Sequence[str], optional: Sequence[str] = ()) -> None:
        """Have batches hold these roles, those that a method trains on; by default all that the rows have.

        Args:
            roles: the roles.
            optional: those of them that all rows may lack, but for one, as a method does that drops the terms of its
                loss which a row has no sentence for; that is told.

        Raises:
            ConfigError: if the rows lack one of them.
            DataError: if they have it, and not one has a sentence there; of a row that an LLM may write the anchor is
                enough.
        """
        lacking = [role for role in roles if role not in self.train.names]
        if lacking:
            raise ConfigError(
                [f"data: the method trains on the roles {tuple(roles)}, but the rows of this data have {self.roles}"]
            )
        empty = [role for role in roles if not any(sentence is not None for sentence in self.train.column(role))]
        if empty and set(empty) < set(optional):
            log.warning(
                "data: not one of %d training rows has a sentence of %s; terms of the loss that need it are left out",
                len(self.train),
                " or ".join(empty),
            )
        elif empty and len(self.train) and not self._from_llm:
            files = ", ".join(file.name for file in self.train.files)
            raise DataError(
                f"data: the method trains on the roles {tuple(roles)}, and not one of {len(self.train)} training rows "
                f"({files}) has a sentence of {' or '.join(empty)}: give data.train a source that has some"
            )
        self._roles = tuple(roles)
        self._tokens = {}

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file that rows came from, by its name in the official layout."""
        others = (file for rows in (*self._excluded, *self._watched) for file in rows.files)
        files = (*self.train.files, *self.held_out.files, *others)
        return {file.name: file.sha256 for file in files}

    @cached_property
    def provenance(self) -> dict[str, dict[str, Any]]:
        """Where the LLM rows that are trained on or held out come from, by the name of their file in the layout.

        As `read_provenance`; files without a side file are left out. It is read, and what is wrong with it told, once,
        when it is first asked for; neither the rows nor a run's identity depend on it.
        """
        from lightning_cse.data.provenance import read_provenance

        files = dict.fromkeys((*self.train.files, *self.held_out.files))
        found = {file.name: read_provenance(file) for file in files}
        return {name: document for name, document in found.items() if document is not None}

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
        drawn = len(self.train) if self._draws is None else len(self._draws)
        if drawn < self.batch_size:
            log.warning(
                "data.batch_size=%d, but there are only %d training rows%s: all are one batch",
                self.batch_size,
                drawn,
                "" if self._draws is None else " an epoch",
            )
        self._loader = BatchLoader(
            len(self.train),
            self.collate,
            batch_size=self.batch_size,
            drop_last=self.drop_last,
            seed=self.seed,
            gathered=None if self.llm_rows_together is None or not self.has_llm_rows else self._complete,
            together=1 if self.llm_rows_together is None else self.llm_rows_together,
            draws=self._draws,
        )
        if self._position is not None:
            self._loader.load_state_dict(self._position)
        return self._loader

    @property
    def has_llm_rows(self) -> bool:
        """Whether an LLM wrote some rows, which have every role, and not the others."""
        return self._from_llm and bool(self._complete.any()) and not bool(self._complete.all())

    @property
    def _from_llm(self) -> bool:
        """Whether an LLM may write rows of these roles: no other rows have contrastive learning's own negative."""
        return "negative" in self.roles

    @cached_property
    def _complete(self) -> Tensor:
        """Whether each training row has every role: (rows,)."""
        columns = [self.train.column(role) for role in self.roles]
        return torch.tensor([None not in sentences for sentences in zip(*columns, strict=True)])

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


def _checked(weights: Any, train: Sequence[str]) -> list[float] | None:
    """Return the weights of the sources as numbers; None where each row is drawn once, by intention or in effect."""
    if weights is None:
        return None
    if isinstance(weights, str) or not isinstance(weights, Sequence):
        raise ConfigError([f"data.weights: {weights!r} is no list; give one number a source of data.train, or null"])
    faults = []
    if len(weights) != len(train):
        sources = ", ".join(map(str, train))
        faults.append(f"data.weights: {len(weights)} numbers for the {len(train)} sources of data.train ({sources})")
    faults += [
        f"data.weights: {weight!r} is no number above 0 and up to {MOST_TIMES}; leave out sources that are not wanted"
        for weight in weights
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= MOST_TIMES
    ]
    if faults:
        raise ConfigError(faults)
    return None if all(weight == 1 for weight in weights) else [float(weight) for weight in weights]


@dataclass(frozen=True)
class RoleTokens:
    """The tokenised sentences of one role, and for each training row which of them is its own, or -1."""

    sentences: TokenisedSentences
    place: np.ndarray

    @classmethod
    def of(cls, column: Sequence[str | None], tokenize: Tokenize, cache_dir: Path | None) -> RoleTokens:
        """Tokenise the sentences there are."""
        there = np.array([sentence is not None for sentence in column], dtype=bool)
        given = [sentence for sentence in column if sentence is not None]
        sentences = tokenise(given, tokenize, cache_dir, may_be_empty=True)
        return cls(sentences, np.where(there, np.cumsum(there) - 1, -1))

    def take(self, rows: np.ndarray, most: int | None) -> Tokens:
        """Return the tokens of these training rows, each cut to ``most``."""
        places = self.place[rows]
        own = np.flatnonzero(places >= 0)
        return Tokens.pad([self.sentences[place][:most] for place in places[own]], rows=own.tolist())
