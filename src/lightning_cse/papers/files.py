"""Reads the files of artefacts, and the published numbers beside them."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from lightning_cse.errors import ConfigError, did_you_mean
from lightning_cse.papers.artefacts import (
    Artefact,
    Column,
    Evaluate,
    Needs,
    Profile,
    PublishedValue,
    Row,
    Train,
    unknown_names,
)
from lightning_cse.papers.profiles import SHARED, load_yaml, shared_profiles

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def find_artefacts(folder: Path) -> dict[str, Artefact]:
    """Read all artefacts below a folder, and return them by key."""
    files = [path for path in sorted(folder.glob("*/*.yaml")) if path.name != SHARED]
    # The folder may hold configs, too.
    artefacts = [
        read_artefact(path) for path in files if load_yaml(path).keys() & {"title", "columns"}
    ]
    return {artefact.key: artefact for artefact in artefacts}


def read_artefact(path: Path) -> Artefact:
    """Read ``experiments/<paper>/<name>.yaml`` and, from ``published.csv`` beside it, the paper's
    numbers.

    Profiles that the file does not define come from ``profiles.yaml`` beside it, without rows that
    the file lacks. If the file lists its seeds, these profiles do not change them. Faults of the
    file are raised as one ConfigError, each with the file and the key.
    """
    raw = load_yaml(path)
    table = str(raw.get("published", path.stem))
    numbers = dict(_numbers(path.with_name("published.csv"), table))
    named = {
        "test": "mcnemar" if "reference" in raw else None,
        **raw,
        "published": numbers,
        "paper": path.absolute().parent.name,
        "name": path.stem,
        "path": path,
        "profiles": shared_profiles(path, raw) | raw.get("profiles", {}),
        "columns": _named(raw.get("columns", {}), "title"),
        "rows": _named(raw.get("rows", {}), "label"),
    }
    try:
        artefact: Artefact = TypeAdapter(Artefact).validate_python(named)
    except ValidationError as error:
        raise ConfigError([f"{path}: {_plain(one)}" for one in error.errors()]) from None
    unplaced = {number: _unplaced(artefact, number) for number in artefact.published}
    faults = list(_faults(artefact))
    if "published" not in raw:
        # All numbers of its own table need a cell; another table may be used in part.
        for found in unplaced.values():
            faults += found
    elif not numbers:
        faults.append(f"published: there is no table {table!r} in published.csv")
    if faults:
        raise ConfigError([f"{path}: {fault}" for fault in faults])
    placed = [number for number, found in unplaced.items() if not found]
    return dataclasses.replace(artefact, published=tuple(placed))


def _named(nodes: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the columns or rows of a file with their names under a key; a text alone is a
    metric.
    """
    named = {}
    for name, node in nodes.items():
        node = node if isinstance(node, dict) else {"metric": node}
        named[name] = {**node, key: name}
    return named


def _numbers(path: Path, table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the numbers of a table, with their lines in the file."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for line in reader:
            if line.pop("table", table) == table:
                node = {key: value for key, value in line.items() if value}
                yield f"line {reader.line_num}", {"encoder": None, **node}


def _plain(error: ErrorDetails) -> str:
    key, text = ".".join(str(part) for part in error["loc"] if part != "[key]"), error["msg"]
    if error["type"] == "unexpected_keyword_argument":
        text = f"unknown key{did_you_mean(key.rpartition('.')[2], _KEYS)}"
    return f"{key}: {text.removeprefix('Value error, ')}".removeprefix(": ")


def _faults(artefact: Artefact) -> Iterator[str]:
    """Yield a fault for each name in a file that refers to nothing."""
    columns = [column.title for column in artefact.columns]
    rows = [row.label for row in artefact.rows]
    runs = [row.label for row in artefact.rows if row.experiment]
    trained = [row.label for row in artefact.rows if isinstance(row.way, Train)]
    refers: list[tuple[str, str, Sequence[str]]] = []
    if artefact.reference:
        refers.append(("reference", artefact.reference, rows))
    for row in artefact.rows:
        if row.baseline:
            refers.append((f"rows.{row.label}.of (a trained row)", row.of, trained))
        if not artefact.encoders_of(row):
            yield f"rows.{row.label}: has no encoders"
    for by, labels in artefact.match.items():
        refers += [(f"match.{by} (a trained row)", label, runs) for label in labels]
    for column in artefact.columns:
        if column.source == "mean":
            refers += [(f"columns.{column.title}.mean", key, columns) for key in column.keys]
    for name, profile in artefact.profiles.items():
        refers += [(f"profiles.{name}.rows", label, rows) for label in profile.rows]
    yield from unknown_names(refers)


def _unplaced(artefact: Artefact, number: PublishedValue) -> list[str]:
    of_row = {
        row.name: [one or "none" for one in artefact.encoders_of(row)] for row in artefact.rows
    }
    parts = [
        ("row", number.row, [*of_row]),
        ("column", number.column, [one.title for one in artefact.columns]),
    ]
    parts += (
        [("encoder", number.encoder or "none", of_row[number.row])] if number.row in of_row else []
    )
    return unknown_names((f"published.csv: {part}", name, known) for part, name, known in parts)


_KINDS: Final = (Artefact, Row, Column, Profile, Evaluate, Needs, PublishedValue)
_KEYS: Final = [known.name for kind in _KINDS for known in dataclasses.fields(kind)]
