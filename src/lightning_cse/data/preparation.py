"""The steps from the sources of a data set to its training rows and held-out rows; each returns new
rows.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from lightning_cse.data.mapped import (
    LONG,
    first_appearance,
    hashed,
    hashes_of,
    marked,
    masked,
    taken,
    true_rows,
)
from lightning_cse.data.own import OwnFormat
from lightning_cse.data.roles import RANDOM_PAIR, OwnRows, RoleRows
from lightning_cse.data.rows import SOURCE, Rows
from lightning_cse.data.settings import ContrastiveData
from lightning_cse.data.sources import LEAK, all_pairs, free_of, read_sources, without_pairs
from lightning_cse.errors import ConfigError, DataError

SEED = 0
# A negative that `with_another_anchor` replaces after the hold-out.
ANOTHER_ANCHOR = "\0another anchor"


def used(rows: Rows) -> int:
    """Return how many corpus rows the training rows are made of."""
    last = pc.max(pc.list_flatten(rows.data.table.column("made_of"))).as_py()
    seen = np.zeros(1 if last is None else last + 1, dtype=bool)

    for part in rows.parts(LONG):
        seen[pc.list_flatten(part.values("made_of")).to_numpy()] = True

    return int(seen.sum())


def keep(rows: Rows, kept: np.ndarray, reason: str) -> Rows:
    """Return the rows where ``kept`` is true; corpus rows that are no longer used count as dropped
    for ``reason``.
    """
    if kept.all():
        return rows

    left = rows.select(true_rows(kept, rows.cache_dir))
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

    own, added = _units(rows, rows.hashes(of))
    total = _count(own)
    number = max(2, round(share * total)) if share else 0

    if number > total - 2:
        left = f"{share} of {total} sentences leaves too few on one side"
        raise DataError(f"data.held_out_share: {left}")

    apart = _drawn(own, number) | _drawn(added, round(share * _count(added)))

    return keep(rows, ~apart, "held out"), rows.select(true_rows(apart, rows.cache_dir))


def subset(rows: Rows, count: int) -> Rows:
    """Return ``count`` rows, own and added ones in proportion; rows made of the same corpus rows
    count as one.
    """
    numbers = pc.cast(rows.values("made_of"), pa.list_(pa.string()))
    own, added = _units(rows, hashes_of(pc.binary_join(numbers, " ")))
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
    bare = rows

    for role in roles[1:]:
        bare = bare.with_constant(role, None)

    # A row that loses its roles is a row of the same table without them.
    both = Rows.cat([rows, bare])
    chosen = both.select(np.arange(len(rows)) + len(rows) * removed)
    chosen.counts = dict(rows.counts)

    return keep(chosen, ~(removed & _added(rows)), "data.llm_rows")


def with_another_anchor(rows: Rows) -> Rows:
    """Return the rows with the anchor of another row in place of each `ANOTHER_ANCHOR`.

    Call it separately for each side of a hold-out: negatives drawn over both would train on
    held-out sentences.
    """
    if "negative" not in rows.names:
        return rows

    placeholder = hashed(ANOTHER_ANCHOR.encode())
    places = np.flatnonzero(rows.hashes("negative") == placeholder)

    if not len(places):
        return rows

    negatives = rows.values("negative")
    waiting = pc.fill_null(pc.equal(negatives, ANOTHER_ANCHOR), False)
    order = places[seeded_order(len(places), SEED)]
    anchor_of = np.arange(len(rows))
    anchor_of[order] = np.roll(order, -1)
    others = rows.values("anchor").take(anchor_of)

    return rows.with_column("negative", pc.if_else(waiting, others, negatives))


def with_random_seconds(rows: Rows) -> Rows:
    """Return the rows with the second sentence of a random pair in place of each one that is still
    to be drawn (`WrittenPairs`), of another first sentence.

    Call it separately for each side of a hold-out, as `with_another_anchor`.
    """
    if RANDOM_PAIR not in rows.names:
        return rows

    waiting = rows.values(RANDOM_PAIR).to_numpy()
    places, written = np.flatnonzero(waiting), np.flatnonzero(~waiting)
    firsts = rows.hashes("sentence1")
    if len(np.unique(firsts)) < 2:
        return rows.select(written)

    generator = torch.Generator().manual_seed(SEED)
    drawn = torch.randint(len(written), (len(places),), generator=generator).numpy()
    while (own := firsts[places] == firsts[written[drawn]]).any():
        drawn[own] = (drawn[own] + 1) % len(written)

    chosen = np.arange(len(rows))
    chosen[places] = written[drawn]

    return rows.with_column("sentence2", rows.values("sentence2").take(pa.array(chosen)))


def seeded_order(count: int, seed: int) -> np.ndarray:
    """Return the numbers below ``count`` in a random order that depends only on the seed."""
    # The order is the same in 32 bits, which take half the memory.
    kind = torch.int32 if count < 2**31 else torch.int64
    generator = torch.Generator().manual_seed(seed)

    return np.asarray(torch.randperm(count, generator=generator, dtype=kind).numpy())


def _added(rows: Rows) -> np.ndarray:
    if "added" not in rows.column_names:
        return np.zeros(len(rows), dtype=bool)

    return np.asarray(rows.values("added").to_numpy())


def _units(rows: Rows, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number distinct values by first appearance, separately for own and added rows; -1 marks the
    other rows.
    """
    if "added" not in rows.column_names:
        return first_appearance(hashes, rows.cache_dir), np.full(1, -1)

    added = _added(rows)
    parts = [masked(hashes, side, rows.cache_dir) for side in (~added, added)]
    own, others = (first_appearance(part, rows.cache_dir) for part in parts)

    return own, others


