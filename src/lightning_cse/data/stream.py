"""Training rows that are read while they are trained on, from shards that need not fit on the disk.

The mechanism, from the shards to a batch:

- A pass is one reading of all shards, in an order drawn from (seed, pass).
- A fixed number of lanes, whatever the number of processes, each read their part of the shards.
- A lane reads a block of rows, draws their order, and gives them away until none is left.
- A batch takes equally many rows from each lane. Each process reads some of the lanes and tokenises
  their rows; then all of them have the whole batch.

So a position in the stream is, for each lane, where its block begins and how many of its rows are
taken. `IterableDataset` does not restore a shuffle buffer; a block is read again.
"""

import dataclasses
import itertools
import math
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import IterableDataset

from lightning_cse.data.datamodule import ContrastiveDataModule
from lightning_cse.data.own import loading
from lightning_cse.data.preparation import Tables, keep, read_tables, scheme_of, takes_of, used
from lightning_cse.data.roles import TARGET, NLITriplets, RoleRows
from lightning_cse.data.rows import PLACE, Rows
from lightning_cse.data.sampler import Batch, seeded_generator
from lightning_cse.data.shards import Shards
from lightning_cse.data.sources import LEAK, all_pairs, free_of, without_pairs
from lightning_cse.data.token_cache import ids_of
from lightning_cse.devices import from_all, world
from lightning_cse.errors import ConfigError, DataError

LANES = 8
"""The number of shards that are read at once, in turn; fewer if there are fewer shards."""

HEAD = 1_000
"""The rows that are read before training: their columns decide the roles, and their lengths the
estimate of the memory."""

UNSHUFFLED = 1_000
"""The rows of a block whose order stays."""

KEPT_PLACES = 256
"""The batches whose rows can be named in a message."""


