"""What lies nearest to a sentence, by each of its vectors: DualCSE's Table 3."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from lightning_cse.data import Rows
from lightning_cse.data.sources import HYPOTHESES
from lightning_cse.embeddings import Embedding
from lightning_cse.errors import DataError, EncoderError
from lightning_cse.evaluation.task import Answers
from lightning_cse.similarity import cosine_matrix

__all__ = ["Hit", "Passage", "Retrieved", "hypotheses", "nearest", "retrieve"]

log = logging.getLogger(__name__)

AT_ONCE: Final = 4096
"""Sentences that are embedded and compared together; bounds memory, changes no value."""


@dataclass(frozen=True)
class Passage:
    """A sentence that is searched: its column in the corpus, and the file and line of its first row."""

    sentence: str
    kind: str
    where: str


@dataclass(frozen=True)
class Hit:
    """A sentence that was found, and its cosine."""

    passage: Passage
    cosine: float


@dataclass(frozen=True)
class Retrieved:
    """What was found for a query by each of its views, best first."""

    query: Passage
    by_view: dict[str, tuple[Hit, ...]]


def hypotheses(rows: Rows) -> list[Passage]:
    """Return the distinct hypotheses of premises, each where it first stands.

    Raises:
        DataError: if there is none.
    """
    found: dict[str, Passage] = {}
    columns = {name: rows.column(name) for name in rows.names if name in HYPOTHESES}
    for row in range(len(rows)):
        for name, column in columns.items():
            if column[row] is not None:
                found.setdefault(column[row], Passage(column[row], name, _place(rows, row)))
    if not found:
        raise DataError(f"{', '.join(file.name for file in rows.files) or 'rows'}: no hypothesis to search")
    return list(found.values())


def retrieve(answers: Answers, queries: Rows, corpus: Sequence[Passage], count: int = 3) -> list[Retrieved]:
    """Return the sentences of a corpus nearest to each premise, by each view of it.

    A view of the query (of DualCSE its explicit and its implicit vector) is compared with the primary view of what is
    searched, the explicit vector.

    Source: DualCSE, table 3: premises of INLI's dev split, hypotheses of its train split, the three nearest by cosine.
    Differs: the paper does not say which vector of a hypothesis is compared; training compares both vectors of a
    premise with the explicit one.

    Args:
        answers: a method or a baseline, in evaluation mode.
        queries: rows with a premise.
        corpus: what is searched.
        count: how many are returned; all, where there are no more.

    Raises:
        EncoderError: if an embedding is not finite.
    """
    premises = queries.column("premise")
    views = _finite(answers.embed(premises)).views()
    best: dict[str, tuple[Tensor, Tensor]] = {}
    for start in range(0, len(corpus), AT_ONCE):
        some = [passage.sentence for passage in corpus[start : start + AT_ONCE]]
        log.info("searched: %d of %d sentences", start + len(some), len(corpus))
        primary = next(iter(_finite(answers.embed(some)).views().values()))
        for name, view in views.items():
            best[name] = _better(best.get(name), nearest(view, primary, count), start, count)
    return [
        Retrieved(
            Passage(premise, "premise", _place(queries, row)),
            {
                name: tuple(
                    Hit(corpus[place], cosine)
                    for place, cosine in zip(places[row].tolist(), cosines[row].tolist(), strict=True)
                )
                for name, (cosines, places) in best.items()
            },
        )
        for row, premise in enumerate(premises)
    ]


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
    if count < 1:
        raise ValueError(f"need a count of at least 1, got {count}")
    # A stable sort and not topk, which is free to choose among equals.
    cosines, rows = cosine_matrix(queries, corpus).sort(dim=1, descending=True, stable=True)
    return cosines[:, :count], rows[:, :count]


def _better(
    sofar: tuple[Tensor, Tensor] | None, now: tuple[Tensor, Tensor], start: int, count: int
) -> tuple[Tensor, Tensor]:
    """Return the best of what was found so far and of a part that begins at a row, which gives way among equals."""
    cosines, places = now[0], now[1] + start
    if sofar is None:
        return cosines, places
    both = torch.cat([sofar[0], cosines], dim=1).sort(dim=1, descending=True, stable=True)
    merged = torch.cat([sofar[1], places], dim=1).gather(1, both.indices)
    return both.values[:, :count], merged[:, :count]


def _finite(embedding: Embedding) -> Embedding:
    if not all(bool(torch.isfinite(view).all()) for view in embedding.views().values()):
        raise EncoderError("some embeddings are not finite numbers: the weights of the run are broken; train it again")
    return embedding


def _place(rows: Rows, row: int) -> str:
    """Return file and line as the official layout names them, wherever the corpora are."""
    where = rows.where(row)
    for file in rows.files:
        where = where.replace(file.path, file.name)
    return where