def _count(units: np.ndarray) -> int:
    return int(units.max(initial=-1)) + 1


def _drawn(units: np.ndarray, count: int) -> np.ndarray:
    """Return whether each row belongs to one of ``count`` units, drawn at random: (rows,)."""
    number = _count(units)
    is_drawn = marked(seeded_order(number, SEED)[:count], number + 1)  # the last is that of -1

    return taken(is_drawn, units, None)


@dataclass(frozen=True)
class Tables:
    """The tables that a data set reads, one per source; ``held_out`` is None if a share is held
    out.
    """

    train: list[Rows]
    held_out: list[Rows] | None
    excluded: list[Rows]
    watched_in: list[Rows]


def prepare(
    settings: ContrastiveData, tables: Tables, wanted: Sequence[str]
) -> tuple[Rows, Rows, tuple[str, ...]]:
    """Return training rows, held-out rows and their roles: built by the scheme of the data, split,
    and cut.
    """
    excluded = all_pairs(tables.excluded)
    clean = [without_pairs(table, excluded) for table in tables.train]
    train, roles = _built(settings, clean, wanted, "data.train")

    if tables.held_out is None:
        train, held_out = hold_out(train, settings.share, of=roles[0])
    else:
        held_out, _ = _built(settings, tables.held_out, wanted, "data.held_out")

    train = with_random_seconds(with_another_anchor(train))
    train = keep(train, free_of(train, excluded), LEAK)

    if settings.llm_rows is not None:
        train = fewer_llm_rows(train, settings.llm_rows, roles)

    if settings.train_rows is not None:
        train = subset(train, settings.train_rows)

    return train, with_random_seconds(with_another_anchor(held_out)), roles


def read_tables(
    settings: ContrastiveData,
    wanted: Sequence[str] = (),
    optional: Sequence[str] = (),
    train: list[Rows] | None = None,
) -> Tables:
    """Read the sources of a data set, those of ``train`` unless its tables are given; the roles
    that a method wants are named if a file does not fit.
    """
    takes = takes_of(wanted, optional)
    read = functools.partial(read_sources, data_dir=settings.data_dir)
    cache_dir = Path(settings.cache_dir).expanduser() if settings.cache_dir else None
    form = OwnFormat.of(settings)
    own = functools.partial(read, form=form, takes=takes, cache_dir=cache_dir)
    tables = own(settings.sources, key="data.train") if train is None else train
    excluded = settings.excluded
    watched_in = settings.watched_in

    if settings.is_weighted:
        tables = [table.with_constant(SOURCE, number) for number, table in enumerate(tables)]

    return Tables(
        tables,
        None if settings.held_out is None else own(settings.held_out, key="data.held_out"),
        read(excluded, key="data.excluded") if excluded else [],
        read(watched_in, key="data.watched_in") if watched_in else [],
    )


def takes_of(wanted: Sequence[str], optional: Sequence[str]) -> str:
    """Return which columns a method takes, for messages."""
    roles = [f"[{role}]" if role in optional else role for role in wanted]
    return f"the method reads {', '.join(roles)}" if roles else ""


def scheme_of(
    settings: ContrastiveData, tables: Sequence[Rows], wanted: Sequence[str], key: str
) -> RoleRows:
    """Return the scheme that makes training rows; that of the user's own files depends on their
    columns.
    """
    scheme = settings.rows
    return scheme.scheme(tables, wanted, key) if isinstance(scheme, OwnRows) else scheme


def _built(
    settings: ContrastiveData, tables: Sequence[Rows], wanted: Sequence[str], key: str
) -> tuple[Rows, tuple[str, ...]]:
    """Return training rows and their roles."""
    scheme = scheme_of(settings, tables, wanted, key)
    rows = scheme(tables)
    if not len(rows):
        raise DataError(f"{key}: {rows.origin}: no row fits the method: {rows.counts}")

    return rows, scheme.roles
