"""One reader: files, saved data sets and those of the hub become a `datasets.Dataset`.

Each format is opened as columns and rows, of which `read_rows` makes a table with one column per
role, and the ``file`` and ``line`` of each row. `read_files` reads the user's own files.
"""

import contextlib
import csv
import functools
import glob
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import datasets
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets import Dataset

from lightning_cse.data.columns import (
    Columns,
    canonical,
    declared_columns,
    listed,
    negatives,
    recognise,
)
from lightning_cse.data.declarations import CORPORA
from lightning_cse.data.files import lines_of, read_bytes
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
from lightning_cse.data.row_table import fingerprint_sha256, read_rows
from lightning_cse.data.rows import BATCH, Account, concatenate, names_of, origin_of
from lightning_cse.errors import ConfigError, DataError, one_line
from lightning_cse.runs import public

HUB = "hub:"
_OTHER_DELIMITERS = (";", "\t", "|", ",")
_GZ = re.compile(r"\.gz$", re.IGNORECASE)
_EXCEL = re.compile(r'"?sep=(.)"?\r?\n?', re.IGNORECASE)  # a first line that names the delimiter

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileFormat:
    """How the user's own files are read, as far as they do not say it themselves.

    Args:
        columns: our names mapped to columns of the files, besides those that are recognised.
        delimiter: between the cells of ``.csv`` and ``.tsv`` files; None: a comma and a tab, or the
            one of semicolon, tab, bar and comma that splits the first line into known columns.
        encoding: of files of text; None: that of the byte-order mark, or UTF-8.
        skips_bad_rows: whether rows that cannot be used are left out and counted.
        key: the config node of these settings, for messages.

    Raises:
        ConfigError: if the delimiter is no character, or the encoding is not known.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    encoding: str | None = None
    skips_bad_rows: bool = False
    key: str = "data"

    def __post_init__(self) -> None:
        faults = []
        if self.delimiter is not None and (
            len(self.delimiter) != 1 or self.delimiter in '"\r\n\0\ufeff'
        ):
            faults.append(f"{self.key}.delimiter: must be one character, got {self.delimiter!r}")

        try:
            "a".encode(self.encoding or "utf-8")
        except (LookupError, ValueError):
            faults.append(f"{self.key}.encoding: no encoding {self.encoding!r} is known")

        if faults:
            raise ConfigError(faults)

    @classmethod
    def of(cls, settings: Any) -> Self:
        """Return the format that the settings of a data set say."""
        skips_bad_rows = settings.bad_rows == "skip"
        return cls(settings.columns or {}, settings.delimiter, settings.encoding, skips_bad_rows)

    def report(self, path: str) -> RowReport:
        """Return the report of a file."""
        advice = "; data.bad_rows=skip leaves such rows out" if self.key == "data" else ""
        return RowReport(path, skip=self.skips_bad_rows, advice=advice)

    def check_suffix(self, path: str, suffix: str) -> None:
        """Raise DataError if a setting does not apply to a file with a suffix."""
        if self.delimiter is not None and suffix not in (".csv", ".tsv"):
            raise DataError(f"{path}: {self.key}.delimiter is for .csv and .tsv files only")

        if self.encoding is not None and suffix in ("", ".parquet"):
            raise DataError(f"{path}: {self.key}.encoding is for files of text only")


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
    form: FileFormat | None = None,
    key: str,
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
        form: how they are read.
        key: the config key of the sources, with which messages of errors begin.
        takes: which columns the method takes, for messages.
        cache_dir: the folder of the cache, which holds the rows of large files.
        account: adds how many rows were ``read`` and ``dropped: <reason>``.

    Raises:
        DataError: with the file, and the line where there is one, of what cannot be read.
    """
    names = [sources] if isinstance(sources, str) else [str(source) for source in sources]
    form = form or FileFormat()

    try:
        paths = [path for name in names for path in _paths_of(name)]
        tables = [_read(path, form, takes, cache_dir, account) for path in paths]
    except DataError as error:
        raise DataError(f"{key}: {error}") from None

    columns = [set(names_of(table)) - set(negatives(names_of(table))[1:]) for table in tables]
    if any(names != columns[0] for names in columns):
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
    name: str, form: FileFormat, takes: str, cache_dir: Path | None, account: Account | None
) -> Dataset:
    """Read one file with the columns of its layout."""
    path = name if name.startswith(HUB) else str(_expanded(name).absolute())
    is_data_set = name.startswith(HUB) or Path(path).is_dir()
    suffix = "" if is_data_set else _suffix(path)
    form.check_suffix(path, suffix)
    sha256 = None
    open_table: Callable[[FileFormat, RowReport], _Table]

    if is_data_set:
        dataset = _data_set(path)
        size = dataset.data.nbytes
        sha256 = fingerprint_sha256(dataset)
        open_table = functools.partial(_open_data_set, dataset)
    elif suffix in SUFFIXES:
        size = Path(path).stat().st_size
        open_table = _OPENERS[suffix]
    else:
        raise DataError(f"{path}: {FORMS}")

    def load(report: RowReport) -> tuple[Columns, Iterator[Row]]:
        table = open_table(form, report)
        names = recognise(
            table.columns, form.columns, key=f"{form.key}.columns", path=path, takes=takes
        )
        used = list(dict.fromkeys(names.values()))
        log.info("%s: columns: %s; used: %s", path, listed(table.columns), listed(used))
        lengths = {names[role]: table.longest_list(names[role]) for role in negatives(names)}

        return declared_columns(names, lengths, path), table.rows(used)

    return read_rows(
        load,
        _GZ.sub("", name),
        form.report(path),
        identity=[sorted(form.columns.items()), form.delimiter, form.encoding, form.skips_bad_rows],
        sha256=sha256,
        size=size,
        cache_dir=cache_dir,
        account=account,
    )


