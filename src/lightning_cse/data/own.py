"""The user's own files as tables of one layout: CSV, JSON lines, Parquet, text, data sets."""

import functools
import glob
import hashlib
import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset

from lightning_cse.data.cells import (
    NLI_LABELS,
    Row,
    account,
    columns_of,
    left_out,
    listed,
)
from lightning_cse.data.columns import (
    HYPOTHESES,
    ColumnMapping,
    canonical,
    layout_of,
    negatives,
    numbered,
)
from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.files import decoded, read_bytes
from lightning_cse.data.parsers import READERS
from lightning_cse.data.rows import Rows, SourceFile
from lightning_cse.errors import ConfigError, DataError, did_you_mean

HUB: Final = "hub:"
SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".parquet", ".txt")  # each also followed by ``.gz``
FORMS: Final = f"a file of your own ends in {', '.join(SUFFIXES)}, optionally followed by .gz"
LABELS: Final[Mapping[str | int, str]] = {
    **dict(
        zip(
            NLI_LABELS,
            NLI_LABELS,
            strict=True,
        )
    ),
    "not_entailment": "not_entailment",
    1: "1",
    "1": "1",
    0: "0",
    "0": "0",
}
_READERS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {  # with options
    ".csv": ("csv", {}),
    ".tsv": ("quoted_tsv", {}),
    ".jsonl": ("json", {}),
    ".txt": ("lines", {"blank": "blank line"}),
}
AT_ONCE: Final = 50_000  # rows that are held as Python objects at a time

log = logging.getLogger(__name__)


def is_own(name: str) -> bool:
    """Return whether a name is a file, folder or data set, and not ``corpus/split``."""
    if name.startswith(HUB) or name.removesuffix(".gz").endswith(SUFFIXES):
        return True

    if name.partition("/")[0] in CORPORA:
        return False

    return glob.has_magic(name) or Path(name).expanduser().is_dir()


def read_table(
    sources: str | Sequence[str],
    *,
    columns: Mapping[str, str] | None = None,
    key: str,
    takes: str = "",
) -> Rows:
    """Read the user's own files into one table with the columns of one of `columns.LAYOUTS`.

    A source is a path (relative to the working directory), a glob, a folder that `datasets` saved,
    or ``hub:user/name[/config][:split]`` (by default the split ``train``). ``columns`` maps our
    names to columns of the files, besides those that are recognised. Several hard negatives per row
    become ``negative``, ``negative_2``, ..., with null where a row has fewer. Error messages begin
    with ``key``, the config key of the sources; the key of ``columns`` is ``data.columns`` or
    ``own.columns``. ``takes`` says, for messages, which columns the method takes.
    """
    names = [sources] if isinstance(sources, str) else [str(source) for source in sources]
    mapping = _mapping(
        columns,
        key,
        takes,
    )

    try:
        paths = [path for name in names for path in _paths(name)]
        tables = [_read(path, mapping) for path in paths]
        _check_same_columns(tables)
    except DataError as error:
        raise DataError(f"{key}: {error}") from None

    if not tables:
        raise ConfigError([f"{key}: names no file; {FORMS}"])

    return tables[0] if len(tables) == 1 else Rows.cat(tables, fill=True)


def _mapping(
    columns: object,
    key: str,
    takes: str,
) -> ColumnMapping:
    mapping_key = f"{key.partition('.')[0]}.columns"
    if not isinstance(columns, Mapping | None):
        example = "{anchor: question}"
        raise ConfigError([f"{mapping_key}: must be a mapping such as {example}, got {columns!r}"])

    given = {str(name): str(column) for name, column in (columns or {}).items()}
    return ColumnMapping(
        given,
        mapping_key,
        takes,
    )


def _check_same_columns(tables: Sequence[Rows]) -> None:
    first = None
    for table in tables:
        names = set(table.names) - set(negatives(table.names)[1:])
        first = first or names

        if names != first:
            listing = "; ".join(
                f"{one.origin} has {listed(one.names)}" for one in (tables[0], table)
            )
            raise DataError(f"files that are read together need the same columns: {listing}")


