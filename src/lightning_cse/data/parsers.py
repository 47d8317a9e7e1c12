"""From the text of a corpus file to columns: one reader per layout, and one conversion of cells for all of them.

A reader yields the line that each row starts on and its cells by name or, for a line that it leaves out, the reason.
"""

import collections
import csv
import functools
import itertools
import json
import math
import random
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from lightning_cse.errors import DataError, did_you_mean

# The columns of a pair file: an implicit sentence with its own explicit sentence, and with that of another row.
PAIR_SENTENCES: Final = ("pos_implicit", "pos_explicit", "neg_implicit", "neg_explicit")
LLM_SENTENCES: Final = ("anchor", "positive", "intermediate", "negative")
LLM_PATTERNS: Final = {
    "sts": LLM_SENTENCES,
    "nli": ("anchor", "positive", "negative"),
}  # by the LLM's examples
NLI_LABELS: Final = (
    "entailment",
    "neutral",
    "contradiction",
    "-",
)  # - where the annotators did not agree

_QUOTED: Final = 120  # characters of a cell that an error shows
_FILLERS: Final = "\u115f\u1160\u2800\u3164\uffa0"  # letters and signs that show nothing
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # read one by one, it takes no memory
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

Parsed = tuple[dict[str, list[Any]], list[int], dict[str, int]]
Row = tuple[
    int, Any
]  # a line number with the cells of a row by name, or with the reason why the line is left out


def quoted(cell: object) -> str:
    """Return a cell as an error message shows it, cut to 120 characters."""
    shown = repr(cell)
    return shown if len(shown) <= _QUOTED else f"{shown[:_QUOTED]}..."


def listed(names: Iterable[str]) -> str:
    """Return names as an error message shows them: the first 50, each cut to 120 characters."""
    shown = (
        name[:_QUOTED].encode(errors="backslashreplace").decode()
        for name in itertools.islice(names, 50)
    )
    return ", ".join(name or "(unnamed)" for name in shown) or "none"


def parse(text: str, path: str, *, reader: str, columns: Any = None, **options: Any) -> Parsed:
    """Return the columns of a file, read with one of `READERS` and its options; see `columns_of`."""
    cells = [cell for _, cell, _ in _planned(columns or [])]
    return columns_of(READERS[reader](text, path, cells, **options), columns, path)


def columns_of(rows: Iterable[Row], columns: Any, path: str) -> Parsed:
    """Return the columns of some rows, the line that each row starts on, and how many lines were left out, by reason.

    ``columns`` are declared as in `corpora.yaml`; None means all cells of the first row. Raises DataError at the first
    fault, or if there is no row.
    """
    plan: list[tuple[str, Callable[[Any], Any], list[Any]]] = []
    values: dict[str, list[Any]] = {}
    lines: list[int] = []
    dropped: dict[str, int] = {}
    for line, row in rows:
        if isinstance(row, str):
            dropped[row] = dropped.get(row, 0) + 1
            continue
        for name, cell, convert in [] if plan else _planned(columns or list(row)):
            values[name] = []
            plan.append((cell, convert, values[name]))
        for cell, convert, found in plan:
            try:
                found.append(convert(row[cell]))
            except KeyError:
                raise DataError(
                    f"{path}:{line}: {_missing_key(cell, row, [used for used, *_ in plan])}"
                ) from None
            except ValueError as error:
                raise DataError(f"{path}:{line}: {cell} {error}") from None
        lines.append(line)
    if not lines:
        counted = " and ".join(
            f"{count} {reason}{'' if count == 1 else 's'}" for reason, count in dropped.items()
        )
        raise DataError(f"{path}: no row{f', only {counted}' if counted else ''}")
    return values, lines, dropped


def account(kept: int, dropped: Mapping[str, int]) -> dict[str, int]:
    """Return how many rows were read, and how many of them were dropped for each reason."""
    reasons = {f"dropped: {reason}": count for reason, count in dropped.items()}
    return {"read": kept + sum(dropped.values())} | reasons


def _planned(
    columns: Sequence[str] | Mapping[str, Any],
) -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    """Yield each declared column's name, its cell, and the function that converts a cell or raises ValueError."""
    for name in columns:
        given: Any = columns[name] if isinstance(columns, Mapping) else name
        spec = given if isinstance(given, Mapping) else {"sentence": given}
        (kind, cell), *_ = spec.items()
        options = {key: value for key, value in spec.items() if key != kind}
        yield name, cell, functools.partial(_KINDS[kind], **options) if options else _KINDS[kind]


