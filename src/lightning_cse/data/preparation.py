"""The steps from the sources of a data set to its training rows and held-out rows; each returns new
rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightning_cse.data.drawing import (
    fewer_llm_rows,
    hold_out,
    keep,
    subset,
    with_another_anchor,
)
from lightning_cse.data.own_rows import OwnRows
from lightning_cse.data.roles import SOURCE
from lightning_cse.data.rows import Rows
from lightning_cse.data.settings import ContrastiveData
from lightning_cse.data.sources import (
    LEAK,
    all_pairs,
    free_of,
    read_sources,
    without_pairs,
)
from lightning_cse.errors import DataError


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
    settings: ContrastiveData,
    tables: Tables,
    wanted: Sequence[str],
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

    train = with_another_anchor(train)
    train = keep(train, free_of(train, excluded), LEAK)

    if settings.llm_rows is not None:
        train = fewer_llm_rows(train, settings.llm_rows, roles)

    if settings.train_rows is not None:
        train = subset(train, settings.train_rows)

    return train, with_another_anchor(held_out), roles


def read_tables(
    settings: ContrastiveData,
    wanted: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> Tables:
    """Read the sources of a data set; the roles that a method wants are named if a file does not
    fit.
    """
    roles = [f"[{role}]" if role in optional else role for role in wanted]
    takes = f"the method reads {', '.join(roles)}" if roles else ""

    def read(sources: str | Sequence[str] | None, key: str, **options: Any) -> list[Rows]:
        return read_sources(sources, settings.data_dir, key=key, **options) if sources else []

    own: dict[str, Any] = {"columns": settings.columns, "takes": takes}
    train = read_sources(settings.sources, settings.data_dir, key="data.train", **own)

    if settings.is_weighted:
        train = [
            table.with_column(SOURCE, [number] * len(table)) for number, table in enumerate(train)
        ]

    return Tables(
        train,
        None if settings.held_out is None else read(settings.held_out, "data.held_out", **own),
        read(settings.excluded, "data.excluded"),
        read(settings.watched_in, "data.watched_in"),
    )


def _built(
    settings: ContrastiveData,
    tables: Sequence[Rows],
    wanted: Sequence[str],
    key: str,
) -> tuple[Rows, tuple[str, ...]]:
    """Return training rows and their roles; those of the user's own files depend on the columns."""
    scheme = settings.rows
    if isinstance(scheme, OwnRows):
        scheme = scheme.scheme(tables, wanted, key)

    rows = scheme(tables)
    if not len(rows):
        raise DataError(f"{key}: {rows.origin}: no row fits the method: {rows.counts}")

    return rows, scheme.roles
