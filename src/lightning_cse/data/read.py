"""One reader: files, saved data sets and those of the hub become a `datasets.Dataset`.

Each format is opened as columns and rows, of which `read_rows` makes a table with one column per
role, and the ``file`` and ``line`` of each row. `read_files` reads the user's own files.
"""

import contextlib
import functools
import glob
import hashlib
import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets import Dataset
from datasets.table import InMemoryTable

from lightning_cse.data.columns import (
    Columns,
    converters,
    declared_columns,
    is_number,
    listed,
    negatives,
    recognise,
)
from lightning_cse.data.declarations import CORPORA
from lightning_cse.data.files import lines_of, read_bytes, sha256_of, state_of
from lightning_cse.data.formats import (
    Row,
    RowReport,
    by_role,
    has_authors_layout,
    read_delimited,
    read_json_lines,
    read_json_list,
    read_lines,
    repeated,
)
from lightning_cse.data.rows import (
    BATCH,
    FILE,
    LINE,
    Account,
    SourceFile,
    concatenate,
    count_dropped,
    names_of,
    origin_of,
    with_files,
)
from lightning_cse.data.token_cache import usable
from lightning_cse.errors import DataError, one_line
from lightning_cse.runs import atomic_file, public, write_json

HUB = "hub:"
VERSION = 3  # of the files in the cache
LARGE = 2**24  # bytes; a smaller file is read into memory
_GZ = re.compile(r"\.gz$", re.IGNORECASE)
_EXCEL = re.compile(r'"?sep=(.)"?\r?\n?', re.IGNORECASE)  # a first line that names the delimiter

log = logging.getLogger(__name__)


def is_file(name: str) -> bool:
    """Return whether a name is a file, folder or data set, and not ``corpus/split``."""
    if name.startswith(HUB) or _suffix(name) in SUFFIXES:
        return True

    if name.partition("/")[0] in CORPORA:
        return False

    return name.startswith("~") or glob.has_magic(name) or Path(name).is_dir()


def read_files(
    sources: str | Sequence[str],
    *,
    key: str,
    columns: Mapping[str, str] | None = None,
    columns_key: str = "data.columns",
    takes: str = "",
    cache_dir: Path | None = None,
    account: Account | None = None,
) -> Dataset:
    """Read the user's own files into one table with the columns of one of `LAYOUTS`.

    A source is a path (relative to the working directory), a glob, a folder that `datasets` saved,
    or ``hub:user/name[/config][:split]`` (by default the split ``train``). Several hard negatives
    per row, in numbered columns or in a list, become ``negative``, ``negative_2``, ..., with null
    where a row has fewer.

    Args:
        sources: the sources.
        key: the config key of the sources, with which messages of errors begin.
        columns: our names mapped to columns of the files, besides those that are recognised.
        columns_key: the config key of this mapping.
        takes: which columns the method takes, for messages.
        cache_dir: the folder of the cache, which holds the rows of large files.
        account: adds how many rows were ``read`` and ``dropped: <reason>``.

    Raises:
        DataError: with the file, and the line where there is one, of what cannot be read.
    """
    names = [sources] if isinstance(sources, str) else [str(source) for source in sources]
    recognised = functools.partial(recognise, mapped=columns or {}, key=columns_key, takes=takes)

    try:
        paths = [path for name in names for path in _paths_of(name)]
        tables = [_read(path, recognised, columns or {}, cache_dir, account) for path in paths]
    except DataError as error:
        raise DataError(f"{key}: {error}") from None

    required = [set(names_of(table)) - set(negatives(names_of(table))[1:]) for table in tables]
    if any(names != required[0] for names in required):
        listing = "; ".join(f"{origin_of(table)} has {listed(names_of(table))}" for table in tables)
        raise DataError(f"{key}: files that are read together need the same columns: {listing}")

    return concatenate(tables, fill=True)


def _paths_of(name: str) -> list[str]:
    """Return the files that a source names: itself, or those that a glob finds."""
    if name.startswith(HUB):
        return [name]

    path = _expanded(name)
    if path.exists():
        return [name]

    paths = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - of any path
    if not paths:
        raise DataError(f"{path.absolute()}: there is no such file")

    return paths


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise DataError(f"{name}: there is no home folder of this user") from None


