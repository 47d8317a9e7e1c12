"""Training batches in an order that seed and epoch decide, which can be left and taken up at any batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_cse.errors import DataError

Batch = dict[str, Any]


class BatchLoader:
    """Yield the batches of one epoch after another; each pass over it is one epoch.

    The order of epoch e is a permutation drawn from (seed, e) alone, so nothing else that draws random numbers changes
    it. The trailing batch is dropped or kept (``drop_last``; papers differ), the only one is always kept; kept, and of
    one row only, it joins the batch before, because a row alone has no negatives.

    Some rows may be gathered: those of ``gathered`` leave the batch they were drawn for and wait, over the end of an
    epoch too, until ``together`` of them have come; then all that wait join the step's other rows. So batches differ in
    size, and nothing is lost but what still waits after the last step. Where a batch would keep fewer than two rows,
    those that wait join it at once.

    ``state_dict`` is epoch, position, permutation and what waits; the data module carries it through checkpoints.

    Source (gathering): NGCSE, authors' code, which caches LLM rows so.

    Args:
        rows: how many rows there are.
        collate: row numbers to a batch.
        batch_size: rows that are drawn a step.
        drop_last: whether a trailing, smaller batch is dropped.
        seed: draws the order.
        gathered: for each row, whether it is gathered: (rows,); None where no row is.
        together: how many gathered rows make them join; never more than there are.

    Raises:
        DataError: if there are too few rows for one batch, or a state does not fit the rows.
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
    ) -> None:
        if batch_size < 2:
            raise DataError(f"data.batch_size: {batch_size} leaves no negatives in a batch; at least 2 is needed")
        if rows < 2:
            raise DataError(f"{rows} training rows do not make a batch: a row alone has no negatives")
        self.rows = rows
        self.collate = collate
        self.seed = seed
        self.ends = list(range(batch_size, rows + 1, batch_size))
        if not self.ends:
            self.ends.append(rows)
        elif not drop_last and rows % batch_size == 1:
            self.ends[-1] = rows
        elif not drop_last and rows % batch_size:
            self.ends.append(rows)
        self.epoch = 0
        self.position = 0
        self._permutation: Tensor | None = None
        self._gathered = gathered
        self._together = together if gathered is None else min(together, int(gathered.sum()))
        self._waiting = torch.empty(0, dtype=torch.long)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.ends)

    def __iter__(self) -> Iterator[Batch]:
        """Go on at the position; a finished epoch is followed by the next one."""
        if self.position >= len(self):
            self.epoch, self.position, self._permutation = self.epoch + 1, 0, None
        while self.position < len(self):
            start = self.ends[self.position - 1] if self.position else 0
            chosen = self.permutation[start : self.ends[self.position]]
            self.position += 1
            yield self.collate(chosen if self._gathered is None else self._gather(chosen, self._gathered))

    def _gather(self, chosen: Tensor, gathered: Tensor) -> Tensor:
        """Return the rows of a step: those drawn that do not wait, and all that waited if they are enough."""
        others, waiting = chosen[~gathered[chosen]], torch.cat([self._waiting, chosen[gathered[chosen]]])
        joins = len(waiting) >= self._together or len(others) < 2
        self._waiting = waiting[:0] if joins else waiting
        return torch.cat([others, waiting]) if joins else others

    @property
    def permutation(self) -> Tensor:
        """The order of the rows in this epoch: (rows,)."""
        if self._permutation is None:
            seed = int(np.random.SeedSequence([self.seed, self.epoch]).generate_state(1, np.uint64)[0] >> 1)
            self._permutation = torch.randperm(self.rows, generator=torch.Generator().manual_seed(seed))
        return self._permutation

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "permutation": self.permutation.clone(),
            "waiting": self._waiting.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to where another loader was."""
        if len(state["permutation"]) != self.rows or state["position"] > len(self):
            raise DataError(
                f"the checkpoint was made with {len(state['permutation'])} training rows, now there are {self.rows}: "
                "start anew with force=true"
            )
        self.epoch, self.position, self._permutation = state["epoch"], state["position"], state["permutation"]
        self._waiting = state["waiting"]
