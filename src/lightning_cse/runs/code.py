"""The digest of a method's code, by which a record shows whether its numbers may have changed.

It has two parts. The *results* are the golden results of the method's experiments: they stay the
same when the code is only rewritten. The *source* is that of the functions that these experiments
do not run completely, where a change shows in no golden result. ``python scripts/golden.py runs``
writes ``golden.json`` beside this file, which has the digest of the results and the names of the
functions.
"""

import ast
import functools
import hashlib
import importlib
import importlib.util
import json
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
GOLDEN = Path(__file__).with_name("golden.json")

COMMON = "SimCSE"
"""The method whose golden results stand for the shared code that a method from outside runs."""

_LOGGERS = ("log", "_LOG")


def code_digest(method: Mapping[str, Any]) -> str:
    """Return a digest that changes when the numbers of a method may have changed.

    For a method of this package, it is ten hex digits each of the golden results and of the source
    that they do not cover. For a method from outside, the source of its modules comes first, with
    all modules that they import except installed packages. ``method`` is its config, with a
    ``_target_``.
    """
    targets = list(_targets(method))
    outside = [target for target in targets if own_modules([target])]
    parts = []
    if outside:
        sources = [normalised(ast.parse(path.read_bytes())) for path in own_modules(outside)]
        parts.append(digest(sources))

    name = COMMON if outside else targets[0].rpartition(".")[2]
    golden = golden_methods().get(name, {"results": "no golden results", "unexercised": []})
    parts.append(golden["results"])
    parts.append(source_digest(golden["unexercised"]))

    return "-".join(parts)


@functools.cache
def golden_methods() -> dict[str, dict[str, Any]]:
    """Return the digest of the golden results and the unexercised functions of each method."""
    methods: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return methods


def digest(value: Any) -> str:
    """Return ten hex digits of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def source_digest(functions: Iterable[str], package: Path = PACKAGE) -> str:
    """Return a digest of functions (``"tokens.py:_flat"``), whatever their names and order.

    Constants of the module that a function reads belong to it. A missing function counts as
    changed.
    """
    sources = []
    for place in functions:
        file, _, name = place.partition(":")
        sources.append(functions_of(package / file).get(name, place))

    return digest(sorted(sources))


@functools.cache
def functions_of(path: Path) -> dict[str, str]:
    """Return the normalised source of each function and method of a file, by qualified name."""
    tree = ast.parse(path.read_bytes())
    constants = {}
    for statement in tree.body:
        target = _assigned(statement)
        if target is not None:
            constants[target] = statement

    sources = {}
    for name, function in named_functions(tree):
        reads = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        used = [normalised(constants[key]) for key in sorted(reads & constants.keys())]
        sources[name] = json.dumps([normalised(function), sorted(used)])

    return sources


def named_functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions and methods of a module, with their qualified names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def _assigned(statement: ast.stmt) -> str | None:
    """Return the name that a statement assigns at the top of a module."""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id

    return None


# Syntax trees without what changes no number


def normalised(tree: ast.AST) -> str:
    """Return a syntax tree as text, without what changes no number.

    Left out are docstrings, comments, layout, annotations, messages of errors and of the log, and
    the names of local variables and of the function itself.
    """
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            names.setdefault(node.arg, f"local{len(names)}")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.setdefault(node.id, f"local{len(names)}")

    return json.dumps(_plain(tree, names), separators=(",", ":"))


_UNIMPORTANT = frozenset({"annotation", "returns", "type_comment", "type_params", "kind"})


def _plain(node: Any, names: Mapping[str, str]) -> Any:
    """Return a syntax tree as nested lists with renamed local variables."""
    if isinstance(node, list):
        return [_plain(item, names) for item in node if not _is_text(item)]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Raise):
        return ["Raise"]
    if isinstance(node, ast.Name):
        return ["Name", names.get(node.id, node.id)]
    if isinstance(node, ast.arg):
        return ["arg", names[node.arg]]

    fields = []
    for name, value in ast.iter_fields(node):
        if name in _UNIMPORTANT or value in (None, []):  # later versions of Python add empty fields
            continue
        if isinstance(node, ast.FunctionDef) and name == "name":
            continue

        fields.append([name, _plain(value, names)])

    return [type(node).__name__, *fields]


def _is_text(node: Any) -> bool:
    """Whether a statement is a docstring or a call of the log."""
    if not isinstance(node, ast.Expr):
        return False

    value = node.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        owner = value.func.value
        return isinstance(owner, ast.Name) and owner.id in _LOGGERS

    return isinstance(value, ast.Constant) and isinstance(value.value, str)


# Code from outside the package


def own_modules(targets: Iterable[str]) -> list[Path]:
    """Return the files of the classes' modules and of all that these import, except libraries."""
    waiting = [target.rpartition(".")[0] for target in targets]
    files: dict[Path, None] = {}
    while waiting:
        name = waiting.pop()
        path = _file_of(name)
        if path is None or path in files or _is_library(path):
            continue

        files[path] = None
        waiting.extend(_imports(ast.parse(path.read_bytes()), name))

    return sorted(files)


def _targets(node: Any) -> Iterator[str]:
    """Yield every ``_target_`` of a config, the outermost first."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield str(node["_target_"])

        for value in node.values():
            yield from _targets(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _targets(value)


def _is_library(path: Path) -> bool:
    """Whether a file belongs to this package, to an installed one, or to Python."""
    libraries = [PACKAGE, *map(Path, sysconfig.get_paths().values())]
    return "site-packages" in path.parts or any(path.is_relative_to(one) for one in libraries)


def _file_of(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None

    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None

    return Path(spec.origin).resolve()


def _imports(tree: ast.Module, module: str) -> Iterator[str]:
    """Yield the names of modules that a module may import; other names lead to no file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            if node.level:
                package = module.rpartition(".")[0]
                base = importlib.util.resolve_name(base, package) if package else node.module or ""

            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
