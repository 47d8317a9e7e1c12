"""One reader of the user's own data: CSV, JSON, Parquet, text, saved data sets and the hub's."""

import contextlib
import csv
import functools
import glob
import itertools
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import datasets
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets import Dataset

from lightning_cse.data.cells import BadRows, Columns, Row, listed, usable_rows
from lightning_cse.data.columns import (
    MOST_NEGATIVES,
    canonical,
    declared_columns,
    negatives,
    numbered_negatives,
    recognise,
)
from lightning_cse.data.declarations import CORPORA
from lightning_cse.data.files import lines_of, read_bytes
from lightning_cse.data.layouts import (
    by_role,
    is_authors_row,
    read_delimited,
    read_json_lines,
    read_json_list,
    read_lines,
    repeated,
)
from lightning_cse.data.rows import BATCH, Account, SourceFile, concatenate, names_of, origin_of
from lightning_cse.data.tables import cached_sha256, fingerprint_sha256, read_rows
from lightning_cse.errors import ConfigError, DataError, one_line
from lightning_cse.runs import public

HUB = "hub:"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
_OTHER_DELIMITERS = (";", "\t", "|", ",")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
TEXT_SUFFIXES = (*DELIMITERS, *JSON_SUFFIXES, ".txt")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet")  # in either case, each also followed by ``.gz``
FORMS = f"a file of your own ends in {', '.join(SUFFIXES)}, optionally followed by .gz"
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
        bad_rows: ``error``, or ``skip`` to leave out rows that cannot be used and count them.
        key: the config node of these settings, for messages.

    Raises:
        ConfigError: if a setting is none of its choices.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    encoding: str | None = None
    bad_rows: str = "error"
    key: str = "data"

    def __post_init__(self) -> None:
        faults = []
        if self.delimiter is not None and (
            len(self.delimiter) != 1 or self.delimiter in '"\r\n\0\ufeff'
        ):
            faults.append(f"{self.key}.delimiter: must be one character, got {self.delimiter!r}")

        if self.bad_rows not in ("error", "skip"):
            faults.append(f"{self.key}.bad_rows: must be error or skip, got {self.bad_rows!r}")

        try:
            "a".encode(self.encoding or "utf-8")
        except (LookupError, ValueError):
            faults.append(f"{self.key}.encoding: no encoding {self.encoding!r} is known")

        if faults:
            raise ConfigError(faults)

    @classmethod
    def of(cls, settings: Any) -> Self:
        """Return the format that the settings of a data set say, whose keys are its fields."""
        return cls(settings.columns or {}, settings.delimiter, settings.encoding, settings.bad_rows)

    def bad(self, path: str) -> BadRows:
        """Return what happens to rows of a file that cannot be used."""
        advice = "; data.bad_rows=skip leaves such rows out" if self.key == "data" else ""
        return BadRows(path, skip=self.bad_rows == "skip", advice=advice)

    def check_suffix(self, path: str, suffix: str) -> None:
        """Raise DataError if a setting does not apply to a file with a suffix."""
        if self.delimiter is not None and suffix not in DELIMITERS:
            raise DataError(f"{path}: {self.key}.delimiter is for .csv and .tsv files only")

        if self.encoding is not None and suffix not in TEXT_SUFFIXES:
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
        paths = [path for name in names for path in paths_of(name)]
        tables = [_read(path, form, takes, cache_dir, account) for path in paths]
    except DataError as error:
        raise DataError(f"{key}: {error}") from None

    columns = [set(names_of(table)) - set(negatives(names_of(table))[1:]) for table in tables]
    if any(names != columns[0] for names in columns):
        listing = "; ".join(f"{origin_of(table)} has {listed(names_of(table))}" for table in tables)
        raise DataError(f"{key}: files that are read together need the same columns: {listing}")

    return concatenate(tables, fill=True)


def paths_of(name: str) -> list[str]:
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
    longest_list: Callable[[str], int | None]
    rows: Callable[[list[str]], Iterator[Row]]


