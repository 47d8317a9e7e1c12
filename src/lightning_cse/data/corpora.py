"""Read the corpora that `corpora.yaml` declares from the data directory, else from the hub."""

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from pydantic import BaseModel, Field, field_validator

from lightning_cse.data import parsers
from lightning_cse.data.cells import BadRows, converters, examined
from lightning_cse.errors import ConfigError, DataError, did_you_mean, one_line
from lightning_cse.runs.hashing import SAMPLE_DIR

if TYPE_CHECKING:
    from lightning_cse.data.rows import Rows

DATA_DIR_VARIABLE = "LIGHTNING_CSE_DATA"
DECLARATIONS = "corpora.yaml"
SAMPLE = "SAMPLE"  # in a data directory with a file of this name, rows are not counted


class Layout(BaseModel, frozen=True, extra="forbid"):
    """How a file is read: a reader of `parsers.READERS`, the columns, and options of the reader."""

    reader: str
    columns: list[str] | dict[str, str | dict[str, Any]] = Field(min_length=1)
    header: list[str] = []
    width: list[int] = []
    blank: str = ""
    pattern: str = ""

    @field_validator("reader")
    @classmethod
    def _is_known(cls, reader: str) -> str:
        if reader not in parsers.READERS:
            raise ValueError(f"no reader {reader!r}; choose from: {', '.join(parsers.READERS)}")

        return reader

    @field_validator("columns")
    @classmethod
    def _are_known(cls, columns: Any) -> Any:
        list(converters(columns))
        return columns


class CorpusFile(BaseModel, frozen=True, extra="forbid"):
    """An official file of one split; the fields are those of `corpora.yaml`."""

    split: str
    path: str
    rows: int | None = None
    sha256: str | None = None
    remote: str = ""
    member: str | None = None
    layout: Layout | None = None
    only: tuple[str, str] | None = None
    part: str | None = None


class HubCopy(BaseModel, frozen=True, extra="forbid"):
    """A copy of a corpus on the Hugging Face hub; ``splits`` has its names of our splits."""

    id: str
    revision: str | None = None
    splits: dict[str, str]
    columns: dict[str, str | dict[str, Any]]


