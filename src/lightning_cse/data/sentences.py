"""Sentences of any number, one after the other: of a file, a data set, or an iterable."""

import csv
import gzip
import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from lightning_cse.data.cells import BadRows, TextFile, listed, quoted
from lightning_cse.data.own import (
    DELIMITERS,
    FORMS,
    HUB,
    SUFFIXES,
    canonical,
    delimiter_of,
    load_data_set,
    loading,
)
from lightning_cse.data.parsers import READERS
from lightning_cse.errors import ConfigError, DataError, did_you_mean, one_line

Source = str | Path | Iterable[Any]
"""A name, or an iterable of strings or of a data set's rows."""

_UNREADABLE = (OSError, EOFError, ValueError, csv.Error, zlib.error)


def stream(source: Source, column: str | None = None) -> Iterator[str]:
    """Yield the sentences of a source in its order, without reading it as a whole.

    A source is an iterable of strings, a `datasets.Dataset` or `datasets.IterableDataset`, or the
    name of a file (text with a sentence a line, CSV, TSV, JSON lines or Parquet, each also followed
    by ``.gz``), of a folder that `datasets` saved, or of a data set on the hub
    (``hub:user/name[/config][:split]``). ``column`` is the column of the sentences, by default the
    one named ``text``, ``sentence``, ``anchor`` or ``query``, or the only one.

    Raises DataError if a named source cannot be read or a row is not text, and ConfigError if there
    is no such column.
    """
    is_named = isinstance(source, str | Path)
    origin = str(source) if is_named else "sentences"
    number = 0
    try:
        rows: Any = _opened(origin) if is_named else source
        if is_named or hasattr(rows, "column_names"):
            rows = _column_of(rows, column, origin)

        for number, sentence in enumerate(rows, start=1):
            if not isinstance(sentence, str):
                raise DataError(f"{origin}: row {number} is not text ({quoted(sentence)})")

            yield sentence
    except _UNREADABLE as error:
        if not is_named:  # the caller's own iterable
            raise

        raise DataError(f"{origin}: row {number + 1} cannot be read: {one_line(error)}") from None


def count(source: Source) -> int | None:
    """Return the number of sentences of a source, or None where only reading it would tell."""
    return len(source) if isinstance(source, Sized) and not isinstance(source, str) else None


def _opened(name: str) -> Any:
    """Return the rows of a file, a folder or a data set on the hub, which are not yet read."""
    path = Path(name).expanduser()
    suffix = Path(name.removesuffix(".gz")).suffix

    if name.startswith(HUB) or path.is_dir():
        return load_data_set(name if name.startswith(HUB) else str(path), streaming=True)

    if not path.is_file():
        raise DataError(f"{path.absolute()}: there is no such file")

    if suffix not in SUFFIXES:
        raise DataError(f"{path}: {FORMS}")

    if suffix != ".parquet":
        return _rows_of(path, suffix)

    if path.suffix == ".gz":  # which datasets would not unpack
        return _rows_of_parquet(path)

    with loading(name):
        return datasets.load_dataset("parquet", data_files=str(path), split="train", streaming=True)


def _rows_of(path: Path, suffix: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file; those of a text are its lines, also blank ones."""
    text = TextFile(path, "", "utf-8-sig")  # without a digest, which would read it twice
    if suffix == ".jsonl":
        yield from (row for _, row in READERS["json"](text, BadRows(str(path))))
        return

    with text("" if suffix in DELIMITERS else "\n") as file:
        if suffix == ".txt":
            for line in file:
                yield {"text": line.rstrip("\r\n")}
        else:
            delimiter = delimiter_of(text, suffix)
            yield from csv.DictReader(file, delimiter=delimiter, strict=True)


def _rows_of_parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a packed Parquet file."""
    with gzip.open(path) as unpacked, pq.ParquetFile(unpacked) as file:
        for batch in file.iter_batches():
            yield from batch.to_pylist()


def _column_of(rows: Any, column: str | None, origin: str) -> Iterable[Any]:
    """Return the values of the column that has the sentences."""
    if isinstance(rows, datasets.DatasetDict | datasets.IterableDatasetDict):
        raise DataError(f"{origin}: has several splits; choose one of: {listed(rows)}")

    found: Sequence[str] | None = getattr(rows, "column_names", None)
    if found is None:
        remaining = iter(rows)
        first = list(itertools.islice(remaining, 1))
        found = list(itertools.chain.from_iterable(first))
        rows = itertools.chain(first, remaining)

    known = [name for name in found if canonical(name) == "anchor"] or found
    if column is None and len(known) > 1:
        raise ConfigError([f"column: choose one of {listed(known)} ({origin})"])
    if column is not None and found and column not in found:
        near = did_you_mean(column, found)
        raise ConfigError([f"column: {origin} has no {column!r}{near}; found: {listed(found)}"])

    name = column or next(iter(known), "")
    if name in found and hasattr(rows, "select_columns"):  # the others are not read
        rows = rows.select_columns([name])

    return (row.get(name) for row in rows)
