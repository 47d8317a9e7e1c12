"""Conversion of cells to sentences, labels and scores; a bad cell is a DataError with its line."""

import functools
import gzip
import logging
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_cse.errors import DataError

log = logging.getLogger(__name__)


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, uncompressed if its name ends in ``.gz``, or raise DataError."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}: the compressed data is cut off or broken ({error}); fetch it again"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def decoded(data: bytes, path: str, encoding: str | None = None) -> str:
    """Decode a file as UTF-8, or else in ``encoding``; raise DataError if it is not text."""
    if not data:
        raise DataError(f"{path}: the file is empty (0 bytes)")

    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        fault = f"{path}:{line}: not UTF-8 text: byte 0x{data[error.start]:02x}"

    if encoding is None:
        raise DataError(f"{fault}; save the file as UTF-8")

    log.warning("%s; the file is read as %s", fault, encoding)

    return data.decode(encoding)


NLI_LABELS = (
    "entailment",
    "neutral",
    "contradiction",
    "-",  # where the annotators did not agree
)

Parsed = tuple[dict[str, list[Any]], list[int], dict[str, int]]
"""The columns, the line that each row starts on, and how many lines were left out, by reason."""

Row = tuple[int, Any]
"""A line number, with the cells of the row by name or with the reason why the line is left out."""

Columns = Sequence[str] | Mapping[str, Any]
"""The columns of a table and the cell each comes from, as `corpora.yaml` declares them."""


def quoted(cell: object) -> str:
    """Return a cell as an error message shows it, cut to 120 characters."""
    return repr(cell)[:120]


def listed(names: Iterable[str]) -> str:
    """Return names as an error message shows them, cut to 1,000 characters."""
    return ", ".join(names)[:1000] or "none"


def columns_of(rows: Iterable[Row], columns: Columns, path: str) -> Parsed:
    """Return the declared columns of some rows; raise DataError for a bad cell or no row."""
    plan = list(converters(columns))
    values: dict[str, list[Any]] = {name: [] for name, _, _ in plan}
    lines: list[int] = []
    dropped: Counter[str] = Counter()

    for line, row in rows:
        if isinstance(row, str):
            dropped[row] += 1
            continue

        for name, cell, convert in plan:
            try:
                values[name].append(convert(row[cell]))
            except KeyError:
                missing = f"no column {cell!r}; found: {listed(row)}"
                raise DataError(f"{path}:{line}: {missing}") from None
            except ValueError as error:
                raise DataError(f"{path}:{line}: {cell} {error}") from None

        lines.append(line)

    if not lines:
        raise DataError(f"{path}: no rows")

    return values, lines, dict(dropped)


def account(kept: int, dropped: Mapping[str, int]) -> dict[str, int]:
    """Return how many rows were read, and how many of them were dropped for each reason."""
    reasons = {f"dropped: {reason}": count for reason, count in dropped.items()}

    return {"read": kept + sum(dropped.values())} | reasons


def converters(columns: Columns) -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    """Yield each column's name, its cell, and the function that converts a cell."""
    for name in columns:
        declared = columns[name] if isinstance(columns, Mapping) else name
        if isinstance(declared, str):
            declared = {"sentence": declared}

        (kind, cell), *options = declared.items()
        if kind not in _KINDS:
            raise ValueError(f"{name}: no kind {kind!r}; choose from: {', '.join(_KINDS)}")

        yield name, cell, functools.partial(_KINDS[kind], **dict(options))


def _text(cell: object) -> str:
    if not isinstance(cell, str):
        raise ValueError(f"is not text ({quoted(cell)})")

    cell.encode()  # half of a surrogate pair is a ValueError
    return cell


def _sentence(cell: object) -> str:
    sentence = _optional(cell)
    if sentence is None:
        raise ValueError("is empty")

    return sentence


def _optional(cell: object) -> str | None:
    return None if cell is None else _text(cell).strip() or None


def _label(cell: Any, values: Any = NLI_LABELS) -> str:
    names = values if isinstance(values, Mapping) else {value: value for value in values}
    if isinstance(cell, list | dict) or cell not in names:
        raise ValueError(
            f"{quoted(cell)} is not one of {', '.join(dict.fromkeys(map(str, names)))}"
        )

    return str(names[cell])


def _score(
    cell: Any,
    range: Sequence[float] = (-math.inf, math.inf),  # noqa: A002 - as declared in corpora.yaml
    scale: float = 1,
) -> float:
    try:
        score = float(cell)
    except (TypeError, ValueError):
        score = math.nan

    low, high = range
    if not (math.isfinite(score) and low <= score <= high):
        raise ValueError(f"{quoted(cell)} is not a number between {low:g} and {high:g}")

    return score if scale == 1 else round(score * scale, 3)


_KINDS: Mapping[str, Callable[..., Any]] = {
    "sentence": _sentence,
    "text": _text,
    "optional": _optional,
    "label": _label,
    "score": _score,
}
