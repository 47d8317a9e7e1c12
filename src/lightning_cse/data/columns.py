"""The columns of a file: what their cells may hold, and which roles they are in the user's own
files.
"""

import functools
import itertools
import logging
import math
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lightning_cse.errors import ConfigError, DataError, did_you_mean

log = logging.getLogger(__name__)

# Cells -------------------------------------------------------------------------------------------

NLI_LABELS = (
    "entailment",
    "neutral",
    "contradiction",
    "-",  # where the annotators did not agree
)

Columns = Sequence[str] | Mapping[str, Any]
"""The columns of a table and the cell each comes from, as `corpora.yaml` declares them."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

_repr = reprlib.Repr()  # of nested values, it shows the outer levels
_repr.maxstring = _repr.maxother = 120


def converters(columns: Columns) -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    """Yield each column's name, its cell, and the function that converts a cell; this raises
    ValueError for a cell that cannot be used.
    """
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


def _optional(cell: Any, item: int | None = None) -> str | None:
    """Return a sentence, or that with a number in a list of them, or None."""
    if item is not None:
        sentences = cell if isinstance(cell, list) else [cell]
        cell = sentences[item] if item < len(sentences) else None

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
    """Return a number, also one in ASCII digits as text."""
    low, high = range
    text = str(cell).strip()
    score = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not (math.isfinite(score) and low <= score <= high):
        bounds = f" between {low:g} and {high:g}" if math.isfinite(high - low) else ""
        raise ValueError(f"{quoted(cell)} is not a number{bounds}")

    return score if scale == 1 else round(score * scale, 3)


_KINDS: Mapping[str, Callable[..., Any]] = {
    "sentence": _sentence,
    "text": _text,
    "optional": _optional,
    "label": _label,
    "score": _score,
}

# Roles of the user's own files -------------------------------------------------------------------

PAIR_SENTENCES = ("pos_implicit", "pos_explicit", "neg_implicit", "neg_explicit")
"""The columns of a pair file: an implicit sentence with its own explicit sentence, and with that of
another row.
"""
LLM_SENTENCES = ("anchor", "positive", "intermediate", "negative")
LLM_PATTERNS = {"sts": LLM_SENTENCES, "nli": ("anchor", "positive", "negative")}
"""The columns of rows that a language model wrote, by the pattern of its examples."""
INLI_HYPOTHESES = ("implied_entailment", "explicit_entailment", "neutral", "contradiction")

LAYOUTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "implicit pairs": (PAIR_SENTENCES, ()),
    "LLM rows": (LLM_SENTENCES, ()),
    "labelled pairs": (("premise", "hypothesis", "label"), ()),
    "unlabelled pairs": (("premise", "hypothesis"), ()),
    "NLI triplets": (("premise", "entailment"), ("contradiction",)),
    "INLI": (("premise",), INLI_HYPOTHESES),  # at least one of them
    "scored triplets": (("anchor", "positive", "score"), ("negative",)),
    "triplets": (("anchor", "positive"), ("negative",)),  # or negative, negative_2, ...
    "sentence pairs": (("sentence1", "sentence2"), ("score",)),
    "sentences": (("anchor",), ()),
}
"""The layouts of the user's own files: required and optional columns; the first that fits counts.
"""

_NAMES = [name for layout in LAYOUTS.values() for columns in layout for name in columns]

ALIASES = {
    **dict(zip(_NAMES, _NAMES, strict=True)),
    "sent0": "anchor",
    "query": "anchor",
    "text": "anchor",
    "sentence": "anchor",
    "sent1": "positive",
    "pos": "positive",
    "neg": "negative",
    "hard_neg": "negative",
    "hard_negative": "negative",
    "gold_label": "label",
}
"""Common column names, mapped to our names; the names of hard negatives may end in a number."""

LABELS = (*NLI_LABELS, "not_entailment", 1, "1", 0, "0")
_NUMBERED = re.compile(r"(neg|negative|hard_neg|hard_negative)_?([0-9]{1,3})")


def canonical(column: str) -> str | None:
    """Return our name for a column, or None if it has none; hard negatives keep their number."""
    name = column.strip().casefold()
    numbered = _NUMBERED.fullmatch(name)

    return f"negative_{int(numbered[2])}" if numbered else ALIASES.get(name)


def negatives(names: Iterable[str]) -> list[str]:
    """Return the columns of hard negatives: ``negative``, ``negative_2``, ..., in this order."""
    columns = [name for name in names if name.startswith("negative")]
    return sorted(columns, key=lambda name: int(name.partition("_")[2] or 0))


def numbered_negatives(count: int) -> list[str]:
    """Return so many names of hard negatives."""
    return ["negative", *(f"negative_{number}" for number in range(2, count + 1))][:count]


def layout_of(names: Collection[str]) -> str | None:
    """Return the first of `LAYOUTS` that fits a table with these columns, or None."""
    for layout, (required, optional) in LAYOUTS.items():
        fits = set(required) <= set(names)
        if fits and (layout != "INLI" or not set(optional).isdisjoint(names)):
            return layout

    return None


def recognise(
    columns: Mapping[str, str], mapped: Mapping[str, str], *, key: str, path: str, takes: str = ""
) -> dict[str, str]:
    """Return the columns of a table's layout by our names.

    Args:
        columns: the columns of the table, and the place of each for messages, such as path:line.
        mapped: our names mapped to columns, besides those that are recognised.
        key: the config key of this mapping, for messages.
        path: the file, for messages.
        takes: which columns the method takes, for messages.

    Raises:
        ConfigError: for a mapping of a name that is not ours.
        DataError: if no layout fits, or two columns have one role.
    """
    for name, column in mapped.items():
        if canonical(name) != name:
            choices = ", ".join(dict.fromkeys(ALIASES.values()))
            raise ConfigError([f"{key}: no role {name!r}; choose from: {choices}"])

        if column not in columns:
            near = f"{did_you_mean(column, columns)}; found: {listed(columns)}"
            raise DataError(f"{key}.{name}: no column {column!r}{near} ({path})")

    by_role = _columns_by_role(columns, mapped)
    layout = layout_of(by_role)

    if layout is None:
        method = f"{path}: {takes}" if takes else path
        raise DataError(
            f"the columns fit no known layout: {listed(columns)}\n  {method}\n  {_KNOWN_LAYOUTS}\n"
            f'  map roles to columns: "{key}={{ROLE: COLUMN, ...}}"'
        )

    used = set(itertools.chain(*LAYOUTS[layout]))
    if "negative" in used:
        used.update(negatives(by_role))

    names = {}
    for role in filter(used.__contains__, by_role):
        names[role], *doubled = by_role[role]
        if doubled:
            raise DataError(
                f"{columns[doubled[-1]]}: the columns {names[role]!r} and {doubled[-1]!r} are both read "
                f'as {role}; choose one: "{key}={{{role}: {names[role]}}}"'
            )

    for column in set(columns).difference(names.values()):
        if near := did_you_mean(column, _NAMES):
            log.warning("the column %r is not read%s", column, near)

    return names


def _columns_by_role(columns: Iterable[str], mapped: Mapping[str, str]) -> dict[str, list[str]]:
    """Return mapped and recognised columns by our names; hard negatives are numbered from 1, and
    labelled pairs have premise and hypothesis.
    """
    roles = {role: [column] for role, column in mapped.items()}

    for column in sorted(columns, key=lambda column: canonical(column) != column):
        role = canonical(column)
        if role is not None and role not in mapped and column not in mapped.values():
            roles.setdefault(role, []).append(column)

    renamed = dict(zip(negatives(roles), numbered_negatives(len(roles)), strict=False))
    is_pair = roles.keys() >= {"sentence1", "sentence2", "label"}
    if is_pair and not roles.keys() & {"premise", "score"}:
        renamed |= {"sentence1": "premise", "sentence2": "hypothesis"}

    return {renamed.get(role, role): names for role, names in roles.items()}


def declared_columns(
    names: Mapping[str, str], lengths: Mapping[str, int | None]
) -> dict[str, dict[str, Any]]:
    """Return the kinds of the columns, as `corpora.yaml` declares them.

    Args:
        names: our names mapped to columns.
        lengths: the length of the longest list of each column of hard negatives; None: no lists.
    """
    optional = INLI_HYPOTHESES if layout_of(names) == "INLI" else ()
    cells: dict[str, dict[str, Any]] = {}
    hard_negatives: list[dict[str, Any]] = []

    for role, column in names.items():
        converter = role if role in ("label", "score") else "sentence"
        cells[role] = {"optional" if role in optional else converter: column}
        if role == "label":
            cells[role]["values"] = LABELS

    for role in negatives(names):
        cell = {"optional": cells.pop(role)["sentence"]}
        length = lengths[names[role]]
        items = [None] if length is None else range(max(1, length))
        hard_negatives += [cell | {"item": item} for item in items]

    return cells | dict(zip(numbered_negatives(len(hard_negatives)), hard_negatives, strict=True))


def _described(layout: str) -> str:
    required, optional = LAYOUTS[layout]
    columns = ", ".join([*required, *optional])
    if not optional:
        return columns

    return f"{columns} ({'at least one of' if layout == 'INLI' else 'optional:'} {', '.join(optional)})"


_KNOWN_LAYOUTS = "layouts: " + " | ".join(map(_described, LAYOUTS))
