"""Reads the files of specs, with the profiles and the published numbers beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError
from yaml import YAMLError  # type: ignore[import-untyped,unused-ignore]

from lightning_cse.arguments import PROFILES
from lightning_cse.config.compose import plain_line
from lightning_cse.errors import ConfigError, did_you_mean
from lightning_cse.tables.spec import COMPUTED, PUBLISHED, Spec

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SHARED = "profiles.yaml"  # the profiles of the specs that do not define them


def find_specs(folder: Path) -> dict[str, Spec]:
    """Read all specs below a folder, and return them by key."""
    specs = {}
    for path in sorted(folder.glob("*/*.yaml")):
        # The folder may hold configs, too.
        if path.name != _SHARED and _load(path).keys() & {"title", "columns"}:
            spec = read_spec(path)
            specs[spec.key] = spec

    return specs


def read_spec(path: Path) -> Spec:
    """Read ``experiments/<paper>/<name>.yaml`` and, from ``published.csv`` beside it, the paper's
    numbers.

    Profiles that the file does not define come from ``profiles.yaml`` beside it, without rows that
    the file lacks. If the file lists its seeds, these profiles do not change them. Faults of the
    file are raised as one ConfigError, each with the file and the key.
    """
    raw = _load(path)
    table = str(raw.get("published", path.stem))
    named = {
        "test": "mcnemar" if "reference" in raw else None,
        **raw,
        "published": _numbers(path.with_name("published.csv"), table),
        "paper": path.absolute().parent.name,
        "name": path.stem,
        "path": path,
        "profiles": _profiles(path, raw),
        "columns": {
            title: {"title": title} | (node if isinstance(node, dict) else {"metric": node})
            for title, node in raw.get("columns", {}).items()
        },
        "rows": {
            label: {"label": label, "name": label} | node
            for label, node in raw.get("rows", {}).items()
        },
    }
    try:
        spec: Spec = TypeAdapter(Spec).validate_python(named)
    except ValidationError as error:
        raise ConfigError([f"{path}: {_plain(details)}" for details in error.errors()]) from None

    faults = list(_unknown(spec))
    numbers = spec.published
    keys = numbers.set_index(["row", "encoder", "column"]).index
    has_cell = keys.isin(
        [
            (row.name, encoder, column.title)
            for row in spec.rows
            for encoder in spec.encoders_of(row)
            for column in spec.columns
        ]
    )
    if "published" not in raw:
        # All numbers of its own table need a cell; another table may be used in part.
        unplaced = numbers[~has_cell].to_dict("records")
        faults += [f"published.csv: there is no cell for {number}" for number in unplaced]
    elif numbers.empty:
        faults.append(f"published: there is no table {table!r} in published.csv")

    faults += [
        f"published.csv: the value of {number} is not a number"
        for number in numbers[numbers["value"].isna()].to_dict("records")
    ]
    if faults:
        raise ConfigError([f"{path}: {fault}" for fault in faults])

    return dataclasses.replace(spec, published=numbers[has_cell].reset_index(drop=True))


def _profiles(path: Path, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the profiles of a spec and the shared ones: only its rows, and no seeds if the
    spec lists seeds.
    """
    file = path.with_name(_SHARED)
    profiles: dict[str, Any] = _load(file) if file.is_file() else {}
    for profile in profiles.values():
        if isinstance(spec.get("seeds"), list):
            profile.pop("seeds", None)

        rows = profile.get("rows", {})
        profile["rows"] = {row: rows[row] for row in rows if row in spec.get("rows", {})}

    return {**profiles, **spec.get("profiles", {})}


def _load(path: Path) -> dict[str, Any]:
    try:
        content: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except (OmegaConfBaseException, YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: {plain_line(error)}"]) from error

    return dict(content)


def _numbers(path: Path, table: str) -> pd.DataFrame:
    """Return the paper's numbers in a table: `PUBLISHED`."""
    if not path.is_file():
        return pd.DataFrame(columns=PUBLISHED)

    empty = dict.fromkeys(("value", "deviation"), "")
    types = {column: float if column in empty else str for column in PUBLISHED}
    try:
        numbers = pd.read_csv(path, dtype=types, keep_default_na=False, na_values=empty)
    except ValueError as error:
        raise ConfigError([f"{path}: {error}"]) from error

    return numbers[numbers["table"] == table].reindex(columns=PUBLISHED)


def _plain(details: ErrorDetails) -> str:
    key = ".".join(str(part) for part in details["loc"] if part != "[key]")
    return f"{key}: {details['msg'].removeprefix('Value error, ')}".removeprefix(": ")


def _unknown(spec: Spec) -> Iterator[str]:
    """Yield a fault for each name in a file that refers to nothing."""
    rows = {row.label: row for row in spec.rows}
    trained = [label for label, row in rows.items() if row.experiment]
    columns = [column.title for column in spec.columns]
    yield from _missing("reference", filter(None, [spec.reference]), rows)
    yield from _missing("match (a trained row)", spec.match, trained)
    yield from _missing("profiles", spec.profiles, PROFILES)
    for name, profile in spec.profiles.items():
        yield from _missing(f"profiles.{name}.rows", profile.rows, rows)

    for label, row in rows.items():
        if row.baseline:
            yield from _missing(f"rows.{label}.of (a trained row)", [row.of], trained)
        if not spec.encoders_of(row):
            yield f"rows.{label}: has no encoders"

    for column in spec.columns:
        if column.source in COMPUTED:
            key = f"columns.{column.title}.{column.source}"
            yield from _missing(key, column.keys, columns)


def _missing(key: str, names: Iterable[str], valid: Collection[str]) -> list[str]:
    wrong = [name for name in names if name not in valid]
    return [f"{key}: there is no {name!r}{did_you_mean(name, valid)}" for name in wrong]