def _paths(name: str) -> list[str]:
    """Return the files that a source names: itself, or those that a glob finds."""
    path = Path(name).expanduser()

    if name.startswith(HUB) or path.exists():
        return [name]

    paths: list[str] = []
    if glob.has_magic(name):
        paths = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - of any path

    if not paths:
        near = did_you_mean(path.name, [one.name for one in path.parent.glob("*")])
        start = f"relative paths start at the working directory, {Path.cwd()}"
        raise DataError(f"{path.absolute()}: there is no such file{near}; {start}")

    return paths


class _Source(NamedTuple):
    """An opened file: its rows, the names of its columns, and the sha256 of its bytes, if any."""

    rows: Iterator[Row]
    columns: list[str]
    sha256: str | None


def _read(name: str, mapping: ColumnMapping) -> Rows:
    """Read one file with the columns of its layout."""
    path = name if name.startswith(HUB) else str(Path(name).expanduser().absolute())
    source = _open(path, mapping.columns.values())

    try:
        names = mapping.recognise(source.columns)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None

    unused = [column for column in source.columns if column not in names.values()]
    if unused:
        log.info(
            "%s: columns that are not used: %s",
            path,
            listed(unused),
        )

    table, lines, counts, digest = _converted(
        source,
        names,
        path,
    )
    return Rows.of(
        dict(
            zip(
                table.column_names,
                table.columns,
                strict=True,
            )
        ),
        files=[
            SourceFile(
                name.removesuffix(".gz"),
                path,
                digest,
            )
        ],
        lines=lines,
        counts=counts,
    )


