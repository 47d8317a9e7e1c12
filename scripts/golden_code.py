"""Which code the golden runs exercise: the file ``golden.json`` from which a record's digest of
code is made.

A function is exercised by a method if the golden runs of the method's experiments execute all of
its statements, except those that raise errors. A function that they enter but do not run completely
belongs to the method's unexercised functions. A function that no golden run enters belongs to all
methods that use its file, or to every method if no golden run uses the file.
"""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import coverage

from lightning_cse.runs.code import GOLDEN, PACKAGE, digest, named_functions

FILES: Final = (
    "losses/*.py",
    "methods/*.py",
    "models/*.py",
    "encoders/*.py",
    "data/sampler.py",
    "embeddings.py",
    "similarity.py",
    "tokens.py",
)
"""The code that decides the numbers of a method."""

Lines = dict[str, set[int]]
"""The executed lines of each file."""


@contextlib.contextmanager
def executed() -> Iterator[Lines]:
    """Fill the yielded mapping with the lines of `FILES` that are executed in the block."""
    lines: Lines = {}
    tracer = coverage.Coverage(
        data_file=None, config_file=False, include=[str(PACKAGE / pattern) for pattern in FILES]
    )
    tracer.start()
    try:
        yield lines
    finally:
        tracer.stop()
        data = tracer.get_data()
        for file in data.measured_files():
            name = Path(file).relative_to(PACKAGE).as_posix()
            lines[name] = set(data.lines(file) or ())


def code_of_methods(
    results: Mapping[str, Any], method_of: Mapping[str, str], lines_of: Mapping[str, Lines]
) -> dict[str, dict[str, Any]]:
    """Return, by method, the digest of its golden results and the functions that its golden runs do
    not exercise.

    All arguments are by experiment: its golden results, its method's class, and the lines that its
    run executes.
    """
    functions = {place: lines for file in _files() for place, lines in _functions(file).items()}
    lines: dict[str, Lines] = {}
    for experiment, of_run in lines_of.items():
        known = lines.setdefault(method_of[experiment], {})
        for file, executed_lines in of_run.items():
            known.setdefault(file, set()).update(executed_lines)

    entered = {
        method: {place for place, needed in functions.items() if needed & _of(known, place)}
        for method, known in lines.items()
    }
    by_any = set().union(*entered.values())
    used_files = {place.partition(":")[0] for place in by_any}
    methods = {}
    for method, known in sorted(lines.items()):
        own_files = {place.partition(":")[0] for place in entered[method]}
        unexercised = []
        for place, needed in functions.items():
            file = place.partition(":")[0]
            if place in entered[method]:
                if needed - _of(known, place):
                    unexercised.append(place)
            elif place not in by_any and needed and (file in own_files or file not in used_files):
                unexercised.append(place)

        experiments = [name for name in sorted(results) if method_of[name] == method]
        methods[method] = {
            "results": digest({name: results[name] for name in experiments}),
            "unexercised": unexercised,
        }

    return methods


def places() -> set[str]:
    """Return every function of `FILES`: ``"similarity.py:cosine"``."""
    return {place for path in _files() for place in _functions(path)}


def write_code(methods: Mapping[str, Any]) -> Path:
    """Write ``golden.json``."""
    GOLDEN.write_text(json.dumps(methods, indent=1) + "\n", encoding="utf-8")
    return GOLDEN


def _of(lines: Lines, place: str) -> set[int]:
    return lines.get(place.partition(":")[0], set())


def _files() -> list[Path]:
    return sorted(path for pattern in FILES for path in PACKAGE.glob(pattern))


def _functions(path: Path) -> dict[str, set[int]]:
    """Return the lines that each function of a file must execute to be exercised."""
    file = path.relative_to(PACKAGE).as_posix()
    tree = ast.parse(path.read_bytes())

    return {
        f"{file}:{name}": set(_statements(function.body))
        for name, function in named_functions(tree)
    }


def _statements(body: list[ast.stmt]) -> Iterator[int]:
    """Yield the lines of statements that compute something; blocks that end in an error are left
    out.
    """
    if isinstance(body[-1], ast.Raise):
        return

    for statement in body:
        if isinstance(statement, ast.Pass | ast.Global | ast.Nonlocal):
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # a docstring

        yield statement.lineno
        for inner in ("body", "orelse", "finalbody"):
            block = getattr(statement, inner, [])
            if block:
                yield from _statements(block)

        for handler in getattr(statement, "handlers", ()):
            yield from _statements(handler.body)
