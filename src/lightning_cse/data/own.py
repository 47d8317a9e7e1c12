"""The user's own files as tables of one layout: CSV, JSON lines, Parquet, text, data sets."""

import codecs
import contextlib
import csv
import functools
import glob
import itertools
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from lightning_cse.data.cells import (
    AT_ONCE,
    NLI_LABELS,
    BadRows,
    Row,
    TextFile,
    examined,
    listed,
    read_bytes,
    sha256_of,
)
from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.parsers import LLM_SENTENCES, PAIR_SENTENCES, READERS
from lightning_cse.data.rows import Rows
from lightning_cse.data.tables import Notes, cached_file, known_file, notes_of, read_rows
from lightning_cse.errors import ConfigError, DataError, did_you_mean, one_line
from lightning_cse.runs import public

INLI_HYPOTHESES = ("implied_entailment", "explicit_entailment", "neutral", "contradiction")

LAYOUTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "implicit pairs": (PAIR_SENTENCES, ()),
    "LLM rows": (LLM_SENTENCES, ()),
    "labelled pairs": (("premise", "hypothesis", "label"), ()),
    "unlabelled pairs": (("premise", "hypothesis"), ()),
    "NLI triplets": (("premise", "entailment"), ("contradiction",)),
    "INLI": (("premise",), INLI_HYPOTHESES),  # at least one of them
    "scored triplets": (("anchor", "positive", "score"), ("negative",)),
    "triplets": (("anchor", "positive"), ("negative",)),  # or negative, negative_2, ...
    "sentence pairs": (("sentence1", "sentence2"), ("score",)),
    "sentences": (("anchor",), ()),
}
"""The layouts of the user's own files: required and optional columns; the first that fits counts.
"""

_NAMES = [name for layout in LAYOUTS.values() for columns in layout for name in columns]

ALIASES = {
    **dict(zip(_NAMES, _NAMES, strict=True)),
    "sent0": "anchor",
    "query": "anchor",
    "text": "anchor",
    "sentence": "anchor",
    "sent1": "positive",
    "pos": "positive",
    "neg": "negative",
    "hard_neg": "negative",
    "hard_negative": "negative",
    "gold_label": "label",
}
"""Common column names, mapped to our names; the names of hard negatives may end in a number."""


def canonical(column: str) -> str | None:
    """Return our name for a column, or None if it has none; hard negatives keep their number."""
    name = column.strip().casefold()
    base = name.rstrip("0123456789")

    if base != name and ALIASES.get(base.removesuffix("_")) == "negative":
        return f"negative_{int(name[len(base) :])}"

    return ALIASES.get(name)


def negatives(names: Iterable[str]) -> list[str]:
    """Return the columns of hard negatives: ``negative``, ``negative_2``, ..., in this order."""
    found = [name for name in names if name.startswith("negative")]

    return sorted(found, key=lambda name: int(name.partition("_")[2] or 0))


def layout_of(names: Collection[str]) -> str | None:
    """Return the first of `LAYOUTS` that fits a table with these columns, or None."""
    for layout, (needed, optional) in LAYOUTS.items():
        fits = set(needed) <= set(names)
        if fits and (layout != "INLI" or not set(optional).isdisjoint(names)):
            return layout

    return None


def recognise(
    found: Sequence[str], columns: Mapping[str, str], key: str, takes: str
) -> dict[str, str]:
    """Return the columns of a table's layout by our names; raise DataError if none fits.

    Args:
        found: the columns of the table.
        columns: our names mapped to columns, besides those that are recognised.
        key: the config key of this mapping, for messages.
        takes: the file, and which columns the method takes, for messages.
    """
    for name, column in columns.items():
        if canonical(name) != name:
            choices = ", ".join(dict.fromkeys(ALIASES.values()))
            raise ConfigError([f"{key}: no role {name!r}; choose from: {choices}"])

        if column not in found:
            near = f"{did_you_mean(column, found)}; found: {listed(found)}"
            raise DataError(f"{key}.{name}: no column {column!r}{near}")

    names = _renamed(_named(found, columns))
    layout = layout_of(names)

    if layout is None:
        raise DataError(
            f"the columns fit no known layout: {listed(found)}\n  {takes}\n  {_KNOWN_LAYOUTS}\n"
            f'  map roles to columns: "{key}={{ROLE: COLUMN, ...}}"'
        )

    used = set(itertools.chain(*LAYOUTS[layout]))
    if "negative" in used:
        used.update(negatives(names))

    for column in set(found).difference(names.values()):
        if near := did_you_mean(column, _NAMES):
            log.warning("the column %r is not read%s", column, near)

    return {name: column for name, column in names.items() if name in used}