def _suffix(name: str) -> str:
    """Return the suffix of a file's name in lower case, without ``.gz``."""
    return Path(_GZ.sub("", name).lower()).suffix


@dataclass(frozen=True)
class _Table:
    """The columns of a file, each with its place for messages; the length of the longest list in a
    column, or None if it has no lists; and the rows, which have some columns.
    """

    columns: Mapping[str, str]
    rows: Callable[[list[str]], Iterator[Row]]
    longest_list: Callable[[str], int | None] = lambda _: None


def _read(
    name: str,
    recognised: Callable[..., dict[str, str]],
    columns: Mapping[str, str],
    cache_dir: Path | None,
    account: Account | None,
) -> Dataset:
    """Read one file with the columns of its layout."""
    path = name if name.startswith(HUB) else str(_expanded(name).absolute())
    sha256 = None
    open_table: Callable[[RowReport], _Table]

    if name.startswith(HUB) or Path(path).is_dir():
        dataset = _data_set(path)
        size = dataset.data.nbytes
        sha256 = fingerprint_sha256(dataset)
        open_table = functools.partial(_open_data_set, dataset)
    elif _suffix(path) in SUFFIXES:
        size = Path(path).stat().st_size
        open_table = _OPENERS[_suffix(path)]
    else:
        raise DataError(f"{path}: {FORMS}")

    def load(report: RowReport) -> tuple[Columns, Iterator[Row]]:
        table = open_table(report)
        names = recognised(table.columns, path=path)
        used = list(dict.fromkeys(names.values()))
        log.info("%s: columns: %s; used: %s", path, listed(table.columns), listed(used))
        lengths = {names[role]: table.longest_list(names[role]) for role in negatives(names)}

        return declared_columns(names, lengths), table.rows(used)

    return read_rows(
        load,
        _GZ.sub("", name),
        path,
        identity=sorted(columns.items()),
        sha256=sha256,
        size=size,
        cache_dir=cache_dir,
        account=account,
    )


# Text --------------------------------------------------------------------------------------------


def _open_delimited(usual: str, report: RowReport) -> _Table:
    """Read delimited text; the first line may name the delimiter, as Excel's."""
    lines = lines_of(Path(report.path))
    number, header = 1, next(lines, "")
    excel = _EXCEL.fullmatch(header)
    if excel:
        number, header = 2, next(lines, "")
        delimiter = excel[1]
    else:
        delimiter = next((sign for sign in (usual, *";\t|,") if sign in header), usual)

    rows = read_delimited(
        itertools.chain([header], lines), report, delimiter=delimiter, line=number
    )
    first = next(rows, None)
    if first is None:
        raise DataError(f"{report.path}: no rows")

    columns = dict.fromkeys(first[1], f"{report.path}:{number}")

    return _Table(columns, lambda _: itertools.chain([first], rows))


def _open_sentences(report: RowReport) -> _Table:
    """Read a sentence per line."""

    def rows(_: list[str]) -> Iterator[Row]:
        for line, row in read_lines(lines_of(Path(report.path)), report, blank="blank line"):
            if "\r" in row["text"]:
                report.bad(line, "a CR within the line, which is a line end on old Macs")

            yield line, row

    return _Table({"text": report.path}, rows)


def _open_json(report: RowReport) -> _Table:
    """Read JSON, whose rows may have different columns; it is read twice, first for the columns."""
    path = Path(report.path)
    start = next(filter(str.strip, lines_of(path)), "").lstrip()
    is_list = _suffix(report.path) == ".json" and start.startswith("[")
    parse = read_json_list if is_list else read_json_lines
    first = next(parse(lines_of(path), report), (0, {}))
    is_llm = has_authors_layout(first[1])

    def parsed(report: RowReport) -> Iterator[Row]:
        rows = parse(lines_of(path), report)
        return by_role(rows, report) if is_llm else rows

    columns: dict[str, str] = {}
    lengths: dict[str, int] = {}
    for line, row in parsed(RowReport(report.path)):
        for name, cell in row.items():
            columns.setdefault(name, f"{report.path}:{line}")
            if isinstance(cell, list):
                lengths[name] = max(lengths.get(name, 0), len(cell))

    if not columns:
        raise DataError(f"{report.path}: no rows")

    def rows(names: list[str]) -> Iterator[Row]:
        lacking = dict.fromkeys(names)
        return ((line, lacking | row) for line, row in parsed(report))

    return _Table(columns, rows, lengths.get)


