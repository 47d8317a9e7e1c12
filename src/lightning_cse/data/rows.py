"""The rows of a corpus: a `datasets.Dataset` with one column per role, and the file and line of
each row.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from datasets import Dataset
from datasets.fingerprint import generate_random_fingerprint
from datasets.table import InMemoryTable

from lightning_cse.errors import DataError

# Where a row comes from.
PLACE = ("file", "line")
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
    ``dropped: <reason>``. Rows are immutable: every method returns new ones.
    """

    def __init__(
        self,
        table: pa.Table,
        *,
        files: Iterable[SourceFile] = (),
        counts: Mapping[str, int] | None = None,
    ) -> None:
        # A fingerprint of the content would pickle all rows, and only matters for a dataset on
        # disk.
        super().__init__(InMemoryTable(table), fingerprint=generate_random_fingerprint())
        self.files: tuple[SourceFile, ...] = tuple(files)
        self.counts: dict[str, int] = {"read": len(self)} if counts is None else dict(counts)

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Sequence[Any]],
        *,
        files: Sequence[SourceFile] = (),
        lines: Sequence[int] | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> Self:
        """Return rows with these columns, all from the first file (further ones hold other columns
        of the same rows).

        By default, the lines are 1, 2, 3, ..., and the account says that all rows were read.
        """
        length = len(next(iter(columns.values()), ()))
        arrays = {name: _array(values) for name, values in columns.items()}
        arrays["file"] = pa.repeat(files[0].path if files else "", length)
        arrays["line"] = pa.array(lines or range(1, length + 1), pa.int64())

        return cls(pa.table(arrays), files=files, counts=counts)

    @classmethod
    def cat(cls, parts: Sequence[Self], *, fill: bool = False) -> Self:
        """Concatenate the rows of one or more tables, with the columns that all of them have.

        With ``fill``, all columns are kept, with null where a table lacks one.
        """
        shared = [
            name for name in parts[0].column_names if all(name in p.column_names for p in parts)
        ]
        tables = [part.table if fill else part.table.select(shared) for part in parts]
        counts: Counter[str] = Counter()

        for part in parts:
            counts.update(part.counts)

        files = dict.fromkeys(file for part in parts for file in part.files)

        return cls(pa.concat_tables(tables, promote_options="default"), files=files, counts=counts)

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self.data.table

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the corpus's own columns and the roles: all but `PLACE` and `MADE_OF`."""
        return tuple(name for name in self.column_names if name not in (*PLACE, *MADE_OF))

    @property
    def origin(self) -> str:
        """The names of the files, for messages."""
        return ", ".join(file.name for file in self.files) or "rows"

    def values(self, name: str) -> pa.ChunkedArray:
        """Return one column as an Arrow array, or raise DataError, which lists the columns there
        are.
        """
        if name not in self.column_names:
            found = ", ".join(self.names)
            raise DataError(f"{self.origin}: no column {name!r}; found: {found}")

        return self.table.column(name)

    def column(self, name: str) -> list[Any]:
        """Return the values of one column as a list; raises like `values`."""
        return list(self.values(name).to_pylist())

    def has(self, *names: str) -> np.ndarray:
        """Return whether each row has a value in all of these columns: (rows,); raises like
        `values`.
        """
        valid = np.ones(len(self), dtype=bool)

        for name in names:
            valid &= self.values(name).is_valid().to_numpy()

        return valid

    def distinct(self, name: str) -> np.ndarray:
        """Return the first row of each value of one column, in order; raises like `values`."""
        return np.unique(first_appearance(self.values(name)), return_index=True)[1]

    def where(self, index: int) -> str:
        """Return ``path:line`` of one row, for messages."""
        file, line = (self.table.column(name)[index].as_py() for name in PLACE)

        return f"{file}:{line}" if file else f"row {line}"

    def select(self, indices: Iterable[int], *, reason: str = "") -> Self:
        """Return the rows with these numbers, in this order; with a reason, the account counts the
        rest as dropped.
        """
        chosen = pa.array(indices, pa.int64())
        rows = self._with(self.table.take(chosen))

        return rows.dropping({reason: len(self) - len(chosen.unique())}) if reason else rows

    def with_columns(self, **columns: Sequence[Any]) -> Self:
        """Return the same rows with these columns in place of the old ones; files, lines and
        account stay.
        """
        arrays = {name: _array(values) for name, values in columns.items()}
        places = {name: self.table.column(name) for name in PLACE}

        return self._with(pa.table(arrays | places))

    def with_column(self, name: str, values: Any) -> Self:
        """Return the same rows with a column added or replaced."""
        columns = dict(zip(self.column_names, self.table.columns, strict=True))

        return self._with(pa.table(columns | {name: _array(values)}))

    def dropping(self, counts: Mapping[str, int]) -> Self:
        """Return the same rows, with these numbers of dropped rows, by reason, added to the
        account.
        """
        total = Counter(self.counts)
        total.update({f"dropped: {reason}": int(n) for reason, n in counts.items() if n})

        return type(self)(self.table, files=self.files, counts=total)

    def _with(self, table: pa.Table) -> Self:
        return type(self)(table, files=self.files, counts=self.counts)


def digests_of(tables: Iterable[Rows]) -> dict[str, str]:
    """Return the sha256 of every file that rows come from, by its name in the official layout."""
    return {file.name: file.sha256 for rows in tables for file in rows.files}


def first_appearance(values: pa.ChunkedArray) -> np.ndarray:
    """Number distinct values in the order in which they first appear; -1 for null: (rows,)."""
    indices = values.combine_chunks().dictionary_encode().indices

    return np.asarray(indices.fill_null(-1).to_numpy())


def _array(values: Any) -> pa.Array:
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array