def checked_sentence(cell: object, name: str, where: str) -> str:
    """Return a cell without outer white space, or raise DataError if it is not text or has no visible character."""
    try:
        return _sentence(cell)
    except ValueError as error:
        raise DataError(f"{where}: {name} {error}") from None


def _text(cell: object) -> str:
    if cell is None:
        raise ValueError("is empty (null)")
    if not isinstance(cell, str):
        raise ValueError(f"is not text but {type(cell).__name__} ({quoted(cell)})")
    if not cell.isprintable() and (half := _SURROGATE.search(cell)):
        raise ValueError(
            f"has a lone surrogate, {half[0]!r} at position {half.start()}, which is not text"
        )
    return cell


def _sentence(cell: object) -> str:
    if (
        isinstance(cell, str)
        and cell.isascii()
        and cell.isprintable()
        and (sentence := cell.strip())
    ):
        return sentence  # most sentences: no need to look at each character
    sentence = _text(cell).strip()
    if not _visible(sentence):
        why = " (no visible character)" if sentence else " (white space only)" if cell else ""
        raise ValueError(f"is empty{why}")
    return sentence


def _optional(cell: object) -> str | None:
    if isinstance(cell, str) and cell.isascii() and cell.isprintable():
        return cell.strip() or None
    return _sentence(cell) if cell is not None and _visible(_text(cell).strip()) else None


def _label(cell: Any, values: Any = NLI_LABELS) -> str:
    try:
        found: str = values[cell] if isinstance(values, Mapping) else values[values.index(cell)]
    except (KeyError, TypeError, ValueError):
        known = dict.fromkeys(map(str, values))
        hint = did_you_mean(str(cell)[:_QUOTED], known)
        raise ValueError(f"{quoted(cell)} is not one of {', '.join(known)}{hint}") from None
    return found


def _score(cell: Any, range: Sequence[float] | None = None, scale: float = 1) -> float:  # noqa: A002 - as declared
    try:
        score = float(cell)
    except (TypeError, ValueError):
        raise ValueError(f"{quoted(cell)} is not a number") from None
    if range is None and not math.isfinite(score):
        raise ValueError(f"{quoted(cell)} is not a number")
    low, high = range or (score, score)
    if not low <= score <= high:  # nan ends here too
        raise ValueError(f"{quoted(cell)} is not between {low:g} and {high:g}")
    return score if scale == 1 else round(score * scale, 3)


_KINDS: Final[Mapping[str, Callable[..., Any]]] = {
    kind.__name__.lstrip("_"): kind for kind in (_sentence, _text, _optional, _label, _score)
}


def _visible(sentence: str) -> bool:
    """Return whether a sentence has a character other than spaces, control, format and combining characters."""
    return any(
        unicodedata.category(sign)[0] not in "CZM" and sign not in _FILLERS for sign in sentence
    )


def _table(
    text: str,
    path: str,
    cells: Sequence[str],
    *,
    delimiter: str = ",",
    quotes: bool = True,
    header: Sequence[str] = (),
    width: Sequence[int] = (),
) -> Iterator[Row]:
    """Yield the rows of delimited text, which must have the columns `cells`; `header` names those of a file without."""
    names, folded, widths = list(header), [""], width or [len(header)]
    blank = count = 0
    for line, row in (_quoted_rows if quotes else _plain_rows)(text, path, delimiter):
        where = f"{path}:{line}"
        if not row:
            blank = blank or line
        elif blank:
            raise DataError(f"{path}:{blank}: blank line")
        elif not names:
            names = _checked_header(row, cells, where)
            folded, widths = [name.strip().casefold() for name in names], width or [len(names)]
        elif len(row) not in widths:
            needed = " or ".join(map(str, widths))
            wanted = f"{needed} are needed" if header else f"the header has {needed} columns"
            found = f"{len(row)} cell{'' if len(row) == 1 else 's'}{' between tabs' if delimiter != ',' else ''}"
            raise DataError(f"{where}: {found}, {wanted}")
        elif (
            row[0].strip().casefold() == folded[0]
            and [cell.strip().casefold() for cell in row] == folded
        ):
            raise DataError(
                f"{where}: repeated header; were two files concatenated? Remove this line"
            )
        else:
            count += 1
            yield line, dict(zip(names, row, strict=False))
    if not count:
        found = "" if header else "a header but " if names else "no header and "
        raise DataError(f"{path}: {found}no rows")


