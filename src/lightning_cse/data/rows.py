"""The rows of a corpus: sentences by role, and where in which file each of them stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from lightning_cse.errors import DataError, did_you_mean

Row = dict[str, Any]


@dataclass(frozen=True)
class SourceFile:
    """One file that rows were read from.

    Attributes:
        name: Its place in the official layout, such as ``INLI/train.csv`` (without ``.gz``).
        path: The file that was opened, absolute; for rows from the hub a text that says so.
        sha256: Digest of the uncompressed bytes, so that a plain file and its ``.gz`` are the same corpus.
    """

    name: str
    path: str
    sha256: str


class Rows(Sequence[Row]):
    """Rows by number and by column; each knows the line it comes from.

    Rows never change: :meth:`select` and slices make new ones, which keep the files and the account of the reading.

    Args:
        columns: Column name to values, all of one length.
        files: The files the rows come from.
        origins: For each row, its file (an index into ``files``) and its line; by default row i is line i + 1 of the
            first file.
        counts: How many rows were read, and dropped for which reason; by default ``{"read": number of rows}``.

    Raises:
        ValueError: If the columns differ in length, or origins name no file.

    Example:
        >>> file = SourceFile("INLI/val.csv", "/data/INLI/val.csv", sha256="")
        >>> rows = Rows({"premise": ["It rained.", "Tea?"]}, files=[file])
        >>> rows[1], rows.where(1), len(rows[:1])
        ({'premise': 'Tea?'}, '/data/INLI/val.csv:2', 1)
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[str | float | None]],
        *,
        files: Iterable[SourceFile] = (),
        origins: Iterable[tuple[int, int]] | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        self._columns: dict[str, tuple[Any, ...]] = {name: tuple(values) for name, values in columns.items()}
        self.files = tuple(files)
        lengths = {name: len(values) for name, values in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of one length are needed, got {lengths}")
        self._length = next(iter(lengths.values()), 0)
        self._origins = tuple((0, i + 1) for i in range(self._length)) if origins is None else tuple(origins)
        if len(self._origins) != self._length:
            raise ValueError(f"{self._length} rows need as many origins, got {len(self._origins)}")
        if origins is not None and any(not 0 <= file < len(self.files) for file, _ in self._origins):
            raise ValueError(f"an origin names a file that is not there; there are {len(self.files)} files")
        self.counts: dict[str, int] = {"read": self._length} if counts is None else dict(counts)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self._columns)

    def column(self, name: str) -> list[Any]:
        """Return the values of one column, row by row.

        Raises:
            DataError: If there is no such column; the message lists those there are.
        """
        if name not in self._columns:
            files = ", ".join(file.name for file in self.files) or "rows"
            raise DataError(
                f"{files}: no column {name!r}{did_you_mean(name, self._columns)}; there are: {', '.join(self._columns)}"
            )
        return list(self._columns[name])

    def where(self, index: int) -> str:
        """Return ``path:line`` of one row, for messages."""
        file, line = self._origins[index]
        return f"{self.files[file].path}:{line}" if self.files else f"row {line}"

    def select(self, indices: Iterable[int], *, reason: str | None = None) -> Rows:
        """Return the rows of these numbers, in this order.

        Args:
            indices: Row numbers; negative ones count from the end.
            reason: Why the others are left out. When given, ``counts["dropped: <reason>"]`` grows by their number.

        Raises:
            IndexError: If a number is out of range.
        """
        chosen = [range(self._length)[index] for index in indices]
        counts = dict(self.counts)
        if reason is not None:
            key = f"dropped: {reason}"
            counts[key] = counts.get(key, 0) + self._length - len(set(chosen))
        return Rows(
            {name: [values[i] for i in chosen] for name, values in self._columns.items()},
            files=self.files,
            origins=[self._origins[i] for i in chosen] if self.files else None,
            counts=counts,
        )

    def with_columns(self, **columns: Sequence[str | float | None]) -> Rows:
        """Return the same rows with these columns in place of the old ones; files, lines and account stay.

        None stands for a sentence that a row does not have.
        """
        origins = self._origins if self.files else None
        return Rows(columns, files=self.files, origins=origins, counts=self.counts)

    def recounted(self, counts: Mapping[str, int] | None = None) -> Rows:
        """Return the same rows with another account; by default all that there are were read and none was dropped."""
        return Rows(self._columns, files=self.files, origins=self._origins if self.files else None, counts=counts)

    @classmethod
    def cat(cls, parts: Sequence[Rows]) -> Rows:
        """Return the rows of several tables one after the other, with the columns that all of them have.

        Files read twice count once; the account is the sum of theirs.

        Raises:
            ValueError: If there are no parts.
        """
        if not parts:
            raise ValueError("need at least one table of rows")
        names = [name for name in parts[0].names if all(name in part.names for part in parts)]
        files = tuple(dict.fromkeys(file for part in parts for file in part.files))
        places = [[files.index(file) for file in part.files] for part in parts]
        origins = [
            (place[file], line)
            for part, place in zip(parts, places, strict=True)
            for file, line in (part._origins if part.files else ())
        ]
        counts: dict[str, int] = {}
        for part in parts:
            for key, count in part.counts.items():
                counts[key] = counts.get(key, 0) + count
        return Rows(
            {name: [value for part in parts for value in part._columns[name]] for name in names},
            files=files,
            origins=origins if files else None,
            counts=counts,
        )

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Rows: ...

    def __getitem__(self, index: int | slice) -> Row | Rows:
        if isinstance(index, slice):
            return self.select(range(*index.indices(self._length)))
        i = range(self._length)[index]
        return {name: values[i] for name, values in self._columns.items()}

    def __iter__(self) -> Iterator[Row]:
        return (self[i] for i in range(self._length))

    def __repr__(self) -> str:
        return f"Rows({self._length} rows, columns {list(self._columns)}, files {[file.name for file in self.files]})"