def _named(found: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return mapped and recognised columns by our names; our own name goes before an alias."""
    names = dict(columns)

    for column in sorted(found, key=lambda column: canonical(column) != column):
        name = canonical(column)
        if name is not None and column not in columns.values():
            names.setdefault(name, column)

    return names


def _renamed(names: dict[str, str]) -> dict[str, str]:
    """Number hard negatives from 1, and call labelled pairs premise and hypothesis."""
    numbered = ("negative", *(f"negative_{number}" for number in range(2, len(names) + 1)))
    renamed = dict(zip(negatives(names), numbered, strict=False))
    is_pair = names.keys() >= {"sentence1", "sentence2", "label"}

    if is_pair and not names.keys() & {"premise", "score"}:
        renamed |= {"sentence1": "premise", "sentence2": "hypothesis"}

    return {renamed.get(name, name): column for name, column in names.items()}


_KNOWN_LAYOUTS = "layouts: " + " | ".join(", ".join(one) for one, _ in LAYOUTS.values())


HUB = "hub:"
_LLM_ROW = re.compile(r'"split": *"aigen"')  # as NGCSE's authors have them
DELIMITERS = {".csv": ",", ".tsv": "\t"}
_OTHER_DELIMITERS = (";", "\t", "|", ",")
_READERS: Mapping[str, Callable[..., Iterator[Row]]] = {
    ".csv": READERS["csv"],
    ".tsv": READERS["csv"],
    ".jsonl": READERS["json"],
    ".txt": functools.partial(READERS["lines"], blank="blank line"),
}
SUFFIXES = (*_READERS, ".parquet")  # each also followed by ``.gz``
FORMS = f"a file of your own ends in {', '.join(SUFFIXES)}, optionally followed by .gz"
LABELS = (*NLI_LABELS, "not_entailment", 1, "1", 0, "0")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnFormat:
    """How the user's own files are read, as far as they do not say it themselves.

    Args:
        columns: our names mapped to columns of the files, besides those that are recognised.
        delimiter: between the cells of ``.csv`` and ``.tsv`` files; None: a comma and a tab, or the
            one of semicolon, tab, bar and comma that splits the first line into known columns.
        encoding: of files of text; None: UTF-8.
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
        if self.delimiter is not None and len(self.delimiter) != 1:
            faults.append(f"{self.key}.delimiter: must be one character, got {self.delimiter!r}")

        if self.bad_rows not in ("error", "skip"):
            faults.append(f"{self.key}.bad_rows: must be error or skip, got {self.bad_rows!r}")

        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            faults.append(f"{self.key}.encoding: no encoding {self.encoding!r} is known")

        if faults:
            raise ConfigError(faults)

    @classmethod
    def of(cls, settings: Any) -> Self:
        """Return the format that the settings of a data set say, whose keys are its fields."""
        return cls(settings.columns or {}, settings.delimiter, settings.encoding, settings.bad_rows)

    def examined(self, path: Path) -> TextFile:
        """Return a text file in this encoding; raises like `cells.examined`."""
        advice = f"save the file as UTF-8, or set {self.key}.encoding, as in latin-1"
        return examined(path, self.encoding, advice=advice)

    def bad(self, path: str) -> BadRows:
        """Return what happens to rows of a file that cannot be used."""
        advice = "; data.bad_rows=skip leaves such rows out" if self.key == "data" else ""
        return BadRows(path, skip=self.bad_rows == "skip", advice=advice)

    def check_suffix(self, path: str, suffix: str) -> None:
        """Raise DataError if a setting does not apply to a file with a suffix."""
        if self.delimiter is not None and suffix not in DELIMITERS:
            raise DataError(f"{path}: {self.key}.delimiter is for .csv and .tsv files only")

        if self.encoding is not None and suffix not in _READERS:
            raise DataError(f"{path}: {self.key}.encoding is for files of text only")


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
    form: OwnFormat | None = None,
    key: str,
    takes: str = "",
    cache_dir: Path | None = None,
) -> Rows:
    """Read the user's own files into one table with the columns of one of `LAYOUTS`.

    A source is a path (relative to the working directory), a glob, a folder that `datasets` saved,
    or ``hub:user/name[/config][:split]`` (by default the split ``train``). Several hard negatives
    per row become ``negative``, ``negative_2``, ..., with null where a row has fewer. Error
    messages begin with ``key``, the config key of the sources. ``takes`` says, for messages, which
    columns the method takes.
    """
    names = [sources] if isinstance(sources, str) else [str(source) for source in sources]
    form = form or OwnFormat()

    try:
        paths = [path for name in names for path in paths_of(name)]
        tables = [_read(path, form, takes, cache_dir) for path in paths]
    except DataError as error:
        raise DataError(f"{key}: {error}") from None

    layouts = [set(table.names) - set(negatives(table.names)[1:]) for table in tables]
    if any(layout != layouts[0] for layout in layouts):
        listing = "; ".join(f"{table.origin} has {listed(table.names)}" for table in tables)
        raise DataError(f"{key}: files that are read together need the same columns: {listing}")

    return Rows.cat(tables, fill=True)


