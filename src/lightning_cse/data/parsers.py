"""From the text of a corpus file to rows: one reader per layout.

A reader opens the text, holds one row at a time, and yields the line that each row starts on and
its cells by name or, for a line that it leaves out, the reason. Tables are read with `csv` and JSON
lines with `json`, not with pandas: pandas gives no line numbers, fills short rows up, and reads a
quote that is never closed, or closed too early, as text.
"""

import csv
import functools
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lightning_cse.data.cells import BadRows, Columns, Row, Text, converters, quoted
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
    text: Text, bad: BadRows, *, reader: str, columns: Columns, **options: Any
) -> Iterator[Row]:
    """Return the rows of a file, read with one of `READERS`."""
    cells = [cell for _, cell, _ in converters(columns)]

    return READERS[reader](text, bad, cells, **options)


def _table(
    text: Text,
    bad: BadRows,
    cells: Sequence[str] = (),
    *,
    delimiter: str = ",",
    quotes: bool = True,
    header: Sequence[str] = (),
    width: Sequence[int] = (),
) -> Iterator[Row]:
    """Yield the rows of delimited text; `header` names the columns of a file without names."""
    # Only a quoted cell may have line breaks. Without quotes, a row ends at \n alone, as in the
    # official files.
    line = 1

    with text(newline="" if quotes else "\n") as stream:
        reader = csv.reader(
            stream,
            delimiter=delimiter,
            quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
            strict=True,
        )

        try:
            names = header or next(reader, [])
            widths = width or [len(names)]
            line += reader.line_num

            for row in reader:
                if len(row) in widths:
                    yield line, dict(zip(names, row, strict=False))
                elif row:  # blank lines are skipped
                    needed = " or ".join(map(str, widths))
                    bad(line, f"{len(row)} cells, but {needed} columns")

                line = reader.line_num + 1
        except csv.Error as error:
            raise DataError(f"{bad.path}:{line}: not a valid row: {error}") from None


def _numbered(text: Text) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text with their numbers."""
    with text(newline="\n") as stream:
        for number, line in enumerate(stream, start=1):
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


def _json(text: Text, bad: BadRows, cells: Sequence[str] = ()) -> Iterator[Row]:
    for line, content in _without_end(_numbered(text)):
        try:
            row = json.loads(content)
        except ValueError as error:
            bad(line, f"not valid JSON: {error}")
            continue

        if isinstance(row, dict):
            yield line, row
        else:
            bad(line, f"expected a JSON object, got {type(row).__name__}")


def _llm_rows(text: Text, bad: BadRows, cells: Sequence[str] = ()) -> Iterator[Row]:
    """Yield LLM rows by role, also those in the layout of NGCSE's authors."""
    for line, row in _json(text, bad):
        if "anchor" in row or "sentence" not in row:
            yield line, row
        elif row.get("split") == "aigen":
            yield line, _by_role(row, f"{bad.path}:{line}")
        else:
            yield line, "plain sentence"


def _by_role(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the sentences of a row by role; the keys are numbers, higher for a closer one."""
    numbers = sorted((key for key in row if key.isdecimal() and row[key]), key=int, reverse=True)
    roles = {len(pattern) - 1: pattern[1:] for pattern in LLM_PATTERNS.values()}.get(len(numbers))
    if roles is None:
        raise DataError(
            f"{where}: {len(numbers)} sentences under numbered keys; "
            "an LLM row has 3 (STS pattern) or 2 (NLI pattern)"
        )

    return {"anchor": row["sentence"]} | dict(zip(roles, map(row.get, numbers), strict=True))


def _lines(
    text: Text, bad: BadRows, cells: Sequence[str], *, blank: str = "", pattern: str = ""
) -> Iterator[Row]:
    """Yield one cell per line, or the groups of `pattern`; `blank` is the reason to leave out lines
    without a visible sign.
    """
    fits = re.compile(pattern or f"(?P<{cells[0]}>.*)", re.DOTALL)

    numbered = _numbered(text)

    for line, content in numbered if blank else _without_end(numbered):
        match = fits.fullmatch(content.strip())

        if blank and not content.strip():
            yield line, blank
        elif match is None:
            bad(line, f"{quoted(content)} is not of the form {pattern}")
        else:
            yield line, match.groupdict()


def _paragraphs(text: Text, bad: BadRows, cells: Sequence[str]) -> Iterator[Row]:
    """Yield the sentences of tokenised text, one paragraph per line, without headings."""
    (name,) = cells

    for line, row in _lines(text, bad, cells, blank="blank line"):
        if isinstance(row, str):
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
    words = [place for place, word in enumerate(tokens) if any(map(str.isalnum, word))]
    last_word = max(words, default=-1)

    sentence: list[str] = []
    ended = False
    quotes = 0

    for place, word in enumerate(tokens):
        quotes += word == '"'
        closing_quote = word == '"' and quotes % 2 == 0
        closes = word in _CLOSING or closing_quote or place > last_word
        if ended and not closes:
            if not (word[:1].islower() or word in {",", ";", ":"}):
                yield " ".join(sentence)
                sentence = []

            ended = False

        sentence.append(word)
        ended = ended or word in _ENDS

    yield " ".join(sentence)


_MIDDLE = '", does the hypothesis "'
_QUESTION = re.compile(
    f'For the statement, "(?P<premise>.*){_MIDDLE}(?P<hypothesis>.*)" represent entailment, '
    "contradiction, or neutrality[?]",
    re.DOTALL,
)


def _questions(text: Text, bad: BadRows, cells: Sequence[str]) -> Iterator[Row]:
    """Yield the pairs of LLMsKnow: a question with both sentences; the answer is the label."""
    for line, row in _table(text, bad):
        question = row["Question"]
        match = _QUESTION.fullmatch(question.strip())
        # If the words in the middle occurred twice, it would be unclear where the premise ends.
        if match is None or question.count(_MIDDLE) > 1:
            raise DataError(f"{bad.path}:{line}: the form of {quoted(question)} is not known")

        yield line, row | match.groupdict()


def _impscore(text: Text, bad: BadRows, cells: Sequence[str]) -> Iterator[Row]:
    """Yield ImpScore's rows; the cell ``split`` names the split that a row is drawn for."""
    rows = list(_table(text, bad))

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
    rest = list(set(range(rows)) - set(train))
    dev = rng.sample(rest, int(rows * 0.05))
    splits = ["test"] * rows

    for row in train:
        splits[row] = "train"

    for row in dev:
        splits[row] = "dev"

    return splits


READERS: Mapping[str, Callable[..., Iterator[Row]]] = {
    "csv": _table,
    "tsv": functools.partial(_table, delimiter="\t", quotes=False),
    "quoted_tsv": functools.partial(_table, delimiter="\t"),
    "json": _json,
    "llm": _llm_rows,
    "lines": _lines,
    "paragraphs": _paragraphs,
    "questions": _questions,
    "impscore": _impscore,
}
"""The readers that `corpora.yaml` names."""
