"""Conversion of cells to sentences, labels and scores; a bad cell is a DataError with its line."""

import codecs
import contextlib
import functools
import gzip
import hashlib
import io
import itertools
import logging
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO, cast

from lightning_cse.errors import DataError

log = logging.getLogger(__name__)


AT_ONCE = 10_000  # rows that are handled at once
BLOCK = 2**20  # bytes that are read at once
PLACES = 5  # bad rows that an account names

Text = Callable[..., TextIO]
"""Opens a text from its start; the argument ``newline`` is that of `open`."""


@dataclass(frozen=True)
class TextFile:
    """A text file, perhaps compressed (``.gz``); a call opens it.

    Args:
        path: its path.
        sha256: of its uncompressed bytes.
        encoding: its encoding.
    """

    path: Path
    sha256: str
    encoding: str

    def __call__(self, newline: str = "\n") -> TextIO:
        """Open the file from its start; ``newline`` is that of `open`."""
        file = cast("IO[bytes]", opened(self.path))
        return io.TextIOWrapper(file, self.encoding, newline=newline)


def opened(path: Path) -> io.BufferedIOBase:
    """Open the bytes of a file, uncompressed if its name ends in ``.gz``."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


@contextlib.contextmanager
def readable(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open the bytes of a file as `opened`, or raise DataError if they cannot be read."""
    try:
        with opened(path) as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}: the compressed data is cut off or broken ({error}); fetch it again"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file; raises like `readable`."""
    with readable(path) as file:
        return file.read()


def sha256_of(path: Path) -> str:
    """Return the sha256 of the uncompressed bytes of a file; raises like `readable`."""
    with readable(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def examined(
    path: Path,
    encoding: str | None = None,
    *,
    otherwise: str | None = None,
    advice: str = "save the file as UTF-8",
) -> TextFile:
    """Return a text file with its digest, or raise DataError if it is not text.

    Args:
        path: the file.
        encoding: its encoding; None: UTF-8, or else ``otherwise``.
        otherwise: the encoding of a file that is not UTF-8; None: this is an error.
        advice: what to do about it, for the message.
    """
    name = encoding or "UTF-8"
    digest = hashlib.sha256()
    decoder = codecs.getincrementaldecoder(name)()
    fault = ""
    lines = 0

    with readable(path) as file:
        for block in itertools.chain(iter(functools.partial(file.read, BLOCK), b""), [b""]):
            digest.update(block)

            try:
                if not fault:
                    decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                before = lines + error.object.count(b"\n", 0, error.start)
                byte = error.object[error.start]
                fault = f"{path}:{before + 1}: not {name} text: byte 0x{byte:02x}"

            lines += block.count(b"\n")

        if not file.tell():
            raise DataError(f"{path}: the file is empty (0 bytes)")

    if not fault:
        return TextFile(path, digest.hexdigest(), encoding or "utf-8-sig")

    if otherwise is None:
        raise DataError(f"{fault}; {advice}")

    log.warning("%s; the file is read as %s", fault, otherwise)

    return TextFile(path, digest.hexdigest(), otherwise)


NLI_LABELS = (
    "entailment",
    "neutral",
    "contradiction",
    "-",  # where the annotators did not agree
)

Row = tuple[int, Any]
"""A line number, with the cells of the row by name or with the reason why the line is left out."""

Columns = Sequence[str] | Mapping[str, Any]
"""The columns of a table and the cell each comes from, as `corpora.yaml` declares them."""


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


def quoted(cell: object) -> str:
    """Return a cell as an error message shows it, cut to 120 characters."""
    return repr(cell)[:120]


def listed(names: Iterable[str]) -> str:
    """Return names as an error message shows them, cut to 1,000 characters."""
    return ", ".join(names)[:1000] or "none"


def converted(
    rows: Iterable[Row], columns: Columns, bad: BadRows, dropped: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Yield the declared columns, and the line, of each row; count the lines that are left out, by
    reason.

    Raises DataError for a bad cell, unless ``bad`` leaves its row out.
    """
    plan = list(converters(columns))

    for line, row in rows:
        if isinstance(row, str):
            dropped[row] += 1
            continue

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

        (kind, cell), *options = declared.items()
        if kind not in _KINDS:
            raise ValueError(f"{name}: no kind {kind!r}; choose from: {', '.join(_KINDS)}")

        yield name, cell, functools.partial(_KINDS[kind], **dict(options))


def is_number(convert: Callable[[Any], Any]) -> bool:
    """Return whether a function of `converters` gives numbers; all others give text."""
    return getattr(convert, "func", None) is _score


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