def _quoted_rows(text: str, path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(
        (line[0] for line in _LINE.finditer(text)), delimiter=delimiter, strict=True
    )
    line = 1
    try:
        for row in reader:
            yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path}:{line}: the row that starts here is not valid CSV: {error}"
        ) from None


def _plain_rows(text: str, path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    for line, row in enumerate(text.rstrip("\r\n").split("\n"), start=1):
        row = row.removesuffix("\r")
        yield line, row.split(delimiter) if row else []


def _checked_header(found: list[str], wanted: Sequence[str], where: str) -> list[str]:
    twice = next((name for name, count in collections.Counter(found).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"{where}: column {quoted(twice)} appears twice")
    missing = [name for name in wanted if name not in found]
    if missing:
        near = did_you_mean(missing[0], [name[:_QUOTED] for name in found if name not in wanted])
        shown = f"column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}{near}"
        raise DataError(f"{where}: missing {shown}; columns found: {listed(found)}")
    return found


def _missing_key(key: str, row: Mapping[str, Any], known: Sequence[str]) -> str:
    hint = did_you_mean(key, [name[:_QUOTED] for name in row if name not in known])
    return f"missing key {key!r}{hint}; keys found: {listed(row)}"


def _json(text: str, path: str, cells: Sequence[str]) -> Iterator[Row]:
    for line, row in enumerate(text.rstrip("\r\n").split("\n"), start=1):
        where = f"{path}:{line}"
        try:
            found = json.loads(row)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{where}: not valid JSON: {error.msg} at column {error.colno}"
            ) from None
        except (
            RecursionError,
            ValueError,
        ) as error:  # a value of thousands of levels, or of thousands of digits
            raise DataError(f"{where}: the JSON cannot be read: {error}") from None
        if not isinstance(found, dict):
            raise DataError(f"{where}: expected a JSON object, got {type(found).__name__}")
        yield line, found


def _llm_rows(text: str, path: str, cells: Sequence[str]) -> Iterator[Row]:
    """Yield LLM rows by ``anchor``, ``positive``, ``negative``, for STS ``intermediate``, or in the authors' layout."""
    sts = "intermediate" in cells if cells else None
    for line, row in _json(text, path, cells):
        where = f"{path}:{line}"
        if "anchor" not in row and "sentence" in row:
            if row.get("split", "aigen") != "aigen":
                yield line, "plain sentence"
                continue
            row = _by_role(row, where)
        absent = [name for name in LLM_PATTERNS["nli"] if name not in row]
        if absent:
            raise DataError(f"{where}: {_missing_key(absent[0], row, LLM_SENTENCES)}")
        has = "intermediate" in row
        sts = has if sts is None else sts
        if has and not sts:
            raise DataError(
                f"{where}: an intermediate sentence, but no row of this file may have one (NLI pattern)"
            )
        if sts and not has:
            raise DataError(
                f"{where}: no intermediate sentence, but every row of this file needs one (STS pattern)"
            )
        yield line, {name: row[name] for name in LLM_SENTENCES if name in row}


def _by_role(row: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the sentences of a row in the authors' layout by role; its keys are numbers, higher for a closer one."""
    if "split" not in row:
        raise DataError(
            f"{where}: missing key 'anchor', or 'split' beside 'sentence'; keys found: {listed(row)}"
        )
    numbers = sorted(
        (key for key in row if key.isdecimal() and row[key] != ""), key=int, reverse=True
    )
    roles = {len(names) - 1: names[1:] for names in LLM_PATTERNS.values()}.get(len(numbers))
    if roles is None:
        found = f"{len(numbers)} sentences under numbered keys ({listed(numbers)})"
        raise DataError(f"{where}: {found}; an LLM row has 3 (STS pattern) or 2 (NLI pattern)")
    keys = {"anchor": "sentence"} | dict(zip(roles, numbers, strict=True))
    return {role: checked_sentence(row[key], repr(key), where) for role, key in keys.items()}


def _lines(
    text: str,
    path: str,
    cells: Sequence[str],
    *,
    blank: str | None = None,
    pattern: str = "",
    form: str = "",
) -> Iterator[Row]:
    """Yield one cell per line, or the groups of `pattern`; invisible lines are left out as `blank`, if that is set."""
    text = text.rstrip("\r\n") if blank is None else text.removesuffix("\n")
    fits = re.compile(pattern or f"(?P<{cells[0]}>.*)", re.DOTALL)
    for line, cell in enumerate(text.split("\n"), start=1):
        found = fits.fullmatch(cell.strip())
        if found is None:
            raise DataError(f"{path}:{line}: {quoted(cell)} is not of the form {form}")
        yield line, found.groupdict() if blank is None or _visible(cell) else blank


def _paragraphs(text: str, path: str, cells: Sequence[str]) -> Iterator[Row]:
    """Yield the sentences of tokenised text, one paragraph per line; headings and blank lines are left out."""
    (name,) = cells
    for line, row in _lines(text, path, cells, blank="blank line"):
        if isinstance(row, str):
            yield line, row
        elif (
            (paragraph := row[name]).startswith("= ")
            and paragraph.endswith(" =")
            and paragraph.strip("= ")
        ):
            yield line, "heading"
        else:
            yield from ((line, {name: sentence}) for sentence in split_sentences(paragraph))


_ENDS: Final = frozenset(".?!")
_CLOSING: Final = _ENDS | {
    ")",
    "]",
    "}",
    "''",
    "\N{RIGHT DOUBLE QUOTATION MARK}",
}  # they stay with the sentence before


def split_sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a tokenised paragraph, split after free-standing full stops and marks (? and !).

    Closing brackets and quotes stay with the sentence, as do signs that no word follows. ``"`` closes if it is the
    second, fourth, ... of the paragraph. There is no split before a comma, semicolon, colon or lower-case letter.

    Examples:
        >>> list(split_sentences('Dr. Ames said : " Go ! " to them . " Why ? " they asked .'))
        ['Dr. Ames said : " Go ! " to them .', '" Why ? " they asked .']
    """
    sentence: list[str] = []
    ended = False
    quotes = 0
    tokens = paragraph.split(" ")
    last_word = max(
        (place for place, word in enumerate(tokens) if any(map(str.isalnum, word))), default=-1
    )
    for place, word in enumerate(tokens):
        quotes += word == '"'
        closes = word in _CLOSING or (word == '"' and quotes % 2 == 0) or place > last_word
        if ended and not closes:
            if not (word[:1].islower() or word in {",", ";", ":"}):
                yield " ".join(sentence)
                sentence = []
            ended = False
        sentence.append(word)
        ended = ended or word in _ENDS
    yield " ".join(sentence)


_QUESTION: Final = re.compile(
    'For the statement, "(.*)", does the hypothesis "(.*)" represent entailment, contradiction, or neutrality[?]',
    re.DOTALL,
)


def _questions(text: str, path: str, cells: Sequence[str]) -> Iterator[Row]:
    """Yield the pairs of LLMsKnow: a question that holds premise and hypothesis, and an answer that is the label."""
    for line, row in _table(text, path, ["Question", "Answer"]):
        question = checked_sentence(row["Question"], "Question", f"{path}:{line}")
        found = _QUESTION.fullmatch(question)
        # If the words in the middle occurred twice, it would be unclear where the premise ends.
        if found is None or question.count('", does the hypothesis "') > 1:
            wording = _QUESTION.pattern.replace("(.*)", "...").replace("[?]", "?")
            raise DataError(
                f"{path}:{line}: the Question {quoted(question)} is not worded as expected: {wording}"
            )
        yield line, {"premise": found[1], "hypothesis": found[2], "Answer": row["Answer"]}


def _impscore(text: str, path: str, cells: Sequence[str]) -> Iterator[Row]:
    """Yield ImpScore's rows, which have no splits; the cell ``split`` names the one that a row is drawn for."""
    rows = list(_table(text, path, PAIR_SENTENCES))
    for (line, row), split in zip(rows, drawn_splits(len(rows)), strict=True):
        yield line, row | {"split": split}


def drawn_splits(rows: int) -> list[str]:
    """Return the split of each row: nine tenths ``train``, a twentieth ``dev`` (both rounded down), the rest ``test``.

    Source: ImpScore, authors' code: 50,661, 2,814 and 2,815 of 56,290 rows.  Differs: the papers count pairs, two per
    row: 101,320, 5,630 and 5,630. That is one row more in dev and one less in train than the code draws.
    """
    rng = random.Random(42)  # noqa: S311 - a choice of rows, not a secret
    train = set(rng.sample(range(rows), int(rows * 0.9)))
    rest = list(
        set(range(rows)) - train
    )  # not sorted: the authors draw dev and test in a set's order
    dev = set(rng.sample(rest, int(rows * 0.05)))
    return ["train" if row in train else "dev" if row in dev else "test" for row in range(rows)]


READERS: Final[Mapping[str, Callable[..., Iterator[Row]]]] = {
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
