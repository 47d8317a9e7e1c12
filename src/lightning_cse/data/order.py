"""Training batches in an order that depends only on seed and epoch; an epoch can be resumed at any
batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_cse.errors import DataError

Batch = dict[str, Any]

# The rows of a batch; after it, the position in the epoch and the rows that still wait (see
# `Gathering`).
Step = tuple[Tensor, int, Tensor]


def permutation(rows: int, seed: int, epoch: int) -> Tensor:
    """Return the rows of an epoch, each once, in an order drawn from (seed, epoch): (rows,)."""
    return shuffled(rows, seeded_generator(seed, epoch))


def shuffled(count: int, generator: torch.Generator) -> Tensor:
    """Return the numbers below ``count`` in a random order: (count,)."""
    # The order is the same in 32 bits, which take half the memory.
    dtype = torch.int32 if count < 2**31 else torch.int64
    return torch.randperm(count, generator=generator, dtype=dtype)


@dataclass(frozen=True)
class Gathering:
    """Rows (one boolean each) that leave the batches they were drawn for, until ``threshold`` of
    them wait.

    Source: NGCSE, authors' code, which caches LLM rows in this way.
    """

    rows: Tensor
    threshold: int


class BatchLoader:
    """Yields the batches of one epoch after another, each made by ``collate`` from row numbers; a
    pass is one epoch.

    An only batch is always kept. A single trailing row joins the batch before it, because it would
    have no negatives.

    ``state_dict`` holds the epoch, position and waiting rows as of the last batch that was yielded;
    the data module stores it in checkpoints. The order is drawn again from the epoch.

    Args:
        order_of: returns the rows of an epoch in order, equally many in each: (rows per epoch,).
        collate: makes a batch from row numbers.
        batch_size: the number of rows in a batch.
        drop_last: whether the trailing batch is dropped (papers differ).
        gathering: rows that wait, also across epochs, until enough of them have come; then all of
            them join the other rows of that step. So batches differ in size, and only rows that
            still wait after the last step are lost. If a batch would keep fewer than two rows, the
            waiting rows join it at once.
        limit: the Trainer's ``limit_train_batches``: after that many batches, or that share of
            them (a float), the next pass begins the next epoch.
        repeats: whether all epochs have the order of the first, as ``overfit_batches`` needs.

    Raises:
        DataError: if there are too few rows for a batch, or a state does not fit the rows.
    """

    def __init__(
        self,
        order_of: Callable[[int], Tensor],
        collate: Callable[[Tensor], Batch],
        *,
        batch_size: int,
        drop_last: bool,
        gathering: Gathering | None = None,
        limit: int | float | None = None,
        repeats: bool = False,
    ) -> None:
        self.order_of = order_of
        self.collate = collate
        self.batch_size = batch_size
        self._repeats = repeats
        self._gathering = gathering
        self.reset()

        if len(self.order) < 2:
            count = len(self.order)
            raise DataError(f"{count} training rows cannot form a batch: there are no negatives")

        batches, self._last_end = count_batches(len(self.order), batch_size, drop_last=drop_last)
        self._length = batches
        self._limit = limited(batches, limit)
        self._enough = (
            0 if gathering is None else min(gathering.threshold, int(gathering.rows.sum()))
        )

    def reset(self) -> None:
        """Begin again with the first epoch."""
        self.epoch = 0
        self.position = 0
        self.order = self.order_of(0)
        self._waiting = torch.empty(0, dtype=torch.long)

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        """Continue at the current position, or with the next epoch if this one is finished."""
        if self.position >= self._limit:
            self._begin(self.epoch + 1)

        for rows, position, waiting in self._steps():
            self.position = position
            self._waiting = waiting
            yield self.collate(rows)

    def _begin(self, epoch: int) -> None:
        self.epoch = epoch
        self.position = 0
        if not self._repeats:
            self.order = self.order_of(epoch)

    def _steps(self) -> Iterator[Step]:
        """Yield the steps of this epoch from the position on."""
        waiting = self._waiting

        for position in range(self.position, len(self)):
            start = position * self.batch_size
            is_last = position + 1 == len(self)
            end = self._last_end if is_last else start + self.batch_size
            chosen = self.order[start:end].long()

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

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loader."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "rows": len(self.order),
            "waiting": self._waiting.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the position of another loader."""
        rows = state["rows"]
        if rows != len(self.order) or state["position"] > len(self):
            raise DataError(
                f"the checkpoint was made with {rows} training rows, now there are "
                f"{len(self.order)}: start again with force=true"
            )

        self._begin(state["epoch"])
        self.position = state["position"]
        self._waiting = state["waiting"]


def count_batches(rows: int, batch_size: int, *, drop_last: bool) -> tuple[int, int]:
    """Return the number of batches of an epoch, and the end of the last one, as a row number."""
    if rows < batch_size:
        return 1, rows

    batches, remainder = divmod(rows, batch_size)

    if drop_last or not remainder:
        return batches, batches * batch_size

    # A single row joins the batch before it.
    return batches + (remainder > 1), rows


def limited(batches: int, limit: int | float | None) -> int:
    """Return the number of batches of an epoch under ``limit_train_batches``."""
    if isinstance(limit, float):
        return int(limit * batches)

    return batches if limit is None else min(limit, batches)


def seeded_generator(*seed: int) -> torch.Generator:
    """Return a generator that depends only on these numbers."""
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> 1))
