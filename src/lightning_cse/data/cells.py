"""Conversion of cells to sentences, labels and scores; a bad cell is a DataError with its line."""

import functools
import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from lightning_cse.errors import DataError, did_you_mean

NLI_LABELS: Final = (
    "entailment",
    "neutral",
    "contradiction",
    "-",  # where the annotators did not agree
)

_QUOTED: Final = 120  # characters of a cell that an error shows
_FILLERS: Final = "\u115f\u1160\u2800\u3164\uffa0"  # letters and signs that show nothing
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

Parsed = tuple[dict[str, list[Any]], list[int], dict[str, int]]
"""The columns, the line that each row starts on, and how many lines were left out, by reason."""

Row = tuple[int, Any]
"""A line number, with the cells of the row by name or with the reason why the line is left out."""

Columns = Sequence[str] | Mapping[str, Any]
"""The columns of a table and the cell each comes from, as `corpora.yaml` declares them."""

Converter = Callable[[Any], Any]


def quoted(cell: object) -> str:
    """Return a cell as an error message shows it, cut to 120 characters."""
    shown = repr(cell)

    return shown if len(shown) <= _QUOTED else f"{shown[:_QUOTED]}..."


def listed(names: Iterable[str]) -> str:
    """Return names as an error message shows them: the first 50, each cut to 120 characters."""
    shown = (name[:_QUOTED] or "(unnamed)" for name in itertools.islice(names, 50))

    return ", ".join(shown).encode(errors="backslashreplace").decode() or "none"


def columns_of(
    rows: Iterable[Row],
    columns: Columns,
    path: str,
) -> Parsed:
    """Return the declared columns of some rows; raise DataError for a bad cell or no row."""
    plan: list[tuple[str, Converter, list[Any]]] = []
    values: dict[str, list[Any]] = {}

    for name, cell, convert in converters(columns):
        values[name] = []
        plan.append((cell, convert, values[name]))

    lines: list[int] = []
    dropped: Counter[str] = Counter()

    for line, row in rows:
        if isinstance(row, str):
            dropped[row] += 1
            continue

        for cell, convert, converted in plan:
            try:
                converted.append(convert(row[cell]))
            except KeyError:
                near = did_you_mean(cell, [name[:_QUOTED] for name in row])
                raise DataError(
                    f"{path}:{line}: no column {cell!r}{near}; found: {listed(row)}"
                ) from None
            except ValueError as error:
                raise DataError(f"{path}:{line}: {cell} {error}") from None

        lines.append(line)

    if not lines:
        raise DataError(f"{path}: no rows{left_out(dropped)}")

    return values, lines, dict(dropped)


def left_out(dropped: Mapping[str, int]) -> str:
    """Return the lines that were left out as the end of an error message."""
    counts = ", ".join(f"{reason} ({count})" for reason, count in dropped.items())

    return f"; left out: {counts}" if counts else ""


def account(kept: int, dropped: Mapping[str, int]) -> dict[str, int]:
    """Return how many rows were read, and how many of them were dropped for each reason."""
    reasons = {f"dropped: {reason}": count for reason, count in dropped.items()}

    return {"read": kept + sum(dropped.values())} | reasons


def converters(columns: Columns) -> Iterator[tuple[str, str, Converter]]:
    """Yield each column's name, its cell, and the function that converts a cell."""
    for name in columns:
        declared = columns[name] if isinstance(columns, Mapping) else name
        if isinstance(declared, str):
            declared = {"sentence": declared}

        (kind, cell), *options = declared.items()
        if kind not in _KINDS:
            raise ValueError(
                f"{name}: no kind of column {kind!r}; choose from: {', '.join(_KINDS)}"
            )

        convert = _KINDS[kind]
        yield name, cell, functools.partial(convert, **dict(options)) if options else convert


def _text(cell: object) -> str:
    if cell is None:
        raise ValueError("is empty (null)")

    if not isinstance(cell, str):
        raise ValueError(f"is not text but {type(cell).__name__} ({quoted(cell)})")

    if not cell.isprintable() and _SURROGATE.search(cell):
        raise ValueError(f"has half of a surrogate pair, which is not text ({quoted(cell)})")

    return cell


def _sentence(cell: object) -> str:
    sentence = _optional(cell)
    if cell is None or sentence is None:
        raise ValueError("is empty (null)" if cell is None else "is empty (no visible character)")

    return sentence


def _optional(cell: object) -> str | None:
    if cell is None:
        return None

    sentence = _text(cell).strip()
    if sentence.isascii() and sentence.isprintable():  # most sentences: quick
        return sentence or None

    return sentence if visible(sentence) else None


def _label(cell: Any, values: Any = NLI_LABELS) -> str:
    names = values if isinstance(values, Mapping) else {value: value for value in values}
    try:
        label: str = names[cell]
    except (KeyError, TypeError):
        known = dict.fromkeys(map(str, names))
        near = did_you_mean(str(cell)[:_QUOTED], known)
        raise ValueError(f"{quoted(cell)} is not one of {', '.join(known)}{near}") from None

    return label


def _score(
    cell: Any,
    range: Sequence[float] = (-math.inf, math.inf),  # noqa: A002 - as declared in corpora.yaml
    scale: float = 1,
) -> float:
    try:
        score = float(cell)
    except (TypeError, ValueError):
        score = math.nan

    if not math.isfinite(score):
        raise ValueError(f"{quoted(cell)} is not a number")

    low, high = range
    if not low <= score <= high:
        raise ValueError(f"{quoted(cell)} is not between {low:g} and {high:g}")

    return score if scale == 1 else round(score * scale, 3)


_KINDS: Final[Mapping[str, Callable[..., Any]]] = {
    "sentence": _sentence,
    "text": _text,
    "optional": _optional,
    "label": _label,
    "score": _score,
}


def visible(sentence: str) -> bool:
    """Return whether a sentence has a character that is not a space, control or combining one."""
    return any(
        unicodedata.category(sign)[0] not in "CZM" and sign not in _FILLERS for sign in sentence
    )
