"""Sentences of a file, read one at a time: a line each, or one column of a table."""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import json
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from lightning_cse.errors import DataError, did_you_mean

__all__ = ["SentenceFile", "Survey"]

_TABLES: Final = {".csv": ",", ".tsv": "\t"}
_DIGEST: Final = 16  # bytes: of 10^9 sentences, two different ones share them with a chance of 10^-21

csv.field_size_limit(2**27)


@dataclass(frozen=True)
class Survey:
    """What one pass over a file found: its distinct sentences.

    Attributes:
        lines: how many lines or rows the file has.
        empty: how many of them hold no sentence.
        first: (n,) for each distinct sentence, in their order, the number of the row that it first stands in, from 0.
        times: (n,) how often it stands there.
    """

    lines: int
    empty: int
    first: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]


@dataclass(frozen=True)
class SentenceFile:
    """A file of sentences: text with one a line, or one column of a CSV, TSV or JSON lines file; each also as ``.gz``.

    White space around a sentence is no part of it, and a byte order mark is none of the first.

    Args:
        path: the file.
        column: which column, or key; only where there are several.
    """

    path: Path
    column: str | None = None

    @cached_property
    def sha256(self) -> str:
        """The digest of the file as it lies there.

        Raises:
            DataError: if it cannot be read.
        """
        with self._told(), self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield the line that a sentence begins in, from 1, and the sentence; empty where there is none.

        Raises:
            DataError: if the file cannot be read, is not UTF-8, or has no such column.
        """
        suffixes = [suffix.lower() for suffix in self.path.suffixes]
        kind = (suffixes[:-1] if suffixes[-1:] == [".gz"] else suffixes)[-1:]
        with self._told(), self._open() as file:
            lines = self._decoded(file)
            if kind and kind[0] in _TABLES:
                yield from self._table(lines, _TABLES[kind[0]])
            elif kind in ([".jsonl"], [".ndjson"]):
                yield from self._json_lines(lines)
            elif self.column is not None:
                raise DataError(f"{self.path}: a text file has no columns; leave --column out")
            else:
                yield from ((number, line.strip()) for number, line in lines)

    def survey(self) -> Survey:
        """Read the file once and find its distinct sentences; 16 bytes a line are kept meanwhile.

        Raises:
            DataError: as iterating, or if no line holds a sentence.
        """
        digests, rows, lines = bytearray(), array("q"), 0
        for row, (_, sentence) in enumerate(self):
            lines += 1
            if sentence:
                digests += hashlib.blake2b(sentence.encode(), digest_size=_DIGEST).digest()
                rows.append(row)
        if not rows:
            raise DataError(f"{self.path}: {'no line holds a sentence' if lines else 'the file is empty'}")
        halves = np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))  # stable: equal sentences stay in the order of the file
        new = np.ones(len(order), dtype=bool)
        new[1:] = (halves[order[1:]] != halves[order[:-1]]).any(axis=1)
        starts = np.flatnonzero(new)
        first = np.frombuffer(rows, dtype=np.int64)[order[starts]]
        times = np.diff(np.append(starts, len(order)))
        by_place = np.argsort(first)
        return Survey(lines, lines - len(rows), first[by_place], times[by_place])

    def _open(self) -> BinaryIO:
        compressed = self.path.suffix.lower() == ".gz"
        return gzip.open(self.path, "rb") if compressed else self.path.open("rb")  # type: ignore[return-value]

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{self.path}: not a whole gzip file ({error}); fetch it again") from error
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def _decoded(self, file: Iterable[bytes]) -> Iterator[tuple[int, str]]:
        for number, raw in enumerate(file, start=1):
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                what = f"byte {error.start + 1} is {raw[error.start]:#04x}"
                raise DataError(
                    f"{self.path}:{number}: not UTF-8 ({what}); convert the file, with iconv for example"
                ) from None

    def _table(self, lines: Iterator[tuple[int, str]], delimiter: str) -> Iterator[tuple[int, str]]:
        reader = csv.reader((line for _, line in lines), delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            place = self._place(header)
            line = reader.line_num + 1
            for row in reader:
                if row and len(row) != len(header):
                    raise DataError(f"{self.path}:{line}: {len(row)} cells, but the header has {len(header)} columns")
                yield line, row[place].strip() if row else ""
                line = reader.line_num + 1
        except csv.Error as error:
            raise DataError(f"{self.path}:{reader.line_num}: no well-formed table ({error})") from error

    def _place(self, header: list[str]) -> int:
        if self.column is None and len(header) == 1:
            return 0
        if self.column in header:
            return header.index(self.column)
        there = f"its columns: {', '.join(header)}" if header else "the file is empty"
        if self.column is None:
            raise DataError(f"{self.path}: say with --column which column holds the sentences ({there})")
        raise DataError(f"{self.path}: no column {self.column!r}{did_you_mean(self.column, header)} ({there})")

    def _json_lines(self, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        for number, line in lines:
            if not line.strip():
                yield number, ""
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{self.path}:{number}: no JSON ({error})") from None
            if self.column is None and isinstance(row, str):
                yield number, row.strip()
                continue
            if not isinstance(row, dict):
                raise DataError(f"{self.path}:{number}: need a JSON object a line, got {type(row).__name__}")
            sentence = next(iter(row.values())) if self.column is None and len(row) == 1 else row.get(self._key(row))
            if not isinstance(sentence, str | None):
                raise DataError(f"{self.path}:{number}: need a text, got {type(sentence).__name__}")
            yield number, (sentence or "").strip()

    def _key(self, row: dict[str, object]) -> str:
        if self.column is None or self.column not in row:
            self._place(list(row))
        return str(self.column)
