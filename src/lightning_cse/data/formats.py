"""From the lines of a file to rows: one reader per format, and one per odd official file.

A reader yields the line that each row starts on, and its cells by name. Tables are read with `csv`
and JSON with `json`, not with pandas: pandas gives no line numbers, fills short rows up, keeps one
of two equal keys, and reads a quote that is never closed, or closed too early, as text.
"""

import csv
import functools
import json
import operator
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

from lightning_cse.data.columns import LLM_PATTERNS, Columns, converters, quoted
from lightning_cse.errors import DataError

LONGEST = 2**27  # characters of a cell; a quote that is never closed must not fill the memory
csv.field_size_limit(LONGEST)

Row = tuple[int, dict[str, Any]]
"""The line that a row starts on, and its cells by name."""


class RowReport:
    """The path of a file, for errors, and how many of its lines are no rows, by reason."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.dropped: Counter[str] = Counter()

    def bad(self, line: int, fault: object) -> NoReturn:
        """Raise DataError for a row that cannot be used."""
        raise DataError(f"{self.path}:{line}: {fault}")


def rows_of(
    lines: Iterable[str], report: RowReport, *, reader: str, columns: Columns, **options: Any
) -> Iterator[Row]:
    """Return the rows of a text, read with one of `READERS` and its options."""
    if reader in ("lines", "paragraphs"):
        options["cell"] = next(converters(columns))[1]

    return READERS[reader](lines, report, **options)


# Delimited text ----------------------------------------------------------------------------------


def read_delimited(
    lines: Iterable[str],
    report: RowReport,
    *,
    delimiter: str = ",",
    quotes: bool = True,
    header: Sequence[str] = (),
    width: Sequence[int] = (),
    line: int = 1,
) -> Iterator[Row]:
    """Yield the rows of delimited text, whose first line has a number; ``header`` names the columns
    of a text without names. Blank lines at the end are no rows.
    """
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    records = _records(reader, report, line)
    names = header or next(records, (line, []))[1]
    widths = width or [len(names)]
    if twice := repeated(filter(None, names)):
        report.bad(line, f"the column {twice!r} occurs twice")

    for number, record in _without_end(records):
        if not record:
            report.bad(number, "blank line")
        if len(record) not in widths:
            expected = " or ".join(map(str, widths))
            report.bad(number, f"{len(record)} cells, but {expected} columns")

        yield number, dict(zip(names, record, strict=False))


def _records(reader: Any, report: RowReport, line: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each record, and the line that it starts on."""
    number = line

    try:
        for record in reader:
            yield number, record
            number = line + reader.line_num
    except csv.Error as error:
        is_cr = "new-line character" in str(error)
        report.bad(number, f"not a valid row: {'a line ends in CR alone' if is_cr else error}")


def _without_end(
    records: Iterable[tuple[int, Any]], is_blank: Callable[[Any], bool] = operator.not_
) -> Iterator[tuple[int, Any]]:
    """Leave out the blank lines at the end of a text, but not its first line."""
    blank: list[tuple[int, Any]] = []

    for number, record in records:
        if number > 1 and is_blank(record):
            blank.append((number, record))
        else:
            yield from blank
            blank.clear()
            yield number, record


def repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs more than once, or None."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


# JSON --------------------------------------------------------------------------------------------

