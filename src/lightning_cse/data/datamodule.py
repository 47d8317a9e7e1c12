"""Training batches by role, and held-out rows that are watched during training."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytorch_lightning as pl
import torch
from datasets import Dataset
from torch import Tensor

from lightning_cse.data.order import (
    Batch,
    BatchLoader,
    Gathering,
    count_batches,
    limited,
    permutation,
)
from lightning_cse.data.preparation import Tables, prepare, read_tables
from lightning_cse.data.provenance import read_provenance
from lightning_cse.data.roles import TARGET, first_role
from lightning_cse.data.rows import (
    BATCH,
    count_corpus_rows,
    digests_of,
    files_of,
    first_appearance,
    has,
    hashes,
    renamed,
    values,
    where,
    with_columns,
    with_constant,
)
from lightning_cse.data.sentence_batches import EvaluationTask, SentenceBatches
from lightning_cse.data.settings import Augmentation, ContrastiveData
from lightning_cse.data.token_cache import lengths_of, token_table, tokenise
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.tokens import Tokenize, Tokens, TokenTable

log = logging.getLogger(__name__)


class ContrastiveDataModule(pl.LightningDataModule):
    """Rows with sentences by role, tokenised once; a batch is ``{"roles": {role: Tokens}, "index":
    rows}``, with ``targets`` (n,), labels or scores, if the scheme gives rows a column ``target``.

    A row may lack some roles (None in their columns); a role's ``Tokens.rows`` says which rows of
    the batch its sentences belong to. A row may have several sentences of the role ``negative``, in
    the columns ``negative``, ``negative_2``, ...; the role's ``Tokens`` hold all of them.

    ``train`` and ``held_out`` are the prepared rows, and ``roles`` the roles they have. ``counts``
    accounts for the training rows: corpus rows ``read`` = ``used`` + the sum of all ``dropped:
    <reason>``. It also has ``training_rows``; ``llm_rows``, or ``rows with <role>`` for each role
    that rows lack.

    Args:
        settings: what to train on.
        tokenize: the encoder's tokenizer.
        seed: decides the order of the rows.
        roles: the roles that a method trains on; without them, batches hold all roles of the data.
        optional: those of the roles that rows may lack (see `use`).
        instructed: the tokenizers with an instruction before a sentence: of the first role
            (``query``), of all others (``document``), and of evaluation (``default``).
        tasks: the tasks of validation (their dev splits) and test, by name.
        watched_sentences: the sentences of diagnostics, which validation embeds too unless
            ``embeds_watched`` is False.
        max_length: the most tokens that the encoder reads of a sentence in validation and test.
        tables: the sources of the settings, if they have been read.
    """

    _loader: BatchLoader | None = None
    _position: dict[str, Any] | None = None
    is_shared: bool = False
    """Whether the processes of torch's group share each batch (`Tokens`)."""

    def __init__(
        self,
        settings: ContrastiveData,
        *,
        tokenize: Tokenize,
        seed: int,
        roles: Sequence[str] = (),
        optional: Sequence[str] = (),
        instructed: Mapping[str, Tokenize] | None = None,
        tasks: Mapping[str, EvaluationTask] | None = None,
        watched_sentences: Sequence[str] = (),
        embeds_watched: bool = True,
        max_length: int = 512,
        tables: Tables | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.batch_size = settings.batch_size
        self.tasks = dict(tasks or {})
        self.watched_sentences = list(watched_sentences)
        self.embeds_watched = embeds_watched
        self.max_length = max_length
        self.tokenize = tokenize
        self._instructed = instructed or {}
        self.seed = seed
        self.max_tokens = settings.max_tokens
        cache_dir = settings.cache_dir
        self.cache_dir = Path(cache_dir).expanduser() if cache_dir else None
        roles_to_read = roles if settings.augmentation is None else roles[:1]
        self._tables = tables or read_tables(settings, roles_to_read, optional)
        self.train, self.held_out, self.roles = prepare(settings, self._tables, roles_to_read)
        self._from_llm = "negative" in self.roles  # only LLM rows have a role of this name

        if settings.augmentation is not None:
            self.train = self._augmented(self.train, settings.augmentation)
            self.held_out = self._augmented(self.held_out, settings.augmentation)
            self.roles = ("anchor", "positive")

        self._roles_in_use = self.roles
        self._complete = has(self.train, *self.roles)
        self.has_llm_rows = self._from_llm and 0 < self._complete.sum() < len(self.train)
        self.counts = self._account()

        if roles:
            self.use(roles, optional)

    def _augmented(self, rows: Dataset, augmentation: Augmentation) -> Dataset:
        """Return the rows with an augmented anchor as the positive of each."""
        if self._from_llm:
            raise ConfigError(["data.augmentation: LLM rows already have a positive"])

        positives: list[str] = []

        for batch in rows.select_columns("anchor").iter(BATCH):
            ids = self.tokenize(batch["anchor"])
            augmented = map(augmentation, ids, batch["anchor"])
            positives += self.tokenize.decode(list(augmented))

        return with_columns(renamed(rows, anchor="anchor"), positive=positives)

    def _account(self) -> dict[str, int]:
        counts = self._tables.account | {
            "used": count_corpus_rows(self.train),
            "training_rows": len(self.train),
        }

        if self.has_llm_rows:
            return counts | {"llm_rows": int(self._complete.sum())}

        for role in self.roles:
            with_role = int(has(self.train, role).sum())
            if with_role < len(self.train):
                counts[f"rows with {role}"] = with_role

        return counts

    def _order_of(self, epoch: int) -> Tensor:
        """Return the rows of an epoch in order."""
        return permutation(len(self.train), self.seed, epoch)

    @property
    def size(self) -> str:
        """How much there is to train on, for messages."""
        return f"{len(self.train)} training rows"

    def where(self, row: int) -> str:
        """Return ``path:line`` of a row of a batch, for messages."""
        return where(self.train, row)

    # Roles and rows ------------------------------------------------------------------------------

    def use(self, roles: Sequence[str], optional: Sequence[str] = ()) -> None:
        """Choose the roles that batches hold: those that a method trains on. Without this call,
        they hold all roles.

        Rows may lack ``optional`` roles, whose terms the loss drops, and roles that only LLM rows
        have; the data may lack an optional negative.

        Raises:
            ConfigError: if the data lacks another role.
            DataError: if some rows lack another role.
        """
        if "negative" in {*roles}.intersection(optional).difference(self.train.column_names):
            self.train = with_constant(self.train, "negative", None)

        lacking = [role for role in roles if role not in self.train.column_names]
        if lacking:
            raise ConfigError(
                [
                    f"data: the method trains on {', '.join(roles)}, "
                    f"but this data has {', '.join(self.roles)}; missing: {', '.join(lacking)}"
                ]
            )

        for role in roles:
            present = has(self.train, role)
            without = len(self.train) - int(present.sum())

            if without and role not in optional and not self._from_llm:
                row = where(self.train, int(np.argmin(present)))
                raise DataError(
                    f"{row}: no {role}, which the method trains on; {without} of "
                    f"{len(present)} training rows lack it: leave them out, or complete them"
                )

            if without == len(self.train) and self.settings.llm_rows != 0:
                log.warning("data: none of %d training rows has a sentence of %s", without, role)

        self._roles_in_use = tuple(roles)
        self.__dict__.pop("_tokens", None)

    def watched(self, roles: Sequence[str]) -> Dataset:
        """Return the first ``held_out_rows`` held-out rows that have all these roles; fewer than
        two are a DataError.

        With ``watched_in``, a row also needs an anchor that each of these sources has and no other
        held-out row has, so that all settings of one corpus watch the same sentences.

        Source: the authors' code of NGCSE.  Differs: nothing.
        """
        chosen = has(self.held_out, *roles)

        if self._tables.watched_in:
            anchors = hashes(self.held_out, "anchor")
            codes = first_appearance(anchors)
            chosen &= (np.bincount(codes) == 1)[codes]

            for rows in self._tables.watched_in:
                chosen &= np.isin(anchors, hashes(rows, first_role(rows)))

        numbers = np.flatnonzero(chosen)
        if len(numbers) < 2:
            raise DataError(
                f"data: {len(numbers)} of {len(self.held_out)} held-out rows can be watched; "
                f"2 or more must have the roles {', '.join(roles)} and an anchor in "
                "data.watched_in: raise data.held_out_share, or change data.held_out"
            )

        return self.held_out.select(numbers[: self.settings.held_out_rows])

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file that rows came from, by its name in the official layout."""
        tables = self._tables
        sources = [*tables.train, *(tables.held_out or ()), *tables.excluded, *tables.watched_in]

        return digests_of([self.train, self.held_out, *sources])

    @cached_property
    def provenance(self) -> Mapping[str, dict[str, Any]]:
        """The known provenance of the LLM rows that are trained on or held out, by the name of
        their file.
        """
        documents = {
            file.name: read_provenance(Path(file.path))
            for file in files_of(self.train, self.held_out)
        }

        return {name: document for name, document in documents.items() if document is not None}

    # Tokens --------------------------------------------------------------------------------------

    def setup(self, stage: str | None = None) -> None:
        """Tokenise the training rows, if that is not done yet, unless they are not trained on; a
        sentence without a token is a DataError. With several processes, each batch is shared
        between them.
        """
        self.is_shared = self.trainer is not None and self.trainer.world_size > 1
        if stage in (None, "fit"):
            _ = self._tokens

    @cached_property
    def _tokens(self) -> Dataset:
        """The ids of the training rows, one column per column of sentences."""
        tokens = tokenise(
            self.train,
            {name: self.tokenizer_of(name) for name in self._columns_in_use()},
            self.cache_dir,
            num_proc=self.settings.num_proc,
        )
        for name in tokens.column_names:
            self._check_tokens(tokens, name)

        return tokens.with_format("arrow")

    def tokenizer_of(self, role: str) -> Tokenize:
        """Return the tokenizer of a role's sentences, with their instruction."""
        use = "query" if role == self._roles_in_use[0] else "document"
        return self._instructed.get(use, self.tokenize)

    def _check_tokens(self, tokens: Dataset, name: str) -> None:
        """Raise DataError if a sentence has no token."""
        lengths = np.concatenate(list(lengths_of(tokens, name)))
        empty = np.flatnonzero((lengths == 0) & has(self.train, name))
        if len(empty):
            row = int(empty[0])
            sentence = self.train[row][name][:120]
            raise DataError(
                f"{where(self.train, row)}: {name} {sentence!r} has no token in the "
                "encoder's vocabulary"
            )

    def _columns(self, role: str) -> list[str]:
        """Return the columns of a role: one, or all columns of hard negatives unless there is an
        intermediate.
        """
        if role != "negative" or "intermediate" in self._roles_in_use:
            return [role]

        return [role, *(name for name in self.train.column_names if name.startswith("negative_"))]

    def _columns_in_use(self) -> list[str]:
        return [name for role in self._roles_in_use for name in self._columns(role)]

    def cut_to(self, limit: int) -> dict[str, int]:
        """Count the training sentences of more than ``limit`` tokens, or ``max_tokens`` if that is
        smaller, by role; the account has the roles with such sentences.
        """
        limit = min(limit, self.max_tokens or limit)
        cut = {}

        for name in self._columns_in_use():
            longer = sum(int((part > limit).sum()) for part in lengths_of(self._tokens, name))
            if longer:
                cut[f"cut to {limit} tokens: {name}"] = longer

        return cut

    # Batches -------------------------------------------------------------------------------------

    def train_dataloader(self) -> BatchLoader:
        """Return the loader of training batches, at the position of the loaded checkpoint, if there
        is one.
        """
        settings = self.settings
        trainer: Any = self.trainer
        gathering = None
        if settings.llm_rows_together is not None and self.has_llm_rows:
            gathering = Gathering(torch.from_numpy(self._complete), settings.llm_rows_together)

        loader = BatchLoader(
            self._order_of,
            self.collate,
            batch_size=self.batch_size,
            drop_last=settings.drop_last,
            gathering=gathering,
            limit=trainer.limit_train_batches if trainer else None,
            repeats=trainer is not None and trainer.overfit_batches > 0,
        )
        if self._position is not None:
            loader.load_state_dict(self._position)

        self._loader = loader

        return loader

    def batches_per_epoch(self, limit: int | float | None = None) -> int:
        """Return the number of training batches per epoch under ``limit_train_batches``."""
        drop_last = self.settings.drop_last
        batches, _ = count_batches(len(self.train), self.batch_size, drop_last=drop_last)
        return limited(batches, limit)

    def val_dataloader(self) -> SentenceBatches:
        """Return the distinct sentences of the dev splits and of diagnostics, in batches."""
        return self._sentence_batches("dev", self.watched_sentences if self.embeds_watched else ())

    def test_dataloader(self) -> SentenceBatches:
        """Return the distinct sentences of the test splits, in batches."""
        return self._sentence_batches("test")

    def _sentence_batches(self, split: str, extra_sentences: Sequence[str] = ()) -> SentenceBatches:
        """Return the sentences of the tasks that suit the model of the Trainer."""
        module: Any = self.trainer.lightning_module if self.trainer else None
        sentences: list[str] = []
        for task in self.tasks.values():
            if split in task.splits and (module is None or task.suits(module.model)):
                sentences += task.sentences(split)

        distinct = list(dict.fromkeys([*sentences, *extra_sentences]))
        lengths = self.evaluation_tokens.lengths_of(distinct).clip(max=self.max_length)

        return SentenceBatches(distinct, lengths, self.tokens_of)

    def tokens_of(self, sentences: Sequence[str]) -> Tokens:
        """Return the tokens of sentences of validation or test."""
        tokens = self.evaluation_tokens.tokens(sentences, self.max_length)
        return replace(tokens, is_shared=self.is_shared)

    @cached_property
    def evaluation_tokens(self) -> TokenTable:
        """The tokens of all sentences of validation and test."""
        sentences = set(self.watched_sentences)
        for task in self.tasks.values():
            sentences.update(*(task.sentences(split) for split in task.splits))

        tokenize = self._instructed.get("default", self.tokenize)

        return token_table(sorted(sentences), tokenize, self.cache_dir)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position, for the checkpoint."""
        # Lightning does not restore a loader that already exists, as this one does once the number
        # of steps is known.
        position = None if self._loader is None else self._loader.state_dict()
        return {"position": position, "batch_size": self.batch_size}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the position of the loader, which may be created later."""
        self._position = state_dict["position"]
        if self._loader is None:
            self.batch_size = state_dict["batch_size"]  # the position counts batches of this size
            return

        # A state that was saved before there was a loader means its start.
        if self._position is None:
            self._loader.reset()
        else:
            self._loader.load_state_dict(self._position)

    def collate(self, index: Tensor) -> Batch:
        """Return the batch of these rows."""
        table = self._tokens[index.tolist()]
        roles = {}

        for role in self._roles_in_use:
            columns = [table[name] for name in self._columns(role)]
            tokens = padded(columns, self.max_tokens)
            roles[role] = replace(tokens, is_shared=self.is_shared)

        batch = {"roles": roles, "index": index}
        if TARGET in self.train.column_names:
            targets = values(self.train.select(index.numpy()), TARGET)
            batch["targets"] = torch.tensor(targets.to_numpy())

        return batch


def padded(columns: Sequence[pa.ChunkedArray], most: int | None) -> Tokens:
    """Return the tokens of the rows that have any, each cut to ``most``; further columns come after
    the first.
    """
    ids = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])
    starts = ids.offsets.to_numpy()[:-1]
    lengths = ids.value_lengths().to_numpy()
    rows = np.flatnonzero(lengths)
    read_lengths = lengths[rows] if most is None else np.minimum(lengths[rows], most)

    return Tokens.cut(ids.values.to_numpy(), starts[rows], read_lengths, rows % len(columns[0]))
