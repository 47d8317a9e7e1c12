"""What the rows of a `datasets.Dataset` come from, and its columns as arrays.

A dataset of this package has one column per role, and for each row the ``file`` and ``line`` it
comes from. ``info.download_checksums`` has the files.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from datasets import Dataset
from datasets.fingerprint import Hasher
from datasets.table import InMemoryTable

from lightning_cse.errors import DataError

BATCH = 10_000  # rows that are handled at once

FILE, LINE = "file", "line"
"""Where a row comes from."""
MADE_OF = "made_of"
"""The numbers of the corpus rows that a training row is made of."""
ADDED = "added"
"""Whether `Hybrid` added the row to its corpus."""
ORIGIN = (FILE, LINE, MADE_OF)
"""The columns that go with a row, whatever its sentences become."""

Account = Counter[str]
"""How many rows were ``read``, and how many ``dropped: <reason>``."""


@dataclass(frozen=True)
class SourceFile:
    """One file that rows were read from."""

    name: str  # its place in the official layout, such as INLI/train.csv (without .gz)
    path: str  # the absolute path of the opened file, or a name on the hub
    sha256: str  # of the uncompressed bytes, so that a plain file and its .gz are the same corpus


def count_dropped(account: Account, counts: Mapping[str, int]) -> None:
    """Add numbers of dropped rows, by reason, to an account."""
    account.update({f"dropped: {reason}": int(count) for reason, count in counts.items() if count})


# Datasets from columns and from other datasets ---------------------------------------------------


def dataset_of(
    columns: Mapping[str, Any],
    *,
    files: Iterable[SourceFile] = (),
    lines: Sequence[int] | None = None,
) -> Dataset:
    """Return a dataset in memory with these columns, and the ``file`` and ``line`` of each row
    unless they are among them: the first file, and the lines 1, 2, ... by default.
    """
    files = tuple(files)
    arrays = {name: _array(column) for name, column in columns.items()}
    length = len(next(iter(arrays.values()), ()))

    if FILE not in arrays:
        arrays[FILE] = _array([files[0].path if files else ""] * length, pa.string())
        arrays[LINE] = _array(range(1, length + 1) if lines is None else lines, pa.int64())

    return with_files(Dataset(InMemoryTable(pa.table(arrays))), files)


def with_files(rows: Dataset, files: Iterable[SourceFile]) -> Dataset:
    """Return the same rows with these files in place of those they had."""
    rows = rows.select_columns(rows.column_names)  # a copy, with an `info` of its own
    rows.info.download_checksums = {
        file.name: {"path": file.path, "checksum": file.sha256} for file in files
    }

    return rows


def concatenate(parts: Sequence[Dataset], *, fill: bool = False) -> Dataset:
    """Return the rows of all parts, with the columns that all of them have.

    With ``fill``, all columns are kept, with null where a part lacks one.
    """
    columns = [name for name in parts[0].column_names if all(name in p.column_names for p in parts)]
    chosen = list(parts) if fill else [part.select_columns(columns) for part in parts]
    rows = datasets.concatenate_datasets(chosen)

    # `datasets` leaves out parts without rows, and with them the columns that no other part has.
    types = {field.name: field.type for part in chosen for field in part.data.schema}
    lacking = {name: pa.nulls(len(rows), types[name]) for name in types.keys() - rows.column_names}
    if lacking:
        rows = with_columns(rows, **lacking)

    return with_files(rows, files_of(*parts))


def beside(*parts: Dataset) -> Dataset:
    """Return the columns of all parts, which have equally many rows."""
    if not len(parts[0]):  # `datasets` would leave out parts without rows
        columns = {name: values(part, name) for part in parts for name in part.column_names}
        return with_files(Dataset(InMemoryTable(pa.table(columns))), files_of(*parts))

    flat = [flattened(part) for part in parts]

    return with_files(datasets.concatenate_datasets(flat, axis=1), files_of(*parts))


def with_columns(rows: Dataset, **columns: Any) -> Dataset:
    """Return the rows with columns added or replaced: a value for each row."""
    remaining = rows.remove_columns([name for name in columns if name in rows.column_names])
    arrays = {name: _array(column) for name, column in columns.items()}

    return beside(remaining, Dataset(InMemoryTable(pa.table(arrays))))


def with_constant(rows: Dataset, name: str, value: str | int | None) -> Dataset:
    """Return the rows with a column added or replaced that has one value, or null."""
    table = _whole(rows.remove_columns(name) if name in rows.column_names else rows)
    scalar = pa.scalar(value, pa.int64() if isinstance(value, int) else pa.string())
    column = pa.table({name: pa.repeat(scalar, len(table))})
    fingerprint = Hasher.hash((name, value, len(table)))

    return _chosen_like(
        rows, beside(table, Dataset(InMemoryTable(column), fingerprint=fingerprint))
    )


def renamed(rows: Dataset, **names: str) -> Dataset:
    """Return the rows with these columns alone, by their new names, and their origin.

    A column may have several new names; nothing is copied.

    Raises:
        DataError: if there is no such column.
    """
    table = _whole(rows)
    parts = [table.select_columns([name for name in ORIGIN if name in rows.column_names])]

    for new, old in names.items():
        check_column(rows, old)
        column = table.select_columns(old)
        parts.append(column if new == old else column.rename_column(old, new))

    return _chosen_like(rows, beside(*parts))


def flattened(rows: Dataset) -> Dataset:
    """Return the rows as a table of their own, if they are a choice from another: in memory, or in
    a file beside that of a memory-mapped table.
    """
    if _numbers(rows) is None:
        return rows

    if rows.cache_files:
        return rows.flatten_indices()

    table = pa.table({name: values(rows, name) for name in rows.column_names})

    return with_files(Dataset(InMemoryTable(table)), files_of(rows))


def _whole(rows: Dataset) -> Dataset:
    """Return all rows of the table of which these are a choice."""
    if _numbers(rows) is None:
        return rows

    return Dataset(rows.data, info=rows.info.copy(), fingerprint=Hasher.hash(rows._fingerprint))


def _chosen_like(rows: Dataset, table: Dataset) -> Dataset:
    """Return the rows of a table that other rows have of theirs."""
    numbers = _numbers(rows)
    return table if numbers is None else table.select(numbers)


def _array(column: Any, type_: pa.DataType | None = None) -> pa.Array | pa.ChunkedArray:
    is_array = isinstance(column, pa.Array | pa.ChunkedArray)
    array = column if is_array else pa.array(column, type_)

    return array.cast(pa.string()) if pa.types.is_null(array.type) else array


# Origin ------------------------------------------------------------------------------------------


def names_of(rows: Dataset) -> list[str]:
    """Return the columns of a corpus and the roles: all but those of a row's origin."""
    return [name for name in rows.column_names if name not in (*ORIGIN, ADDED)]


