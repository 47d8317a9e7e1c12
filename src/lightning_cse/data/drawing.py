"""Random choices of training rows, the same for all methods and seeds: a hold-out, fewer rows, fewer LLM rows.

Rows that `Hybrid` added to a corpus are drawn separately from the corpus's own rows, so that all settings of a domain
hold out the same sentences and train on the same ones.
"""

import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from lightning_cse.data.rows import Rows
from lightning_cse.errors import ConfigError, DataError

log = logging.getLogger(__name__)

SEED = 0
ANOTHER_ANCHOR = (
    "\0another anchor"  # a negative that `with_another_anchor` replaces after the hold-out
)


def used(rows: Rows) -> int:
    """Return how many corpus rows the training rows are made of."""
    return int(pc.count_distinct(pc.list_flatten(rows.values("made_of"))).as_py())


def keep(rows: Rows, kept: np.ndarray, reason: str) -> Rows:
    """Return the rows where ``kept`` is true; corpus rows that are no longer used count as dropped for ``reason``."""
    left = rows.select(np.flatnonzero(kept))
    return left.dropping({reason: used(rows) - used(left)})


def hold_out(rows: Rows, share: float, *, of: str) -> tuple[Rows, Rows]:
    """Split rows into those to train on and those held out: a share of a role's sentences, with all their rows.

    Both sides keep the order of the corpus. The same share of the added rows is held out too. At least two sentences
    are held out if the share is above 0. Fewer than two sentences to train on are a DataError.
    """
    if not 0 <= share < 1:
        raise ConfigError([f"data.held_out_share: must be in [0, 1), got {share}"])
    own, added = _units(rows, rows.values(of))
    number = max(2, round(share * _count(own))) if share else 0
    if number > _count(own) - 2:
        raise DataError(
            f"data.held_out_share: {share} of {_count(own)} sentences leaves too few on one side"
        )
    apart = _drawn(own, number) | _drawn(added, round(share * _count(added)))
    return keep(rows, ~apart, "held out"), rows.select(np.flatnonzero(apart))


def subset(rows: Rows, count: int) -> Rows:
    """Return ``count`` rows, own and added ones in proportion; rows made of the same corpus rows count as one."""
    own, added = _units(
        rows, pc.binary_join(pc.cast(rows.values("made_of"), pa.list_(pa.string())), " ")
    )
    total = _count(own) + _count(added)
    if count > total:
        log.warning("data.train_rows=%d, but there are only %d rows; all are used", count, total)
        return rows
    of_own = round(count * _count(own) / total)
    return keep(rows, _drawn(own, of_own) | _drawn(added, count - of_own), "data.train_rows")


def fewer_llm_rows(rows: Rows, count: int, roles: Sequence[str]) -> Rows:
    """Keep ``count`` LLM rows, which have all of these roles; of the others, only the corpus's own anchors stay."""
    if "negative" not in roles:
        raise ConfigError(
            ["data.llm_rows: must be null, except for a corpus with LLM rows (data=ngcse_...)"]
        )
    llm = rows.has(*roles)
    numbers = np.flatnonzero(llm)
    if count > len(numbers):
        log.warning(
            "data.llm_rows=%d, but there are only %d LLM rows to train on; all are used",
            count,
            len(numbers),
        )
    llm[numbers[seeded_order(len(numbers), SEED)[:count]]] = (
        False  # from here on, only the LLM rows that do not stay
    )
    for role in roles[1:]:
        rows = rows.with_column(
            role, pc.if_else(pa.array(llm), pa.scalar(None, pa.string()), rows.values(role))
        )
    return keep(rows, ~(llm & _added(rows)), "data.llm_rows")


def with_another_anchor(rows: Rows) -> Rows:
    """Return the rows with the anchor of another row in place of each `ANOTHER_ANCHOR`.

    Call it separately for each side of a hold-out: negatives drawn over both would train on held-out sentences. A
    single row that needs an anchor is a DataError.
    """
    negatives = rows.column("negative") if "negative" in rows.names else []
    waiting = [row for row, sentence in enumerate(negatives) if sentence == ANOTHER_ANCHOR]
    if not waiting:
        return rows
    if len(waiting) < 2:
        raise DataError(
            "data: a single row that stands in for an LLM row has no other row to take its negative from"
        )
    anchors, order = rows.column("anchor"), seeded_order(len(waiting), SEED)
    for place, another in zip(order, [*order[1:], order[0]], strict=True):
        negatives[waiting[place]] = anchors[waiting[another]]
    return rows.with_column("negative", negatives)


def seeded_order(count: int, seed: int) -> list[int]:
    """Return the numbers below ``count`` in a random order that depends only on the seed."""
    return list(torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist())


def _added(rows: Rows) -> np.ndarray:
    known = "added" in rows.column_names
    return np.asarray(rows.values("added").to_numpy() if known else np.zeros(len(rows), dtype=bool))


def _units(rows: Rows, values: pa.ChunkedArray) -> list[np.ndarray]:
    """Number distinct values by first appearance, separately for own and added rows; -1 marks the other rows."""
    parts = (~_added(rows), _added(rows))
    found = [np.full(len(rows), -1) for _ in parts]
    for units, among in zip(found, parts, strict=True):
        units[among] = (
            values.filter(pa.array(among)).combine_chunks().dictionary_encode().indices.to_numpy()
        )
    return found


def _count(units: np.ndarray) -> int:
    return int(units.max(initial=-1)) + 1


def _drawn(units: np.ndarray, count: int) -> np.ndarray:
    """Return whether each row belongs to one of ``count`` units, drawn at random: (rows,)."""
    return np.isin(units, seeded_order(_count(units), SEED)[:count])
