"""Key paths in a composed config: which exist, which are arguments of a built node, and which one was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

_MOST_SUGGESTIONS = 3


def leaves(value: Any) -> Iterator[list[str]]:
    """The key paths inside a value: of ``{a: {b: 1}, c: 2}``, a.b and c; of anything but a mapping, the empty path."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            for rest in leaves(inner):
                yield [str(key), *rest]
    else:
        yield []


def plain(cfg: DictConfig) -> dict[str, Any]:
    """The config as plain containers, interpolations unresolved, without Hydra's own part."""
    tree: Any = OmegaConf.to_container(cfg, resolve=False)
    return {str(key): value for key, value in tree.items() if key != "hydra"}


def _steps(tree: Any, path: Sequence[str]) -> Iterator[Any]:
    """The nodes along a path, the root first, as far as they exist."""
    node = tree
    yield node
    for part in path:
        if isinstance(node, dict):
            keys = {str(key): key for key in node}
            if part not in keys:
                return
            node = node[keys[part]]
        elif isinstance(node, list):
            if not part.isdigit() or int(part) >= len(node):
                return
            node = node[int(part)]
        else:
            return
        yield node


def exists(tree: Any, path: Sequence[str]) -> bool:
    """Whether a key is there, be its value null, ``???``, or behind an interpolation."""
    nodes = list(_steps(tree, path))
    if len(nodes) == len(path) + 1:
        return True
    return isinstance(nodes[-1], str) and "${" in nodes[-1]  # an interpolation: Hydra follows it


def at(tree: Any, path: Sequence[str]) -> Any:
    """The node at a path, or the last one on the way to it."""
    return list(_steps(tree, path))[-1]


def _is_target(node: Any) -> bool:
    return isinstance(node, dict) and "_target_" in node


def below_target(tree: Any, path: Sequence[str]) -> bool:
    """Whether a key stands, or would stand, somewhere below a node with a ``_target_``."""
    return any(_is_target(node) for node in _steps(tree, path[:-1]))


def is_argument(tree: Any, extended: Any, path: Sequence[str]) -> bool:
    """Whether an added key is an argument of a node that is built, be it one that the command line adds (a callback).

    A new node counts only where there is a place for it: ``+callbacks.mine._target_=...``, not at the top.
    """
    for depth, node in enumerate(_steps(extended, path[:-1])):
        if _is_target(node) and (exists(tree, path[:depth]) or (depth > 1 and exists(tree, path[: depth - 1]))):
            return True
    return False


OPEN = (("llm", "parameters"),)
"""Mappings of the config that take any key: what they hold is sent on as it stands."""


def is_open(tree: Any, path: Sequence[str], key: Sequence[str]) -> bool:
    """Whether there is a place for whatever key: in a mapping of `OPEN`, or in one that a null stands for until now.

    Args:
        tree: the config.
        path: what is set.
        key: the key on the command line; the rest of the path is inside its value, where that is a mapping.
    """
    if any(tuple(path[: len(parent)]) == parent and exists(tree, parent) for parent in OPEN):
        return True
    return len(key) < len(path) and exists(tree, key) and at(tree, key) is None


def _all_paths(tree: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(tree, dict):
        for key, node in tree.items():
            yield (*before, str(key))
            yield from _all_paths(node, (*before, str(key)))


def suggest_key(path: Sequence[str], tree: Any) -> str:
    """Return ``" - did you mean ...?"``, or an empty string.

    Tried are a sibling that is spelled alike, then the full keys that end in the same word, then in a similar one.
    """
    known = len(list(_steps(tree, path))) - 1
    parent = at(tree, path[:known])
    siblings = [str(key) for key in parent] if isinstance(parent, dict) else []
    if close := difflib.get_close_matches(path[known], siblings, n=1):
        meant = [*path[:known], close[0]]
        whole = [*meant, *path[known + 1 :]]
        return f" - did you mean '{'.'.join(whole if exists(tree, whole) else meant)}'?"
    paths = [found for found in _all_paths(tree) if found[0] != "recipe" and not found[-1].startswith("_")]
    same = [".".join(found) for found in paths if found[-1] == path[-1]]
    if not same and (near := difflib.get_close_matches(path[-1], {found[-1] for found in paths}, n=1, cutoff=0.8)):
        same = [".".join(found) for found in paths if found[-1] == near[0]]
    if not same:
        return ""
    return f" - did you mean {' or '.join(repr(name) for name in same[:_MOST_SUGGESTIONS])}?"