LEVELS = 100  # what is nested deeper is not looked at
_PARTS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[^][{}"]++|.', re.DOTALL)  # texts, brackets, the rest


def read_json_lines(lines: Iterable[str], report: RowReport) -> Iterator[Row]:
    """Yield a row for each line, which is a JSON object; blank lines at the end are no rows."""
    for line, content in _without_end(_numbered(lines), _is_blank):
        yield line, _object(_decoded(content, line, report), line, report)


def read_json_list(lines: Iterable[str], report: RowReport) -> Iterator[Row]:
    """Yield a row for each object of a JSON list, with its number for a line."""
    rows = _decoded("".join(lines), 1, report)
    for number, row in enumerate(rows, start=1):
        yield number, _object(row, number, report)


def _object(value: Any, line: int, report: RowReport) -> dict[str, Any]:
    if not isinstance(value, dict):
        report.bad(line, f"expected a JSON object, got {type(value).__name__}")

    return value


def _decoded(text: str, line: int, report: RowReport) -> Any:
    """Return a JSON value that begins on a line."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        pass
    except ValueError as error:
        first_line = line - 1 + getattr(error, "lineno", 1)
        report.bad(first_line, f"not valid JSON: {error}")

    try:
        return _DECODER.decode(_shallow(text))
    except (RecursionError, ValueError):
        report.bad(line, "not valid JSON: brackets that are never closed")


def _shallow(text: str) -> str:
    """Return JSON with 0 for each list and object below `LEVELS` others."""
    parts = []
    depth = 0

    for part in _PARTS.findall(text):
        is_start = part in ("[", "{")
        depth += is_start
        if depth <= LEVELS:
            parts.append(part)
        elif is_start and depth == LEVELS + 1:
            parts.append("0")

        depth -= part in ("]", "}")

    return "".join(parts)


def _with_keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if twice := repeated(key for key, _ in pairs):
        raise ValueError(f"the key {twice!r} occurs twice in {quoted(dict(pairs))}")

    return dict(pairs)


_DECODER = json.JSONDecoder(object_pairs_hook=_with_keys_once)


def has_authors_layout(row: Mapping[str, Any]) -> bool:
    """Return whether a row has the layout of NGCSE's authors."""
    return {"split", "sentence"} <= row.keys() and any(map(str.isdecimal, row))


def by_role(rows: Iterable[Row], report: RowReport) -> Iterator[Row]:
    """Yield LLM rows by role, also those in the layout of NGCSE's authors: the sentence of an LLM
    is below a number, which is higher for a closer one.
    """
    roles = {len(pattern) - 1: pattern[1:] for pattern in LLM_PATTERNS.values()}

    for line, row in rows:
        if "anchor" in row or "sentence" not in row:
            yield line, row
        elif row.get("split") != "aigen":
            report.dropped["plain sentence"] += 1
        else:
            keys = sorted((key for key in row if key.isdecimal() and row[key]), key=int)
            if len(keys) not in roles:
                report.bad(
                    line,
                    f"{len(keys)} sentences under numbered keys; "
                    "an LLM row has 3 (STS pattern) or 2 (NLI pattern)",
                )

            sentences = zip(roles[len(keys)], map(row.get, reversed(keys)), strict=True)
            yield line, {"anchor": row["sentence"], **dict(sentences)}


# Lines -------------------------------------------------------------------------------------------


def read_lines(
    lines: Iterable[str],
    report: RowReport,
    *,
    cell: str = "text",
    blank: str = "",
    pattern: str = "",
) -> Iterator[Row]:
    """Yield one cell per line, or the groups of ``pattern``; ``blank`` is the reason to leave out
    lines without a visible sign.
    """
    fits = re.compile(pattern or f"(?P<{cell}>.*)", re.DOTALL)
    numbered = _numbered(lines)

    for line, content in numbered if blank else _without_end(numbered, _is_blank):
        match = fits.fullmatch(content.strip())

        if blank and not content.strip():
            report.dropped[blank] += 1
        elif match is None:
            report.bad(line, f"{quoted(content)} is not of the form {pattern}")
        else:
            yield line, match.groupdict()


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text with their numbers."""
    for number, line in enumerate(lines, start=1):
        yield number, line.removesuffix("\n")


def _is_blank(line: str) -> bool:
    return not line.strip("\r")


def _read_paragraphs(lines: Iterable[str], report: RowReport, *, cell: str) -> Iterator[Row]:
    """Yield the sentences of tokenised text, one paragraph per line, without headings."""
    for line, row in read_lines(lines, report, cell=cell, blank="blank line"):
        paragraph = row[cell]
        marked = paragraph.startswith("= ") and paragraph.endswith(" =")
        if marked and paragraph.strip("= "):
            report.dropped["heading"] += 1
        else:
            for sentence in split_sentences(paragraph):
                yield line, {cell: sentence}


_ENDS = frozenset(".?!")
# They stay with the sentence before.
_CLOSING = _ENDS.union(")]}", ["''", "\N{RIGHT DOUBLE QUOTATION MARK}"])


def split_sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a tokenised paragraph, split after free-standing ``.``, ``?``, ``!``.

    Closing brackets and quotes stay with the sentence, as do signs that no word follows. ``"``
    closes if it is the second, fourth, ... of the paragraph. There is no split before a comma,
    semicolon, colon or lower-case letter.

    Examples:
        >>> list(split_sentences('Dr. Ames said : " Go ! " to them . " Why ? " they asked .'))
        ['Dr. Ames said : " Go ! " to them .', '" Why ? " they asked .']
    """
    tokens = paragraph.split(" ")
    words = [number for number, word in enumerate(tokens) if any(map(str.isalnum, word))]
    last_word = max(words, default=-1)

    sentence: list[str] = []
    ended = False
    quotes = 0

    for number, word in enumerate(tokens):
        quotes += word == '"'
        closing_quote = word == '"' and quotes % 2 == 0
        closes = word in _CLOSING or closing_quote or number > last_word
        if ended and not closes:
            if not (word[:1].islower() or word in {",", ";", ":"}):
                yield " ".join(sentence)
                sentence = []

            ended = False

        sentence.append(word)
        ended = ended or word in _ENDS

    yield " ".join(sentence)


# Tables of single corpora ------------------------------------------------------------------------

_MIDDLE = '", does the hypothesis "'
_QUESTION = re.compile(
    f'For the statement, "(?P<premise>.*){_MIDDLE}(?P<hypothesis>.*)" represent entailment, '
    "contradiction, or neutrality[?]",
    re.DOTALL,
)


def _read_questions(lines: Iterable[str], report: RowReport) -> Iterator[Row]:
    """Yield the pairs of LLMsKnow: a question with both sentences; the answer is the label."""
    for line, row in read_delimited(lines, report):
        question = row["Question"]
        match = _QUESTION.fullmatch(question.strip())
        # If the words in the middle occurred twice, it would be unclear where the premise ends.
        if match is None or question.count(_MIDDLE) > 1:
            report.bad(line, f"the form of {quoted(question)} is not known")
        else:
            yield line, row | match.groupdict()


def _read_impscore(lines: Iterable[str], report: RowReport) -> Iterator[Row]:
    """Yield ImpScore's rows; the cell ``split`` names the split that a row is drawn for."""
    rows = list(read_delimited(lines, report))

    for (line, row), split in zip(rows, drawn_splits(len(rows)), strict=True):
        yield line, row | {"split": split}


def drawn_splits(rows: int) -> list[str]:
    """Return the split of each row: nine tenths train, a twentieth dev, the rest test.

    Source: ImpScore, authors' code: 50,661, 2,814 and 2,815 of 56,290 rows.  Differs: the papers
    count pairs, two per row: 101,320, 5,630 and 5,630. That is one row more in dev and one less in
    train than the code draws.
    """
    rng = random.Random(42)  # noqa: S311 - a choice of rows, not a secret
    train = rng.sample(range(rows), int(rows * 0.9))
    # The authors draw dev in the order of a set, which is not sorted.
    remaining = list(set(range(rows)) - set(train))
    dev = rng.sample(remaining, int(rows * 0.05))
    splits = ["test"] * rows

    for row in train:
        splits[row] = "train"

    for row in dev:
        splits[row] = "dev"

    return splits


READERS: Mapping[str, Callable[..., Iterator[Row]]] = {
    "csv": read_delimited,
    "tsv": functools.partial(read_delimited, delimiter="\t", quotes=False),
    "quoted_tsv": functools.partial(read_delimited, delimiter="\t"),
    "json": read_json_lines,
    "llm": lambda lines, report: by_role(read_json_lines(lines, report), report),
    "lines": read_lines,
    "paragraphs": _read_paragraphs,
    "questions": _read_questions,
    "impscore": _read_impscore,
}
"""The readers that `corpora.yaml` names."""