def _read(
    name: str, form: FileFormat, takes: str, cache_dir: Path | None, account: Account | None
) -> Dataset:
    """Read one file with the columns of its layout."""
    path = name if name.startswith(HUB) else str(_expanded(name).absolute())
    size, sha256, opened = _opened(path, form, cache_dir)

    def content() -> tuple[Columns, Iterable[Row]]:
        table = opened()
        names = recognise(
            table.columns, form.columns, key=f"{form.key}.columns", path=path, takes=takes
        )
        used = list(dict.fromkeys(names.values()))
        log.info("%s: columns: %s; used: %s", path, listed(table.columns), listed(used))
        lengths = {
            names[role]: length
            for role in negatives(names)
            if (length := table.longest_list(names[role])) is not None
        }
        rows = table.rows(used)

        if lengths:
            names = _with_lists(names, lengths, path)
            rows = _spread(rows, lengths)

        return declared_columns(names), rows

    return read_rows(
        content,
        SourceFile(_GZ.sub("", name), path, sha256),
        form.bad(path),
        identity=[sorted(form.columns.items()), form.delimiter, form.encoding, form.bad_rows],
        size=size,
        cache_dir=cache_dir,
        account=account,
    )


def _opened(
    path: str, form: FileFormat, cache_dir: Path | None
) -> tuple[int, str, Callable[[], _Table]]:
    """Return the size of a file or data set, the sha256 of its content, and a function that opens
    it.
    """
    is_saved = Path(path).is_dir()
    suffix = "" if path.startswith(HUB) or is_saved else _suffix(path)
    form.check_suffix(path, suffix)

    if path.startswith(HUB) or is_saved:
        dataset = _data_set(path)
        open_set = functools.partial(_table_of_data_set, path, dataset)
        return dataset.data.nbytes, fingerprint_sha256(dataset), open_set

    if suffix not in SUFFIXES:
        raise DataError(f"{path}: {FORMS}")

    open_file = _parquet if suffix == ".parquet" else functools.partial(_text, suffix, form)
    file = Path(path)
    sha256 = cached_sha256(file, cache_dir)

    return file.stat().st_size, sha256, functools.partial(open_file, file)


# Lists of hard negatives --------------------------------------------------------------------------


def _with_lists(names: Mapping[str, str], lengths: Mapping[str, int], path: str) -> dict[str, str]:
    """Return the columns by our names, with a name for each sentence of a list."""
    columns = []
    for role in negatives(names):
        column = names[role]
        numbers = range(max(lengths.get(column, 0), 1))
        columns += [_in_list(column, i) for i in numbers] if column in lengths else [column]

    if len(columns) > MOST_NEGATIVES:
        raise DataError(
            f"{path}: {len(columns):,} hard negatives of a row; at most {MOST_NEGATIVES} are read"
        )

    roles = {role: names[role] for role in names if role not in negatives(names)}

    return roles | dict(zip(numbered_negatives(len(columns)), columns, strict=True))


def _spread(rows: Iterable[Row], lengths: Mapping[str, int]) -> Iterator[Row]:
    """Yield rows with a cell for each sentence of the lists."""
    for line, row in rows:
        if isinstance(row, dict):
            for column, length in lengths.items():
                cell = row.get(column)
                sentences = cell if isinstance(cell, list) else [cell]
                padded = itertools.chain(sentences, itertools.repeat(None))
                row = row | {
                    _in_list(column, i): sentence
                    for i, sentence in zip(range(max(length, 1)), padded, strict=False)
                }

        yield line, row


def _in_list(column: str, number: int) -> str:
    return f"{column}[{number}]"


# Text --------------------------------------------------------------------------------------------


def _text(suffix: str, form: FileFormat, path: Path) -> _Table:
    """Return the rows of a file of text, which is read twice: first for its columns."""
    advice = f"; save the file as UTF-8, or set {form.key}.encoding, as in latin-1"
    lines = functools.partial(lines_of, path, form.encoding, advice=advice)

    if suffix in DELIMITERS:
        return _delimited(path, lines, suffix, form)

    if suffix == ".txt":
        return _Table(
            {"text": str(path)},
            lambda _: None,
            lambda _: map(_without_cr, read_lines(lines(), ["text"], blank="blank line")),
        )

    is_list = suffix == ".json" and next(filter(str.strip, lines()), "").lstrip().startswith("[")
    parse = read_json_list if is_list else read_json_lines

    return _json(path, lambda: parse(lines()), form)


def _delimited(
    path: Path, lines: Callable[[], Iterator[str]], suffix: str, form: FileFormat
) -> _Table:
    """Return the rows of delimited text; the first line may name the delimiter, as Excel's."""
    first = next(lines(), "")
    excel = _EXCEL.fullmatch(first)
    start = 1 if excel else 0
    header = next(itertools.islice(lines(), start, None), "")
    delimiter = form.delimiter or (excel[1] if excel else _delimiter_of(header, suffix, form))

    def rows(_: list[str] | None = None) -> Iterator[Row]:
        text = itertools.islice(lines(), start, None)
        return read_delimited(text, delimiter=delimiter, line=start + 1)

    usable = usable_rows(rows(), form.bad(str(path)), Counter())
    _, row = next(usable, (0, {}))
    if not row:
        raise DataError(f"{path}: no rows")

    return _Table(dict.fromkeys(row, f"{path}:{start + 1}"), lambda _: None, rows)


