"""Access to records and configs by dotted path."""

from collections.abc import Mapping
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
