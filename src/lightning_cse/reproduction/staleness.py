"""Whether the loss of a run has been changed since the run: told by the history of the files it is in."""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lightning_cse

if TYPE_CHECKING:
    from lightning_cse.reproduction.cells import Change
    from lightning_cse.reproduction.points import Found

__all__ = ["change_of", "changed_since", "loss_files"]

_ROOMS: Final = ("lightning_cse.losses.", "lightning_cse.methods.")
"""Where a ``_target_`` decides what a run learns."""
_FOLLOWED: Final = ("losses",)
"""The rooms whose files bring along what they import from their own room: losses share their code."""
_SIMILARITY: Final = "similarity.py"


def change_of(found: Found) -> Change:
    """Return whether the loss of a run has been changed since; of an evaluated run, that of its training.

    Args:
        found: a finished run; the record of an evaluated run is looked for above the evaluation's folder.
    """
    run = (found.record.get("model") or {}).get("run")
    if run is None:
        return changed_since(found.record)
    # <run>/evaluate/<evaluation>: what was evaluated was made by the run's code, not by the evaluation's.
    if found.folder is None:
        return "unknown"
    try:
        record = json.loads((found.folder.parent.parent / "record.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "unknown"
    same = isinstance(record, dict) and all(record.get(key) == run.get(key) for key in ("name", "identity", "seed"))
    return changed_since(record) if same else "unknown"


def changed_since(record: Mapping[str, Any], package: Path | None = None) -> Change:
    """Return whether the files of a record's loss have been changed since its commit.

    The files are those of every ``_target_`` of ``losses`` and ``methods`` under ``method`` in the record's config,
    the losses they import, and the similarities. They are unchanged if the last commit that touched them is in the
    history of the record's, or if they are the same in both. What is not committed is not looked at.

    Args:
        record: of a training run; one without a method, such as the evaluation of a named model, is fresh.
        package: the folder of the package in its repository; None for this one.

    Returns:
        ``unknown`` where git, the repository, a file or the record's commit is not there.
    """
    folder = Path(lightning_cse.__file__).resolve().parent if package is None else package.resolve()
    method = ((record.get("identity_document") or {}).get("config") or {}).get("method")
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
    files = {package / _SIMILARITY}
    for target in targets:
        _, room, *rest = target.split(".")
        files.add(_defining(package / room, rest))
    left = [file for file in files if file.parent.name in _FOLLOWED]
    while left:
        new = {file for file in _imported(left.pop(), package) if file not in files}
        files |= new
        left += new
    return sorted(files)


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        target = node.get("_target_")
        if isinstance(target, str) and target.startswith(_ROOMS):
            yield target
        for child in node.values():
            yield from _targets(child)
    elif isinstance(node, list):
        for child in node:
            yield from _targets(child)


def _defining(room: Path, names: list[str]) -> Path:
    """Return the file that a name of a room is defined in: the module it names, or where its ``__init__`` has it from.

    Raises:
        FileNotFoundError: if there is none.
    """
    if len(names) > 1 and (room / f"{names[0]}.py").is_file():
        return room / f"{names[0]}.py"
    for node in ast.parse((room / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and any(names == [alias.asname or alias.name] for alias in node.names):
            return room / f"{(node.module or '').rpartition('.')[2]}.py"
    raise FileNotFoundError(f"{room} has no {'.'.join(names)}")


def _imported(file: Path, package: Path) -> Iterator[Path]:
    """Yield the files of its own room that a file imports from."""
    room = f"lightning_cse.{file.parent.name}."
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(room):
            yield package / file.parent.name / f"{(node.module or '').removeprefix(room)}.py"


@functools.cache
def _compared(package: Path, commit: str, targets: tuple[str, ...]) -> Change:
    if not commit:
        return "unknown"
    try:
        files = [str(file.relative_to(package)) for file in loss_files(package, targets)]
        last = _last_change(package, tuple(files))
        if not last or _git(package, "cat-file", "-e", f"{commit}^{{commit}}").returncode:
            return "unknown"
        within = _git(package, "merge-base", "--is-ancestor", last, commit).returncode
        if within == 0:
            return "fresh"
        # A history that was written anew has the same files under other commits.
        same = _git(package, "diff", "--quiet", commit, "HEAD", "--", *files).returncode
    except (OSError, SyntaxError, subprocess.SubprocessError):
        return "unknown"
    if within > 1 or same > 1:
        return "unknown"
    return "stale" if same else "fresh"


@functools.cache
def _last_change(package: Path, files: tuple[str, ...]) -> str:
    done = _git(package, "log", "-1", "--format=%H", "--", *files)
    return done.stdout.strip() if done.returncode == 0 else ""


def _git(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # In a git hook, GIT_DIR and its kin point elsewhere.
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    variables["GIT_OPTIONAL_LOCKS"] = "0"
    command = ["git", "-C", str(package), *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=20, check=False)