# Text --------------------------------------------------------------------------------------------


def _lines(form: FileFormat, report: RowReport) -> Iterator[str]:
    advice = f"; save the file as UTF-8, or set {form.key}.encoding, as in latin-1"
    return lines_of(Path(report.path), form.encoding, advice=advice)


def _open_delimited(usual: str, form: FileFormat, report: RowReport) -> _Table:
    """Read delimited text; the first line may name the delimiter, as Excel's."""
    lines = _lines(form, report)
    number, header = 1, next(lines, "")
    excel = _EXCEL.fullmatch(header)
    if excel:
        number, header = 2, next(lines, "")

    delimiter = form.delimiter or (excel[1] if excel else _delimiter_of(header, usual, form))
    text = itertools.chain([header], lines)
    rows = read_delimited(text, report, delimiter=delimiter, line=number)
    first = next(rows, None)
    if first is None:
        raise DataError(f"{report.path}: no rows")

    columns = dict.fromkeys(first[1], f"{report.path}:{number}")

    return _Table(columns, lambda _: itertools.chain([first], rows))


def _delimiter_of(header: str, usual: str, form: FileFormat) -> str:
    """Return the usual delimiter, unless the first line has only one cell, and another delimiter
    splits it into cells of which one is a known or mapped column.
    """
    for delimiter in (usual, *_OTHER_DELIMITERS):
        with contextlib.suppress(csv.Error):
            names = next(csv.reader([header], delimiter=delimiter), [])
            has_role = any(canonical(name) or name in form.columns.values() for name in names)
            if len(names) > 1 and (has_role or delimiter == usual):
                return delimiter

    return usual


def _open_sentences(form: FileFormat, report: RowReport) -> _Table:
    """Read a sentence per line."""

    def rows(_: list[str]) -> Iterator[Row]:
        for line, row in read_lines(_lines(form, report), report, blank="blank line"):
            if "\r" in row["text"]:
                report.bad(line, "a CR within the line, which is a line end on old Macs")
            else:
                yield line, row

    return _Table({"text": report.path}, rows)


def _open_json(form: FileFormat, report: RowReport) -> _Table:
    """Read JSON, whose rows may have different columns; it is read twice, first for the columns."""
    start = next(filter(str.strip, _lines(form, report)), "").lstrip()
    is_list = _suffix(report.path) == ".json" and start.startswith("[")
    parse = read_json_list if is_list else read_json_lines
    first = next(parse(_lines(form, report), form.report(report.path)), (0, {}))
    is_llm = has_authors_layout(first[1])

    def parsed(report: RowReport) -> Iterator[Row]:
        rows = parse(_lines(form, report), report)
        return by_role(rows, report) if is_llm else rows

    columns: dict[str, str] = {}
    lengths: dict[str, int] = {}
    for line, row in parsed(form.report(report.path)):
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


def _open_parquet(form: FileFormat, report: RowReport) -> _Table:
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


def _open_data_set(dataset: Dataset, form: FileFormat, report: RowReport) -> _Table:
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


_OPENERS: Mapping[str, Callable[[FileFormat, RowReport], _Table]] = {
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
