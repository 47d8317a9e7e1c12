"""The rows of a corpus: a `datasets.Dataset` with one column per role, and the file and line of
each row.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from datasets import Dataset
from datasets.fingerprint import generate_random_fingerprint
from datasets.table import InMemoryTable

from lightning_cse.data.cells import AT_ONCE
from lightning_cse.data.mapped import (
    blocks,
    first_appearance,
    gather,
    hashes_of,
    in_file,
    is_first,
    joined,
    marked,
    row_type,
    scratch,
    taken,
    true_rows,
)
from lightning_cse.errors import DataError
from lightning_cse.runs import public

# Where a row comes from.
PLACE = ("file", "line")
# The number of its source, if sources have weights.
SOURCE = "source"
# Of training rows: the corpus rows that each is made of, and whether `Hybrid` added it.
MADE_OF = ("made_of", "added")


@dataclass(frozen=True)
class SourceFile:
    """One file that rows were read from."""

    name: str  # its place in the official layout, such as INLI/train.csv (without .gz)
    path: str  # the absolute path of the opened file, or a name on the hub
    sha256: str  # of the uncompressed bytes, so that a plain file and its .gz are the same corpus


class Rows(Dataset):  # type: ignore[misc]  # datasets carries no types
    """A `datasets.Dataset` with one column per role, the ``file`` and ``line`` of each row, and an
    account of the rows.

    ``files`` lists the files that the rows come from; ``counts`` says how many were ``read`` and
    ``dropped: <reason>``. Rows are immutable: every method returns new ones. A choice of rows is a
    mapping of indices: the table itself is not copied, so that it can stay in memory-mapped files.

    Args:
        table: the table.
        files: the files of the rows.
        counts: the account; by default, all rows were read.
        numbers: the rows of the table that these are, in order; None: all of them.
        cache_dir: the folder of files for long arrays; None keeps them in memory.
    """

    def __init__(
        self,
        table: pa.Table,
        *,
        files: Iterable[SourceFile] = (),
        counts: Mapping[str, int] | None = None,
        numbers: np.ndarray | None = None,
        cache_dir: Path | None = None,
    ) -> None:
        indices = None
        if numbers is not None:
            numbers = in_file(numbers, row_type(len(table)), cache_dir)
            indices = InMemoryTable(pa.table({"indices": pa.array(numbers)}))

        # A fingerprint of the content would pickle all rows, and only matters for a dataset on
        # disk.
        super().__init__(
            InMemoryTable(table), indices_table=indices, fingerprint=generate_random_fingerprint()
        )
        self.numbers = numbers
        self.files: tuple[SourceFile, ...] = tuple(files)
        self.counts: dict[str, int] = {"read": len(self)} if counts is None else dict(counts)
        self.cache_dir = cache_dir

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Sequence[Any]],
        *,
        files: Sequence[SourceFile] = (),
        lines: Sequence[int] | None = None,
        counts: Mapping[str, int] | None = None,
        cache_dir: Path | None = None,
    ) -> Self:
        """Return rows with these columns, all from the first file (further ones hold other columns
        of the same rows).

        By default, the lines are 1, 2, 3, ..., and the account says that all rows were read.
        """
        length = len(next(iter(columns.values()), ()))
        arrays = {name: _array(values) for name, values in columns.items()}
        arrays["file"] = constant(files[0].path if files else "", length)
        arrays["line"] = _array(lines if lines is not None else range(1, length + 1), pa.int64())

        return cls(pa.table(arrays), files=files, counts=counts, cache_dir=cache_dir)

    @classmethod
    def read(
        cls,
        table: pa.Table,
        file: SourceFile,
        dropped: Mapping[str, int],
        cache_dir: Path | None = None,
    ) -> Self:
        """Return the rows of a table that was read from a file, with the column ``line``, and how
        many other rows were dropped for each reason.
        """
        rows = cls(
            table.append_column("file", constant(public(file.path), len(table))),
            files=[file],
            cache_dir=cache_dir,
        )
        rows.counts["read"] += sum(dropped.values())

        return rows.dropping(dropped)

    @classmethod
    def cat(cls, parts: Sequence[Self], *, fill: bool = False) -> Self:
        """Concatenate the rows of one or more tables, with the columns that all of them have.

        With ``fill``, all columns are kept, with null where a table lacks one.
        """
        shared = [
            name for name in parts[0].column_names if all(name in p.column_names for p in parts)
        ]
        tables = [part.data.table if fill else part.data.table.select(shared) for part in parts]
        counts: Counter[str] = Counter()

        for part in parts:
            counts.update(part.counts)

        return cls(
            pa.concat_tables(tables, promote_options="default"),
            files=dict.fromkeys(file for part in parts for file in part.files),
            counts=counts,
            numbers=_numbers(parts),
            cache_dir=parts[0].cache_dir,
        )

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table; those of a choice are copied."""
        return pa.table({name: self.values(name) for name in self.column_names})

    @property
    def whole(self) -> Self:
        """All rows of the table, of which these may be a choice."""
        return self._with(self.data.table, None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the corpus's own columns and the roles: all but those of a row's origin."""
        origin = (*PLACE, SOURCE, *MADE_OF)
        return tuple(name for name in self.column_names if name not in origin)

    @property
    def origin(self) -> str:
        """The names of the files, for messages."""
        return ", ".join(file.name for file in self.files) or "rows"

    def values(self, name: str) -> pa.ChunkedArray:
        """Return one column as an Arrow array, or raise DataError, which lists the columns there
        are; the values of a choice of rows are copied.
        """
        stored = self._stored(name)
        return stored if self.numbers is None else gather(stored, self.numbers, self.cache_dir)

    def column(self, name: str) -> list[Any]:
        """Return the values of one column as a list; raises like `values`."""
        return list(self.values(name).to_pylist())

    def has(self, *names: str) -> np.ndarray:
        """Return whether each row has a value in all of these columns: (rows,); raises like
        `values`.
        """
        valid = np.ones(len(self), dtype=bool)

        for name in names:
            stored = self._stored(name)
            if stored.null_count:
                valid &= self.chosen(stored.is_valid().to_numpy())

        return valid

    def hashes(self, name: str) -> np.ndarray:
        """Return a 64-bit hash of each value of a column of text, 0 for null: (rows,); raises like
        `values`.
        """
        return self.chosen(hashes_of(self._stored(name), self.cache_dir))

    def chosen(self, values: np.ndarray) -> np.ndarray:
        """Return the values of these rows, given one for each row of the table."""
        return values if self.numbers is None else taken(values, self.numbers, self.cache_dir)

    def distinct(self, name: str) -> np.ndarray:
        """Return the first row of each value of one column, in order, that of null before the
        others; raises like `values`.
        """
        codes = first_appearance(self.hashes(name), self.cache_dir)
        without = np.flatnonzero(codes < 0)[:1]
        first = true_rows(is_first(codes), self.cache_dir)

        return joined([(0, without), (0, first)], first.dtype, self.cache_dir)

    def where(self, index: int) -> str:
        """Return ``path:line`` of one row, for messages."""
        number = index if self.numbers is None else int(self.numbers[index])
        file, line = (self.data.column(name)[number].as_py() for name in PLACE)

        return f"{file}:{line}" if file else f"row {line}"

    def parts(self, size: int = AT_ONCE) -> Iterator[Self]:
        """Yield the rows as tables of this size."""
        for start in range(0, len(self), size):
            numbers = None if self.numbers is None else self.numbers[start : start + size]
            table = self.data.table if numbers is not None else self.data.table.slice(start, size)
            yield type(self)(table, files=self.files, numbers=numbers)

    def select(self, indices: Iterable[int], *, reason: str = "") -> Self:
        """Return the rows with these numbers, in this order; with a reason, the account counts the
        rest as dropped.
        """
        chosen = indices if isinstance(indices, np.ndarray) else np.array([*indices], np.int64)
        numbers = chosen if self.numbers is None else taken(self.numbers, chosen, self.cache_dir)
        rows = self._with(self.data.table, numbers)

        return rows.dropping({reason: len(self) - distinct_numbers(chosen)}) if reason else rows

    def renamed(self, **names: str) -> Self:
        """Return the same rows with these columns alone, by their new names; raises like `values`.

        Files, lines and account stay, and nothing is copied.
        """
        columns = {new: self._stored(old) for new, old in names.items()}
        places = {name: self._stored(name) for name in self._places()}

        return self._with(pa.table(columns | places), self.numbers)

    def with_columns(self, **columns: Sequence[Any]) -> Self:
        """Return the same rows with these columns in place of the old ones; files, lines and
        account stay.
        """
        arrays = {name: _array(values) for name, values in columns.items()}
        places = {name: self.values(name) for name in self._places()}

        return self._with(pa.table(arrays | places), None)

    def with_column(self, name: str, values: Any) -> Self:
        """Return the same rows with a column added or replaced: a value for each row."""
        array = _array(values)

        if self.numbers is None:
            return self._with_stored(name, array)

        if distinct_numbers(self.numbers) < len(self):  # a row twice, perhaps with two values
            return self._with(self.table, None)._with_stored(name, array)

        places = scratch(len(self.data), np.int64, self.cache_dir)
        places[:] = -1
        for block in blocks(len(self)):
            places[self.numbers[block]] = np.arange(block.start, block.stop)

        return self._with_stored(name, array.take(pa.array(places, mask=places < 0)))

    def with_constant(self, name: str, value: Any) -> Self:
        """Return the same rows with a column added or replaced that has one value, or null."""
        return self._with_stored(name, constant(value, len(self.data)))

    def dropping(self, counts: Mapping[str, int]) -> Self:
        """Return the same rows, with these numbers of dropped rows, by reason, added to the
        account.
        """
        total = Counter(self.counts)
        total.update({f"dropped: {reason}": int(n) for reason, n in counts.items() if n})
        rows = self._with(self.data.table, self.numbers)
        rows.counts = dict(total)

        return rows

    def _places(self) -> list[str]:
        return [name for name in (*PLACE, SOURCE) if name in self.column_names]

    def _stored(self, name: str) -> pa.ChunkedArray:
        """Return a column of the table, of which these rows may be a choice."""
        if name not in self.column_names:
            found = ", ".join(self.names)
            raise DataError(f"{self.origin}: no column {name!r}; found: {found}")

        return self.data.table.column(name)

    def _with_stored(self, name: str, array: pa.Array) -> Self:
        columns = dict(zip(self.column_names, self.data.table.columns, strict=True))
        return self._with(pa.table(columns | {name: array}), self.numbers)

    def _with(self, table: pa.Table, numbers: np.ndarray | None) -> Self:
        return type(self)(
            table, files=self.files, counts=self.counts, numbers=numbers, cache_dir=self.cache_dir
        )


def digests_of(tables: Iterable[Rows]) -> dict[str, str]:
    """Return the sha256 of every file that rows come from, by its name in the official layout."""
    return {file.name: file.sha256 for rows in tables for file in rows.files}


def constant(value: str | int | None, length: int) -> pa.ChunkedArray:
    """Return a column of one value, or of nulls, whose chunks share their memory."""
    kind = pa.int64() if isinstance(value, int) else pa.string()
    chunk = pa.repeat(pa.scalar(value, kind), min(length, AT_ONCE))
    chunks = [chunk.slice(0, length - start) for start in range(0, length, AT_ONCE)]

    return pa.chunked_array(chunks, kind)


def distinct_numbers(numbers: np.ndarray) -> int:
    """Return how many different numbers there are among some that are 0 or more."""
    return int(marked(numbers, int(numbers.max(initial=0)) + 1).sum())


def _numbers(parts: Sequence[Rows]) -> np.ndarray | None:
    """Return the numbers of the rows of several tables in all of these tables together."""
    if all(part.numbers is None for part in parts):
        return None

    numbers: list[tuple[int, np.ndarray | range]] = []
    start = 0

    for part in parts:
        numbers.append((start, range(len(part.data)) if part.numbers is None else part.numbers))
        start += len(part.data)

    return joined(numbers, row_type(start), parts[0].cache_dir)


def _array(values: Any, kind: pa.DataType | None = None) -> pa.Array:
    array = values
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        array = pa.array(values, kind)

    return array.cast(pa.string()) if pa.types.is_null(array.type) else array
