"""What the columns of people's own files mean: recognised by the names in use, or mapped by the user."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lightning_cse.data.parsers import LLM_SENTENCES, PAIR_SENTENCES, listed
from lightning_cse.errors import ConfigError, DataError, did_you_mean

HYPOTHESES: Final = ("implied_entailment", "explicit_entailment", "neutral", "contradiction")


@dataclass(frozen=True)
class Layout:
    """Columns that make a table: all of ``needs``, at least one of ``one_of``, and any of ``optional``."""

    needs: tuple[str, ...]
    one_of: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def __str__(self) -> str:
        one_of = (f"one or more of {', '.join(self.one_of)}",) if self.one_of else ()
        return ", ".join((*self.needs, *one_of, *(f"[{name}]" for name in self.optional)))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all its columns."""
        return (*self.needs, *self.one_of, *self.optional)

    def fits(self, names: Collection[str]) -> bool:
        """Whether a table with these columns has this layout."""
        return set(self.needs) <= set(names) and (not self.one_of or not set(self.one_of).isdisjoint(names))


LAYOUTS: Final = {
    "implicit pairs": Layout(PAIR_SENTENCES),
    "LLM rows": Layout(LLM_SENTENCES),
    "labelled pairs": Layout(("premise", "hypothesis", "label")),
    "unlabelled pairs": Layout(("premise", "hypothesis")),
    "NLI triplets": Layout(("premise", "entailment"), optional=("contradiction",)),
    "INLI": Layout(("premise",), one_of=HYPOTHESES),
    "triplets": Layout(("anchor", "positive"), optional=("negative",)),
    "sentence pairs": Layout(("sentence1", "sentence2"), optional=("score",)),
    "sentences": Layout(("anchor",)),
}
"""The layouts of people's own files, by the names of columns that `recognise` gives; the first that fits is taken."""

ALIASES: Final = {
    **{name: name for layout in LAYOUTS.values() for name in layout.names},
    **dict.fromkeys(("sent0", "query", "text", "sentence"), "anchor"),
    **dict.fromkeys(("sent1", "pos"), "positive"),
    "gold_label": "label",
}
"""The names in use, and ours; those of hard negatives besides."""

WEAK: Final = ("text", "sentence")  # a sentence where no other column is one
_NEGATIVE: Final = re.compile(r"(?:hard_)?neg(?:ative)?s?_?(\d*)")
_NO_SENTENCE: Final = ("label", "score")


def canonical(name: str) -> str | None:
    """Return our name of a column, None if it has none; hard negatives keep their number."""
    name = name.strip().casefold()
    if found := _NEGATIVE.fullmatch(name):
        return f"negative_{int(found[1])}" if found[1] else "negative"
    return ALIASES.get(name)


def recognise(found: Sequence[str], mapping: Mapping[str, str] | None, key: str, takes: str = "") -> dict[str, str]:
    """Return the columns of a table by our names, those of its layout; DataError where they fit none.

    ``mapping`` gives columns by our names, besides those that are recognised. ``key`` is the config key of such a
    mapping, and ``takes`` what the method takes, both for the message.
    """
    names = dict(mapping or {})
    for name, column in names.items():
        if canonical(name) != name:
            known = dict.fromkeys(ALIASES.values())
            raise ConfigError([f"{key}: no role {name!r}{did_you_mean(name, known)} (there are: {', '.join(known)})"])
        if column not in found:
            raise DataError(f"{key}.{name}: no column {column!r}{did_you_mean(column, found)}; found: {listed(found)}")
    for column in found:
        role = canonical(column)
        if role is None or column in names.values() or (mapping and role in mapping):
            continue
        if role in names:
            one, other = (name.strip().casefold() in WEAK for name in (names[role], column))
            if one == other:
                say = f"say which: {override(key, {role: column})}"
                raise DataError(f"two columns for {role}, {names[role]!r} and {column!r}; {say}")
            column = column if one else names[role]
        names[role] = column
    if "premise" not in names and {"sentence1", "sentence2", "label"} <= names.keys() and "score" not in names:
        names |= {"premise": names.pop("sentence1"), "hypothesis": names.pop("sentence2")}
    names = _numbered(names)
    layout = LAYOUTS.get(layout_of(names) or "")
    kept = {name: column for name, column in names.items() if layout is not None and _belongs(name, layout)}
    left = [column for name, column in names.items() if name not in (*kept, *_NO_SENTENCE)]
    left = [column for column in left if column.strip().casefold() not in WEAK]
    if layout is None or (left and not mapping):
        raise DataError(_no_layout(found, left if layout else [], key, takes))
    if not mapping and (near := misspelt([name for name in found if name not in names.values()], kept)):
        raise DataError(f"{near}; rename it, or say what the columns are: {override(key, kept)}")
    return kept


def negatives(names: Iterable[str]) -> list[str]:
    """Return the columns of hard negatives, in order: ``negative``, ``negative_2``, ..."""
    return [name for name in names if _NEGATIVE.fullmatch(name)]


def optional_columns(names: Collection[str]) -> list[str]:
    """Return the columns, by our names, whose cells may be empty: hypotheses of INLI, and hard negatives."""
    one_of = LAYOUTS[layout_of(names) or "sentences"].one_of
    return [name for name in names if name in one_of or _NEGATIVE.fullmatch(name)]


def layout_of(names: Collection[str]) -> str | None:
    """Return the first of `LAYOUTS` that a table with these columns has."""
    return next((name for name, layout in LAYOUTS.items() if layout.fits(names)), None)


def _numbered(names: dict[str, str]) -> dict[str, str]:
    """Return the columns with the hard negatives numbered from one, of which the first has no number."""
    order = sorted(negatives(names), key=lambda name: int(name.rpartition("_")[2]) if "_" in name else 0)
    others = {name: column for name, column in names.items() if name not in order}
    return others | {f"negative_{k}" if k > 1 else "negative": names[name] for k, name in enumerate(order, start=1)}


def _belongs(name: str, layout: Layout) -> bool:
    several = "negative" in layout.optional and bool(_NEGATIVE.fullmatch(name))
    return several or name in layout.names


def misspelt(columns: Iterable[str], known: Collection[str]) -> str:
    """Return which column looks like a name that is not there, or an empty string."""
    absent = [alias for alias, name in {**ALIASES, "negative": "negative"}.items() if name not in known]
    for column in (column for column in columns if not canonical(column)):
        if near := difflib.get_close_matches(column.strip().casefold()[:120], absent, n=1, cutoff=0.85):
            return f"unknown column {column[:120]!r} - did you mean {near[0]!r}?"
    return ""


def override(key: str, columns: Mapping[str, str]) -> str:
    """Return the override that maps columns, quoted for the shell."""
    cells = (f"{name}: {column if column.isidentifier() else repr(column)}" for name, column in columns.items())
    return f'"{key}={{{", ".join(cells)}}}"'


def _no_layout(found: Sequence[str], left: Sequence[str], key: str, takes: str) -> str:
    why = f"columns of several layouts ({', '.join(left)})" if left else "the columns fit no known layout"
    roles = [word for word in re.findall(r"\w+", takes) if word in ALIASES] or ["anchor", "positive"]
    example = dict(zip(roles[:2], found, strict=False))
    return (
        f"{why}{'; ' * bool(near := misspelt(found, ()))}{near}; columns found: {listed(found)}\n"
        f"  {takes or 'layouts: ' + ' | '.join(map(str, LAYOUTS.values()))}\n"
        f"  say which column is which, such as {override(key, example)}"
    )
