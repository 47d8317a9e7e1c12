"""Turn corpora into training batches by role, and into held-out rows that are watched during training."""

import contextlib
import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytorch_lightning as pl
import torch
from datasets import Dataset
from datasets.table import InMemoryTable
from torch import Tensor

from lightning_cse.data.drawing import (
    fewer_llm_rows,
    hold_out,
    keep,
    subset,
    used,
    with_another_anchor,
)
from lightning_cse.data.own_rows import OwnRows
from lightning_cse.data.roles import FIRST, SOURCE, RoleRows
from lightning_cse.data.rows import Rows
from lightning_cse.data.sampler import Batch, BatchLoader, Draws, on_gpu
from lightning_cse.data.sources import (
    LEAK,
    all_pairs,
    free_of,
    read_sources,
    warn_without_pairs,
    without_pairs,
)
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.tokens import Tokenize, Tokens, TokenTable

log = logging.getLogger(__name__)

Augmentation = Callable[[Sequence[int], str], list[int]]
"""Maps the tokens of a sentence, and the sentence itself, to the tokens of another view; deterministic."""

HELD_OUT_SHARE = 0.05  # our choice, if neither held-out rows nor a share is given
LARGEST_WEIGHT = 1000  # a larger one is a mistake, and its epochs would fill the memory
TOKENS_VERSION = 2  # version of the files in the token cache
AT_ONCE = 10_000  # sentences that are tokenised at once