def _converted(
    source: _Source,
    names: Mapping[str, str],
    path: str,
) -> tuple[pa.Table, list[int], dict[str, int], str]:
    """Return the checked columns, the line of each row, the account and the digest."""
    parts: list[pa.Table] = []
    lines: list[int] = []
    dropped: Counter[str] = Counter()
    content = hashlib.sha256()

    for chunk in _chunks(source.rows):
        dropped.update(row for _, row in chunk if isinstance(row, str))
        rows = [(line, row) for line, row in chunk if not isinstance(row, str)]

        if not rows:
            continue

        values, places = _checked(
            rows,
            names,
            path,
        )
        arrays = {role: pa.array(cells) for role, cells in values.items()}
        parts.append(pa.table(arrays))
        lines += places

        if source.sha256 is None:
            content.update(json.dumps(values).encode())

    if not parts:
        raise DataError(f"{path}: no rows{left_out(dropped)}")

    table = pa.concat_tables(parts, promote_options="default")
    digest = source.sha256 or content.hexdigest()

    return table, lines, account(len(lines), dropped), digest


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Yield some rows at a time: as Python objects they take ten times the memory of a table."""
    while chunk := list(itertools.islice(rows, AT_ONCE)):
        yield chunk


def _open(path: str, mapped: Collection[str]) -> _Source:
    if path.startswith(HUB) or Path(path).is_dir():
        dataset = _dataset(path)
        return _Source(
            _dataset_rows(dataset, mapped),
            dataset.column_names,
            None,
        )

    data = read_bytes(Path(path))
    digest = hashlib.sha256(data).hexdigest()
    suffix = Path(path.removesuffix(".gz")).suffix

    if suffix not in SUFFIXES:
        raise DataError(f"{path}: {FORMS}")

    if suffix == ".parquet":
        dataset = _dataset(path, data)
        return _Source(
            _dataset_rows(dataset, mapped),
            dataset.column_names,
            digest,
        )

    text = decoded(data, path)
    name, options = _READERS[suffix]

    if suffix == ".jsonl" and re.search(r'"split": *"aigen"', text):
        name = "llm"  # LLM rows as NGCSE's authors have them

    read = functools.partial(
        READERS[name],
        text,
        path,
        ["text"],
        **options,
    )
    # Later rows of JSON lines may have further columns.
    columns = _columns_of(read(), every_row=suffix == ".jsonl")

    if not columns:
        raise DataError(f"{path}: no rows")

    return _Source(
        read(),
        columns,
        digest,
    )


def _columns_of(rows: Iterable[Row], *, every_row: bool) -> list[str]:
    """Return the columns of every row, or of the first one."""
    columns: dict[str, None] = {}

    for _, row in rows:
        if isinstance(row, str):
            continue

        columns.update(dict.fromkeys(row))
        if not every_row:
            break

    return list(columns)


def _dataset(path: str, data: bytes | None = None) -> Dataset:
    """Load a data set from the hub, from a folder, or from the bytes of a Parquet file."""
    try:
        if data is not None:
            return Rows(pq.read_table(pa.BufferReader(data)))

        if path.startswith(HUB):
            identity, _, split = path.removeprefix(HUB).partition(":")
            user, name, *config = identity.split("/", 2)

            return datasets.load_dataset(
                f"{user}/{name}",
                *config,
                split=split or "train",
            )

        dataset = datasets.load_from_disk(path)
    except Exception as error:  # noqa: BLE001 - the hub's client raises anything
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise DataError(f"{path}: cannot be loaded: {why}") from None

    if isinstance(dataset, datasets.DatasetDict):
        splits = ", ".join(f"{path}/{split}" for split in dataset)
        raise DataError(f"{path}: has several splits; choose one of: {splits}")

    return dataset


def _dataset_rows(dataset: Dataset, mapped: Collection[str]) -> Iterator[Row]:
    """Yield the rows of a data set, with the names of classes in place of their numbers."""
    chosen = [name for name in dataset.column_names if canonical(name) or name in mapped]
    classes: dict[str, dict[int, str]] = {}

    for name in chosen:
        labels = getattr(
            dataset.features[name],
            "names",
            None,
        )
        if labels:
            classes[name] = {-1: "-", **dict(enumerate(labels))}

    number = 0

    for chunk in dataset.select_columns(chosen).with_format("arrow").iter(AT_ONCE):
        for row in chunk.to_pylist():
            for name, labels in classes.items():
                row[name] = labels.get(row[name], row[name])

            number += 1
            yield number, row


def _checked(
    rows: list[Row],
    names: Mapping[str, str],
    path: str,
) -> tuple[dict[str, list[Any]], list[int]]:
    """Return the checked columns of some rows, and their lines; lists become columns or rows."""
    optional = _optional(names)

    if _has_lists(rows, names):
        rows = list(_unrolled(rows, names))
        roles = itertools.chain(names, *(row for _, row in rows))
        names = {role: role for role in roles}
        optional = _optional(names)
    elif len(negatives(names)) == 1:
        optional.discard("negative")

    if optional:
        empty = dict.fromkeys(names[role] for role in optional)
        rows = [(line, empty | row) for line, row in rows]

    values, lines, _ = columns_of(
        rows,
        _declared(names, optional),
        path,
    )
    return values, lines


def _declared(names: Mapping[str, str], optional: Collection[str]) -> dict[str, Any]:
    """Return the kinds of the columns, as `corpora.yaml` declares them."""
    columns: dict[str, Any] = {}

    for role, column in names.items():
        if role == "label":
            columns[role] = {"label": column, "values": LABELS}
        elif role == "score":
            columns[role] = {"score": column}
        elif role in optional:
            columns[role] = {"optional": column}
        else:
            columns[role] = {"sentence": column}

    return columns


def _has_lists(rows: Iterable[Row], names: Mapping[str, str]) -> bool:
    roles = ("positive", *negatives(names))
    columns = [names[role] for role in roles if role in names]
    cells = (row.get(column) for _, row in rows for column in columns)

    return any(isinstance(cell, list) for cell in cells)


def _optional(names: Collection[str]) -> set[str]:
    """Return the columns whose cells may be empty: hypotheses of INLI, and hard negatives."""
    hypotheses = HYPOTHESES if layout_of(names) == "INLI" else ()

    return {*negatives(names), *(name for name in hypotheses if name in names)}


def _unrolled(rows: Iterable[Row], names: Mapping[str, str]) -> Iterator[Row]:
    """Yield a row for each positive of a row, with all its hard negatives, under our names."""
    for line, row in rows:
        cells = {role: row.get(column) for role, column in names.items()}
        positives = _items(cells.pop("positive"))
        wrong: dict[str, Any] = {}

        for role in negatives(names):
            for negative in _items(cells.pop(role)):
                wrong[numbered(len(wrong) + 1)] = negative

        for positive in positives or [None]:
            yield (
                line,
                {
                    **cells,
                    "positive": positive,
                    **wrong,
                },
            )


def _items(cell: Any) -> list[Any]:
    if isinstance(cell, list):
        return cell
    return [] if cell in (None, "") else [cell]
