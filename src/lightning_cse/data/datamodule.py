"""Training batches by role, and held-out rows that are watched during training."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytorch_lightning as pl
import torch
from datasets import Dataset
from torch import Tensor

from lightning_cse.data.mapped import first_appearance
from lightning_cse.data.preparation import Tables, prepare, read_tables, used
from lightning_cse.data.roles import TARGET, first_role
from lightning_cse.data.rows import SOURCE, Rows, digests_of
from lightning_cse.data.sampler import Batch, BatchLoader, Draws, Gathering, count_batches
from lightning_cse.data.sentence_batches import EvaluationTask, SentenceBatches
from lightning_cse.data.settings import Augmentation, ContrastiveData
from lightning_cse.data.token_cache import lengths_of, token_table, tokenise
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.tokens import Tokenize, Tokens, TokenTable

if TYPE_CHECKING:
    from lightning_cse.data.stream import StreamLoader

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
    that rows lack; and, if sources have weights, ``rows an epoch``, in
    total and for each source.

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
    """

    _loader: "BatchLoader | StreamLoader | None" = None
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
        wanted = roles if settings.augmentation is None else roles[:1]
        self._tables = self._read(wanted, optional)
        self.train, self.held_out, self.roles = self._prepare(wanted)
        self._from_llm = "negative" in self.roles  # only LLM rows have a role of this name

        if settings.augmentation is not None:
            self.train = self._augmented(self.train, settings.augmentation)
            self.held_out = self._augmented(self.held_out, settings.augmentation)
            self.roles = ("anchor", "positive")

        self._roles_in_use = self.roles
        self._complete = self.train.has(*self.roles)
        self.has_llm_rows = self._from_llm and 0 < self._complete.sum() < len(self.train)
        self.counts = self._account()
        self._draws = self._weigh() if settings.is_weighted else None

        if roles:
            self.use(roles, optional)

    def _read(self, wanted: Sequence[str], optional: Sequence[str]) -> Tables:
        """Return the tables that the rows are made of."""
        if self.settings.streaming:
            only = "only training reads a stream; for everything else, use data.streaming=false"
            raise ConfigError([f"data.streaming: {only}"])

        return read_tables(self.settings, wanted, optional)

    def _prepare(self, wanted: Sequence[str]) -> tuple[Rows, Rows, tuple[str, ...]]:
        """Return training rows, held-out rows and their roles."""
        return prepare(self.settings, self._tables, wanted)

    def _augmented(self, rows: Rows, augmentation: Augmentation) -> Rows:
        """Return the rows with an augmented anchor as the positive of each."""
        if self._from_llm:
            raise ConfigError(["data.augmentation: LLM rows already have a positive"])

        positives = []

        for part in rows.parts():
            anchors = part.column("anchor")
            ids = self.tokenize(anchors)
            augmented = map(augmentation, ids, anchors)
            positives.append(pa.array(self.tokenize.decode(list(augmented)), pa.string()))

        kept = rows.renamed(anchor="anchor", made_of="made_of")

        return kept.with_column("positive", pa.chunked_array(positives, pa.string()))

    def _account(self) -> dict[str, int]:
        counts = self.train.counts | {"used": used(self.train), "training_rows": len(self.train)}

        if self.has_llm_rows:
            return counts | {"llm_rows": int(self._complete.sum())}

        for role in self.roles:
            with_role = int(self.train.has(role).sum())
            if with_role < len(self.train):
                counts[f"rows with {role}"] = with_role

        return counts

    def _weigh(self) -> Draws:
        """Return the draws of the weighted rows; add the rows per epoch to the account."""
        stored = self.train.data.table
        is_shared = pc.max(pc.list_value_length(stored.column("made_of"))).as_py() > 1
        if is_shared or SOURCE not in stored.column_names:
            raise ConfigError(["data.weights: one row may be made from several sources here"])

        names = self.settings.sources
        draws = Draws(
            self.train.values(SOURCE).to_numpy(),
            self.settings.weights or (),
            names,
            batch_size=self.batch_size,
            seed=self.seed,
        )
        self.counts["rows an epoch"] = len(draws)

        for name, drawn in zip(names, draws.by_source, strict=True):
            key = f"rows an epoch: {name}"
            self.counts[key] = self.counts.get(key, 0) + drawn

        return draws

    @property
    def size(self) -> str:
        """How much there is to train on, for messages."""
        return f"{len(self.train)} training rows"

    def where(self, row: int) -> str:
        """Return ``path:line`` of a row of a batch, for messages."""
        return self.train.where(row)

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
        if "negative" in {*roles}.intersection(optional).difference(self.train.names):
            self.train = self.train.with_constant("negative", None)

        lacking = [role for role in roles if role not in self.train.names]
        if lacking:
            raise ConfigError(
                [
                    f"data: the method trains on {', '.join(roles)}, "
                    f"but this data has {', '.join(self.roles)}; missing: {', '.join(lacking)}"
                ]
            )

        for role in roles:
            present = self.train.has(role)
            without = len(self.train) - int(present.sum())

            if without and role not in optional and not self._from_llm:
                where = self.train.where(int(np.argmin(present)))
                raise DataError(
                    f"{where}: no {role}, which the method trains on; {without} of "
                    f"{len(present)} training rows lack it: leave them out, or complete them"
                )

            if without == len(self.train) and self.settings.llm_rows != 0:
                log.warning("data: none of %d training rows has a sentence of %s", without, role)

        self._roles_in_use = tuple(roles)
        self.__dict__.pop("_tokens", None)

    def watched(self, roles: Sequence[str]) -> Rows:
        """Return the first ``held_out_rows`` held-out rows that have all these roles; fewer than
        two are a DataError.

        With ``watched_in``, a row also needs an anchor that each of these sources has and no other
        held-out row has, so that all settings of one corpus watch the same sentences.

        Source: the authors' code of NGCSE.  Differs: nothing.
        """
        chosen = self.held_out.has(*roles)

        if self._tables.watched_in:
            codes = first_appearance(self.held_out.hashes("anchor"))
            chosen &= (np.bincount(codes) == 1)[codes]

        for rows in self._tables.watched_in:
            anchors = rows.hashes(first_role(rows))
            chosen &= np.isin(self.held_out.hashes("anchor"), anchors)

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
        tables = (self.train, self.held_out, *self._tables.excluded, *self._tables.watched_in)
        return digests_of(tables)

    @cached_property
    def provenance(self) -> Mapping[str, dict[str, Any]]:
        """The known provenance of the LLM rows that are trained on or held out, by the name of
        their file.
        """
        # It imports pydantic: only when needed.
        from lightning_cse.data.provenance import read_provenance

        found = {}

        for file in dict.fromkeys((*self.train.files, *self.held_out.files)):
            document = read_provenance(Path(file.path))
            if document is not None:
                found[file.name] = document

        return found

    # Tokens --------------------------------------------------------------------------------------

    def setup(self, stage: str | None = None) -> None:
        """Tokenise the training rows, if that is not done yet; a sentence without a token is a
        DataError. With several processes, each batch is shared between them.
        """
        self.is_shared = self.trainer is not None and self.trainer.world_size > 1
        _ = self._tokens

    @cached_property
    def _tokens(self) -> Dataset:
        """The ids of the training rows, one column per column of sentences."""
        columns = [self._tokenised(name) for name in self._columns_in_use()]
        return datasets.concatenate_datasets(columns, axis=1).with_format("arrow")

    def tokenizer_of(self, role: str) -> Tokenize:
        """Return the tokenizer of a role's sentences, with their instruction."""
        use = "query" if role == self._roles_in_use[0] else "document"
        return self._instructed.get(use, self.tokenize)

    def _tokenised(self, name: str) -> Dataset:
        tokens = tokenise(
            self.train.data.table.column(name),
            self.tokenizer_of(name),
            self.cache_dir,
            numbers=self.train.numbers,
            num_proc=self.settings.num_proc,
        )
        self._check_tokens(tokens, name)

        return tokens.rename_column("ids", name)

    def _check_tokens(self, tokens: Dataset, name: str) -> None:
        """Raise DataError if a sentence has no token."""
        present = self.train.has(name)
        start = 0
        for lengths in lengths_of(tokens, "ids"):
            empty = np.flatnonzero((lengths == 0) & present[start : start + len(lengths)])
            if len(empty):
                row = start + int(empty[0])
                sentence = self.train[row][name][:120]
                raise DataError(
                    f"{self.train.where(row)}: {name} {sentence!r} has no token in the "
                    "encoder's vocabulary"
                )

            start += len(lengths)

    def _columns(self, role: str) -> list[str]:
        """Return the columns of a role: one, or all columns of hard negatives unless there is an
        intermediate.
        """
        if role != "negative" or "intermediate" in self._roles_in_use:
            return [role]

        return [role, *(name for name in self.train.names if name.startswith("negative_"))]

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
            len(self.train),
            self.collate,
            batch_size=self.batch_size,
            drop_last=settings.drop_last,
            seed=self.seed,
            gathering=gathering,
            draws=self._draws,
            limit=trainer.limit_train_batches if trainer else None,
            repeats=trainer is not None and trainer.overfit_batches > 0,
        )
        if self._position is not None:
            loader.load_state_dict(self._position)

        self._loader = loader

        return loader

    def batches_per_epoch(self, limit: int | float | None = None) -> int:
        """Return the number of training batches per epoch under ``limit_train_batches``."""
        rows = len(self.train if self._draws is None else self._draws)
        batches, _ = count_batches(rows, self.batch_size, drop_last=self.settings.drop_last)
        if isinstance(limit, float):
            return int(limit * batches)

        return batches if limit is None else min(limit, batches)

    def val_dataloader(self) -> SentenceBatches:
        """Return the distinct sentences of the dev splits and of diagnostics, in batches."""
        return self._sentence_batches("dev", self.watched_sentences if self.embeds_watched else ())

    def test_dataloader(self) -> SentenceBatches:
        """Return the distinct sentences of the test splits, in batches."""
        return self._sentence_batches("test")

    def _sentence_batches(self, split: str, others: Sequence[str] = ()) -> SentenceBatches:
        """Return the sentences of the tasks that suit the model of the Trainer."""
        module: Any = self.trainer.lightning_module if self.trainer else None
        sentences: list[str] = []
        for task in self.tasks.values():
            if split in task.splits and (module is None or task.suits(module.model)):
                sentences += task.sentences(split)

        distinct = list(dict.fromkeys([*sentences, *others]))
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
            self.batch_size = state_dict["batch_size"]  # BatchSizeFinder may have changed it
            return

        # A finder goes back to the start, with the size of a batch that it has found.
        if self._position is None:
            self._loader.reset()
        else:
            self._loader.load_state_dict(self._position)

    def collate(self, index: Tensor) -> Batch:
        """Return the batch of these rows."""
        targets = None
        if TARGET in self.train.names:
            targets = self.train.select(index.numpy()).values(TARGET)

        return self._batch(self._tokens[index.tolist()], index, targets)

    def _batch(self, table: pa.Table, index: Tensor, targets: pa.ChunkedArray | None) -> Batch:
        """Return the batch of rows with these tokens, a column per column of sentences."""
        roles = {}

        for role in self._roles_in_use:
            columns = [table[name] for name in self._columns(role)]
            tokens = padded(columns, self.max_tokens)
            roles[role] = replace(tokens, is_shared=self.is_shared)

        batch = {"roles": roles, "index": index}
        if targets is not None:
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
    taken = lengths[rows] if most is None else np.minimum(lengths[rows], most)

    return Tokens.cut(ids.values.to_numpy(), starts[rows], taken, rows % len(columns[0]))
