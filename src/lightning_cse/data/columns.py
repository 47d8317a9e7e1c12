"""The layouts of the user's own files: which columns are which roles."""

import itertools
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from lightning_cse.data.cells import NLI_LABELS, listed
from lightning_cse.data.layouts import LLM_SENTENCES, PAIR_SENTENCES
from lightning_cse.errors import ConfigError, DataError, did_you_mean

log = logging.getLogger(__name__)

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

MOST_NEGATIVES = 999  # of a row
LABELS = (*NLI_LABELS, "not_entailment", 1, "1", 0, "0")


def canonical(column: str) -> str | None:
    """Return our name for a column, or None if it has none; hard negatives keep their number."""
    name = column.strip().casefold()
    digits = _number_of_negative(name)
    if digits:
        return f"negative_{int(digits)}" if len(digits) <= len(str(MOST_NEGATIVES)) else None

    return ALIASES.get(name)


def _number_of_negative(name: str) -> str:
    """Return the digits at the end of the name of a hard negative, and "" for other names."""
    base = name.rstrip("0123456789")
    return name[len(base) :] if ALIASES.get(base.removesuffix("_")) == "negative" else ""


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

    roles = _renamed(_columns_by_role(columns, mapped))
    layout = layout_of(roles)

    if layout is None:
        method = f"{path}: {takes}" if takes else path
        raise DataError(
            f"the columns fit no known layout: {listed(columns)}\n  {method}\n  {_KNOWN_LAYOUTS}\n"
            f'  map roles to columns: "{key}={{ROLE: COLUMN, ...}}"'
        )

    used = set(itertools.chain(*LAYOUTS[layout]))
    if "negative" in used:
        used.update(negatives(roles))

    names = {role: several for role, several in roles.items() if role in used}
    _check_roles(names, columns, key)
    _check_others(columns, names)

    return {role: several[0] for role, several in names.items()}


def _columns_by_role(columns: Iterable[str], mapped: Mapping[str, str]) -> dict[str, list[str]]:
    """Return mapped and recognised columns by our names."""
    roles = {role: [column] for role, column in mapped.items()}

    for column in sorted(columns, key=lambda column: canonical(column) != column):
        role = canonical(column)
        if role is not None and role not in mapped and column not in mapped.values():
            roles.setdefault(role, []).append(column)

    return roles


def _renamed(roles: dict[str, list[str]]) -> dict[str, list[str]]:
    """Number hard negatives from 1, and call labelled pairs premise and hypothesis."""
    renamed = dict(zip(negatives(roles), numbered_negatives(len(roles)), strict=False))
    is_pair = roles.keys() >= {"sentence1", "sentence2", "label"}

    if is_pair and not roles.keys() & {"premise", "score"}:
        renamed |= {"sentence1": "premise", "sentence2": "hypothesis"}

    return {renamed.get(name, name): columns for name, columns in roles.items()}


def _check_roles(roles: Mapping[str, list[str]], columns_at: Mapping[str, str], key: str) -> None:
    """Raise DataError if a role has several columns."""
    for role, columns in roles.items():
        if len(columns) > 1:
            listing = " and ".join(map(repr, columns))
            raise DataError(
                f"{columns_at[columns[-1]]}: the columns {listing} are both read as {role}; "
                f'choose one: "{key}={{{role}: {columns[0]}}}"'
            )


def _check_others(columns: Mapping[str, str], roles: Mapping[str, list[str]]) -> None:
    """Warn of columns that are not read although they are nearly named like a role; raise DataError
    for hard negatives with too high a number.
    """
    for column in set(columns).difference(*roles.values()):
        if len(_number_of_negative(column.strip().casefold())) > len(str(MOST_NEGATIVES)):
            most = f"hard negatives are numbered up to {MOST_NEGATIVES}"
            raise DataError(f"{columns[column]}: the column {column[:100]!r}: {most}")

        if near := did_you_mean(column, _NAMES):
            log.warning("the column %r is not read%s", column, near)


def declared_columns(names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the kinds of the columns, as `corpora.yaml` declares them; ``names`` maps our names to
    columns.
    """
    types = dict.fromkeys(names, "sentence") | dict.fromkeys(negatives(names), "optional")
    types |= {"label": "label", "score": "score"}
    if layout_of(names) == "INLI":
        types |= dict.fromkeys(INLI_HYPOTHESES, "optional")

    declared: dict[str, dict[str, Any]] = {
        role: {types[role]: column} for role, column in names.items()
    }
    if "label" in declared:
        declared["label"]["values"] = LABELS

    return declared


def _described(layout: str) -> str:
    required, optional = LAYOUTS[layout]
    columns = ", ".join([*required, *optional])
    if not optional:
        return columns

    return f"{columns} ({'at least one of' if layout == 'INLI' else 'optional:'} {', '.join(optional)})"


_KNOWN_LAYOUTS = "layouts: " + " | ".join(map(_described, LAYOUTS))