class Lane:
    """One of the readers of a stream: its shards of a pass, a block of rows after another.

    ``state_dict`` says where the block begins and how many of its rows are taken; ``counts``
    accounts for the rows of all blocks so far.

    Args:
        number: which lane it is.
        data: what prepares and tokenises the rows.
    """

    def __init__(self, number: int, data: "StreamDataModule") -> None:
        self.number = number
        self.data = data
        self.counts: Counter[str] = Counter()
        self._start(0)

    def _start(self, pass_number: int) -> None:
        self._at: dict[str, Any] = {
            "pass": pass_number,
            "shard": 0,  # among those of this lane
            "line": 0,  # rows of the shard before the block
            "dataset": None,  # the state of its `IterableDataset` there
            "taken": 0,
        }
        self._forget()

    def _forget(self) -> None:
        self._dataset: IterableDataset | None = None
        self._cells: Iterator[dict[str, Any]] = iter(())
        self._block: Rows | None = None
        self._next: dict[str, Any] = {}  # where the block after this one begins

    @property
    def is_over(self) -> bool:
        """Whether the lane has no more rows in this pass."""
        shards = range(self.number, len(self.data.shards), self.data.lanes)
        return bool(self._at["shard"] == len(shards))

    def next_pass(self) -> None:
        """Begin the next pass."""
        self._start(self._at["pass"] + 1)

    def take(self, count: int) -> list[pa.Table]:
        """Return the tokens of this many rows, or fewer if the pass ends."""
        tables = []

        while count:
            block = self._filled()
            if block is None:
                break

            taken = self._at["taken"]
            numbers = np.arange(taken, min(taken + count, len(block)))
            table = self.data.tokenised(block.select(numbers))
            self._at["taken"] += len(numbers)
            count -= len(table)
            tables.append(table)

            if without := len(numbers) - len(table):
                self.counts["rows without a token"] += without

        return tables

    def _filled(self) -> Rows | None:
        """Return the block at this position, or the next one that has rows."""
        at = self._at

        while self._block is None or at["taken"] == len(self._block):
            if self._block is not None:
                at |= {**self._next, "taken": 0}
                self._block = None

            if self.is_over:
                return None

            shard = int(self.data.order(at["pass"])[self.number :: self.data.lanes][at["shard"]])
            cells = self._read(shard)

            if not cells:
                at |= {"shard": at["shard"] + 1, "line": 0, "dataset": None}
                self._forget()
                continue

            rows, counts = self.data.prepared(shard, cells, at["line"] + 1)
            self._block = self._shuffled(rows, shard)

            if not at["taken"]:  # else the block is read again
                self.counts.update(counts)

        return self._block

    def _read(self, shard: int) -> list[dict[str, Any]]:
        """Return the next cells of a shard, of which some may have been read before."""
        if self._dataset is None:
            self._dataset = self.data.shards.open(shard)
            if self._at["dataset"] is not None:
                self._dataset.load_state_dict(self._at["dataset"])

            self._cells = iter(self._dataset)

        with loading(self.data.shards.files[shard].path):
            cells = list(itertools.islice(self._cells, self.data.block))

        self._next = {"line": self._at["line"] + len(cells), "dataset": self._dataset.state_dict()}

        return cells

    def _shuffled(self, rows: Rows, shard: int) -> Rows:
        if not self.data.settings.shuffle_buffer:
            return rows

        generator = seeded_generator(self.data.seed, self._at["pass"], shard, self._at["line"])
        return rows.select(torch.randperm(len(rows), generator=generator).numpy())

    def state_dict(self) -> dict[str, Any]:
        """Return the position and the account."""
        return {**self._at, "counts": dict(self.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the position of another lane; its block is read when it is needed."""
        self._at = {key: value for key, value in state.items() if key != "counts"}
        self.counts = Counter(state["counts"])
        self._forget()


class StreamLoader:
    """Yields the batches of a training from the lanes of a stream.

    The whole training is one epoch of ``length`` batches. A batch has rows of one pass only. The
    trailing batch of a pass is smaller, or dropped with ``drop_last``; an only batch is always
    kept. ``state_dict`` is the position as of the last batch that was yielded, the same in all
    processes, whatever their number.

    Args:
        lanes: the lanes; each process reads those whose number is its rank, modulo the number of
            processes.
        collate: makes a batch from tokens.
        batch_size: the number of rows in a batch.
        drop_last: whether the trailing batch of a pass is dropped.
        length: the number of batches.

    Raises:
        DataError: if a pass has too few rows for a batch, or a state is that of another stream.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        collate: Callable[[pa.Table, int], Batch],
        *,
        batch_size: int,
        drop_last: bool,
        length: int,
    ) -> None:
        self.lanes = lanes
        self.collate = collate
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.counts: Counter[str] = Counter()
        self.position = 0
        self._length = length
        self._in_pass = 0  # batches

    def __len__(self) -> int:
        """Return the number of batches of the training."""
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        """Continue at the current position of the stream."""
        if self.position >= len(self):
            self.position = 0

        while self.position < len(self):
            table = self._table()
            first = self.counts["rows in batches"]
            self.position += 1
            self._in_pass += 1
            self.counts["rows in batches"] += len(table)
            yield self.collate(table, first)

    def _table(self) -> pa.Table:
        """Return the tokens of the next batch."""
        while True:
            tables = self._gathered()
            count = sum(map(len, tables))
            is_kept = count > 1 and not (self.drop_last and self._in_pass)

            if count == self.batch_size or is_kept:
                return pa.concat_tables(tables)

            if not self._in_pass:
                raise DataError(
                    f"data.train: {count} training rows in all files cannot form a batch: there "
                    "are no negatives"
                )

            if count:
                self.counts["rows in a dropped last batch"] += count

            self.counts["passes"] += 1
            self._in_pass = 0
            for lane in self.lanes:
                lane.next_pass()

    def _gathered(self) -> list[pa.Table]:
        """Return the tokens of the next rows of this pass, by lane; each process reads its own."""
        rank, processes = world()
        tables: dict[int, list[pa.Table]] = {lane.number: [] for lane in self.lanes}
        wanted = self.batch_size

        while wanted and (left := [lane for lane in self.lanes if not lane.is_over]):
            each, rest = divmod(wanted, len(left))
            own = {}

            for place, lane in enumerate(left):
                count = each + (place < rest)
                if count and lane.number % processes == rank:
                    own[lane.number] = (lane.take(count), lane.state_dict())

            for answer in from_all(own):
                for number, (found, state) in answer.items():
                    tables[number] += found
                    wanted -= sum(map(len, found))
                    if number not in own:
                        self.lanes[number].load_state_dict(state)

        return [table for number in sorted(tables) for table in tables[number]]

    def reset(self) -> None:
        """Raise ConfigError: a stream that has begun cannot begin again."""
        raise ConfigError(["data.streaming: a stream is read once; leave out what reads it twice"])

    def account(self) -> dict[str, int]:
        """Return the rows that were read, used and dropped so far."""
        total = Counter(self.counts)
        for lane in self.lanes:
            total.update(lane.counts)

        return dict(total)

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the stream."""
        return {
            "position": self.position,
            "in_pass": self._in_pass,
            "counts": dict(self.counts),
            "lanes": [lane.state_dict() for lane in self.lanes],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the position of another loader."""
        if len(state.get("lanes", ())) != len(self.lanes):
            raise DataError("the checkpoint is that of another stream: start again with force=true")

        self.position = state["position"]
        self._in_pass = state["in_pass"]
        self.counts = Counter(state["counts"])

        for lane, of_lane in zip(self.lanes, state["lanes"], strict=True):
            lane.load_state_dict(of_lane)


class StreamDataModule(ContrastiveDataModule):
    """The training rows of Parquet and JSON-lines files that are read while they are trained on.

    Batches are those of `ContrastiveDataModule`. ``train`` has only the first rows, for messages
    and estimates; ``counts`` grows as rows are read: ``read`` = ``used`` + all ``dropped:
    <reason>``, of which ``training_rows`` were made, with ``rows in batches`` after ``passes``
    complete passes. Rows that lack a role, or have a bad cell, are dropped and counted.

    With ``held_out_rows`` and no ``held_out``, the first rows of the stream are held out, and with
    them all rows that have the same first sentence.

    Raises:
        ConfigError: if the rows cannot be made one by one, or there is no number of steps.
    """

    shards: Shards
    _scheme: RoleRows
    _stream: StreamLoader

    def _read(self, wanted: Sequence[str], optional: Sequence[str]) -> Tables:
        settings = self.settings
        self._needed = [role for role in wanted if role not in optional]
        self._held = np.empty(0, np.uint64)
        self._longest = math.inf
        self._places: deque[tuple[int, pa.Table]] = deque(maxlen=KEPT_PLACES)
        self.shards = Shards(
            settings.sources, settings.columns or {}, takes=takes_of(wanted, optional)
        )
        self.lanes = min(LANES, len(self.shards))
        buffer = settings.shuffle_buffer or UNSHUFFLED * self.lanes
        self.block = max(1, buffer // self.lanes)

        apart = 0 if settings.held_out is not None else settings.held_out_rows or 0
        first, rest = self._head(apart)
        tables = read_tables(settings, wanted, optional, train=[rest])
        if len(first):
            tables = dataclasses.replace(tables, held_out=[first])

        self._excluded = all_pairs(tables.excluded)
        self._scheme = scheme_of(settings, tables.train, wanted, "data.train")
        self._check_scheme(rest)

        return tables

    def _head(self, apart: int) -> tuple[Rows, Rows]:
        """Return the first rows, which are held out, and those after them."""
        parts = []
        held = []

        for number, cells in self.shards.first(apart + HEAD):
            rows = self.shards.rows(number, cells, 1)
            parts.append(rows)
            held.append(rows.values("line").to_numpy() <= apart)
            apart = max(0, apart - len(cells))

        rows = Rows.cat(parts, fill=True)
        is_held = np.concatenate(held)

        if is_held.all():
            raise DataError("data.train: the stream has no rows, or all of them are held out")

        return rows.select(np.flatnonzero(is_held)), rows.select(np.flatnonzero(~is_held))

    def _check_scheme(self, head: Rows) -> None:
        """Raise ConfigError if a training row depends on more than one row."""
        by_row = getattr(self._scheme, "by_row", False)
        is_grouped = isinstance(self._scheme, NLITriplets) and "hypothesis" in head.names

        if not by_row or is_grouped:
            name = type(self._scheme).__name__
            raise ConfigError(
                [
                    f"data.streaming: {name} needs all rows to make one training row of these "
                    f"columns ({', '.join(head.names)}): write the rows as pairs or triplets, or "
                    "set it to false"
                ]
            )

    def _prepare(self, wanted: Sequence[str]) -> tuple[Rows, Rows, tuple[str, ...]]:
        train, held_out, roles = super()._prepare(wanted)
        self._anchor = roles[0]

        if self.settings.held_out is None and len(held_out):
            self._held = np.unique(held_out.hashes(self._anchor))

        kept = self._kept(train)
        if not len(kept):
            raise DataError(
                f"data.train: {train.origin}: none of the first {len(train)} rows has "
                f"{', '.join(self._needed)}, which the method trains on"
            )

        return kept, held_out, roles

    def _account(self) -> dict[str, int]:
        return {}  # no row is trained on yet

    @property
    def size(self) -> str:
        """How much there is to train on, for messages."""
        return f"a stream of {len(self.shards)} files"

    @property
    def digests(self) -> dict[str, str]:
        """What identifies every file that rows come from (see `find_shards`), by its name."""
        return {file.name: file.sha256 for file in self.shards.files} | super().digests

    # Rows ----------------------------------------------------------------------------------------

    def order(self, pass_number: int) -> np.ndarray:
        """Return the numbers of the shards in the order of a pass."""
        if not self.settings.shuffle_buffer:
            return np.arange(len(self.shards))

        generator = seeded_generator(self.seed, pass_number)
        return np.asarray(torch.randperm(len(self.shards), generator=generator).numpy())

    def prepared(
        self, shard: int, cells: list[dict[str, Any]], line: int
    ) -> tuple[Rows, dict[str, int]]:
        """Return the training rows of some rows of a shard, and their account."""
        clean = without_pairs(self.shards.rows(shard, cells, line), self._excluded)
        if not len(clean):
            return clean, clean.counts

        made = self._scheme([clean])
        if self.settings.augmentation is not None:
            made = self._augmented(made, self.settings.augmentation)

        made = self._kept(keep(made, free_of(made, self._excluded), LEAK))

        return made, {**made.counts, "used": used(made), "training_rows": len(made)}

    def _kept(self, rows: Rows) -> Rows:
        """Return the rows that have the needed roles and no sentence that is held out."""
        for role in self._needed:
            if role in rows.names:
                rows = keep(rows, rows.has(role), f"no {role}")

        if not len(self._held):
            return rows

        return keep(rows, ~np.isin(rows.hashes(self._anchor), self._held), "held out")

    def tokenised(self, rows: Rows) -> pa.Table:
        """Return the token ids of rows by column, with their targets and places; rows with a
        sentence that has no token are left out.
        """
        columns: dict[str, Any] = {}
        complete = np.ones(len(rows), dtype=bool)

        for name in self._columns_in_use():
            if name not in rows.names:
                rows = rows.with_constant(name, None)

            ids = ids_of(rows.column(name), self.tokenizer_of(name))
            columns[name] = pa.array(ids, pa.list_(pa.int32()))
            complete &= ~rows.has(name) | (columns[name].value_lengths().to_numpy() > 0)

        for name in (*PLACE, TARGET):
            if name in rows.column_names:
                columns[name] = rows.values(name)

        table = pa.table(columns)

        return table if complete.all() else table.filter(pa.array(complete))

    # Batches -------------------------------------------------------------------------------------

    def setup(self, stage: str | None = None) -> None:
        """Do nothing: rows are tokenised when they come."""

    def _check_tokens(self, tokens: Any, name: str) -> None:
        """Accept the first rows as they are: such rows are dropped when they come."""

    def cut_to(self, limit: int) -> dict[str, int]:
        """Take note of the limit: sentences that are cut are counted when they come."""
        self._longest = min(limit, self.max_tokens or limit)
        return {}

    def batches_per_epoch(self, limit: int | float | None = None) -> int:
        """Return the largest number: a stream has no epochs, and ends with ``max_steps``."""
        return sys.maxsize

    def train_dataloader(self) -> StreamLoader:  # type: ignore[override]  # with the same protocol
        """Return the loader of all batches of the training, at the position of the loaded
        checkpoint, if there is one.
        """
        trainer = self.trainer
        if trainer is None or trainer.max_steps == -1:
            steps = "a stream has no epochs to count, so give the number of steps"
            raise ConfigError([f"trainer.max_steps: {steps}"])

        loader = StreamLoader(
            [Lane(number, self) for number in range(self.lanes)],
            self._made,
            batch_size=self.settings.batch_size,
            drop_last=self.settings.drop_last,
            length=trainer.max_steps * trainer.accumulate_grad_batches,
        )
        if self._position is not None:
            loader.load_state_dict(self._position)

        self._loader = self._stream = loader
        self.counts = loader.account()

        return loader

    def _made(self, table: pa.Table, first: int) -> Batch:
        """Return the batch of these tokens, whose rows are numbered from ``first`` on. Keep the
        places of the rows, count the sentences that are cut, and renew the account.
        """
        self._places.append((first, table.select(PLACE)))

        for name in self._columns_in_use():
            lengths = pc.list_value_length(table[name])
            cut = pc.sum(pc.greater(lengths, self._longest)).as_py()
            if cut:
                self._stream.counts["sentences_cut"] += cut
                self._stream.counts[f"cut to {self._longest} tokens: {name}"] += cut

        self.counts = self._stream.account()
        targets = table[TARGET] if TARGET in table.column_names else None

        return self._batch(table, torch.arange(first, first + len(table)), targets)

    def where(self, row: int) -> str:
        """Return ``path:line`` of a row of one of the last batches, for messages."""
        for first, places in self._places:
            if first <= row < first + len(places):
                file, line = (places[name][row - first].as_py() for name in PLACE)
                return f"{file}:{line}"

        return f"row {row} of the stream"