def _delimiter_of(header: str, suffix: str, form: FileFormat) -> str:
    """Return the usual delimiter, unless the first line has only one cell, and another delimiter
    splits it into cells of which one is a known or mapped column.
    """
    usual = DELIMITERS[suffix]

    for delimiter in (usual, *_OTHER_DELIMITERS):
        with contextlib.suppress(csv.Error):
            names = next(csv.reader([header], delimiter=delimiter), [])
            has_role = any(canonical(name) or name in form.columns.values() for name in names)
            if len(names) > 1 and (has_role or delimiter == usual):
                return delimiter

    return usual


def _without_cr(row: Row) -> Row:
    line, cells = row
    if isinstance(cells, dict) and "\r" in cells["text"]:
        return line, ValueError("a CR within the line, which is a line end on old Macs")

    return row


def _json(path: Path, parsed: Callable[[], Iterator[Row]], form: FileFormat) -> _Table:
    """Return the rows of JSON, which may have different columns, and lists."""
    columns, lengths, is_llm = _scan(parsed(), path, form)
    if is_llm:  # rows of NGCSE's authors
        columns, lengths, _ = _scan(by_role(parsed()), path, form)

    def rows(names: list[str]) -> Iterator[Row]:
        lacking = dict.fromkeys(names)
        for line, row in by_role(parsed()) if is_llm else parsed():
            yield line, lacking | row if isinstance(row, dict) else row

    return _Table(columns, lengths.get, rows)


def _scan(
    rows: Iterable[Row], path: Path, form: FileFormat
) -> tuple[dict[str, str], dict[str, int], bool]:
    """Return the place where each column first occurs, the length of the longest list of those that
    have lists, and whether there are rows of NGCSE's authors.
    """
    columns: dict[str, str] = {}
    lengths: dict[str, int] = {}
    is_llm = False

    for line, row in usable_rows(rows, form.bad(str(path)), Counter()):
        is_llm = is_llm or is_authors_row(row)

        for name, cell in row.items():
            columns.setdefault(name, f"{path}:{line}")
            if isinstance(cell, list):
                lengths[name] = max(lengths.get(name, 0), len(cell))

    if not columns:
        raise DataError(f"{path}: no rows")

    return columns, lengths, is_llm


# Arrow -------------------------------------------------------------------------------------------


def _parquet(path: Path) -> _Table:
    with loading(str(path)):
        packed = path.suffix.lower() == ".gz"
        file = pq.ParquetFile(pa.BufferReader(read_bytes(path)) if packed else path)

    return _arrow(
        str(path), file.schema_arrow, lambda names: file.iter_batches(BATCH, columns=names)
    )


def _data_set(name: str) -> Dataset:
    """Return a data set of the hub, or of a folder."""
    with loading(name):
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


def _table_of_data_set(name: str, dataset: Dataset) -> _Table:
    tables = dataset.with_format("arrow")
    schema = dataset.features.arrow_schema

    return _arrow(name, schema, lambda names: tables.select_columns(names).iter(BATCH))


def _arrow(path: str, schema: pa.Schema, batches: Callable[[list[str]], Iterable[Any]]) -> _Table:
    """Return the rows of Arrow batches with the names of classes for their numbers."""
    if twice := repeated(schema.names):
        raise DataError(f"{path}: the column {twice!r} occurs twice")

    def longest_list(name: str) -> int | None:
        if not pa.types.is_nested(schema.field(name).type):
            return None

        with loading(path):
            lengths = (pc.list_value_length(batch.column(name)) for batch in batches([name]))
            return max((pc.max(part).as_py() or 0 for part in lengths), default=0)

    def rows(names: list[str]) -> Iterator[Row]:
        with loading(path):
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

    return _Table(dict.fromkeys(schema.names, path), longest_list, rows)


@contextlib.contextmanager
def loading(path: str) -> Iterator[None]:
    """Replace any error of a library that loads a data set by a DataError."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the hub's client raises anything
        raise DataError(public(f"{path}: cannot be loaded: {one_line(error)}")) from None
