"""From the lines of a file to rows: one reader per layout.

A reader holds one row at a time, and yields the line that each row starts on with its cells by
name, or why there are none. Tables are read with `csv` and JSON with `json`, not with pandas:
pandas gives no line numbers, fills short rows up, keeps one of two equal keys, and reads a quote
that is never closed, or closed too early, as text.
"""

import csv
import functools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from lightning_cse.data.cells import Columns, Row, converters, quoted
from lightning_cse.errors import DataError

LONGEST = 2**27  # characters of a cell; a quote that is never closed must not fill the memory
csv.field_size_limit(LONGEST)

# The columns of a pair file: an implicit sentence with its own explicit sentence, and with that of
# another row.
PAIR_SENTENCES = ("pos_implicit", "pos_explicit", "neg_implicit", "neg_explicit")
LLM_SENTENCES = ("anchor", "positive", "intermediate", "negative")
LLM_PATTERNS = {  # by the LLM's examples
    "sts": LLM_SENTENCES,
    "nli": ("anchor", "positive", "negative"),
}


def rows_of(
    lines: Iterable[str], *, reader: str, columns: Columns, **options: Any
) -> Iterator[Row]:
    """Return the rows of a text, read with one of `READERS`."""
    cells = [cell for _, cell, _ in converters(columns)]
    return READERS[reader](lines, cells, **options)


# Delimited text ----------------------------------------------------------------------------------


def read_delimited(
    lines: Iterable[str],
    cells: Sequence[str] = (),
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
    first = line
    blank: list[int] = []

    try:
        names = header or next(reader, [])
        widths = width or [len(names)]
        if twice := repeated(filter(None, names)):
            yield line, DataError(f"the column {twice!r} occurs twice")
            return

        line = first + reader.line_num

        for row in reader:
            if not row:
                blank.append(line)
            else:
                yield from ((number, ValueError("blank line")) for number in blank)
                blank.clear()

                if len(row) in widths:
                    yield line, dict(zip(names, row, strict=False))
                else:
                    expected = " or ".join(map(str, widths))
                    yield line, ValueError(f"{len(row)} cells, but {expected} columns")

            line = first + reader.line_num
    except csv.Error as error:
        fault = "a line ends in CR alone" if "new-line character" in str(error) else error
        yield line, DataError(f"not a valid row: {fault}")


def repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs more than once, or None."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


# JSON --------------------------------------------------------------------------------------------

LEVELS = 100  # what is nested deeper is not looked at
_SPACE = re.compile(r"[ \t\r\n]*")
_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)


def read_json_lines(lines: Iterable[str], cells: Sequence[str] = ()) -> Iterator[Row]:
    """Yield a row for each line, which is a JSON object; blank lines at the end are no rows."""
    for line, content in _without_end(_numbered(lines)):
        try:
            value, end = _decoded(content, 0)
            if end < len(content):
                raise json.JSONDecodeError("Extra data", content, end)
        except json.JSONDecodeError as error:
            yield line, ValueError(f"not valid JSON: {error}")
        except ValueError as error:
            yield line, error
        else:
            yield line, _object(value)


def read_json_list(lines: Iterable[str], cells: Sequence[str] = ()) -> Iterator[Row]:
    """Yield a row for each object of a JSON list."""
    text = "".join(lines)
    position = _skip_space(text, 0) + 1
    line = 1 + text.count("\n", 0, position)

    while True:
        start = _skip_space(text, position)
        line += text.count("\n", position, start)

        try:
            value, end = _decoded(text, start)
        except ValueError as error:
            yield getattr(error, "lineno", line), DataError(f"not valid JSON: {error}")
            return

        yield line, _object(value)
        line += text.count("\n", start, end)
        position = end + 1

        if text[end : end + 1] != ",":
            break

    if text[end : end + 1] != "]" or _skip_space(text, position) < len(text):
        yield line, DataError("not valid JSON: a comma or the end of the list is needed")


def _object(value: Any) -> dict[str, Any] | ValueError:
    if isinstance(value, dict):
        return value

    return ValueError(f"expected a JSON object, got {type(value).__name__}")


def _skip_space(text: str, start: int) -> int:
    space = _SPACE.match(text, start)
    return space.end() if space else start


