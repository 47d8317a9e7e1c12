"""The nearest of many vectors, exactly: every one of them is looked at."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from lightning_cse.similarity import cosine_matrix

__all__ = ["AT_ONCE", "Best", "nearest"]

AT_ONCE: Final = 8192
"""Vectors that are compared together; bounds memory, changes no value."""


class Best:
    """The highest scores of each query and the rows they belong to, of scores that come in parts, best first.

    Of equal scores the lower row comes first, however the rows were cut into parts.

    Args:
        count: how many are kept; all, where there are no more.

    Raises:
        ValueError: if ``count`` is below 1.

    Example:
        >>> best = Best(2)
        >>> for part in torch.tensor([[0.1, 0.7, 0.3, 0.7]]).split(3, dim=1):
        ...     best.add(part)
        >>> best.rows.tolist()
        [[1, 3]]
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"need a count of at least 1, got {count}")
        self.count = count
        self.seen = 0
        self.scores = torch.empty(0, 0)
        self.rows = torch.empty(0, 0, dtype=torch.long)

    def add(self, scores: Tensor) -> None:
        """Take the scores of the next rows: (q, m)."""
        # A stable sort and not topk, which is free to choose among equals.
        sorted_ = scores.sort(dim=1, descending=True, stable=True)
        values, rows = sorted_.values[:, : self.count], sorted_.indices[:, : self.count] + self.seen
        if self.seen:
            both = torch.cat([self.scores, values], dim=1).sort(dim=1, descending=True, stable=True)
            rows = torch.cat([self.rows, rows], dim=1).gather(1, both.indices)[:, : self.count]
            values = both.values[:, : self.count]
        self.scores, self.rows = values, rows
        self.seen += scores.shape[1]


def nearest(queries: Tensor, corpus: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the cosines and the rows of the nearest vectors of a corpus, best first, both (q, min(count, n)).

    Exact, in float32 or better; of equal cosines the lower row comes first.

    Args:
        queries: (q, d).
        corpus: (n, d).
        count: how many.

    Raises:
        ValueError: if ``count`` is below 1, or as `lightning_cse.similarity.cosine_matrix`.
    """
    best = Best(count)
    for part in corpus.split(AT_ONCE):
        best.add(cosine_matrix(queries, part))
    return best.scores, best.rows
