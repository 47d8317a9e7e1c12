"""The meaning of the columns in the user's own files: recognised by name, or mapped."""

import difflib
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    number = name[len(base) :]

    if number and ALIASES.get(base.removesuffix("_")) == "negative":
        return f"negative_{int(number)}"

    return ALIASES.get(name)


def negatives(names: Iterable[str]) -> list[str]:
    """Return the columns of hard negatives: ``negative``, ``negative_2``, ..."""
    return [name for name in names if name.startswith("negative")]


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


@dataclass(frozen=True)
class ColumnMapping:
    """Our names mapped to columns of the user's files, besides the columns that are recognised.

    Two values are for messages: ``key`` is the config key of the mapping, if there is one, and
    ``takes`` says which columns the method takes.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    takes: str = ""

    def recognise(self, found: Sequence[str]) -> dict[str, str]:
        """Return the columns of a table's layout by our names; raise DataError if none fits."""
        self._check(found)
        names = _renamed(self._named(found))
        layout = layout_of(names)
        misspelt = {} if layout and self.columns else _misspelt(found, names)

        if layout is None or misspelt:
            roles = [word for word in re.findall(r"\w+", self.takes) if word in ALIASES]
            roles = roles[:2] or ["anchor", "positive"]
            example = dict(zip(roles, found, strict=False))
            near = [f"{column!r} - did you mean {name!r}?" for name, column in misspelt.items()]
            raise DataError(
                f"the columns fit no known layout: {' '.join(near)}\n"
                f"  columns found: {listed(found)}\n  {self.takes or _KNOWN_LAYOUTS}\n"
                f"  map roles to columns, as in {override(self.key, misspelt or example)}"
            )

        used = set(itertools.chain(*LAYOUTS[layout]))
        if "negative" in used:
            used.update(negatives(names))

        return {name: column for name, column in names.items() if name in used}

    def _check(self, found: Sequence[str]) -> None:
        known = dict.fromkeys(ALIASES.values())
        for name, column in self.columns.items():
            if canonical(name) != name:
                near = did_you_mean(name, known)
                choices = f"choose from: {', '.join(known)}"
                raise ConfigError([f"{self.key}: no role {name!r}{near} ({choices})"])
            if column not in found:
                near = f"{did_you_mean(column, found)}; found: {listed(found)}"
                raise DataError(f"{self.key}.{name}: no column {column!r}{near}")

    def _named(self, found: Sequence[str]) -> dict[str, str]:
        """Return mapped and recognised columns by our names; our own name goes before an alias."""
        names = dict(self.columns)
        free = [column for column in found if column not in names.values()]

        for column in sorted(free, key=lambda column: canonical(column) != column):
            name = canonical(column)
            if name is not None:
                names.setdefault(name, column)

        return names


def _renamed(names: dict[str, str]) -> dict[str, str]:
    """Number hard negatives from 1, and call labelled pairs premise and hypothesis."""
    order = sorted(negatives(names), key=lambda name: int(name.partition("_")[2] or 0))
    renamed = {name: numbered(number) for number, name in enumerate(order, start=1)}
    is_pair = names.keys() >= {"sentence1", "sentence2", "label"}

    if is_pair and not names.keys() & {"premise", "score"}:
        renamed |= {"sentence1": "premise", "sentence2": "hypothesis"}

    return {renamed.get(name, name): column for name, column in names.items()}


def _misspelt(found: Iterable[str], names: Collection[str]) -> dict[str, str]:
    """Return the columns that look like a misspelt form of a missing name, by our names."""
    absent = [alias for alias, name in ALIASES.items() if name not in names]
    misspelt: dict[str, str] = {}

    for column in found:
        if canonical(column) or len(column) > 50:
            continue

        word = column.strip().casefold()
        for alias in difflib.get_close_matches(
            word,
            absent,
            n=1,
            cutoff=0.85,
        ):
            misspelt[ALIASES[alias]] = column

    return misspelt


def override(key: str, columns: Mapping[str, str]) -> str:
    """Return the command-line override that maps these columns, quoted for the shell."""
    pairs = []

    for name, column in columns.items():
        pairs.append(f"{name}: {column if column.isidentifier() else repr(column)}")

    return f'"{key}={{{", ".join(pairs)}}}"'


_KNOWN_LAYOUTS: Final = "layouts: " + " | ".join(", ".join(one) for one, _ in LAYOUTS.values())
