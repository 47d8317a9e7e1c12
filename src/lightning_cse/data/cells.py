"""From the cells of a row to sentences, labels and scores; what cannot be used has its line."""

import contextlib
import functools
import math
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from lightning_cse.errors import DataError

NLI_LABELS = (
    "entailment",
    "neutral",
    "contradiction",
    "-",  # where the annotators did not agree
)

Row = tuple[int, dict[str, Any] | str | ValueError | DataError]
"""A line number with the cells of the row by name, the reason why the layout leaves the line out,
or what is wrong: a ValueError with the row, a DataError with all that follows.
"""

Columns = Sequence[str] | Mapping[str, Any]
"""The columns of a table and the cell each comes from, as `corpora.yaml` declares them."""

PLACES = 5  # bad rows that an account names
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

_repr = reprlib.Repr()  # of nested values, it shows the outer levels
_repr.maxstring = _repr.maxother = 120


class BadRows:
    """What happens to a row of a file that cannot be used: an error, or it is left out and counted.

    Args:
        path: the file.
        skip: whether such rows are left out.
        advice: what to do about it, for the message of the error.
    """

    def __init__(self, path: str, *, skip: bool = False, advice: str = "") -> None:
        self.path = path
        self.skip = skip
        self.advice = advice
        self.count = 0
        self.first: list[str] = []

    def __call__(self, line: int, fault: str) -> None:
        """Leave a row out, or raise DataError."""
        if not self.skip:
            raise DataError(f"{self.path}:{line}: {fault}{self.advice}")

        self.count += 1
        if len(self.first) < PLACES:
            self.first.append(f"line {line}: {fault[:80]}")

    @property
    def dropped(self) -> dict[str, int]:
        """How many rows were left out; the reason names the first of them."""
        if not self.count:
            return {}

        more = "; ..." if self.count > len(self.first) else ""

        return {f"bad rows of {Path(self.path).name} ({'; '.join(self.first)}{more})": self.count}


def usable_rows(
    rows: Iterable[Row], bad: BadRows, dropped: Counter[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows that have cells; count the lines that are left out, by reason."""
    for line, row in rows:
        if isinstance(row, dict):
            yield line, row
        elif isinstance(row, str):
            dropped[row] += 1
        elif isinstance(row, DataError):
            raise DataError(f"{bad.path}:{line}: {row}")
        else:
            bad(line, str(row))


def converted(
    rows: Iterable[Row], columns: Columns, bad: BadRows, dropped: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Yield the declared columns, and the line, of each row; count the lines that are left out, by
    reason.

    Raises DataError for a bad cell, unless ``bad`` leaves its row out.
    """
    plan = list(converters(columns))

    for line, row in usable_rows(rows, bad, dropped):
        values: dict[str, Any] = {"line": line}
        try:
            for name, cell, convert in plan:
                values[name] = convert(row[cell])
        except KeyError:
            missing = f"no column {cell!r}; found: {listed(row)}"
            raise DataError(f"{bad.path}:{line}: {missing}") from None
        except ValueError as error:
            bad(line, f"{cell} {error}")
        else:
            yield values

    dropped.update(bad.dropped)


def converters(columns: Columns) -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    """Yield each column's name, its cell, and the function that converts a cell."""
    for name in columns:
        declared = columns[name] if isinstance(columns, Mapping) else name
        if isinstance(declared, str):
            declared = {"sentence": declared}

        (converter, cell), *options = declared.items()
        if converter not in _KINDS:
            raise ValueError(f"{name}: no kind {converter!r}; choose from: {', '.join(_KINDS)}")

        yield name, cell, functools.partial(_KINDS[converter], **dict(options))


def is_number(convert: Callable[[Any], Any]) -> bool:
    """Return whether a function of `converters` gives numbers; all others give text."""
    return getattr(convert, "func", None) is _score


def quoted(cell: object) -> str:
    """Return a cell as an error message shows it, cut to 120 characters."""
    return _repr.repr(cell)[:120]


def listed(names: Iterable[str]) -> str:
    """Return names as an error message shows them, cut to 1,000 characters."""
    return ", ".join(names)[:1000] or "none"


def _text(cell: object) -> str:
    if not isinstance(cell, str):
        raise ValueError(f"is not text ({quoted(cell)})")

    cell.encode()  # half of a surrogate pair is a ValueError
    return cell


def _optional(cell: object) -> str | None:
    return None if cell is None else _text(cell).strip() or None


def _sentence(cell: object) -> str:
    sentence = _optional(cell)
    if sentence is None:
        raise ValueError("is empty")

    return sentence


def _label(cell: Any, values: Any = NLI_LABELS) -> str:
    names = values if isinstance(values, Mapping) else {value: value for value in values}
    if isinstance(cell, bool | list | dict) or cell not in names:
        choices = ", ".join(dict.fromkeys(map(str, names)))
        raise ValueError(f"{quoted(cell)} is not one of {choices}")

    return str(names[cell])


def _score(
    cell: Any,
    range: Sequence[float] = (-math.inf, math.inf),  # noqa: A002 - as declared in corpora.yaml
    scale: float = 1,
) -> float:
    low, high = range
    score = _number(cell)
    if not (math.isfinite(score) and low <= score <= high):
        bounds = f" between {low:g} and {high:g}" if math.isfinite(high - low) else ""
        raise ValueError(f"{quoted(cell)} is not a number{bounds}")

    return score if scale == 1 else round(score * scale, 3)


def _number(cell: Any) -> float:
    """Return a number, or one in ASCII digits as text; NaN for anything else."""
    if isinstance(cell, str):
        return float(cell) if _NUMBER.fullmatch(cell.strip()) else math.nan

    if isinstance(cell, int | float | Decimal) and not isinstance(cell, bool):
        with contextlib.suppress(OverflowError):  # of integers
            return float(cell)

        return math.inf

    return math.nan


_KINDS: Mapping[str, Callable[..., Any]] = {
    "sentence": _sentence,
    "text": _text,
    "optional": _optional,
    "label": _label,
    "score": _score,
}