class ContrastiveData(pl.LightningDataModule):
    """Rows with sentences by role, tokenised once; a batch is ``{"roles": {role: Tokens}, "index": rows}``.

    A row may lack some roles (None in their columns); a role's ``Tokens.rows`` says which rows of the batch its
    sentences belong to. ``counts`` accounts for the training rows: corpus rows ``read`` = ``used`` + the sum of all
    ``dropped: <reason>``. It also has ``training_rows``; ``llm_rows``, or ``rows with <role>`` for each role that rows
    lack; and, if sources have weights, ``rows an epoch``, in total and for each source.

    ``roles`` are the roles that a method trains on, and ``optional`` those of them that rows may lack (see `use`).
    Without ``roles``, batches hold all roles of the data. A row may have several sentences of the role ``negative``, in
    the columns ``negative``, ``negative_2``, ...; the role's ``Tokens`` hold all of them.

    ``conf/data`` explains the options. See `read_sources` for lists of sources and ``columns``, `subset` for
    ``train_rows``, `fewer_llm_rows` for ``llm_rows``, `BatchLoader` for ``llm_rows_together`` and
    ``distinct_in_batch``, and `Draws` for ``weights`` (one per source of ``train``; None: every row once).
    ``held_out_share`` is the share of the first role's sentences that is held out: 0.05 by default if ``held_out`` is
    None too; with 0, all rows are trained on and none is watched. ``augmentation`` makes the role ``positive`` from
    each anchor's tokens, once, as text.
    """

    def __init__(
        self,
        *,
        train: str | Sequence[str],
        rows: RoleRows | OwnRows,
        tokenize: Tokenize,
        batch_size: int,
        drop_last: bool,
        seed: int,
        data_dir: str,
        cache_dir: str | None = None,
        held_out: str | Sequence[str] | None = None,
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
        columns: Mapping[str, str] | None = None,
        distinct_in_batch: bool = False,
        roles: Sequence[str] = (),
        optional: Sequence[str] = (),
    ) -> None:
        super().__init__()
        if held_out is not None and held_out_share is not None:
            fault = "data.held_out: give splits or files, or data.held_out_share, and set the other to null"
            raise ConfigError([fault])
        if distinct_in_batch and llm_rows_together is not None:
            fault = "data.distinct_in_batch: cannot be combined with data.llm_rows_together; set it to null"
            raise ConfigError([fault])
        self.tokenize, self.max_tokens = tokenize, max_tokens
        self._batching: dict[str, Any] = {
            "batch_size": batch_size,
            "drop_last": drop_last,
            "seed": seed,
        }
        self.cache_dir = None if cache_dir is None else Path(cache_dir).expanduser()
        self.held_out_rows, self.llm_rows_together, self._llm_rows = (
            held_out_rows,
            llm_rows_together,
            llm_rows,
        )
        self._by_share, self._distinct = held_out is None, distinct_in_batch
        self.limit_train_batches: int | float | None = (
            None  # the Trainer itself would make the rest an epoch
        )
        self._loader: BatchLoader | None = None
        self._position: dict[str, Any] | None = None
        names = [train] if isinstance(train, str) else list(map(str, train))
        wanted = tuple(roles if augmentation is None else roles[:1])
        read = partial(read_sources, data_dir=Path(data_dir))
        takes = ", ".join(f"[{role}]" if role in optional else role for role in wanted)
        read_own = partial(
            read, columns=columns, takes=f"the method reads {takes}" if wanted else ""
        )
        tables = read_own(names, key="data.train")
        weighted = weights is not None and list(weights) != [1] * len(tables)
        if weighted:
            tables = [
                table.with_column(SOURCE, [source] * len(table))
                for source, table in enumerate(tables)
            ]
        self._excluded = read(excluded, key="data.excluded", may_be_empty=True)
        with _or_none_to_compare():
            self._watched = read(watched_in, key="data.watched_in", may_be_empty=True)
        pairs = all_pairs(self._excluded)
        warn_without_pairs(self._excluded, tables, own=isinstance(rows, OwnRows))
        scheme = rows.scheme(tables, wanted, optional) if isinstance(rows, OwnRows) else rows
        self.roles = self._roles = scheme.roles
        self._from_llm = "negative" in scheme.roles  # only LLM rows have a role of this name
        built = scheme([without_pairs(table, pairs) for table in tables])
        if held_out is not None:
            key = "data.held_out"
            tables = read_own(held_out, key=key)
            of_held_out = (
                rows.scheme(tables, wanted, optional, key) if isinstance(rows, OwnRows) else rows
            )
            self.held_out = of_held_out(tables)
        else:
            share = HELD_OUT_SHARE if held_out_share is None else held_out_share
            built, self.held_out = hold_out(built, share, of=scheme.roles[0])
        built, self.held_out = with_another_anchor(built), with_another_anchor(self.held_out)
        built = keep(built, free_of(built, pairs), LEAK)
        if leaks := built.counts.get(f"dropped: {LEAK}", 0):
            log.info(
                "%d training rows have a sentence pair of %s and are left out",
                leaks,
                ", ".join(excluded),
            )
        if llm_rows is not None:
            built = fewer_llm_rows(built, llm_rows, self.roles)
        if train_rows is not None:
            built = subset(built, train_rows)
        self.train = built
        if augmentation is not None:
            self._augment(augmentation)
        self.counts = {**built.counts, "used": used(built), "training_rows": len(built)}
        self._complete = self.train.has(*self.roles)
        self.has_llm_rows = self._from_llm and 0 < self._complete.sum() < len(built)
        if self.has_llm_rows:
            self.counts["llm_rows"] = int(self._complete.sum())
        elif not self._complete.all():
            present = {role: int(self.train.has(role).sum()) for role in self.roles}
            self.counts |= {
                f"rows with {role}": count
                for role, count in present.items()
                if count < len(self.train)
            }
        self._draws = self._weigh(built, weights or (), names) if weighted else None
        if roles:
            self.use(roles, optional)

    def _weigh(self, rows: Rows, weights: Sequence[float], names: Sequence[str]) -> Draws:
        """Return the draws of the weighted rows; add the rows per epoch to the account and the log."""
        hint = "remove sources that you do not want"
        wrong = [weight for weight in weights if not 0 < weight <= LARGEST_WEIGHT]
        faults = [
            f"data.weights: must be in (0, {LARGEST_WEIGHT}], got {weight!r}; {hint}"
            for weight in wrong
        ]
        if len(weights) != len(names):
            sources = f"the {len(names)} sources of data.train ({', '.join(names)})"
            faults.insert(0, f"data.weights: {len(weights)} numbers for {sources}")
        if SOURCE not in rows.names:
            faults.append(
                "data.weights: one row may be made from several sources here; set it to null"
            )
        if self.llm_rows_together is not None:
            faults.append("data.weights: cannot be combined with data.llm_rows_together")
        if faults:
            raise ConfigError(faults)
        source_of = rows.values(SOURCE).to_numpy()
        draws = Draws(
            source_of,
            weights,
            names,
            batch_size=self._batching["batch_size"],
            seed=self._batching["seed"],
        )
        self.counts["rows an epoch"] = len(draws)
        parts = []
        for source, (name, weight, count) in enumerate(
            zip(names, weights, draws.by_source, strict=True)
        ):
            key = f"rows an epoch: {name}"
            self.counts[key] = self.counts.get(key, 0) + count
            parts.append(
                f"{count} of {name} ({np.count_nonzero(source_of == source)} rows of weight {weight:g})"
            )
        log.info("an epoch draws %d rows: %s", len(draws), ", ".join(parts))
        return draws

    def _augment(self, augmentation: Augmentation) -> None:
        """Give every row, trained on or held out, an augmented anchor as its positive."""
        if "negative" in self.roles:
            raise ConfigError(
                ["data.augmentation: LLM rows already have a positive; use the plain corpus"]
            )

        def augmented(rows: Rows) -> Rows:
            anchors, positives = rows.values("anchor"), []
            for some in _slices(anchors):
                tokens = zip(self.tokenize(some), some, strict=True)
                positives += self.tokenize.decode(
                    [augmentation(ids, sentence) for ids, sentence in tokens]
                )
            return rows.with_columns(anchor=anchors, positive=positives)

        self.train, self.held_out = augmented(self.train), augmented(self.held_out)
        self.roles = self._roles = ("anchor", "positive")

    def watched(self, roles: Sequence[str]) -> Rows:
        """Return the first ``held_out_rows`` held-out rows that have all these roles; fewer than two are a DataError.

        With ``watched_in``, a row also needs an anchor that each of these sources has and no other held-out row has, so
        that all settings of one corpus watch the same sentences.

        Source: the authors' code of NGCSE.  Differs: nothing.
        """
        chosen = self.held_out.has(*roles)
        if self._watched:
            places = (
                self.held_out.values("anchor")
                .combine_chunks()
                .dictionary_encode()
                .indices.to_numpy()
            )
            chosen &= (np.bincount(places) == 1)[places]
        for rows in self._watched:
            anchors = rows.values(next(name for name in FIRST if name in rows.names))
            chosen &= pc.is_in(self.held_out.values("anchor"), value_set=anchors).to_numpy()
        numbers = np.flatnonzero(chosen)
        if len(numbers) < 2:
            within = " and an anchor in data.watched_in" if self._watched else ""
            do = (
                "raise data.held_out_share"
                if self._by_share
                else "give data.held_out splits that have them"
            )
            raise DataError(
                f"data: {len(numbers)} of {len(self.held_out)} held-out rows have the roles {', '.join(roles)}{within}"
                f", and at least 2 are needed: {do}"
            )
        return self.held_out.select(numbers[: self.held_out_rows])

    def use(self, roles: Sequence[str], optional: Sequence[str] = ()) -> None:
        """Choose the roles that batches hold: those that a method trains on. Without this call, they hold all roles.

        A role that the data or some rows lack is an error, with exceptions: rows may lack some ``optional`` roles,
        whose terms the loss drops, and roles that only LLM rows have; the data may lack an optional negative.
        """
        if "negative" in {*roles}.intersection(optional).difference(self.train.names):
            self.train = self.train.with_column("negative", pa.nulls(len(self.train), pa.string()))
        if lacking := [role for role in roles if role not in self.train.names]:
            have = f"this data has {', '.join(self.roles)}"
            raise ConfigError(
                [
                    f"data: the method trains on {', '.join(roles)}, but {have}; missing: {', '.join(lacking)}"
                ]
            )
        count, there = len(self.train), {role: self.train.has(role) for role in roles}
        empty = [role for role in roles if not there[role].any()]
        if empty and set(empty) <= set(optional) and len(empty) < len(roles) - 1:
            what = f"none of the {count} training rows has a sentence of {' or '.join(empty)}"
            log.warning("data: %s; terms of the loss that need it are left out", what)
        elif empty and count and not self._from_llm:
            raise DataError(
                f"data: none of the {count} training rows ({self.train.origin}) has a sentence of "
                f"{' or '.join(empty)}, which the method trains on: add a source that has some to data.train"
            )
        elif empty and count and self._llm_rows != 0:
            log.warning(
                "data: none of %d training rows is an LLM row: see data.train_rows and data.llm_rows",
                count,
            )
        for role in roles if not self._from_llm else ():
            if role not in optional and (without := count - int(there[role].sum())):
                first = self.train.where(int(np.argmin(there[role])))
                what = f"no {role}, which the method trains on; {without} of {count} training rows lack it"
                raise DataError(f"{first}: {what}: leave them out, or complete them")
        more = [name for name in self.train.names if name.startswith("negative_")]
        if more and not {"contradiction", "intermediate"}.isdisjoint(roles):
            log.warning("data: the method uses one negative per row; not used: %s", ", ".join(more))
        self._roles = tuple(roles)
        self.__dict__.pop("_tokens", None)

    def _columns(self, role: str) -> list[str]:
        """Return the columns of a role: one, or all columns of hard negatives unless there is an intermediate."""
        several = role == "negative" and "intermediate" not in self._roles
        return [
            role,
            *(name for name in self.train.names if several and name.startswith("negative_")),
        ]

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file that rows came from, by its name in the official layout."""
        tables = (self.train, self.held_out, *self._excluded, *self._watched)
        return {file.name: file.sha256 for rows in tables for file in rows.files}

    @cached_property
    def provenance(self) -> Mapping[str, dict[str, Any]]:
        """The known provenance of the LLM rows that are trained on or held out, by the name of their file."""
        from lightning_cse.data.provenance import (
            read_provenance,
        )  # it imports pydantic: only when needed

        files = dict.fromkeys((*self.train.files, *self.held_out.files))
        found = {file.name: read_provenance(file) for file in files}
        return {name: document for name, document in found.items() if document is not None}

    def setup(self, stage: str | None = None) -> None:
        """Tokenise the training rows, if that is not done yet; a sentence without a token is a DataError."""
        _ = self._tokens

    @cached_property
    def _tokens(self) -> Dataset:
        columns = []
        for role in itertools.chain.from_iterable(map(self._columns, self._roles)):
            tokens = tokenise(self.train.values(role), self.tokenize, self.cache_dir)
            empty = np.flatnonzero(self.train.has(role) & (_lengths(tokens, "ids") == 0))
            if len(empty):
                row = int(empty[0])
                sentence = repr(self.train[row][role][:120])
                raise DataError(
                    f"{self.train.where(row)}: {role} {sentence} has no token in the encoder's vocabulary"
                )
            columns.append(tokens.rename_column("ids", role))
        return datasets.concatenate_datasets(columns, axis=1).with_format("arrow")

    def longer_than(self, limit: int) -> int:
        """Count the training sentences of more than ``limit`` tokens, or ``max_tokens`` if that is smaller."""
        limit = limit if self.max_tokens is None else min(limit, self.max_tokens)
        return sum(
            int((_lengths(self._tokens, name) > limit).sum()) for name in self._tokens.column_names
        )

    @property
    def sentences(self) -> int:
        """The number of training sentences, over the roles in use."""
        return sum(
            int(self.train.has(name).sum()) for role in self._roles for name in self._columns(role)
        )

    def train_dataloader(self) -> BatchLoader:
        """Return the loader of training batches, at the position of the loaded checkpoint, if there is one."""
        drawn, size = (
            len(self.train if self._draws is None else self._draws),
            self._batching["batch_size"],
        )
        if drawn < size:
            log.warning(
                "data.batch_size=%d, but an epoch has only %d rows: all are one batch", size, drawn
            )
        options = {**self._batching, "draws": self._draws, "limit": self.limit_train_batches}
        if self.llm_rows_together is not None and self.has_llm_rows:
            options |= {
                "gathered": torch.from_numpy(self._complete),
                "together": self.llm_rows_together,
            }
        if self._distinct:
            columns = [
                self.train.values(name) for role in self._roles for name in self._columns(role)
            ]
            sentences = pa.chunked_array(
                [chunk for column in columns for chunk in column.chunks], pa.string()
            )
            numbers = (
                sentences.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
            )
            options["sentences"] = numbers.reshape(len(columns), -1).T
        collate: Callable[[Tensor], Batch] = self.collate
        if (
            self.trainer is not None
            and (device := self.trainer.strategy.root_device).type == "cuda"
        ):
            collate, options["ahead"] = (
                on_gpu(collate, device),
                2,
            )  # a CPU has no core to spare for a side thread
        self._loader = BatchLoader(len(self.train), collate, **options)
        if self._position is not None:
            self._loader.load_state_dict(self._position)
        return self._loader

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position, for the checkpoint."""
        # Lightning does not restore a loader that already exists, as this one does once the number of steps is known.
        return {} if self._loader is None else self._loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the position for the loader, which is created later."""
        self._position = state_dict

    def collate(self, index: Tensor) -> Batch:
        """Return the batch of these rows."""
        table = self._tokens[index.tolist()]
        columns = {role: [table[name] for name in self._columns(role)] for role in self._roles}
        return {
            "roles": {role: _padded(some, self.max_tokens) for role, some in columns.items()},
            "index": index,
        }


@contextlib.contextmanager
def _or_none_to_compare() -> Iterator[None]:
    """Add to a DataError about the sources of ``watched_in`` that a run does not need them."""
    try:
        yield
    except DataError as error:
        raise DataError(
            f"{error}\n  data.watched_in=[] watches the first held-out rows instead"
        ) from None


def _padded(columns: Sequence[pa.ChunkedArray], most: int | None) -> Tokens:
    """Return the tokens of the rows that have any, each cut to ``most``; further columns come after the first."""
    ids = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])
    starts, lengths = ids.offsets.to_numpy()[:-1], ids.value_lengths().to_numpy()
    rows = np.flatnonzero(lengths)
    lengths = lengths[rows] if most is None else np.minimum(lengths[rows], most)
    return Tokens.cut(ids.values.to_numpy(), starts[rows], lengths, rows % len(columns[0]))


def token_table(sentences: Sequence[str], tokenize: Tokenize, cache_dir: Path | None) -> TokenTable:
    """Return the tokens of sentences, from the cache if it has them."""
    texts = pa.chunked_array([pa.array(sentences, pa.string())])
    ids = tokenise(texts, tokenize, cache_dir).data.column("ids").combine_chunks()
    return TokenTable(
        sentences, ids.value_lengths().to_numpy().astype(np.int64), ids.flatten().to_numpy()
    )


def tokenise(sentences: pa.ChunkedArray, tokenize: Tokenize, cache_dir: Path | None) -> Dataset:
    """Return a dataset whose column ``ids`` holds the bare token ids of each sentence, with an empty list for a null.

    It is memory-mapped from a file in ``cache_dir`` (None: kept in memory), which runs and processes share. A digest of
    the sentences and the tokenizer names the file. A cache that cannot be read or written only costs time.
    """
    features = datasets.Features({"ids": datasets.List(datasets.Value("int32"))})
    if not len(sentences):
        return Dataset.from_dict({"ids": []}, features=features)
    key = hashlib.sha256(f"{TOKENS_VERSION} {tokenize.digest}\0".encode())
    for some in _slices(sentences):
        key.update(json.dumps(some).encode())
    fingerprint = key.hexdigest()[:32]

    def ids(texts: list[str | None]) -> dict[str, list[list[int]]]:
        given = iter(tokenize([text for text in texts if text is not None]))
        return {"ids": [[] if text is None else next(given) for text in texts]}

    if len(sentences) > 10 * AT_ONCE:
        log.info("tokenising %d sentences, or reading them from the cache", len(sentences))
    texts = Dataset(InMemoryTable(pa.table({"text": sentences})), fingerprint=fingerprint)
    columns: dict[str, Any] = {
        "input_columns": "text",
        "remove_columns": "text",
        "features": features,
    }
    make = partial(
        texts.map, ids, batched=True, batch_size=AT_ONCE, new_fingerprint=fingerprint, **columns
    )
    bars = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()  # most would only flash up
    try:
        if cache_dir is not None:
            path = cache_dir / "tokens" / f"{fingerprint}.arrow"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                found = make(cache_file_name=str(path))  # written beside it first, and then renamed
                found.data.table.validate(full=True)
                return found
            except (OSError, ValueError) as error:
                what = " ".join(str(error).split())[:120]
                log.warning(
                    "the token cache %s cannot be used (%s); the sentences are tokenised in memory",
                    path,
                    what,
                )
                with contextlib.suppress(OSError):
                    path.unlink()  # the next run makes it again
        return make(keep_in_memory=True)
    finally:
        if bars:
            datasets.enable_progress_bars()


def _slices(sentences: pa.ChunkedArray) -> Iterator[list[str]]:
    return (
        sentences.slice(start, AT_ONCE).to_pylist() for start in range(0, len(sentences), AT_ONCE)
    )


def _lengths(tokens: Dataset, column: str) -> np.ndarray:
    return np.asarray(pc.list_value_length(tokens.data.column(column)).to_numpy())