def _decoded(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value at a position, and the position of what follows it."""
    start = _skip_space(text, start)
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        try:
            value, end = _DECODER.raw_decode(_shallow(text), start)
        except RecursionError:
            raise ValueError("not valid JSON: brackets that are never closed") from None

    return value, _skip_space(text, end)


def _shallow(text: str) -> str:
    """Return JSON of the same length with 0 for each list and object below `LEVELS` others."""
    parts = []
    start = 0
    depth = 0

    for bracket in _BRACKET.finditer(text):
        if bracket[0] in "[{":
            depth += 1
            if depth == LEVELS + 1:
                parts.append(text[start : bracket.start()])
                start = bracket.start()
        elif bracket[0] in "]}":
            if depth == LEVELS + 1:
                parts.append("0" + re.sub(r"[^\n]", " ", text[start + 1 : bracket.end()]))
                start = bracket.end()

            depth -= 1

    return "".join([*parts, text[start:]])


def _with_keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError(f"the key {repeated(key for key, _ in pairs)!r} occurs twice")

    return row


_DECODER = json.JSONDecoder(object_pairs_hook=_with_keys_once)


# Rows of language models -------------------------------------------------------------------------


def is_authors_row(row: Mapping[str, Any]) -> bool:
    """Return whether a row has the layout in which NGCSE's authors have LLM rows."""
    return row.get("split") == "aigen" and "anchor" not in row and "sentence" in row


def by_role(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield LLM rows by role, also those in the layout of NGCSE's authors."""
    for line, row in rows:
        if not isinstance(row, dict) or "anchor" in row or "sentence" not in row:
            yield line, row
        elif is_authors_row(row):
            yield line, _sentences_by_role(row)
        else:
            yield line, "plain sentence"


def _sentences_by_role(row: Mapping[str, Any]) -> dict[str, Any] | DataError:
    """Return the sentences of a row by role; the keys are numbers, higher for a closer one."""
    numbers = sorted((key for key in row if key.isdecimal() and row[key]), key=int, reverse=True)
    roles = {len(pattern) - 1: pattern[1:] for pattern in LLM_PATTERNS.values()}.get(len(numbers))
    if roles is None:
        return DataError(
            f"{len(numbers)} sentences under numbered keys; "
            "an LLM row has 3 (STS pattern) or 2 (NLI pattern)"
        )

    return {"anchor": row["sentence"]} | dict(zip(roles, map(row.get, numbers), strict=True))


# Lines -------------------------------------------------------------------------------------------


def read_lines(
    lines: Iterable[str], cells: Sequence[str], *, blank: str = "", pattern: str = ""
) -> Iterator[Row]:
    """Yield one cell per line, or the groups of ``pattern``; ``blank`` is the reason to leave out
    lines without a visible sign.
    """
    fits = re.compile(pattern or f"(?P<{cells[0]}>.*)", re.DOTALL)
    numbered = _numbered(lines)

    for line, content in numbered if blank else _without_end(numbered):
        match = fits.fullmatch(content.strip())

        if blank and not content.strip():
            yield line, blank
        elif match is None:
            yield line, ValueError(f"{quoted(content)} is not of the form {pattern}")
        else:
            yield line, match.groupdict()


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text with their numbers."""
    for number, line in enumerate(lines, start=1):
        yield number, line.removesuffix("\n")


def _without_end(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Leave out the empty lines at the end of a text, but not its first line."""
    empty: list[tuple[int, str]] = []

    for number, content in lines:
        if number > 1 and not content.strip("\r"):
            empty.append((number, content))
        else:
            yield from empty
            empty.clear()
            yield number, content


def _read_paragraphs(lines: Iterable[str], cells: Sequence[str]) -> Iterator[Row]:
    """Yield the sentences of tokenised text, one paragraph per line, without headings."""
    (name,) = cells

    for line, row in read_lines(lines, cells, blank="blank line"):
        if not isinstance(row, dict):
            yield line, row
            continue

        paragraph = row[name]
        marked = paragraph.startswith("= ") and paragraph.endswith(" =")
        if marked and paragraph.strip("= "):
            yield line, "heading"
        else:
            for sentence in split_sentences(paragraph):
                yield line, {name: sentence}


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


def _read_questions(lines: Iterable[str], cells: Sequence[str]) -> Iterator[Row]:
    """Yield the pairs of LLMsKnow: a question with both sentences; the answer is the label."""
    for line, row in read_delimited(lines):
        if not isinstance(row, dict):
            yield line, row
            continue

        question = row["Question"]
        match = _QUESTION.fullmatch(question.strip())
        # If the words in the middle occurred twice, it would be unclear where the premise ends.
        if match is None or question.count(_MIDDLE) > 1:
            yield line, ValueError(f"the form of {quoted(question)} is not known")
        else:
            yield line, row | match.groupdict()


def _read_impscore(lines: Iterable[str], cells: Sequence[str]) -> Iterator[Row]:
    """Yield ImpScore's rows; the cell ``split`` names the split that a row is drawn for."""
    rows = list(read_delimited(lines))

    for (line, row), split in zip(rows, drawn_splits(len(rows)), strict=True):
        yield line, row | {"split": split} if isinstance(row, dict) else row


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
    "llm": lambda lines, cells: by_role(read_json_lines(lines, cells)),
    "lines": read_lines,
    "paragraphs": _read_paragraphs,
    "questions": _read_questions,
    "impscore": _read_impscore,
}
"""The readers that `corpora.yaml` names."""
