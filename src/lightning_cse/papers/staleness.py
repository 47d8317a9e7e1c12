"""Whether the loss of a run has been changed since the run: told by the history of the files it is in."""

from __future__ import annotations

import ast
import copy
import functools
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lightning_cse

if TYPE_CHECKING:
    from lightning_cse.papers.cells import Change
    from lightning_cse.papers.points import Found

__all__ = ["change_of", "changed_since", "differs", "loss_files"]

_PACKAGE: Final = "lightning_cse"
_FOLLOWED: Final = ("losses", "methods", "models")
"""The rooms whose files bring along what they import from their own room, and methods their models."""
_NOT_FOLLOWED: Final = ("methods/base.py", "methods/schedules.py", "models/__init__.py", "models/base.py")
"""What every method imports and none is told by.

``base.py`` is how any method is trained and watched, as the encoder, the data and the Trainer are, which are not looked
at either: each attribute that a new method needs there would make every record stale. ``schedules.py`` decides the
learning rate, and counts where a record says so: ``Schedule`` is a ``_target_``.
"""
_SIMILARITY: Final = "similarity.py"


def change_of(found: Found) -> Change:
    """Return whether the loss of a run has been changed since; of an evaluated run, that of its training.

    Args:
        found: a finished run; the record of an evaluated run is looked for above the evaluation's folder.
    """
    run = (found.record.get("model") or {}).get("run")
    if run is None:
        return changed_since(found.record)
    # <run>/evaluate/<suite>/<evaluation>: what was evaluated was made by the run's code, not by the evaluation's.
    if found.folder is None:
        return "unknown"
    try:
        record = json.loads((found.folder.parents[2] / "record.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "unknown"
    same = isinstance(record, dict) and all(record.get(key) == run.get(key) for key in ("name", "config_hash", "seed"))
    return changed_since(record) if same else "unknown"


def changed_since(record: Mapping[str, Any], package: Path | None = None) -> Change:
    """Return whether the files of a record's loss have been changed since its commit.

    The files are those of every ``_target_`` of this package under ``method`` in the record's config, what they import
    from their own room if it is ``losses`` or ``methods``, and the similarities. One is unchanged if every top-level
    definition and import that it had at the record's commit is there now and the same, docstrings, comments and
    formatting apart: what else is defined there now was not run. One that was not there then is changed: its code was
    elsewhere. What is not committed is not looked at.

    Args:
        record: of a training run; one without a method, such as the evaluation of a named model, is fresh.
        package: the folder of the package in its repository; None for this one.

    Returns:
        ``unknown`` where git, the repository, a file or the record's commit is not there.
    """
    folder = Path(lightning_cse.__file__).resolve().parent if package is None else package.resolve()
    method = ((record.get("decisive") or {}).get("config") or {}).get("method")
    if method is None:
        return "fresh"
    commit = str((record.get("environment") or {}).get("commit") or "").partition("-")[0]
    targets = tuple(sorted(set(_targets(method))))
    return _compared(folder, commit, targets)


def loss_files(package: Path, targets: tuple[str, ...]) -> list[Path]:
    """Return the files in which the losses and methods of these names are, without importing anything.

    Args:
        package: the folder of the package.
        targets: dotted names, such as ``lightning_cse.losses.InfoNCE``.

    Raises:
        FileNotFoundError: if one is nowhere.
    """
    files = {package / _SIMILARITY, *(_defining(package, target.split(".")[1:]) for target in targets)}
    left = list(files)
    while left:
        new = {file for file in _imported(left.pop(), package) if file not in files}
        files |= new
        left += new
    return sorted(files)


def differs(old: str, new: str) -> bool:
    """Return whether a module lacks, or has otherwise, what an older version of it said.

    Compared are definitions (functions, classes, assignments except to ``__all__``), imports, name by name, and
    statements that define nothing, as wholes; docstrings, comments and formatting are not. More definitions and imports
    make no difference, unless they give an old name anew; a statement more does.

    Args:
        old: the older version.
        new: the newer one. Where one of them is no Python, they differ.
    """
    try:
        before, now = _said(old), _said(new)
    except (SyntaxError, ValueError):  # a null byte, or not UTF-8
        return True
    return any(now.get(name) != said for name, said in before.items()) or now.get("") != before.get("")


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        target = node.get("_target_")
        if isinstance(target, str) and target.startswith(f"{_PACKAGE}."):
            yield target
        for child in node.values():
            yield from _targets(child)
    elif isinstance(node, list):
        for child in node:
            yield from _targets(child)


def _defining(folder: Path, names: list[str]) -> Path:
    """Return the file that a dotted name is defined in: the module it names, or where ``__init__`` has it from.

    Raises:
        FileNotFoundError: if there is none.
    """
    if names and (folder / names[0]).is_dir():
        return _defining(folder / names[0], names[1:])
    module = folder / f"{names[0] if names else '__init__'}.py"
    # A name alone is looked for in __init__ first: where letters' cases are one, NGCSE.py is ngcse.py too.
    if len(names) > 1 and module.is_file():
        return module
    stub = folder / "__init__.pyi"  # of a room whose names are imported when they are first used
    for node in ast.parse((stub if stub.is_file() else folder / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and names[:1] in [[alias.asname or alias.name] for alias in node.names]:
            return folder / f"{(node.module or '').rpartition('.')[2]}.py"
    if names and module.is_file():
        return module
    raise FileNotFoundError(f"{folder} has no {'.'.join(names)}")


def _imported(file: Path, package: Path) -> Iterator[Path]:
    """Yield the files of its own room that a file imports from, if the room is one that is followed."""
    room = file.parent
    if room.parent != package or room.name not in _FOLLOWED:
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        parts = str(node.module).split(".")
        if parts[0] != _PACKAGE or parts[1:2] not in ([room.name], ["models"]):
            continue
        for alias in node.names:
            found = _defining(package, [*parts[1:], alias.name])
            if found.relative_to(package).as_posix() not in _NOT_FOLLOWED:
                yield found


@functools.cache
def _compared(package: Path, commit: str, targets: tuple[str, ...]) -> Change:
    if not commit:
        return "unknown"
    try:
        files = tuple(file.relative_to(package).as_posix() for file in loss_files(package, targets))
        # A package that lies in the repository of something else has no history.
        if not _git(package, "ls-tree", "HEAD", "--", *files).stdout:
            return "unknown"
        differing = _git(
            package, "diff", "--relative", "--no-renames", "--name-only", "-z", commit, "HEAD", "--", *files
        )
        if differing.returncode:
            return "unknown"
        changed = any(_changed(package, commit, file) for file in differing.stdout.split("\0") if file)
    except (OSError, SyntaxError, subprocess.SubprocessError):
        return "unknown"
    return "stale" if changed else "fresh"


@functools.cache
def _changed(package: Path, commit: str, file: str) -> bool:
    """Whether a file differs from what it was at a commit, so also where one of them has no such file."""
    versions = [_git(package, "cat-file", "blob", f"{each}:./{file}") for each in (commit, "HEAD")]
    return any(version.returncode for version in versions) or differs(*(version.stdout for version in versions))


def _said(source: str) -> dict[str, list[str]]:
    """Return what a module says of each of its names, in order; of none, under "", what it does beside defining.

    Raises:
        SyntaxError: if it is no Python.
        ValueError: likewise.
    """
    module = _Undocumented().visit(ast.parse(source))
    said: dict[str, list[str]] = {}
    for statement in module.body:
        for name, part in _named(statement):
            said.setdefault(name, []).append(ast.dump(part))
    said.pop("__all__", None)
    return said


def _named(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that a statement defines, each with what it says of it."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name, statement
        case ast.Import(names) | ast.ImportFrom(names=names):
            # One name by one, so that a line of imports may grow.
            for alias in names:
                alone = copy.copy(statement)
                alone.names = [alias]
                yield alias.asname or alias.name, alone
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            # With what is put into a name's attributes or items: InfoNCE.forward = ... changes InfoNCE.
            for name in {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}:
                yield name, statement
        case ast.If(test=ast.Name("TYPE_CHECKING"), orelse=[]):
            for child in statement.body:
                yield from _named(child)
        case _:
            yield "", statement


class _Undocumented(ast.NodeTransformer):
    """Takes the docstrings out, of modules, classes, functions and attributes: constants of which nothing is made."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Return the statement unless it is a constant."""
        return None if isinstance(node.value, ast.Constant) else node


def _git(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # In a git hook, GIT_DIR and its kin point elsewhere.
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    variables["GIT_OPTIONAL_LOCKS"] = "0"
    return subprocess.run(
        ["git", "-C", str(package), *arguments],
        env=variables,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",  # told by the parser
        timeout=20,
        check=False,
    )
