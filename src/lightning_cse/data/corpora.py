"""Read the corpora that `corpora.yaml` declares from the data directory or the hub."""

import functools
import hashlib
import importlib
import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from lightning_cse.data import parsers
from lightning_cse.data.cells import account, columns_of, converters
from lightning_cse.data.files import decoded, read_bytes
from lightning_cse.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from lightning_cse.data.rows import Rows

DATA_DIR_VARIABLE: Final = "LIGHTNING_CSE_DATA"
DECLARATIONS: Final = "corpora.yaml"
SAMPLE: Final = "SAMPLE"  # in a data directory with a file of this name, rows are not counted


class HubError(DataError):
    """The Hugging Face hub could not provide the corpus."""


class Layout(BaseModel, frozen=True, extra="forbid"):
    """How a file is read: a reader of `parsers.READERS`, the columns, and options of the reader."""

    reader: str
    columns: list[str] | dict[str, str | dict[str, Any]] = Field(min_length=1)
    header: list[str] = []
    width: list[int] = []
    blank: str = ""
    pattern: str = ""
    form: str = ""

    @model_validator(mode="after")
    def _is_known(self) -> "Layout":
        if self.reader not in parsers.READERS:
            near = did_you_mean(self.reader, parsers.READERS)
            known = ", ".join(parsers.READERS)
            raise ValueError(f"no reader {self.reader!r}{near}; choose from: {known}")

        list(converters(self.columns))
        return self


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

    @property
    def remote_path(self) -> str:
        """The path below a source."""
        return self.remote or self.path.rpartition("/")[2]