def files_of(*parts: Dataset) -> list[SourceFile]:
    """Return the files that rows come from, each once."""
    files = [
        SourceFile(name, file["path"], file["checksum"])
        for part in parts
        for name, file in (part.info.download_checksums or {}).items()
    ]

    return list(dict.fromkeys(files))


def digests_of(parts: Iterable[Dataset]) -> dict[str, str]:
    """Return the sha256 of every file that rows come from, by its name in the official layout."""
    return {file.name: file.sha256 for file in files_of(*parts)}


def origin_of(rows: Dataset) -> str:
    """Return the names of the files of rows, for messages."""
    return ", ".join(file.name for file in files_of(rows)) or "rows"


def where(rows: Dataset, index: int) -> str:
    """Return ``path:line`` of one row, for messages."""
    row = rows.select_columns([FILE, LINE])[index]
    return f"{row[FILE]}:{row[LINE]}" if row[FILE] else f"row {row[LINE]}"


# Columns as arrays -------------------------------------------------------------------------------


def values(rows: Dataset, name: str) -> pa.ChunkedArray:
    """Return a column as an Arrow array; raises like `check_column`."""
    check_column(rows, name)
    numbers = _numbers(rows)
    stored = rows.data.column(name)

    return stored if numbers is None else stored.take(pa.array(numbers))


