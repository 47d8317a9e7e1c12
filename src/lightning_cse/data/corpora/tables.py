"""Parsing of comma- and tab-separated text in which every fault is told with its file and line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence

from lightning_cse.data.corpora.spec import Table
from lightning_cse.errors import DataError, did_you_mean


def parse_csv(text: str, path: str, *, sentences: Sequence[str], others: Sequence[str] = ()) -> Table:
    """Parse comma-separated text with a header; columns that are not asked for are left out.

    Args:
        text: The whole file. Cells may hold quoted line breaks; lines are counted as an editor shows them.
        path: The file's path, for errors.
        sentences: Columns that must be there and hold a sentence in every row. Outer white space is removed; words
            such as ``None`` and ``NA`` are sentences like any other.
        others: Columns that must be there and may be empty.

    Raises:
        DataError: At the first fault, with file and line.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    blank: int | None = None  # line of the first blank line since the last row
    header: list[str] | None = None
    wanted = [*others, *sentences]
    columns: dict[str, list[str]] = {name: [] for name in wanted}
    lines: list[int] = []
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{path}:{line}: the row that starts here is not valid CSV: {error}") from None
        if cells is None:
            break
        if not cells:
            blank = blank or line
        elif blank:
            raise DataError(f"{path}:{blank}: blank line")
        elif header is None:
            header = _checked_header(cells, wanted, f"{path}:{line}")
        else:
            if len(cells) != len(header):
                raise DataError(f"{path}:{line}: {len(cells)} cells, the header has {len(header)} columns")
            for name in others:
                columns[name].append(cells[header.index(name)])
            for name in sentences:
                columns[name].append(checked_sentence(cells[header.index(name)], name, f"{path}:{line}"))
            lines.append(line)
        line = reader.line_num + 1
    if not lines:
        raise DataError(f"{path}: {'a header but no rows' if header else 'no header and no rows'}")
    return Table(dict(columns), lines)


def parse_tsv(text: str, path: str, *, sentences: Mapping[str, str], others: Mapping[str, str]) -> Table:
    """Parse tab-separated text with a header and no quoting; columns that are not asked for are left out.

    Args:
        text: The whole file; lines may end in CRLF.
        path: The file's path, for errors.
        sentences: Columns that must hold a sentence in every row, and what to call them. Outer white space is removed.
        others: Columns that may be empty, and what to call them.

    Raises:
        DataError: At the first fault, with file and line.
    """
    wanted = {**sentences, **others}
    header, *rows = [line.removesuffix("\r").split("\t") for line in text.rstrip("\r\n").split("\n")]
    _checked_header(header, list(wanted), f"{path}:1")
    if not rows:
        raise DataError(f"{path}: a header but no rows")
    place = {name: header.index(name) for name in wanted}
    columns: dict[str, list[str]] = {ours: [] for ours in wanted.values()}
    for line, cells in enumerate(rows, start=2):
        if len(cells) != len(header):
            raise DataError(f"{path}:{line}: {len(cells)} cells between tabs, the header has {len(header)} columns")
        for name, ours in others.items():
            columns[ours].append(cells[place[name]])
        for name, ours in sentences.items():
            columns[ours].append(checked_sentence(cells[place[name]], name, f"{path}:{line}"))
    return Table(dict(columns), list(range(2, len(rows) + 2)))


def parse_object(row: str, where: str) -> dict[str, object]:
    """Return the JSON object that one line of a file is.

    Raises:
        DataError: If it is not valid JSON, or another value than an object.
    """
    try:
        cells = json.loads(row)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not valid JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(cells, dict):
        raise DataError(f"{where}: a JSON object is needed, not {type(cells).__name__}")
    return cells


def checked_sentence(cell: object, name: str, where: str) -> str:
    """Return a cell without outer white space.

    Raises:
        DataError: If the cell is no text, or nothing is left.
    """
    if not isinstance(cell, str):
        raise DataError(f"{where}: {name} is no text but {type(cell).__name__} ({cell!r})")
    sentence = cell.strip()
    if not sentence:
        raise DataError(f"{where}: {name} is empty{' (white space only)' if cell else ''}")
    return sentence


def checked_score(cell: object, name: str, where: str, low: float, high: float) -> float:
    """Return a cell as a number.

    Raises:
        DataError: If the cell is no number from ``low`` to ``high``.
    """
    try:
        score = float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(f"{where}: {name} {cell!r} is not a number") from None
    if not low <= score <= high:  # nan ends here too
        raise DataError(f"{where}: {name} {cell!r} is not between {low:g} and {high:g}")
    return score


def _checked_header(found: list[str], wanted: Sequence[str], where: str) -> list[str]:
    """Return the header if every wanted column is there and no name is there twice."""
    for position, name in enumerate(found):
        if name in found[:position]:
            first = found.index(name) + 1
            raise DataError(f"{where}: column {name!r} is there twice (columns {first} and {position + 1})")
    missing = [name for name in wanted if name not in found]
    if missing:
        hints = (f"found {name!r}{did_you_mean(name, missing)}" for name in found if name not in wanted)
        near = "".join(f"; {hint}" for hint in hints if "did you mean" in hint)
        plural = "s" if len(missing) > 1 else ""
        raise DataError(
            f"{where}: missing column{plural} {', '.join(map(repr, missing))}{near}; "
            f"columns found: {', '.join(name or '(unnamed)' for name in found)}"
        )
    return found
