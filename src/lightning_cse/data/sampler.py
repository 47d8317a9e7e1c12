"""Training batches in an order that depends only on seed and epoch; an epoch can be resumed at any
batch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor

from lightning_cse.errors import DataError

Batch = dict[str, Any]

# The rows of a batch; after it, the position in the epoch and the rows that still wait (see
# `Gathering`).
Step = tuple[Tensor, int, Tensor]


class Draws:
    r"""How often each row is drawn per epoch, by the weight of its source, and in which order.

    A row of weight w is drawn :math:`\lfloor w \rfloor` times per epoch, and once more in some
    epochs; their share is the fractional part of w. The rows of a source take turns at the extra
    draw, in an order that the seed draws. The number of turns per epoch is that fraction of the
    source's rows, rounded. So all epochs have the same length, and no row waits longer than
    another.

    The c copies of a row in an epoch get the keys :math:`(k + u)/c` for :math:`k = 0 \dots c - 1`,
    with u drawn from (seed, epoch) for each row. Sorting the keys gives the order of the epoch, so
    copies are 1/c of it apart, and meet in a batch only if c comes near the number of batches, if
    at all.

    Args:
        sources: the number of each row's source: (rows,).
        weights: the weight of each source.
        names: the name of each source, for messages.
        batch_size: the size of a batch, which must not have a row twice.
        seed: decides the order.

    Raises:
        DataError: if a weight draws no row, or draws one more often than there are whole batches.
    """

    def __init__(
        self,
        sources: np.ndarray,
        weights: Sequence[float],
        names: Sequence[str],
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        # By source: its rows, the whole part of its weight, its turns per epoch.
        rows = np.bincount(sources, minlength=len(weights))
        whole = np.floor(weights).astype(np.int64)
        turns = np.floor(np.subtract(weights, whole) * rows + 0.5).astype(np.int64)
        self.seed = seed
        self.by_source: list[int] = (whole * rows + turns).tolist()

        for name, weight, count, drawn in zip(names, weights, rows, self.by_source, strict=True):
            if count and not drawn:
                few = f"{weight:g} of the {count} training rows of {name}"
                raise DataError(f"data.weights: {few} is less than one row: raise it")

        batches = max(1, len(self) // batch_size)
        most = (whole + (turns > 0))[rows > 0].max(initial=0)

        if most > batches:
            raise DataError(
                f"data.weights: some rows are drawn {most} times an epoch, which has {batches} "
                f"whole batches of data.batch_size={batch_size}; a batch must not have a row twice"
            )

        self._whole = whole[sources]
        self._turns = turns[sources]
        self._rows = rows[sources]
        self._turn = _turns_by_row(sources, rows.tolist(), seed)

    def __len__(self) -> int:
        """Return the number of rows per epoch, each counted as often as it is drawn."""
        return sum(self.by_source)

    def copies(self, epoch: int) -> np.ndarray:
        """Return how often each row is drawn in an epoch: (rows,)."""
        extra = (self._turn - epoch * self._turns) % self._rows < self._turns
        return np.asarray(self._whole + extra)

    def order(self, epoch: int) -> Tensor:
        """Return the rows of an epoch in order: (rows per epoch,)."""
        copies = self.copies(epoch)
        generator = seeded_generator(self.seed, epoch)
        within = torch.rand(len(copies), generator=generator, dtype=torch.float64).numpy()
        rows = np.repeat(np.arange(len(copies)), copies)
        first = np.cumsum(copies) - copies
        copy = np.arange(len(rows)) - np.repeat(first, copies)
        keys = (copy + within[rows]) / copies[rows]

        return torch.from_numpy(rows[np.argsort(keys, kind="stable")])


def _turns_by_row(sources: np.ndarray, rows: Sequence[int], seed: int) -> np.ndarray:
    """Return each row's place among the rows of its source, in an order that the seed draws:
    (rows,).
    """
    places = np.zeros_like(sources)
    generator = seeded_generator(seed, 0, 1)  # that of an epoch has no third number

    for source, count in enumerate(rows):
        order = torch.randperm(count, generator=generator).numpy()
        places[np.flatnonzero(sources == source)[order]] = np.arange(count)

    return places


@dataclass(frozen=True)
class Gathering:
    """Rows (one boolean each) that leave the batches they were drawn for, until ``together`` of
    them wait.

    Source: NGCSE, authors' code, which caches LLM rows in this way.
    """

    rows: Tensor
    together: int


class BatchLoader:
    """Yields the batches of one epoch after another, each made by ``collate`` from row numbers; a
    pass is one epoch.

    The order of epoch e is a permutation drawn from (seed, e) alone, so no other random numbers
    change it. An only batch is always kept. A single trailing row joins the batch before it,
    because it would have no negatives.

    ``state_dict`` holds the epoch, position and waiting rows as of the last batch that was yielded;
    the data module stores it in checkpoints. The order is drawn again from (seed, e), and a digest
    in the state shows whether it is the same.

    Args:
        rows: the number of training rows.
        collate: makes a batch from row numbers.
        batch_size: the number of rows in a batch.
        drop_last: whether the trailing batch is dropped (papers differ).
        seed: decides the order.
        gathering: rows that wait, also across epochs, until enough of them have come; then all of
            them join the other rows of that step. So batches differ in size, and only rows that
            still wait after the last step are lost. If a batch would keep fewer than two rows, the
            waiting rows join it at once.
        draws: how often each row is drawn; None: once.
        limit: the Trainer's ``limit_train_batches``: after that many batches, or that share of
            them (a float), the next pass begins the next epoch.
        repeats: whether all epochs have the order of the first, as ``overfit_batches`` needs.

    Raises:
        DataError: if there are too few rows for a batch, or a state does not fit the rows.
    """

    def __init__(
        self,
        rows: int,
        collate: Callable[[Tensor], Batch],
        *,
        batch_size: int,
        drop_last: bool,
        seed: int,
        gathering: Gathering | None = None,
        draws: Draws | None = None,
        limit: int | float | None = None,
        repeats: bool = False,
    ) -> None:
        self.rows = rows if draws is None else len(draws)
        if self.rows < 2:
            raise DataError(
                f"{self.rows} training rows cannot form a batch: there are no negatives"
            )

        self.collate = collate
        self.seed = seed
        self.batch_size = batch_size
        whole, self._last_end = count_batches(self.rows, batch_size, drop_last=drop_last)

        if isinstance(limit, float):
            limit = int(limit * whole)

        self._length = whole
        self._limit = whole if limit is None else min(limit, whole)
        self._repeats = repeats
        self._gathering = gathering
        self._enough = (
            0 if gathering is None else min(gathering.together, int(gathering.rows.sum()))
        )
        self._draws = draws
        self.reset()

    def reset(self) -> None:
        """Begin again with the first epoch."""
        self.epoch = 0
        self.position = 0
        self._permutation: Tensor | None = None
        self._waiting = torch.empty(0, dtype=torch.long)

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        """Continue at the current position, or with the next epoch if this one is finished."""
        if self.position >= self._limit:
            self.epoch += 1
            self.position = 0
            self._permutation = self._permutation if self._repeats else None

        for rows, position, waiting in self._steps():
            self.position = position
            self._waiting = waiting
            yield self.collate(rows)

    def _steps(self) -> Iterator[Step]:
        """Yield the steps of this epoch from the position on."""
        waiting = self._waiting

        for position in range(self.position, len(self)):
            start = position * self.batch_size
            end = start + self.batch_size

            if position + 1 == self._length:
                end = self._last_end

            chosen = self.permutation[start:end].long()

            if self._gathering is not None:
                chosen, waiting = self._gather(chosen, waiting, self._gathering.rows[chosen])

            yield chosen, position + 1, waiting

    def _gather(self, chosen: Tensor, waiting: Tensor, waits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows of a batch, and those that wait after it; ``waits`` says which of its
        rows do.
        """
        waiting = torch.cat([waiting, chosen[waits]])
        chosen = chosen[~waits]

        if len(waiting) >= self._enough or len(chosen) < 2:
            return torch.cat([chosen, waiting]), waiting[:0]

        return chosen, waiting

    @property
    def permutation(self) -> Tensor:
        """The order of the rows in this epoch: (rows,), or (rows per epoch,) with weights."""
        if self._permutation is None:
            epoch = 0 if self._repeats else self.epoch
            if self._draws is None:
                generator = seeded_generator(self.seed, epoch)
                # The order is the same in 32 bits, which take half the memory.
                kind = torch.int32 if self.rows < 2**31 else torch.int64
                self._permutation = torch.randperm(self.rows, generator=generator, dtype=kind)
            else:
                self._permutation = self._draws.order(epoch)

        return self._permutation

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loader."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "rows": self.rows,
            "order": _digest(self.permutation),
            "waiting": self._waiting.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the position of another loader."""
        order = state.get("permutation")  # in older checkpoints
        rows = state["rows"] if order is None else len(order)

        if rows != self.rows or state["position"] > len(self):
            raise DataError(
                f"the checkpoint was made with {rows} training rows, now there are {self.rows}: "
                "start again with force=true"
            )

        self.epoch = state["epoch"]
        self.position = state["position"]
        self._permutation = order
        self._waiting = state["waiting"]

        if order is None and _digest(self.permutation) != state["order"]:
            raise DataError(
                "the order of the rows in the checkpoint cannot be drawn again: resume with its "
                "version of torch, or start again with force=true"
            )


def count_batches(rows: int, batch_size: int, *, drop_last: bool) -> tuple[int, int]:
    """Return the number of batches of an epoch, and the end of the last one, as a row number."""
    if rows < batch_size:
        return 1, rows

    batches, rest = divmod(rows, batch_size)

    if drop_last or not rest:
        return batches, batches * batch_size

    # A single row joins the batch before it.
    return batches + (rest > 1), rows


def _digest(order: Tensor) -> str:
    return xxhash.xxh3_128_hexdigest(order.numpy().data)


def seeded_generator(*seed: int) -> torch.Generator:
    """Return a generator that depends only on these numbers."""
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> 1))