def check_column(rows: Dataset, name: str) -> None:
    """Raise DataError, which lists the columns, if rows have none of this name."""
    if name not in rows.column_names:
        columns = ", ".join(names_of(rows))
        raise DataError(f"{origin_of(rows)}: no column {name!r}; found: {columns}")


def has(rows: Dataset, *names: str) -> np.ndarray:
    """Return whether each row has a value in all of these columns: (rows,); raises like
    `check_column`.
    """
    valid = np.ones(len(rows), dtype=bool)

    for name in names:
        check_column(rows, name)
        stored = rows.data.column(name)
        if stored.null_count:
            valid &= _of_rows(rows, stored.is_valid().to_numpy())

    return valid


def hashes(rows: Dataset, name: str) -> np.ndarray:
    """Return a 64-bit hash of each value of a column of text, 0 for null: (rows,); raises like
    `check_column`.
    """
    check_column(rows, name)
    return _of_rows(rows, hashes_of(rows.data.column(name)))


def hashes_of(
    texts: pa.ChunkedArray, normalise: Callable[[pa.Array], pa.Array] = lambda batch: batch
) -> np.ndarray:
    """Return a 64-bit hash of each text, after it is normalised, and 0 for null: (texts,)."""
    parts = [np.empty(0, np.uint64)]

    for chunk in texts.chunks:
        for start in range(0, len(chunk), BATCH):
            batch = normalise(chunk.slice(start, BATCH)).to_pylist()
            parts.append(np.fromiter(map(hash_of, batch), np.uint64, len(batch)))

    return np.concatenate(parts)


def hash_of(text: str | None) -> int:
    """Return a 64-bit hash of a text that is never 0, and 0 for None."""
    return 0 if text is None else xxhash.xxh3_64_intdigest(text.encode()) or 1


def first_appearance(hashed: np.ndarray) -> np.ndarray:
    """Number distinct hashes in the order in which they first appear; -1 for 0: (rows,)."""
    codes = np.full(len(hashed), -1)
    codes[hashed != 0] = pd.factorize(hashed[hashed != 0])[0]

    return codes


def distinct(rows: Dataset, name: str) -> np.ndarray:
    """Return the first row of each value of a column of text, in order; raises like
    `check_column`.
    """
    hashed = hashes(rows, name)
    return np.flatnonzero((hashed != 0) & ~pd.Series(hashed).duplicated().to_numpy())


def made_of(numbers: np.ndarray) -> pa.ListArray:
    """Return a column that says of which corpus rows each training row is made.

    Args:
        numbers: the numbers of the corpus rows: (rows, corpus rows per row).
    """
    ends = np.arange(0, numbers.size + 1, numbers.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(ends, numbers.astype(np.int32).ravel())


def count_corpus_rows(rows: Dataset) -> int:
    """Return how many corpus rows the training rows are made of."""
    numbers = pc.list_flatten(values(rows, MADE_OF)).to_numpy()
    is_used = np.zeros(numbers.max(initial=-1) + 1, dtype=bool)
    is_used[numbers] = True

    return int(is_used.sum())


def _numbers(rows: Dataset) -> np.ndarray | None:
    """Return which rows of its table a dataset has; None: all."""
    indices = rows._indices  # `datasets` has no public name for it
    return None if indices is None else indices.column(0).to_numpy()


def _of_rows(rows: Dataset, stored: np.ndarray) -> np.ndarray:
    """Return the values of rows, given one for each row of their table."""
    numbers = _numbers(rows)
    return stored if numbers is None else stored[numbers]