class HubCopy(BaseModel, frozen=True, extra="forbid"):
    """The data set on the Hugging Face hub that has a copy of a corpus."""

    id: str
    revision: str
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

    @model_validator(mode="after")
    def _has_layouts(self) -> "Corpus":
        for file in self.files:
            if file.layout is None and self.layout is None:
                raise ValueError(f"no layout for {file.path}")
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in order."""
        return tuple(dict.fromkeys(file.split for file in self.files))

    def rows(self, split: str) -> int | None:
        """Return the number of rows of a split, over all its parts; None if it is not fixed."""
        counts = {file.part: file.rows for file in self.split_files(split)}
        fixed = [count for count in counts.values() if count is not None]

        return sum(fixed) if len(fixed) == len(counts) else None

    def split_files(self, split: str) -> tuple[CorpusFile, ...]:
        """Return the files of a split, or raise DataError, which lists the known splits."""
        name = self.aliases.get(split, split)
        files = tuple(file for file in self.files if file.split == name)

        if not files:
            near = did_you_mean(split, [*self.splits, *self.aliases])
            raise DataError(
                f"corpus {self.name!r} has no split {split!r}{near}; "
                f"choose from: {', '.join([*self.splits, *self.aliases])}"
            )

        return files


def _declared(path: Path) -> dict[str, Corpus]:
    """Return the corpora that a file declares, or raise ConfigError with all its faults."""
    try:
        entries = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError([f"{path}: cannot be read: {' '.join(str(error).split())}"]) from None

    if not isinstance(entries, dict):
        raise ConfigError([f"{path}: must map names to corpora"])

    corpora: dict[str, Corpus] = {}
    faults: list[str] = []

    for name, entry in entries.items():
        if not isinstance(entry, dict):
            faults.append(f"{path}: {name}: must be a mapping with the key files")
            continue
        try:
            corpora[name] = Corpus.model_validate(
                {
                    "title": name,
                    **entry,
                    "name": name,
                }
            )
        except ValidationError as error:
            for fault in error.errors():
                key = ".".join(map(str, (name, *fault["loc"])))
                faults.append(f"{path}: {key}: {fault['msg'].removeprefix('Value error, ')}")

    if faults:
        raise ConfigError(faults)

    return corpora


CORPORA: Final = _declared(Path(__file__).with_name(DECLARATIONS))
_BUILT_IN: Final = frozenset(CORPORA)


def register_corpora(folder: str | Path) -> None:
    """Add the corpora that a file ``corpora.yaml`` in this folder declares, if there is one.

    A later declaration of a name replaces an earlier one. The name of a corpus of the package is a
    ConfigError.
    """
    path = Path(folder).expanduser().absolute() / DECLARATIONS

    if not path.exists():
        return

    corpora = _declared(path)
    taken = sorted(_BUILT_IN & corpora.keys())

    if taken:
        raise ConfigError(
            f"{path}: {name}: lightning_cse has a corpus of this name; choose another"
            for name in taken
        )

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
    return Path(__file__).resolve().parent / "sample"


def default_data_dir() -> Path:
    """Return the folder of the corpora: ``LIGHTNING_CSE_DATA``, else ``./data``."""
    return Path(os.environ.get(DATA_DIR_VARIABLE) or "data").expanduser()


def read_corpus(
    name: str,
    split: str,
    data_dir: str | Path,
) -> "Rows":
    """Read one split of a corpus.

    ``python -m lightning_cse.prepare`` lists the names and splits; ``corpora.yaml`` lists the
    columns. The Hugging Face hub is queried only for files that ``data_dir`` holds neither plain
    nor as ``.gz``. Bad rows are a DataError. So is an official file without its declared number of
    rows, unless ``data_dir`` has a file named ``SAMPLE``.
    """
    corpus = get_corpus(name)
    folder = Path(data_dir).expanduser().absolute()
    counted = not (folder / SAMPLE).exists()
    states = tuple(_state(find_file(folder, file)) for file in corpus.split_files(split))
    # The points of a sweep read each split once. What comes from the hub is cached by `datasets`.
    read = _read_split if None in states else _read_cached
    rows = read(
        name,
        split,
        folder,
        counted,
        states,
    )

    return rows.recounted(rows.counts)


def _read_split(
    name: str,
    split: str,
    folder: Path,
    counted: bool,
    states: tuple[Any, ...],
) -> "Rows":
    corpus = get_corpus(name)
    parts: dict[str | None, list[CorpusFile]] = {}

    for file in corpus.split_files(split):
        parts.setdefault(file.part, []).append(file)

    tables = []

    for part, files in parts.items():
        rows = _side_by_side(
            [
                _found_or_fetched(
                    corpus,
                    file,
                    folder,
                )
                for file in files
            ]
        )
        if counted:
            _check_count(
                rows,
                corpus,
                files[0],
                folder,
            )

        if part is not None:
            rows = rows.with_column(corpus.part_column, [part] * len(rows))

        tables.append(rows)

    return tables[0] if len(tables) == 1 else type(tables[0]).cat(tables)


_read_cached = functools.lru_cache(maxsize=128)(_read_split)


def _check_count(
    rows: "Rows",
    corpus: Corpus,
    file: CorpusFile,
    folder: Path,
) -> None:
    if file.rows is None or len(rows) == file.rows:
        return
    raise DataError(
        f"{rows.files[0].path}: {len(rows):,} rows of split {file.split!r}, "
        f"but the official file has {file.rows:,}: is it cut off?\n"
        f"  to fetch it again: {_prepare(corpus, '--force', folder)}\n"
        "  if it differs on purpose: use it as a file of your own, or put an empty file named "
        f"{SAMPLE} into {folder}: then rows are not counted there"
    )


def _prepare(
    corpus: Corpus,
    option: str,
    folder: Path,
) -> str:
    words = [
        "python -m lightning_cse.prepare",
        corpus.name,
        option,
        "--data-dir",
    ]
    return " ".join([*filter(None, words), shlex.quote(str(folder))])


def _state(path: Path | None) -> tuple[str, int, int, int, int] | None:
    """Return values that change when a file is replaced or written to; None without a file."""
    if path is None:
        return None

    state = path.stat()
    return str(path), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def find_file(folder: Path, file: CorpusFile) -> Path | None:
    """Return the path of a file in the data directory, plain before ``.gz``, or None."""
    for path in (folder / file.path, folder / f"{file.path}.gz"):
        if path.exists():
            return path

    return None


def read_file(
    corpus: Corpus,
    file: CorpusFile,
    path: Path,
) -> "Rows":
    """Read one file of a corpus from any path, or raise DataError with the file and line."""
    from lightning_cse.data.rows import Rows, SourceFile

    data = read_bytes(path)
    source = SourceFile(
        file.path,
        str(path),
        hashlib.sha256(data).hexdigest(),
    )
    text = decoded(
        data,
        str(path),
        corpus.encoding,
    )
    layout: Any = file.layout or corpus.layout
    columns, lines, dropped = parsers.parse(
        text,
        str(path),
        **layout.model_dump(exclude_unset=True),
    )
    counts = account(len(lines), dropped)
    rows = Rows.of(
        columns,
        files=[source],
        lines=lines,
        counts=counts,
    )

    if file.only is None:
        return rows

    column, value = file.only
    chosen = [row for row, cell in enumerate(rows.column(column)) if cell == value]

    if not chosen:
        raise DataError(f"{path}: no row of the split {file.split!r}: none has {column} = {value}")

    return rows.select(chosen).recounted()


def fetch_hub(corpus: Corpus, file: CorpusFile) -> "Rows":
    """Read one split from the hub, or raise HubError."""
    from lightning_cse.data.rows import Rows, SourceFile

    hub = corpus.hub

    if hub is None:
        raise HubError("the Hugging Face hub has no known copy")

    split = hub.splits[file.split]
    datasets = importlib.import_module("datasets")

    try:
        dataset = datasets.load_dataset(
            hub.id,
            split=split,
            revision=hub.revision,
        )
    except Exception as error:  # the hub's client raises whatever its many layers raise
        raise HubError(
            f"the Hugging Face hub ({hub.id}) could not load it: {type(error).__name__}: {error}"
        ) from error

    path = f"hf://datasets/{hub.id}@{hub.revision[:12]}/{split}"
    columns, lines, _ = columns_of(
        enumerate(dataset, start=1),
        hub.columns,
        path,
    )
    digest = hashlib.sha256(json.dumps(columns).encode()).hexdigest()

    return Rows.of(
        columns,
        files=[
            SourceFile(
                file.path,
                path,
                digest,
            )
        ],
        lines=lines,
    )


def _found_or_fetched(
    corpus: Corpus,
    file: CorpusFile,
    folder: Path,
) -> "Rows":
    path = find_file(folder, file)
    if path is not None:
        return read_file(
            corpus,
            file,
            path,
        )

    try:
        return fetch_hub(corpus, file)
    except HubError as error:
        hub = str(error)

    path = folder / file.path
    fetch = f"to fetch it: {_prepare(corpus, '', folder)}"

    if not corpus.sources and corpus.hub is None:
        fetch = f"the command that prepares corpora {corpus.prepare}"

    raise DataError(
        f"corpus {corpus.name!r}, split {file.split!r} was not found\n"
        f"  looked for: {path} and {path.name}.gz beside it\n  {hub}\n  {fetch}\n"
        f"  if you have it: set {DATA_DIR_VARIABLE} (or paths.data_dir) to the folder that holds "
        f"{file.path}"
    )


def _side_by_side(tables: Sequence["Rows"]) -> "Rows":
    """Join files line by line; a line that any of the files leaves out is left out."""
    if len(tables) == 1:
        return tables[0]

    lengths = {table.files[0].path: table.counts["read"] for table in tables}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{path}: {length} rows" for path, length in lengths.items())
        raise DataError(f"files that belong together differ in length: {shown}")

    kept = set.intersection(*(set(table.column("line")) for table in tables))
    columns: dict[str, Any] = {}
    counts: dict[str, int] = {}

    for table in tables:
        rows = table.select([row for row, line in enumerate(table.column("line")) if line in kept])
        columns |= {name: rows.values(name) for name in table.names}
        counts |= table.counts

    files = [file for table in tables for file in table.files]
    return type(tables[0]).of(
        columns,
        files=files,
        lines=sorted(kept),
        counts=counts,
    )