# Arrow -------------------------------------------------------------------------------------------


def _open_parquet(report: RowReport) -> _Table:
    path = Path(report.path)
    with _loading(report.path):
        packed = path.suffix.lower() == ".gz"
        file = pq.ParquetFile(pa.BufferReader(read_bytes(path)) if packed else path)

    return _arrow(
        report.path, file.schema_arrow, lambda names: file.iter_batches(BATCH, columns=names)
    )


def _data_set(name: str) -> Dataset:
    """Return a data set of the hub, or of a folder."""
    with _loading(name):
        if name.startswith(HUB):
            identity, _, split = name.removeprefix(HUB).partition(":")
            user, data, *config = identity.split("/", 2)
            dataset = datasets.load_dataset(f"{user}/{data}", *config, split=split or "train")
        else:
            dataset = datasets.load_from_disk(name)

    if isinstance(dataset, datasets.DatasetDict):
        splits = ", ".join(f"{name}/{split}" for split in dataset)
        raise DataError(f"{name}: has several splits; choose one of: {splits}")

    return dataset


def _open_data_set(dataset: Dataset, report: RowReport) -> _Table:
    tables = dataset.with_format("arrow")
    schema = dataset.features.arrow_schema

    return _arrow(report.path, schema, lambda names: tables.select_columns(names).iter(BATCH))


def _arrow(path: str, schema: pa.Schema, batches: Callable[[list[str]], Iterable[Any]]) -> _Table:
    """Return the rows of Arrow batches with the names of classes for their numbers."""
    if twice := repeated(schema.names):
        raise DataError(f"{path}: the column {twice!r} occurs twice")

    def longest_list(name: str) -> int | None:
        if not pa.types.is_nested(schema.field(name).type):
            return None

        with _loading(path):
            lengths = (pc.list_value_length(batch.column(name)) for batch in batches([name]))
            return max((pc.max(part).as_py() or 0 for part in lengths), default=0)

    def rows(names: list[str]) -> Iterator[Row]:
        with _loading(path):
            integers = [name for name in names if pa.types.is_integer(schema.field(name).type)]
            fields = pa.schema([schema.field(name) for name in integers], schema.metadata)
            classes = {
                name: {-1: "-"} | dict(enumerate(feature.names))
                for name, feature in datasets.Features.from_arrow_schema(fields).items()
                if isinstance(feature, datasets.ClassLabel)
            }
            cells = (row for batch in batches(names) for row in batch.to_pylist())

            for number, row in enumerate(cells, start=1):
                for name, class_names in classes.items():
                    row[name] = class_names.get(row[name], row[name])

                yield number, row

    return _Table(dict.fromkeys(schema.names, path), rows, longest_list)


