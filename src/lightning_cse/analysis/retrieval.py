"""What lies nearest to a sentence, by each of its vectors: DualCSE's Table 3."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lightning_cse.analysis.searching import finite
from lightning_cse.data import Rows
from lightning_cse.data.sources import HYPOTHESES
from lightning_cse.errors import DataError
from lightning_cse.evaluation.task import Answers
from lightning_cse.index import Best
from lightning_cse.similarity import cosine_matrix

__all__ = ["Hit", "Passage", "Retrieved", "hypotheses", "retrieve"]

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
    views = finite(answers.embed(premises)).views()
    best = {name: Best(count) for name in views}
    for start in range(0, len(corpus), AT_ONCE):
        some = [passage.sentence for passage in corpus[start : start + AT_ONCE]]
        log.info("searched: %d of %d sentences", start + len(some), len(corpus))
        primary = next(iter(finite(answers.embed(some)).views().values()))
        for name, view in views.items():
            best[name].add(cosine_matrix(view, primary))
    return [
        Retrieved(
            Passage(premise, "premise", _place(queries, row)),
            {
                name: tuple(
                    Hit(corpus[place], cosine)
                    for place, cosine in zip(found.rows[row].tolist(), found.scores[row].tolist(), strict=True)
                )
                for name, found in best.items()
            },
        )
        for row, premise in enumerate(premises)
    ]


def _place(rows: Rows, row: int) -> str:
    """Return file and line as the official layout names them, wherever the corpora are."""
    where = rows.where(row)
    for file in rows.files:
        where = where.replace(file.path, file.name)
    return where
