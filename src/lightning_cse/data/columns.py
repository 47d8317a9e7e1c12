"""The meaning of the columns in the user's own files: recognised by common names, or mapped by the user."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from lightning_cse.arguments import hydra_text
from lightning_cse.data.parsers import LLM_SENTENCES, PAIR_SENTENCES, listed
from lightning_cse.errors import ConfigError, DataError, did_you_mean

HYPOTHESES: Final = ("implied_entailment", "explicit_entailment", "neutral", "contradiction")

LAYOUTS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "implicit pairs": (PAIR_SENTENCES, ()),
    "LLM rows": (LLM_SENTENCES, ()),
    "labelled pairs": (("premise", "hypothesis", "label"), ()),
    "unlabelled pairs": (("premise", "hypothesis"), ()),
    "NLI triplets": (("premise", "entailment"), ("contradiction",)),
    "INLI": (("premise",), HYPOTHESES),  # at least one of them
    "triplets": (("anchor", "positive"), ("negative",)),  # or negative, negative_2, ...
    "sentence pairs": (("sentence1", "sentence2"), ("score",)),
    "sentences": (("anchor",), ()),
}
"""The layouts of the user's own files: required and optional columns. The first layout that fits is taken."""

ALIASES: Final = {
    **{name: name for layout in LAYOUTS.values() for columns in layout for name in columns},
    **dict.fromkeys(("sent0", "query", "text", "sentence"), "anchor"),
    **dict.fromkeys(("sent1", "pos"), "positive"),
    **dict.fromkeys(("neg", "hard_neg", "hard_negative"), "negative"),
    "gold_label": "label",
}
"""Common column names, mapped to our names; the names of hard negatives may end in a number."""


def canonical(name: str) -> str | None:
    """Return our name for a column, or None if it has none; hard negatives keep their number."""
    name = name.strip().casefold()
    base, number = re.fullmatch(r"(.*?)(?:_?(\d+))?", name, re.DOTALL).groups()  # type: ignore[union-attr]  # it fits
    return (
        f"negative_{int(number)}"
        if number and ALIASES.get(base) == "negative"
        else ALIASES.get(name)
    )


def negatives(names: Iterable[str]) -> list[str]:
    """Return those of our names that are columns of hard negatives: ``negative``, ``negative_2``, ..."""
    return [name for name in names if name.startswith("negative")]


def layout_of(names: Collection[str]) -> str | None:
    """Return the first of `LAYOUTS` that fits a table with these columns, or None."""
    for layout, (needed, optional) in LAYOUTS.items():
        if set(needed) <= set(names) and (layout != "INLI" or not set(optional).isdisjoint(names)):
            return layout
    return None


def recognise(
    found: Sequence[str], mapping: Mapping[str, str] | None, key: str, takes: str = ""
) -> dict[str, str]:
    """Return the columns of a table's layout by our names; raise DataError if the columns fit no layout.

    ``mapping`` maps our names to columns, besides those that are recognised. Two arguments are for messages: ``key`` is
    the config key of such a mapping, if there is one, and ``takes`` says which columns the method takes.
    """
    names = dict(mapping or {})
    for name, column in names.items():
        if canonical(name) != name:
            known = dict.fromkeys(ALIASES.values())
            raise ConfigError(
                [
                    f"{key}: no role {name!r}{did_you_mean(name, known)} (choose from: {', '.join(known)})"
                ]
            )
        if column not in found:
            raise DataError(
                f"{key}.{name}: no column {column!r}{did_you_mean(column, found)}; found: {listed(found)}"
            )
    weak = [column for column in found if column.strip().casefold() in ("text", "sentence")]
    for column in [*(column for column in found if column not in weak), *weak]:
        name = canonical(column) or ""
        if (
            not name
            or column in names.values()
            or name in (mapping or ())
            or (column in weak and layout_of(names))
        ):
            continue
        if name in names:
            raise DataError(
                f"two columns for {name}: {names[name]!r} and {column!r}; {_map(key, {name: column})}"
            )
        names[name] = column
    if (
        "premise" not in names
        and {"sentence1", "sentence2", "label"} <= names.keys()
        and "score" not in names
    ):
        names |= {"premise": names.pop("sentence1"), "hypothesis": names.pop("sentence2")}
    hard = sorted(negatives(names), key=lambda name: int(name.partition("_")[2] or 0))
    numbered = {
        "negative" if k == 1 else f"negative_{k}": names.pop(name)
        for k, name in enumerate(hard, start=1)
    }
    names |= numbered
    layout = layout_of(names)
    roles = {role for columns in LAYOUTS[layout] for role in columns} if layout else set()
    kept = {
        name: column
        for name, column in names.items()
        if ("negative" if name in numbered else name) in roles
    }
    left = [column for name, column in names.items() if name not in (*kept, "label", "score")]
    meant = {} if mapping and layout else _misspelt(found, kept)
    if layout is None or (left and not mapping):
        why = (
            f"columns of several layouts ({', '.join(left)})"
            if layout
            else "the columns fit no known layout"
        )
        wanted = [word for word in re.findall(r"\w+", takes) if word in ALIASES] or [
            "anchor",
            "positive",
        ]
        raise DataError(
            f"{why}; columns found: {listed(found)}\n  {takes or 'layouts: ' + _LISTED}\n  "
            f"{_map(key, meant or dict(zip(wanted[:2], found, strict=False)))}"
        )
    for name, column in meant.items():
        raise DataError(f"unknown column {column!r} - did you mean {name!r}? {_map(key, meant)}")
    return kept


def _misspelt(found: Iterable[str], names: Collection[str]) -> dict[str, str]:
    """Return the columns that look like a misspelt form of a missing name, by our names."""
    absent = [alias for alias, name in ALIASES.items() if name not in names]
    meant: dict[str, str] = {}
    for column in found:
        if not canonical(column) and len(column) < 50:
            near = difflib.get_close_matches(column.strip().casefold(), absent, n=1, cutoff=0.85)
            meant |= {ALIASES[alias]: column for alias in near}
    return meant


def override(key: str, columns: Mapping[str, str]) -> str:
    """Return the command-line override that maps these columns, quoted for the shell."""
    cells = (f"{name}: {hydra_text(column)}" for name, column in columns.items())
    return f'"{key}={{{", ".join(cells)}}}"'


def _map(key: str, columns: Mapping[str, str]) -> str:
    return f"map roles to columns, as in {override(key, columns)}" if key else "rename the columns"


_LISTED: Final = " | ".join(
    ", ".join((*one, *(f"[{name}]" for name in two))) for one, two in LAYOUTS.values()
)
