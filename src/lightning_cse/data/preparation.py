"""The steps from the sources of a data set to its training rows and held-out rows; each returns new rows."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
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
    warn_without_pairs,
    without_pairs,
)
from lightning_cse.data.token_cache import slices
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.tokens import Tokenize

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tables:
    """The tables that a data set reads, one per source; ``held_out`` is None if a share is held out."""

    train: list[Rows]
    held_out: list[Rows] | None
    excluded: list[Rows]
    watched_in: list[Rows]


@dataclass(frozen=True)
class Prepared:
    """Rows to train on and held-out rows, with the roles that they have."""

    train: Rows
    held_out: Rows
    roles: tuple[str, ...]


def prepare(
    settings: ContrastiveData,
    tables: Tables,
    tokenize: Tokenize,
    wanted: Sequence[str],
    optional: Sequence[str],
) -> Prepared:
    """Return the rows of a data set: built by its scheme, split, cut to the rows that are asked for, and augmented."""
    excluded = all_pairs(tables.excluded)
    scheme = _scheme(
        settings,
        tables.train,
        wanted,
        optional,
        "data.train",
    )
    rows = scheme([without_pairs(table, excluded) for table in tables.train])

    if tables.held_out is not None:
        of_held_out = _scheme(
            settings,
            tables.held_out,
            wanted,
            optional,
            "data.held_out",
        )
        held_out = of_held_out(tables.held_out)
    else:
        rows, held_out = hold_out(
            rows,
            settings.share,
            of=scheme.roles[0],
        )

    rows = cut(
        with_another_anchor(rows),
        settings,
        excluded,
        scheme.roles,
    )
    prepared = Prepared(
        rows,
        with_another_anchor(held_out),
        scheme.roles,
    )

    if settings.augmentation is None:
        return prepared

    return augment(
        prepared,
        settings.augmentation,
        tokenize,
    )


def read_tables(
    settings: ContrastiveData,
    wanted: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> Tables:
    """Read the sources of a data set; the roles that a method wants are named if a file does not fit."""
    roles = [f"[{role}]" if role in optional else role for role in wanted]
    takes = f"the method reads {', '.join(roles)}" if roles else ""

    def read_own(sources: str | Sequence[str], key: str) -> list[Rows]:
        return read_sources(
            sources,
            Path(settings.data_dir),
            key=key,
            columns=settings.columns,
            takes=takes,
        )

    def read(sources: Sequence[str], key: str) -> list[Rows]:
        return read_sources(
            sources,
            Path(settings.data_dir),
            key=key,
            may_be_empty=True,
        )

    train = read_own(settings.sources, "data.train")
    if settings.is_weighted:
        train = [
            table.with_column(SOURCE, [number] * len(table)) for number, table in enumerate(train)
        ]

    held_out = None
    if settings.held_out is not None:
        held_out = read_own(settings.held_out, "data.held_out")

    excluded = read(settings.excluded, "data.excluded")
    warn_without_pairs(
        excluded,
        train,
        own=isinstance(settings.rows, OwnRows),
    )

    try:
        watched_in = read(settings.watched_in, "data.watched_in")
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
    """Return the scheme that makes training rows; that of the user's own files depends on their columns."""
    if isinstance(settings.rows, OwnRows):
        return settings.rows.scheme(
            tables,
            wanted,
            optional,
            key,
        )

    return settings.rows


def cut(
    rows: Rows,
    settings: ContrastiveData,
    excluded: set[str],
    roles: Sequence[str],
) -> Rows:
    """Return the rows without the pairs of dev and test sets, with as many LLM rows and rows as the settings say."""
    rows = keep(
        rows,
        free_of(rows, excluded),
        LEAK,
    )
    leaks = rows.counts.get(f"dropped: {LEAK}", 0)

    if leaks:
        log.info(
            "%d training rows have a sentence pair of %s and are left out",
            leaks,
            ", ".join(settings.excluded),
        )

    if settings.llm_rows is not None:
        rows = fewer_llm_rows(
            rows,
            settings.llm_rows,
            roles,
        )

    if settings.train_rows is not None:
        rows = subset(rows, settings.train_rows)

    return rows


def augment(
    prepared: Prepared,
    augmentation: Augmentation,
    tokenize: Tokenize,
) -> Prepared:
    """Give every row, trained on or held out, an augmented anchor as its positive; LLM rows are a ConfigError."""
    if "negative" in prepared.roles:
        raise ConfigError(["data.augmentation: LLM rows already have a positive; set it to null"])

    def augmented(rows: Rows) -> Rows:
        positives: list[str] = []
        for anchors in slices(rows.values("anchor")):
            views = [
                augmentation(ids, anchor)
                for ids, anchor in zip(tokenize(anchors), anchors, strict=True)
            ]
            positives += tokenize.decode(views)

        return rows.with_columns(
            anchor=rows.values("anchor"),
            positive=positives,
            made_of=rows.values("made_of"),
        )

    return Prepared(
        augmented(prepared.train),
        augmented(prepared.held_out),
        ("anchor", "positive"),
    )
