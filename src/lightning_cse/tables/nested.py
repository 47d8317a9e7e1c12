"""Access to records and configs by dotted path."""

from collections.abc import Mapping
from typing import Any


def value_at(record: Mapping[str, Any], dotted: str) -> Any:
    """Return the value at a dotted path, or None if there is none."""
    node: Any = record
    for key in dotted.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None

    return node
