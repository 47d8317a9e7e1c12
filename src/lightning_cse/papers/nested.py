"""Records and configs by dotted path: what stands at one, and all that there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["leaves", "value_at"]


def value_at(record: Mapping[str, Any], dotted: str) -> Any:
    """Return what stands at a dotted path, None where nothing does; a key may itself have dots in it.

    Example:
        >>> value_at({"best": {"score": 0.5}}, "best.score")
        0.5
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
    """Yield what is no mapping, or an empty one, by dotted path.

    Example:
        >>> dict(leaves({"method": {"loss": {"temperature": 0.05}}, "seed": 0}))
        {'method.loss.temperature': 0.05, 'seed': 0}
    """
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
