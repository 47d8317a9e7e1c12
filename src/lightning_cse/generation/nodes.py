"""What the nodes of a pattern's config have in common: keys that are known or missing, and plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from lightning_cse.errors import did_you_mean

__all__ = ["absent_keys", "given", "is_list", "is_number", "is_pair", "is_text", "is_whole", "unknown_keys"]

_LEFT_OPEN: Final = "???"
"""What stands in a config where a value is still to be given."""


def given(node: Mapping[Any, Any], key: str) -> Any:
    """Return the value of a key; None where it is missing, null or left open."""
    value = node.get(key)
    return None if value == _LEFT_OPEN else value


def unknown_keys(node: Mapping[Any, Any], known: Iterable[str], at: str) -> Iterator[str]:
    """Yield a fault for each key of a node that is none of the known ones."""
    known = list(known)
    for key in node:
        if key not in known:
            yield f"{at}.{key}: there is no such key{did_you_mean(str(key), known)}; there are {', '.join(known)}"


def absent_keys(node: Mapping[Any, Any], needed: Mapping[str, str], at: str) -> Iterator[str]:
    """Yield a fault for each key that a node lacks; ``needed`` says of each what it is."""
    for key, what in needed.items():
        if given(node, key) is None:
            yield f"{at}.{key}: is missing; it is {what}"


def is_text(value: Any) -> bool:
    """Return whether a value is a text with more than blanks in it."""
    return isinstance(value, str) and bool(value.strip())


def is_list(value: Any) -> bool:
    """Return whether a value is a list."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def is_pair(value: Any) -> bool:
    """Return whether a value is a list of two texts."""
    return is_list(value) and len(value) == 2 and all(map(is_text, value))


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and neither true nor false, infinite or none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any, least: int) -> bool:
    """Return whether a value is a whole number of at least ``least``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
