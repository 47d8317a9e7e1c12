"""The digest of a method's code, which tells whether the method has changed since a run."""

import ast
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_PACKAGE: Final = Path(__file__).parents[1]


def method_code(method: Mapping[str, Any]) -> str | None:
    """Return ten hex digits of the code of a method, or None if no class of its config is this package's.

    The code is ``similarity.py`` and the modules of ``losses/`` and ``methods/`` that define a ``_target_`` in the
    config. Comments, docstrings and the layout do not count.
    """
    names = re.findall(r'_target_": "lightning_cse\.[\w.]*\b(\w+)"', json.dumps(method))
    return _digest(tuple(sorted(set(names)))) if names else None


@functools.cache
def _digest(classes: tuple[str, ...]) -> str:
    defines = re.compile(rf"^class ({'|'.join(classes)})\b", re.MULTILINE)
    modules = sorted(
        path for package in ("losses", "methods") for path in _PACKAGE.glob(f"{package}/*.py")
    )
    sources = [text for path in modules if defines.search(text := path.read_text(encoding="utf-8"))]
    sources.append((_PACKAGE / "similarity.py").read_text(encoding="utf-8"))
    return hashlib.sha256(
        json.dumps([_tree(ast.parse(source)) for source in sources]).encode()
    ).hexdigest()[:10]


def _tree(node: Any) -> Any:
    """Return a syntax tree as nested lists, without texts that stand alone, such as docstrings."""
    if isinstance(node, list):
        return [
            _tree(one) for one in node if not (isinstance(one, ast.Expr) and _is_text(one.value))
        ]
    if not isinstance(node, ast.AST):
        return repr(node)
    # Later versions of Python add fields, which are empty here.
    fields = [
        [name, _tree(value)] for name, value in ast.iter_fields(node) if value not in (None, [])
    ]
    return [type(node).__name__, *fields]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