class Corpus(BaseModel, frozen=True, extra="forbid"):
    """One corpus in its official layout; the fields are those of `corpora.yaml`."""

    name: str
    title: str
    licence: str = "not stated"
    prepare: str = "fetches nothing: put the files there"
    files: tuple[CorpusFile, ...] = Field(min_length=1)
    layout: Layout | None = None
    sources: tuple[str, ...] = ()
    aliases: dict[str, str] = {}
    part_column: str = "subset"
    encoding: str | None = None
    hub: HubCopy | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in order."""
        return tuple(dict.fromkeys(file.split for file in self.files))

    def rows(self, split: str) -> int | None:
        """Return the number of rows of a split, over all its parts; None if it is not fixed."""
        counts = {file.part: file.rows for file in self.split_files(split)}.values()

        return None if None in counts else sum(filter(None, counts))

    def split_files(self, split: str) -> tuple[CorpusFile, ...]:
        """Return the files of a split, or raise DataError, which lists the known splits."""
        name = self.aliases.get(split, split)
        files = tuple(file for file in self.files if file.split == name)

        if not files:
            known = ", ".join([*self.splits, *self.aliases])
            raise DataError(f"corpus {self.name!r} has no split {split!r}; choose from: {known}")

        return files


def _declared(path: Path) -> dict[str, Corpus]:
    """Return the corpora that a file declares, or raise ConfigError."""
    corpora: dict[str, Corpus] = {}
    name = ""

    try:
        entries = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        for name, entry in entries.items():
            corpora[name] = Corpus.model_validate({"title": name, **entry, "name": name})
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError([f"{path}: {name}: {one_line(error)}"]) from None

    return corpora


CORPORA = _declared(Path(__file__).with_name(DECLARATIONS))
_BUILT_IN = frozenset(CORPORA)


def register_corpora(folder: str | Path) -> None:
    """Add the corpora that a file ``corpora.yaml`` in this folder declares, if there is one.

    A later declaration of a name replaces an earlier one. The name of a corpus of the package is a
    ConfigError.
    """
    path = Path(folder).expanduser().absolute() / DECLARATIONS

    if not path.exists():
        return

    corpora = _declared(path)
    taken = ", ".join(sorted(_BUILT_IN & corpora.keys()))

    if taken:
        raise ConfigError([f"{path}: {taken}: corpora of lightning_cse; choose other names"])

    CORPORA.update(corpora)
    _read_cached.cache_clear()


def get_corpus(name: str) -> Corpus:
    """Return a corpus by name, or raise DataError, which lists the known corpora."""
    if name not in CORPORA:
        near = did_you_mean(name, CORPORA)
        raise DataError(f"unknown corpus {name!r}{near}; choose from: {', '.join(CORPORA)}")

    return CORPORA[name]


def sample_dir() -> Path:
    """Return the folder of the sample corpus in the package, in the official layout."""
    return SAMPLE_DIR


def default_data_dir() -> Path:
    """Return the folder of the corpora: ``LIGHTNING_CSE_DATA``, else ``./data``."""
    return Path(os.environ.get(DATA_DIR_VARIABLE) or "data").expanduser()


def read_corpus(
    name: str, split: str, data_dir: str | Path, cache_dir: Path | None = None
) -> "Rows":
    """Read one split of a corpus; with ``cache_dir``, large files are kept there in a form that
    takes no memory.

    ``python -m lightning_cse.prepare`` lists the names and splits; ``corpora.yaml`` lists the
    columns. Files are plain or end in ``.gz``; a missing file is read from the corpus's copy on the
    Hugging Face hub, if it has one. A file that is nowhere and bad rows are a DataError, and so is
    an official file without its declared number of rows, unless ``data_dir`` has a file named
    ``SAMPLE``.
    """
    folder = Path(data_dir).expanduser().absolute()
    counted = not (folder / SAMPLE).exists()
    states = tuple(_state(find_file(folder, file)) for file in get_corpus(name).split_files(split))

    return _read_cached(name, split, folder, counted, states, cache_dir)


# The points of a sweep read each split once; the states of the files are part of the key.
@functools.lru_cache(maxsize=128)
def _read_cached(
    name: str,
    split: str,
    folder: Path,
    counted: bool,
    states: tuple[Any, ...],
    cache_dir: Path | None,
) -> "Rows":
    corpus = get_corpus(name)
    parts: dict[str | None, list[CorpusFile]] = {}
    tables = []

    for file in corpus.split_files(split):
        parts.setdefault(file.part, []).append(file)

    for part, files in parts.items():
        rows = _side_by_side([read_file(corpus, file, folder, cache_dir) for file in files])
        official = files[0].rows if counted else None

        if official not in (None, len(rows)):
            raise DataError(
                f"{rows.files[0].path}: {len(rows):,} rows of split {split!r}, but the official "
                f"file has {official:,}: is it cut off?\n"
                f"  to fetch it again: {_command(corpus, folder)} --force\n"
                f"  if it differs on purpose: put an empty file named {SAMPLE} into {folder}"
            )

        if part is not None:
            rows = rows.with_constant(corpus.part_column, part)

        tables.append(rows)

    return tables[0].cat(tables)


def _command(corpus: Corpus, folder: Path) -> str:
    return f"python -m lightning_cse.prepare {corpus.name} --data-dir '{folder}'"


def _state(path: Path | None) -> tuple[str, int, int, int] | None:
    """Return values that change when a file is replaced or written to; None without a file."""
    if path is None:
        return None

    state = path.stat()

    return str(path), state.st_ino, state.st_size, state.st_ctime_ns


def find_file(folder: Path, file: CorpusFile) -> Path | None:
    """Return the path of a file in the data directory, plain before ``.gz``, or None."""
    paths = (folder / file.path, folder / f"{file.path}.gz")

    return next(filter(Path.exists, paths), None)


def read_file(
    corpus: Corpus, file: CorpusFile, folder: Path, cache_dir: Path | None = None
) -> "Rows":
    """Read one file of a corpus from a data directory, else from the hub, or raise DataError."""
    path = find_file(folder, file)
    if path is not None:
        return parse_file(corpus, file, path, cache_dir)

    hub = ""
    if corpus.hub is not None:
        try:
            return _read_hub(corpus.hub, file)
        except Exception as error:  # noqa: BLE001 - the hub's client raises what its layers raise
            hub = f"  the Hugging Face hub ({corpus.hub.id}): {one_line(error)}\n"

    fetch = f"the command that prepares corpora {corpus.prepare}"
    if corpus.sources:
        fetch = f"to fetch it: {_command(corpus, folder)}"

    raise DataError(
        f"corpus {corpus.name!r}, split {file.split!r} was not found\n"
        f"  looked for: {folder / file.path}, also with .gz\n{hub}  {fetch}\n"
        f"  if you have it: set {DATA_DIR_VARIABLE} (or paths.data_dir) to the folder that holds "
        f"{file.path}"
    )


def _read_hub(hub: HubCopy, file: CorpusFile) -> "Rows":
    import datasets

    from lightning_cse.data.tables import read_rows

    split = hub.splits[file.split]
    dataset = datasets.load_dataset(hub.id, split=split, revision=hub.revision)
    path = f"hf://datasets/{hub.id}@{hub.revision}/{split}"

    return read_rows(enumerate(dataset, start=1), hub.columns, BadRows(path), file.path)


def parse_file(
    corpus: Corpus, file: CorpusFile, path: Path, cache_dir: Path | None = None
) -> "Rows":
    """Read one file of a corpus from any path, or raise DataError with the file and line."""
    import pyarrow.compute as pc

    from lightning_cse.data.rows import Rows
    from lightning_cse.data.tables import Notes, cached_file, known_file, read_rows

    text = known_file(path, cache_dir, functools.partial(examined, otherwise=corpus.encoding))
    layout = file.layout or corpus.layout

    if layout is None:
        raise ConfigError([f"corpus {corpus.name!r}: no layout for {file.path}"])

    options: dict[str, Any] = layout.model_dump(exclude_unset=True)
    bad = BadRows(str(path))
    rows = read_rows(
        parsers.rows_of(text, bad, **options),
        layout.columns,
        bad,
        file.path,
        notes=Notes(sha256=text.sha256),
        file=cached_file(cache_dir, path.stat().st_size, text.sha256, text.encoding, options),
        cache_dir=cache_dir,
    )

    if file.only is None:
        return rows

    column, value = file.only
    chosen = np.flatnonzero(pc.equal(rows.values(column), value).to_numpy())

    if not len(chosen):
        raise DataError(f"{path}: no row of the split {file.split!r}: none has {column} = {value}")

    return Rows(rows.select(chosen).table, files=rows.files, cache_dir=cache_dir)


def _side_by_side(tables: Sequence["Rows"]) -> "Rows":
    """Join files line by line; a line that any of the files leaves out is left out."""
    if len(tables) == 1:
        return tables[0]

    lengths = {table.files[0].path: table.counts["read"] for table in tables}
    if len(set(lengths.values())) > 1:
        raise DataError(f"files that belong together differ in length: {lengths}")

    lines = [table.values("line").to_numpy() for table in tables]
    kept = functools.reduce(np.intersect1d, lines)
    columns: dict[str, Any] = {}
    counts: dict[str, int] = {}

    for table, own in zip(tables, lines, strict=True):
        rows = table.select(np.flatnonzero(np.isin(own, kept)))
        columns |= {name: rows.values(name) for name in table.names}
        counts |= table.counts

    files = [file for table in tables for file in table.files]

    return tables[0].of(columns, files=files, lines=kept, counts=counts)
