"""Random choices of training rows, the same for all methods and seeds: a hold-out, fewer rows,
fewer LLM rows.

Rows that `Hybrid` added to a corpus are drawn separately from the corpus's own rows, so that all
settings of a domain hold out the same sentences and train on the same ones.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from lightning_cse.data.rows import Rows, first_appearance
from lightning_cse.errors import ConfigError, DataError

SEED: Final = 0
# A negative that `with_another_anchor` replaces after the hold-out.
ANOTHER_ANCHOR: Final = "\0another anchor"


def used(rows: Rows) -> int:
    """Return how many corpus rows the training rows are made of."""
    return int(pc.count_distinct(pc.list_flatten(rows.values("made_of"))).as_py())


def keep(rows: Rows, kept: np.ndarray, reason: str) -> Rows:
    """Return the rows where ``kept`` is true; corpus rows that are no longer used count as dropped
    for ``reason``.
    """
    left = rows.select(np.flatnonzero(kept))
    return left.dropping({reason: used(rows) - used(left)})


def hold_out(rows: Rows, share: float, *, of: str) -> tuple[Rows, Rows]:
    """Split rows into those to train on and those held out: a share of a role's sentences, with all
    their rows.

    Both sides keep the order of the corpus. The same share of the added rows is held out too. At
    least two sentences are held out if the share is above 0. Fewer than two sentences to train on
    are a DataError.
    """
    if not 0 <= share < 1:
        raise ConfigError([f"data.held_out_share: must be in [0, 1), got {share}"])

    own, added = _units(rows, rows.values(of))
    total = _count(own)
    number = max(2, round(share * total)) if share else 0

    if number > total - 2:
        left = f"{share} of {total} sentences leaves too few on one side"
        raise DataError(f"data.held_out_share: {left}")

    apart = _drawn(own, number) | _drawn(added, round(share * _count(added)))

    return keep(rows, ~apart, "held out"), rows.select(np.flatnonzero(apart))


def subset(rows: Rows, count: int) -> Rows:
    """Return ``count`` rows, own and added ones in proportion; rows made of the same corpus rows
    count as one.
    """
    numbers = pc.cast(rows.values("made_of"), pa.list_(pa.string()))
    own, added = _units(rows, pc.binary_join(numbers, " "))
    total = _count(own) + _count(added)

    if count > total:
        return rows

    of_own = round(count * _count(own) / total)

    return keep(rows, _drawn(own, of_own) | _drawn(added, count - of_own), "data.train_rows")


def fewer_llm_rows(rows: Rows, count: int, roles: Sequence[str]) -> Rows:
    """Keep ``count`` LLM rows, which have all of these roles; of the others, only the corpus's own
    anchors stay.
    """
    if "negative" not in roles:
        only = "must be null, except for a corpus with LLM rows (data=ngcse_...)"
        raise ConfigError([f"data.llm_rows: {only}"])

    removed = rows.has(*roles)
    numbers = np.flatnonzero(removed)

    removed[numbers[seeded_order(len(numbers), SEED)[:count]]] = False
    null = pa.scalar(None, pa.string())

    for role in roles[1:]:
        rows = rows.with_column(role, pc.if_else(removed, null, rows.values(role)))

    return keep(rows, ~(removed & _added(rows)), "data.llm_rows")


def with_another_anchor(rows: Rows) -> Rows:
    """Return the rows with the anchor of another row in place of each `ANOTHER_ANCHOR`.

    Call it separately for each side of a hold-out: negatives drawn over both would train on
    held-out sentences.
    """
    if "negative" not in rows.names:
        return rows

    negatives = rows.values("negative")
    waiting = pc.fill_null(pc.equal(negatives, ANOTHER_ANCHOR), False)
    places = np.flatnonzero(waiting.to_numpy())
    order = places[seeded_order(len(places), SEED)]
    anchor_of = np.arange(len(rows))
    anchor_of[order] = np.roll(order, -1)
    others = rows.values("anchor").take(anchor_of)

    return rows.with_column("negative", pc.if_else(waiting, others, negatives))


def seeded_order(count: int, seed: int) -> list[int]:
    """Return the numbers below ``count`` in a random order that depends only on the seed."""
    return list(torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist())


def _added(rows: Rows) -> np.ndarray:
    if "added" not in rows.column_names:
        return np.zeros(len(rows), dtype=bool)

    return np.asarray(rows.values("added").to_numpy())


def _units(rows: Rows, values: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Number distinct values by first appearance, separately for own and added rows; -1 marks the
    other rows.
    """
    added = _added(rows)
    units = np.full((2, len(rows)), -1)
    units[0, ~added] = first_appearance(values.filter(~added))
    units[1, added] = first_appearance(values.filter(added))

    return units[0], units[1]


def _count(units: np.ndarray) -> int:
    return int(units.max(initial=-1)) + 1


def _drawn(units: np.ndarray, count: int) -> np.ndarray:
    """Return whether each row belongs to one of ``count`` units, drawn at random: (rows,)."""
    return np.isin(units, seeded_order(_count(units), SEED)[:count])
