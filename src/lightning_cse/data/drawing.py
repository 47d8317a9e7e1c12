"""What is drawn of training rows, once for all methods and training seeds: a hold-out, fewer rows, fewer LLM rows.

Rows that were added to a corpus are drawn by themselves, so that they cannot move what is drawn of the corpus itself:
all settings of a domain hold out the same sentences, and train on the same ones where they train on a part.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import torch

from lightning_cse.data.roles import ANOTHER_ANCHOR, TrainingRows
from lightning_cse.errors import ConfigError, DataError

log = logging.getLogger(__name__)

SUBSET_SEED = 0
HELD_OUT_SEED = 0
LLM_ROWS_SEED = 0
ANOTHER_SEED = 0


def hold_out(built: TrainingRows, share: float, *, of: str) -> tuple[TrainingRows, TrainingRows]:
    """Return what is left to train on, and a share of the sentences of a role (at least two) with all their rows.

    Rows that share a sentence, several triplets of a premise say, are on one side. Both keep the order of the corpus.
    The same share of the rows that were added to a corpus is held out too.

    Raises:
        ConfigError: if the share is not in (0, 1).
        DataError: if it leaves fewer than two sentences on one side.
    """
    if not 0 < share < 1:
        raise ConfigError([f"data.held_out_share: {share} is no share in (0, 1)"])
    sentences = built.rows.column(of)
    own, added = (_together(sentences, rows) for rows in _parts(built))
    number = max(2, round(share * len(own)))
    if number > len(own) - 2:
        raise DataError(f"data.held_out_share: {share} of {len(own)} sentences leaves too few on one side")
    apart = {row for units, count in ((own, number), (added, round(share * len(added)))) for row in _draw(units, count)}
    kept = built.select(row for row in range(len(sentences)) if row not in apart)
    return kept.counted("held out", built.used - kept.used), built.select(sorted(apart))


def subset(built: TrainingRows, count: int) -> TrainingRows:
    """Return so many of the rows, those made of the same corpus rows counted as one; all if there are no more.

    Of a corpus with added rows both kinds keep their share.
    """
    own, added = (_units(built, rows) for rows in _parts(built))
    there = len(own) + len(added)
    if count > there:
        log.warning("data.train_rows=%d, but there are only %d rows; all are used", count, there)
        return built
    of_own = round(count * len(own) / there)
    drawn = [*_draw(own, of_own, SUBSET_SEED), *_draw(added, count - of_own, SUBSET_SEED)]
    kept = built.select(sorted(drawn))
    return kept.counted("data.train_rows", built.used - kept.used)


def fewer_llm_rows(built: TrainingRows, count: int, roles: Sequence[str]) -> TrainingRows:
    """Return the rows with so many LLM rows only, those that have all of these roles.

    Of the others the anchor stays, as a sentence of the corpus; those that were added to it are left out.
    """
    columns = {role: built.rows.column(role) for role in roles}
    llm = [[row] for row, sentences in enumerate(zip(*columns.values(), strict=True)) if None not in sentences]
    if count > len(llm):
        log.warning("data.llm_rows=%d, but there are only %d LLM rows to train on; all are used", count, len(llm))
    left = {row for (row,) in llm} - set(_draw(llm, count, LLM_ROWS_SEED))
    for role in roles[1:]:
        columns[role] = [None if row in left else sentence for row, sentence in enumerate(columns[role])]
    own = set(_parts(built)[0])
    plain = TrainingRows(built.rows.with_columns(**columns), built.sources, built.own)
    kept = plain.select(row for row in range(len(plain.rows)) if row in own or row not in left)
    return kept.counted("data.llm_rows", built.used - kept.used)


def with_another_anchor(built: TrainingRows) -> TrainingRows:
    """Return the rows with the anchor of another one where a negative waits for it (`ANOTHER_ANCHOR`).

    Drawn on each side of a hold-out by itself: a negative drawn over both would train on sentences that are held out.

    Raises:
        DataError: if a row waits alone.
    """
    sentences = built.rows.column("negative") if "negative" in built.rows.names else []
    waiting = [row for row, sentence in enumerate(sentences) if sentence == ANOTHER_ANCHOR]
    if not waiting:
        return built
    anchors = built.rows.column("anchor")
    if len(waiting) < 2:
        raise DataError("data: one row that stands in for an LLM's has no other to take its negative from")
    order = seeded_order(len(waiting), ANOTHER_SEED)
    for place, another in zip(order, [*order[1:], order[0]], strict=True):
        sentences[waiting[place]] = anchors[waiting[another]]
    columns = {name: built.rows.column(name) for name in built.rows.names} | {"negative": sentences}
    return TrainingRows(built.rows.with_columns(**columns), built.sources, built.own)


def _parts(built: TrainingRows) -> tuple[range, range]:
    """Return the numbers of the corpus's own rows, and of those that were added."""
    own = len(built.rows) if built.own is None else built.own
    return range(own), range(own, len(built.rows))


def _together(sentences: Sequence[str], rows: Iterable[int]) -> list[list[int]]:
    """Return the rows of each distinct sentence."""
    together: dict[str, list[int]] = {}
    for row in rows:
        together.setdefault(sentences[row], []).append(row)
    return list(together.values())


def _units(built: TrainingRows, rows: Iterable[int]) -> list[list[int]]:
    """Return the rows that are made of the same corpus rows."""
    units: dict[tuple[int, ...], list[int]] = {}
    for row in rows:
        units.setdefault(built.sources[row], []).append(row)
    return list(units.values())


def _draw(units: Sequence[Sequence[int]], count: int, seed: int = HELD_OUT_SEED) -> list[int]:
    """Return the rows of so many units."""
    return [row for unit in seeded_order(len(units), seed)[:count] for row in units[unit]]


def seeded_order(count: int, seed: int) -> list[int]:
    """Return the numbers below ``count`` in an order that the seed alone decides."""
    order: list[int] = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return order