@contextlib.contextmanager
def _loading(path: str) -> Iterator[None]:
    """Replace any error of a library that loads a data set by a DataError."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the hub's client raises anything
        raise DataError(public(f"{path}: cannot be loaded: {one_line(error)}")) from None


_OPENERS: Mapping[str, Callable[[RowReport], _Table]] = {
    ".csv": functools.partial(_open_delimited, ","),
    ".tsv": functools.partial(_open_delimited, "\t"),
    ".jsonl": _open_json,
    ".ndjson": _open_json,
    ".json": _open_json,
    ".txt": _open_sentences,
    ".parquet": _open_parquet,
}

SUFFIXES = tuple(_OPENERS)
"""The ends of the names of files, in either case, each also followed by ``.gz``."""
FORMS = f"a file of your own ends in {', '.join(SUFFIXES)}, optionally followed by .gz"


# Rows to a table --------------------------------------------------------------------------------


def read_rows(
    load: Callable[[RowReport], tuple[Columns, Iterable[Row]]],
    name: str,
    path: str,
    *,
    identity: Any,
    sha256: str | None = None,
    only: tuple[str, str] | None = None,
    size: int = 0,
    cache_dir: Path | None = None,
    account: Account | None = None,
) -> Dataset:
    """Return the declared columns of a source, with the ``file`` and ``line`` of each row.

    Args:
        load: returns the columns and the rows; not called if the cache has their table.
        name: the name of the source in the official layout.
        path: its path, for messages.
        identity: what decides the rows beside the content of the source and ``only``.
        sha256: identifies the content of a data set; None: that of the bytes of the file.
        only: a column and the value that it must have.
        size: bytes, which decide whether the table is written to the cache.
        cache_dir: the folder of the cache; None keeps the table in memory.
        account: adds how many rows were ``read`` and ``dropped: <reason>``.

    Raises:
        DataError: for a bad row, a source without rows, or a cache that cannot be used.
    """
    counts: Account = Counter()

    if cache_dir is None or size < LARGE:
        sha256 = sha256 or sha256_of(Path(path))
        schema, batches = _batches(load, only, path, counts)
        table: Any = InMemoryTable(pa.Table.from_batches(batches, schema))
    else:
        state = sha256 or state_of(Path(path))
        stored = cache_dir / "rows" / f"{_digest(path, state, identity, only)}.arrow"
        notes = stored.with_suffix(".json")

        with usable(stored):
            if not notes.exists():
                sha256 = sha256 or sha256_of(Path(path))
                schema, batches = _batches(load, only, path, counts)
                with atomic_file(stored) as out, pa.ipc.new_stream(out, schema) as writer:
                    for batch in batches:
                        writer.write_batch(batch)

                write_json(notes, {"sha256": sha256, "counts": dict(counts)})

            saved = json.loads(notes.read_bytes())
            sha256, counts = saved["sha256"], Counter(saved["counts"])
            table = Dataset.from_file(str(stored)).data

    if not table.num_rows:
        reasons = ", ".join(name.removeprefix("dropped: ") for name in counts if name != "read")
        which = f" with {only[0]} {only[1]}" if only else ""
        usable_rows = f" that can be used: {reasons}" if reasons else ""
        raise DataError(f"{path}: no rows{which}{usable_rows}")

    if account is not None:
        account.update(counts)

    rows = Dataset(table, fingerprint=_digest(path, sha256, identity, only))

    return with_files(rows, [SourceFile(name, path, sha256)])


def _batches(
    load: Callable[[RowReport], tuple[Columns, Iterable[Row]]],
    only: tuple[str, str] | None,
    path: str,
    counts: Account,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of a table, and its batches, which count their rows."""
    report = RowReport(path)
    columns, rows = load(report)
    plan = list(converters(columns))
    types = {name: pa.float64() if is_number(convert) else pa.string() for name, _, convert in plan}
    schema = pa.schema(types | {FILE: pa.string(), LINE: pa.int64()})
    file = public(path)

    def converted() -> Iterator[dict[str, Any]]:
        for line, row in rows:
            values: dict[str, Any] = {FILE: file, LINE: line}
            try:
                for name, cell, convert in plan:
                    values[name] = convert(row[cell])
            except KeyError:
                report.bad(line, f"no column {cell!r}; found: {listed(row)}")
            except ValueError as error:
                report.bad(line, f"{cell} {error}")

            if only is None or values[only[0]] == only[1]:
                yield values

    def batches() -> Iterator[pa.RecordBatch]:
        values = converted()
        for batch in iter(lambda: list(itertools.islice(values, BATCH)), []):
            counts["read"] += len(batch)
            yield pa.RecordBatch.from_pylist(batch, schema)

        counts["read"] += sum(report.dropped.values())
        count_dropped(counts, report.dropped)

    return schema, batches()


def fingerprint_sha256(dataset: Dataset) -> str:
    """Return the sha256 of a fingerprint, which identifies the content of a dataset."""
    return hashlib.sha256(dataset._fingerprint.encode()).hexdigest()  # no public name


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps([VERSION, *parts]).encode()).hexdigest()[:32]
