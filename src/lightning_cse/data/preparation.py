"""The steps from the sources of a data set to its training rows and held-out rows; each returns new
rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lightning_cse.data.drawing import (
    fewer_llm_rows,
    hold_out,
    keep,
    subset,
    with_another_anchor,
)
from lightning_cse.data.own_rows import OwnRows
from lightning_cse.data.roles import SOURCE, RoleRows
from lightning_cse.data.rows import Rows
from lightning_cse.data.settings import Augmentation, ContrastiveData
from lightning_cse.data.sources import (
    LEAK,
    all_pairs,
    free_of,
    read_sources,
    without_pairs,
)
from lightning_cse.data.token_cache import slices
from lightning_cse.errors import DataError
from lightning_cse.tokens import Tokenize


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
    optional: Sequence[str],
) -> tuple[Rows, Rows, tuple[str, ...]]:
    """Return training rows, held-out rows and their roles: built by the scheme of the data, split,
    and cut.
    """
    excluded = all_pairs(tables.excluded)
    scheme = _scheme(
        settings,
        tables.train,
        wanted,
        optional,
        "data.train",
    )
    train = scheme([without_pairs(table, excluded) for table in tables.train])
    _check_not_empty(
        train,
        tables.train,
        "data.train",
    )

    if tables.held_out is None:
        train, held_out = hold_out(
            train,
            settings.share,
            of=scheme.roles[0],
        )
    else:
        of_held_out = _scheme(
            settings,
            tables.held_out,
            wanted,
            optional,
            "data.held_out",
        )
        held_out = of_held_out(tables.held_out)
        _check_not_empty(
            held_out,
            tables.held_out,
            "data.held_out",
        )

    train = with_another_anchor(train)
    train = keep(
        train,
        free_of(train, excluded),
        LEAK,
    )

    if settings.llm_rows is not None:
        train = fewer_llm_rows(
            train,
            settings.llm_rows,
            scheme.roles,
        )

    if settings.train_rows is not None:
        train = subset(train, settings.train_rows)

    return train, with_another_anchor(held_out), scheme.roles


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

    data_dir = Path(settings.data_dir)
    read = partial(
        read_sources,
        data_dir=data_dir,
        may_be_empty=True,
    )
    read_own = partial(
        read_sources,
        data_dir=data_dir,
        columns=settings.columns,
        takes=takes,
    )

    train = read_own(settings.sources, key="data.train")

    if settings.is_weighted:
        train = [
            table.with_column(SOURCE, [number] * len(table)) for number, table in enumerate(train)
        ]

    held_out = None
    if settings.held_out is not None:
        held_out = read_own(settings.held_out, key="data.held_out")

    excluded = read(settings.excluded, key="data.excluded")

    try:
        watched_in = read(settings.watched_in, key="data.watched_in")
    except DataError as error:
        do = "data.watched_in=[] watches the first held-out rows instead"
        raise DataError(f"{error}\n  {do}") from None

    return Tables(
        train,
        held_out,
        excluded,
        watched_in,
    )


def _scheme(
    settings: ContrastiveData,
    tables: Sequence[Rows],
    wanted: Sequence[str],
    optional: Sequence[str],
    key: str,
) -> RoleRows:
    """Return the scheme that makes training rows; that of the user's own files depends on their
    columns.
    """
    if isinstance(settings.rows, OwnRows):
        return settings.rows.scheme(
            tables,
            wanted,
            optional,
            key,
        )

    return settings.rows


def _check_not_empty(
    rows: Rows,
    tables: Sequence[Rows],
    key: str,
) -> None:
    if len(rows):
        return

    account = ", ".join(f"{count} {what}" for what, count in rows.counts.items())
    found = ", ".join(tables[0].names)
    raise DataError(f"{key}: {rows.origin}: no row fits the method: {account}; columns: {found}")


def augment(
    rows: Rows,
    augmentation: Augmentation,
    tokenize: Tokenize,
) -> Rows:
    """Return the rows with an augmented anchor as the positive of each."""
    positives: list[str] = []

    for anchors in slices(rows.values("anchor")):
        ids = tokenize(anchors)
        positives += tokenize.decode(
            list(
                map(
                    augmentation,
                    ids,
                    anchors,
                )
            )
        )

    return rows.with_columns(
        anchor=rows.values("anchor"),
        positive=positives,
        made_of=rows.values("made_of"),
    )