def paths_of(name: str) -> list[str]:
    """Return the files that a source names: itself, or those that a glob finds."""
    path = Path(name).expanduser()

    if name.startswith(HUB) or path.exists():
        return [name]

    paths = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - of any path
    if not paths:
        raise DataError(f"{path.absolute()}: there is no such file")

    return paths


@dataclass(frozen=True)
class _Source:
    """A file or data set: its size in bytes, what identifies its content, the sha256 of its bytes
    (if it is one file), the names of its columns, and its rows with some of these.
    """

    size: int
    identity: str
    sha256: str
    found: Callable[[], list[str]]
    rows: Callable[[BadRows, list[str]], Iterator[Row]]


def _read(name: str, form: OwnFormat, takes: str, cache_dir: Path | None) -> Rows:
    """Read one file with the columns of its layout."""
    path = name if name.startswith(HUB) else str(Path(name).expanduser().absolute())
    source = _opened(path, form, cache_dir)
    decisive = [sorted(form.columns.items()), form.delimiter, form.encoding, form.bad_rows]
    file = cached_file(cache_dir, source.size, source.identity, decisive)
    notes = notes_of(file)
    found = notes.found if notes else source.found()
    names = recognise(
        found, form.columns, f"{form.key}.columns", f"{path}: {takes}" if takes else path
    )

    log.info("%s: columns: %s; used: %s", path, listed(found), listed(names.values()))

    bad = form.bad(path)
    rows = read_rows(
        source.rows(bad, list(dict.fromkeys(names.values()))),
        declared_columns(names),
        bad,
        name.removesuffix(".gz"),
        notes=Notes(found, sha256=source.sha256),
        file=file,
        cache_dir=cache_dir,
    )

    for reason, count in rows.counts.items():
        if reason != "read":
            log.info("%s: %d %s", path, count, reason)

    return rows


def _opened(path: str, form: OwnFormat, cache_dir: Path | None) -> _Source:
    """Return a file, or a data set of the hub or of a folder."""
    if path.startswith(HUB) or Path(path).is_dir():
        form.check_suffix(path, "")
        return _data_set(path)

    suffix = Path(path.removesuffix(".gz")).suffix
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: {FORMS}")

    form.check_suffix(path, suffix)
    if suffix == ".parquet":
        return _parquet(known_file(Path(path), cache_dir, _binary))

    file = known_file(Path(path), cache_dir, form.examined, form.encoding)

    return _text(file, suffix, form)


def _binary(path: Path) -> TextFile:
    return TextFile(path, sha256_of(path), "")


def _text(file: TextFile, suffix: str, form: OwnFormat) -> _Source:
    """Return the rows of a file of text, which are read twice: first for their columns."""
    path = str(file.path)

    @functools.cache
    def reader() -> Callable[..., Iterator[Row]]:
        if suffix == ".jsonl":
            with file() as lines:
                if any(map(_LLM_ROW.search, lines)):
                    return READERS["llm"]

        if suffix in DELIMITERS:
            delimiter = form.delimiter or delimiter_of(file, suffix, form.columns.values())
            return functools.partial(_READERS[suffix], delimiter=delimiter)

        return _READERS[suffix]

    def rows(bad: BadRows, names: Iterable[str] = ()) -> Iterator[Row]:
        for line, row in reader()(file, bad, ["text"]):
            # A row of JSON lines may lack columns that others have.
            yield line, row if isinstance(row, str) else dict.fromkeys(names) | row

    def found() -> list[str]:
        cells = (row for _, row in rows(form.bad(path)) if not isinstance(row, str))
        # Only rows of JSON lines may have different columns.
        some = itertools.islice(cells, None if suffix == ".jsonl" else 1)
        names = list(dict.fromkeys(itertools.chain.from_iterable(some)))
        if not names:
            raise DataError(f"{path}: no rows")

        return names

    size = file.path.stat().st_size

    return _Source(size, f"{file.sha256} {suffix}", file.sha256, found, rows)


