"""The meaning of the columns in the user's own files: recognised by name, or mapped."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from lightning_cse.data.cells import listed
from lightning_cse.data.parsers import LLM_SENTENCES, PAIR_SENTENCES
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
"""The layouts of the user's own files: required and optional columns; the first that fits counts.
"""

_NAMES: Final = [name for layout in LAYOUTS.values() for columns in layout for name in columns]

ALIASES: Final = {
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


def canonical(column: str) -> str | None:
    """Return our name for a column, or None if it has none; hard negatives keep their number."""
    name = column.strip().casefold()
    base = name.rstrip("0123456789")

    if base != name and ALIASES.get(base.removesuffix("_")) == "negative":
        return f"negative_{int(name[len(base) :])}"

    return ALIASES.get(name)


def negatives(names: Iterable[str]) -> list[str]:
    """Return the columns of hard negatives: ``negative``, ``negative_2``, ..., in this order."""
    found = [name for name in names if name.startswith("negative")]

    return sorted(found, key=lambda name: int(name.partition("_")[2] or 0))


def numbered(number: int) -> str:
    """Return our name of the first, second, ... hard negative."""
    return "negative" if number == 1 else f"negative_{number}"


def layout_of(names: Collection[str]) -> str | None:
    """Return the first of `LAYOUTS` that fits a table with these columns, or None."""
    for layout, (needed, optional) in LAYOUTS.items():
        fits = set(needed) <= set(names)
        if fits and (layout != "INLI" or not set(optional).isdisjoint(names)):
            return layout

    return None


def recognise(
    found: Sequence[str],
    columns: Mapping[str, str],
    key: str,
    takes: str,
) -> dict[str, str]:
    """Return the columns of a table's layout by our names; raise DataError if none fits.

    Args:
        found: the columns of the table.
        columns: our names mapped to columns, besides those that are recognised.
        key: the config key of this mapping, for messages.
        takes: the file, and which columns the method takes, for messages.
    """
    for name, column in columns.items():
        if canonical(name) != name:
            choices = ", ".join(dict.fromkeys(ALIASES.values()))
            raise ConfigError([f"{key}: no role {name!r}; choose from: {choices}"])
        if column not in found:
            near = f"{did_you_mean(column, found)}; found: {listed(found)}"
            raise DataError(f"{key}.{name}: no column {column!r}{near}")

    names = _renamed(_named(found, columns))
    layout = layout_of(names)

    if layout is None:
        raise DataError(
            f"the columns fit no known layout: {listed(found)}\n  {takes}\n  {_KNOWN_LAYOUTS}\n"
            f'  map roles to columns: "{key}={{ROLE: COLUMN, ...}}"'
        )

    used = set(itertools.chain(*LAYOUTS[layout]))
    if "negative" in used:
        used.update(negatives(names))

    return {name: column for name, column in names.items() if name in used}


def _named(found: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return mapped and recognised columns by our names; our own name goes before an alias."""
    names = dict(columns)

    for column in sorted(found, key=lambda column: canonical(column) != column):
        name = canonical(column)
        if name is not None and column not in columns.values():
            names.setdefault(name, column)

    return names


def _renamed(names: dict[str, str]) -> dict[str, str]:
    """Number hard negatives from 1, and call labelled pairs premise and hypothesis."""
    renamed = {name: numbered(number) for number, name in enumerate(negatives(names), start=1)}
    is_pair = names.keys() >= {"sentence1", "sentence2", "label"}

    if is_pair and not names.keys() & {"premise", "score"}:
        renamed |= {"sentence1": "premise", "sentence2": "hypothesis"}

    return {renamed.get(name, name): column for name, column in names.items()}


_KNOWN_LAYOUTS: Final = "layouts: " + " | ".join(", ".join(one) for one, _ in LAYOUTS.values())
