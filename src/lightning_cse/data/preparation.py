"""From the sources of a data set to its training rows and held-out rows."""

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import Dataset

from lightning_cse.data.corpora import read_sources
from lightning_cse.data.leaks import REASON, all_pairs, free_of
from lightning_cse.data.own_rows import OwnRows
from lightning_cse.data.rows import Account, made_of, origin_of, with_columns
from lightning_cse.data.settings import ContrastiveData
from lightning_cse.data.split import (
    fewer_llm_rows,
    hold_out,
    keep,
    subset,
    with_another_anchor,
    with_random_seconds,
)
from lightning_cse.errors import DataError


@dataclass(frozen=True)
class Tables:
    """The tables that a data set reads, one per source, and the account of those to train on;
    ``held_out`` is None if a share is held out.
    """

    train: list[Dataset]
    held_out: list[Dataset] | None
    excluded: list[Dataset]
    watched_in: list[Dataset]
    account: Account


def read_tables(
    settings: ContrastiveData, roles: Sequence[str] = (), optional: Sequence[str] = ()
) -> Tables:
    """Read the sources of a data set; the roles that a method wants are named if a file does not
    fit.
    """
    listing = ", ".join(f"[{role}]" if role in optional else role for role in roles)
    read = functools.partial(read_sources, data_dir=settings.data_dir)
    read_own = functools.partial(
        read,
        columns=settings.columns,
        takes=f"the method reads {listing}" if roles else "",
        cache_dir=Path(settings.cache_dir).expanduser() if settings.cache_dir else None,
    )
    account: Account = Counter()
    tables = read_own(settings.sources, key="data.train", account=account)

    return Tables(
        numbered(tables),
        None
        if settings.held_out is None
        else numbered(read_own(settings.held_out, key="data.held_out")),
        read(settings.excluded, key="data.excluded") if settings.excluded else [],
        read(settings.watched_in, key="data.watched_in") if settings.watched_in else [],
        account,
    )


def prepare(
    settings: ContrastiveData, tables: Tables, method_roles: Sequence[str]
) -> tuple[Dataset, Dataset, tuple[str, ...]]:
    """Return training rows, held-out rows and their roles: built by the scheme of the data, split,
    and cut.
    """
    account = tables.account
    excluded = all_pairs(tables.excluded)
    clean = [keep(table, free_of(table, excluded), REASON, account) for table in tables.train]
    train, roles = _built(settings, clean, method_roles, "data.train", account)

    if tables.held_out is None:
        train, held_out = hold_out(train, settings.share, of=roles[0], account=account)
    else:
        held_out, _ = _built(settings, tables.held_out, method_roles, "data.held_out", Counter())

    train = with_random_seconds(with_another_anchor(train))
    train = keep(train, free_of(train, excluded), REASON, account)

    if settings.llm_rows is not None:
        train = fewer_llm_rows(train, settings.llm_rows, roles, account)

    if settings.train_rows is not None:
        train = subset(train, settings.train_rows, account)

    return train, with_random_seconds(with_another_anchor(held_out)), roles


def numbered(tables: Sequence[Dataset]) -> list[Dataset]:
    """Return the tables with the numbers of their rows in all tables together."""
    numbered = []
    start = 0

    for table in tables:
        numbers = np.arange(start, start + len(table))
        numbered.append(with_columns(table, made_of=made_of(numbers[:, None])))
        start += len(table)

    return numbered


def _built(
    settings: ContrastiveData,
    tables: Sequence[Dataset],
    method_roles: Sequence[str],
    key: str,
    account: Account,
) -> tuple[Dataset, tuple[str, ...]]:
    """Return training rows and their roles."""
    scheme = settings.rows
    if isinstance(scheme, OwnRows):  # what it makes depends on the columns of the files
        scheme = scheme.scheme(tables, method_roles, key)

    rows = scheme(tables, account)
    if not len(rows):
        raise DataError(f"{key}: {origin_of(rows)}: no row fits the method: {dict(account)}")

    return rows, scheme.roles