def delimiter_of(file: TextFile, suffix: str, mapped: Collection[str] = ()) -> str:
    """Return the delimiter of a file: the usual one, unless the first line has only one cell, and
    another delimiter splits it into cells of which one is a known or mapped column.
    """
    usual = DELIMITERS[suffix]

    with file() as lines:
        header = next(lines, "")

    for delimiter in (usual, *_OTHER_DELIMITERS):
        names = next(csv.reader([header], delimiter=delimiter), [])
        known = any(canonical(name) or name in mapped for name in names)
        if len(names) > 1 and (known or delimiter == usual):
            if delimiter != usual:
                log.info("%s: the cells are separated by %r", file.path, delimiter)

            return delimiter

    return usual


def _parquet(file: TextFile) -> _Source:
    """Return the rows of a Parquet file."""
    path = str(file.path)

    with loading(path):
        packed = file.path.suffix == ".gz"
        parquet = pq.ParquetFile(pa.BufferReader(read_bytes(file.path)) if packed else path)
        features = datasets.Features.from_arrow_schema(parquet.schema_arrow)

    return _Source(
        file.path.stat().st_size,
        f"{file.sha256} .parquet",
        file.sha256,
        lambda: list(features),
        lambda _, names: _rows_of(
            path, features, names, parquet.iter_batches(AT_ONCE, columns=names)
        ),
    )


def _data_set(path: str) -> _Source:
    """Return the rows of a data set of the hub, or of a folder."""
    dataset = load_data_set(path)

    if isinstance(dataset, datasets.DatasetDict):
        splits = ", ".join(f"{path}/{split}" for split in dataset)
        raise DataError(f"{path}: has several splits; choose one of: {splits}")

    tables = dataset.with_format("arrow")

    return _Source(
        dataset.data.nbytes,
        f"{path} {dataset._fingerprint}",  # of the content; no public attribute has it
        "",
        lambda: dataset.column_names,
        lambda _, names: _rows_of(
            path, dataset.features, names, tables.select_columns(names).iter(AT_ONCE)
        ),
    )


def load_data_set(name: str, **options: Any) -> Any:
    """Return a data set of the hub, with options of `datasets.load_dataset`, or of a folder, or
    raise DataError.
    """
    with loading(name):
        if not name.startswith(HUB):
            return datasets.load_from_disk(name)

        identity, _, split = name.removeprefix(HUB).partition(":")
        user, data, *config = identity.split("/", 2)

        return datasets.load_dataset(f"{user}/{data}", *config, split=split or "train", **options)


@contextlib.contextmanager
def loading(path: str) -> Iterator[None]:
    """Replace any error of a library that loads a data set by a DataError."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the hub's client raises anything
        raise DataError(public(f"{path}: cannot be loaded: {one_line(error)}")) from None


def _rows_of(
    path: str, features: Mapping[str, Any], columns: Iterable[str], batches: Iterable[Any]
) -> Iterator[Row]:
    """Yield the rows of Arrow batches, with the names of classes for their numbers."""
    rows = (row for batch in batches for row in batch.to_pylist())

    with loading(path):
        yield from enumerate(with_class_names(rows, features, columns), start=1)


def with_class_names(
    rows: Iterable[dict[str, Any]], features: Mapping[str, Any], columns: Iterable[str]
) -> Iterator[dict[str, Any]]:
    """Yield rows with the names of classes for their numbers in these columns."""
    labels: dict[str, dict[Any, str]] = {}

    for name in columns:
        if isinstance(features[name], datasets.ClassLabel):
            labels[name] = {-1: "-"} | dict(enumerate(features[name].names))

    for row in rows:
        for name, known in labels.items():
            row[name] = known.get(row[name], row[name])

        yield row


def declared_columns(names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the kinds of the columns, as `corpora.yaml` declares them; ``names`` maps our names to
    columns.
    """
    kinds = dict.fromkeys(names, "sentence") | dict.fromkeys(negatives(names), "optional")
    kinds |= {"label": "label", "score": "score"}
    if layout_of(names) == "INLI":
        kinds |= dict.fromkeys(INLI_HYPOTHESES, "optional")

    declared: dict[str, dict[str, Any]] = {
        role: {kinds[role]: column} for role, column in names.items()
    }
    if "label" in declared:
        declared["label"]["values"] = LABELS

    return declared
