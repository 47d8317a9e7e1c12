"""Access to records and configs by dotted path."""

from collections.abc import Iterator, Mapping
from typing import Any


def value_at(record: Mapping[str, Any], dotted: str) -> Any:
    """Return the value at a dotted path, or None if there is none; a key may itself contain
    dots.
    """
    node: Any = record
    while dotted:
        if not isinstance(node, Mapping):
            return None
        if dotted in node:
            return node[dotted]
        head, _, dotted = dotted.partition(".")
        node = node.get(head)
    return node


def leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the value of every leaf; an empty mapping is a leaf."""
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
