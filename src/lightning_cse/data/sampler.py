"""Training batches in an order that depends only on seed and epoch; an epoch can be resumed at any batch."""

import itertools
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_cse.errors import DataError
from lightning_cse.tokens import Tokens

Batch = dict[str, Any]

log = logging.getLogger(__name__)


class Draws:
    r"""How often each row is drawn per epoch, by the weight of its source, and in which order.

    A row of weight w is drawn :math:`\lfloor w \rfloor` times per epoch, and once more in some epochs; their share is
    the fractional part of w. The rows of a source take turns at the extra draw, in an order that the seed draws. The
    number of turns per epoch is that fraction of the source's rows, rounded. So all epochs have the same length, and no
    row waits longer than another.

    The c copies of a row in an epoch get the keys :math:`(k + u)/c` for :math:`k = 0 \dots c - 1`, with u drawn from
    (seed, epoch) for each row. Sorting the keys gives the order of the epoch, so copies are 1/c of it apart, and meet
    in a batch only if c comes near the number of batches, if at all. ``sources`` holds the number of each row's source.
    A weight that draws no row, or draws one more often than there are whole batches, is a DataError.
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
        self.seed = seed
        self.by_source: list[int] = []
        generator = _generator(seed, 0, 1)  # that of an epoch has no third number
        # For each row: the whole part of its weight; its source's turns per epoch; its own turn; its source's rows.
        self._whole, self._turns, self._own, self._rows = np.zeros(
            (4, len(sources)), dtype=np.int64
        )
        most = 0
        for source, (weight, name) in enumerate(zip(weights, names, strict=True)):
            rows = np.flatnonzero(sources == source)
            whole = math.floor(weight)
            more = math.floor((weight - whole) * len(rows) + 0.5)
            if len(rows) and not whole and not more:
                rows_of = f"the {len(rows)} training rows of {name}"
                raise DataError(
                    f"data.weights: {weight:g} of {rows_of} is less than one row: raise it"
                )
            self._whole[rows], self._turns[rows], self._rows[rows] = whole, more, len(rows)
            self._own[rows[torch.randperm(len(rows), generator=generator).numpy()]] = np.arange(
                len(rows)
            )
            self.by_source.append(whole * len(rows) + more)
            most = max(most, whole + (more > 0) if len(rows) else 0)
        if most > (batches := max(1, len(self) // batch_size)):
            raise DataError(
                f"data.weights: some rows are drawn {most} times an epoch, which has {batches} whole batches of "
                f"data.batch_size={batch_size}, and a batch must not have a row twice: lower one of them"
            )

    def __len__(self) -> int:
        """Return the number of rows per epoch, each counted as often as it is drawn."""
        return sum(self.by_source)

    def copies(self, epoch: int) -> np.ndarray:
        """Return how often each row is drawn in an epoch: (rows,)."""
        return np.asarray(
            self._whole + ((self._own - epoch * self._turns) % self._rows < self._turns)
        )

    def order(self, epoch: int) -> Tensor:
        """Return the rows of an epoch in order: (rows per epoch,)."""
        copies = self.copies(epoch)
        within = torch.rand(
            len(copies), generator=_generator(self.seed, epoch), dtype=torch.float64
        ).numpy()
        rows = np.repeat(np.arange(len(copies)), copies)
        copy = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
        return torch.from_numpy(
            rows[np.argsort((copy + within[rows]) / copies[rows], kind="stable")]
        )


def _generator(*seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(
        int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1)
    )


def _apart(order: np.ndarray, ends: Sequence[int], sentences: np.ndarray) -> np.ndarray:
    """Return the rows of an epoch in an order in which no batch has a sentence twice; -1 where no row fits."""
    # Rows with the most frequent sentences are placed first, as the others fit anywhere: each in its own batch of the
    # order, else in the next batch that takes it, else in place of a row for which another batch has room.
    sizes, numbers = np.diff([0, *ends]).tolist(), sentences[order[: ends[-1]]]
    counts = np.append(
        np.bincount(numbers[numbers >= 0]), 0
    )  # the last count is for -1, no sentence
    own_batch = np.repeat(np.arange(len(sizes)), sizes).tolist()
    batches: list[list[int]] = [[] for _ in sizes]
    held: list[set[int]] = [set() for _ in sizes]
    batches_of = np.zeros_like(counts)

    def of(row: int) -> set[int]:
        return set(sentences[row].tolist()) - {-1}

    def put(row: int, batch: int) -> None:
        batches[batch].append(row)
        held[batch] |= of(row)

    for place in np.argsort(-counts[numbers].max(axis=1), kind="stable").tolist():
        row, own = int(order[place]), own_batch[place]
        if any(batches_of[sentence] == len(sizes) for sentence in of(row)):
            continue
        near, has = itertools.chain(range(own, len(sizes)), range(own)), of(row)
        batch = next(
            (k for k in near if len(batches[k]) < sizes[k] and held[k].isdisjoint(has)), None
        )
        if batch is None:
            room = [k for k, size in enumerate(sizes) if len(batches[k]) < size]
            takes = ((k, some) for k, some in enumerate(batches) if held[k].isdisjoint(has))
            moves = ((k, other, free) for k, some in takes for other in some for free in room)
            move = next(
                ((k, other, free) for k, other, free in moves if held[free].isdisjoint(of(other))),
                None,
            )
            if move is None:
                continue
            batch, other, free = move
            batches[batch].remove(other)
            held[batch] -= of(other)
            put(other, free)
        put(row, batch)
        batches_of[list(has)] += 1
    if min(map(len, batches)) < 2:
        share = "so many rows share their sentences that a batch has fewer than two"
        raise DataError(
            f"data.distinct_in_batch: {share}: raise data.batch_size, or set it to false"
        )
    apart = np.full_like(order, -1)
    for end, size, batch_rows in zip(ends, sizes, batches, strict=True):
        apart[end - size : end - size + len(batch_rows)] = batch_rows
    return apart


class BatchLoader:
    """Yields the batches of one epoch after another, each made by ``collate`` from row numbers; a pass is one epoch.

    The order of epoch e is a permutation drawn from (seed, e) alone, so no other random numbers change it. With
    weights, a row comes more or less often than once (see `Draws`). ``drop_last`` says whether the trailing batch is
    dropped (papers differ); an only batch is always kept. A single trailing row joins the batch before it, because it
    would have no negatives.

    ``gathered`` marks rows (one boolean each) that leave the batch they were drawn for and wait, also across epochs,
    until ``together`` of them have come; then all waiting rows join the other rows of that step. So batches differ in
    size, and only rows that still wait after the last step are lost. If a batch would keep fewer than two rows, the
    waiting rows join it at once. Source: NGCSE, authors' code, which caches LLM rows in this way.

    ``sentences`` holds the numbers of the rows' sentences, (rows, roles), with -1 for none. With it, no two rows of a
    batch share a sentence; rows that no batch takes are left out of the epoch.

    A side thread collates ``ahead`` batches before their turn. ``state_dict`` holds the epoch, position, permutation
    and waiting rows as of the last batch that was yielded; the data module stores it in checkpoints. ``limit`` cuts an
    epoch to that many batches, or to a share of them (a float), as ``limit_train_batches`` does. Too few rows for one
    batch, or a state that does not fit the rows, are a DataError.
    """

    def __init__(
        self,
        rows: int,
        collate: Callable[[Tensor], Batch],
        *,
        batch_size: int,
        drop_last: bool,
        seed: int,
        gathered: Tensor | None = None,
        together: int = 1,
        draws: Draws | None = None,
        sentences: np.ndarray | None = None,
        ahead: int = 0,
        limit: int | float | None = None,
    ) -> None:
        if batch_size < 2:
            raise DataError(
                f"data.batch_size: {batch_size} leaves no negatives in a batch; at least 2 is needed"
            )
        self.rows = rows if draws is None else len(draws)
        if self.rows < 2:
            raise DataError(
                f"{self.rows} training rows cannot form a batch: a single row has no negatives"
            )
        self.collate, self.seed, self._draws, self._ahead = collate, seed, draws, ahead
        self.ends = list(range(batch_size, self.rows + 1, batch_size)) or [self.rows]
        if not drop_last and self.ends[-1] < self.rows:
            if self.rows % batch_size == 1:
                self.ends.pop()  # a row alone joins the batch before
            self.ends.append(self.rows)
        if limit is not None:
            self.ends = self.ends[
                : limit if isinstance(limit, int) else int(limit * len(self.ends))
            ]
        self.epoch = self.position = 0
        self._sentences = sentences
        self._permutation: Tensor | None = None
        self._gathered = gathered
        self._together = together if gathered is None else min(together, int(gathered.sum()))
        self._waiting = torch.empty(0, dtype=torch.long)

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return len(self.ends)

    def __iter__(self) -> Iterator[Batch]:
        """Continue at the current position, or with the next epoch if this one is finished."""
        if self.position >= len(self):
            self.epoch, self.position, self._permutation = self.epoch + 1, 0, None
        upcoming: deque[tuple[Callable[[], Batch], int, Tensor]] = deque()
        with ThreadPoolExecutor(1) as side:  # it starts a thread only for work
            for step in itertools.chain(self._steps(), itertools.repeat(None, self._ahead)):
                if step is not None:
                    made = (
                        side.submit(self.collate, step[0]).result
                        if self._ahead
                        else partial(self.collate, step[0])
                    )
                    upcoming.append((made, *step[1:]))
                if upcoming and (step is None or len(upcoming) > self._ahead):
                    batch, self.position, self._waiting = upcoming.popleft()
                    yield batch()

    def _steps(self) -> Iterator[tuple[Tensor, int, Tensor]]:
        """Yield the rows of each batch from the position on, with the position and the waiting rows after it."""
        waiting = self._waiting
        for position in range(self.position, len(self)):
            chosen = self.permutation[
                self.ends[position - 1] if position else 0 : self.ends[position]
            ]
            chosen = chosen[chosen >= 0]  # -1 is no row
            if self._gathered is not None:
                waits = self._gathered[chosen]
                chosen, waiting = chosen[~waits], torch.cat([waiting, chosen[waits]])
                if len(waiting) >= self._together or len(chosen) < 2:
                    chosen, waiting = torch.cat([chosen, waiting]), waiting[:0]
            yield chosen, position + 1, waiting

    @property
    def permutation(self) -> Tensor:
        """The order of the rows in this epoch: (rows,), or (rows per epoch,) with weights."""
        if self._permutation is None:
            if self._draws is not None:
                order = self._draws.order(self.epoch)
            else:
                order = torch.randperm(self.rows, generator=_generator(self.seed, self.epoch))
            if self._sentences is not None:
                order = torch.from_numpy(_apart(order.numpy(), self.ends, self._sentences))
                if left := int((order[: self.ends[-1]] < 0).sum()):
                    what = f"{left} of {self.ends[-1]} rows, whose sentences are in every batch, are left out"
                    log.warning("data.distinct_in_batch: %s of epoch %d", what, self.epoch)
            self._permutation = order
        return self._permutation

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loader."""
        tensors = {"permutation": self.permutation.clone(), "waiting": self._waiting.clone()}
        return {"epoch": self.epoch, "position": self.position, **tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the position of another loader."""
        if len(state["permutation"]) != self.rows or state["position"] > len(self):
            raise DataError(
                f"the checkpoint was made with {len(state['permutation'])} training rows, now there are {self.rows}: "
                "start again with force=true"
            )
        self.epoch, self.position, self._permutation = (
            state["epoch"],
            state["position"],
            state["permutation"],
        )
        self._waiting = state["waiting"]


def on_gpu(collate: Callable[[Tensor], Batch], device: torch.device) -> Callable[[Tensor], Batch]:
    """Return a collate function that also copies to a GPU from pinned memory, on its own stream, beside the step."""
    own, steps = torch.cuda.Stream(device), torch.cuda.current_stream(device)

    def copied(tensor: Tensor) -> Tensor:
        copy = tensor.pin_memory().to(device, non_blocking=True)
        copy.record_stream(
            steps
        )  # otherwise another batch may get its memory while a step still reads it
        return copy

    def made(rows: Tensor) -> Batch:
        batch = collate(rows)
        with torch.cuda.stream(own):
            for role, tokens in batch["roles"].items():
                batch["roles"][role] = Tokens(*map(copied, vars(tokens).values()))
            batch["index"] = copied(batch["index"])
            own.synchronize()
        return batch

    return made
