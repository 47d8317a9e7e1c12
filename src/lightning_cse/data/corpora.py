"""Read the corpora that `corpora.yaml` declares from the data directory or the hub, or raise one clear error."""

import functools
import gzip
import hashlib
import importlib
import json
import logging
import os
import shlex
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from lightning_cse.data import parsers
from lightning_cse.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from lightning_cse.data.rows import Rows

DATA_DIR_VARIABLE: Final = "LIGHTNING_CSE_DATA"
SAMPLE: Final = (
    "SAMPLE"  # a data directory with a file of this name holds samples, whose rows are not counted
)

log = logging.getLogger(__name__)


class HubError(DataError):
    """The Hugging Face hub could not provide the corpus."""


@dataclass(frozen=True)
class CorpusFile:
    """An official file of one split; the fields are those of `corpora.yaml`."""

    split: str
    path: str
    rows: int
    remote: str
    layout: Mapping[str, Any]
    sha256: str | None = None
    member: str | None = None
    only: Sequence[str] = ()
    part: str | None = None


@dataclass(frozen=True, eq=False)
class Corpus:
    """One corpus in its official layout; the fields are those of `corpora.yaml`."""

    name: str
    title: str
    licence: str
    prepare: str
    files: tuple[CorpusFile, ...]
    sources: Sequence[str] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    part_column: str = "subset"
    encoding: str | None = None
    made: bool = False
    hub: Mapping[str, Any] | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in order."""
        return tuple(dict.fromkeys(file.split for file in self.files))

    def rows(self, split: str) -> int:
        """Return the number of rows of a split, over all its parts."""
        return sum({file.part: file.rows for file in self.split_files(split)}.values())

    def split_files(self, split: str) -> tuple[CorpusFile, ...]:
        """Return the files of a split, or raise DataError, which lists the known splits."""
        name = self.aliases.get(split, split)
        if found := tuple(file for file in self.files if file.split == name):
            return found
        also = "".join(f"; {alias!r} means {name!r}" for alias, name in self.aliases.items())
        raise DataError(
            f"corpus {self.name!r} has no split {split!r}{did_you_mean(split, [*self.splits, *self.aliases])}; "
            f"choose from: {', '.join(self.splits)}{also}"
        )


def _declared() -> Iterator[Corpus]:
    entries = yaml.load(
        Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
    )
    for name, entry in entries.items():
        layout = {"layout": entry.pop("layout", None)}
        defaults = ({"remote": file["path"].rpartition("/")[2]} | layout for file in entry["files"])
        files = tuple(
            CorpusFile(**default | file)
            for default, file in zip(defaults, entry["files"], strict=True)
        )
        yield Corpus(**entry | {"name": name, "files": files})


CORPORA: Final = {corpus.name: corpus for corpus in _declared()}


def get_corpus(name: str) -> Corpus:
    """Return a corpus by name, or raise DataError, which lists the known corpora."""
    if name not in CORPORA:
        raise DataError(
            f"unknown corpus {name!r}{did_you_mean(name, CORPORA)}; choose from: {', '.join(CORPORA)}"
        )
    return CORPORA[name]


def sample_dir() -> Path:
    """Return the folder of the sample corpus in the package; its layout is that of the official files."""
    return Path(__file__).resolve().parent / "sample"


def default_data_dir() -> Path:
    """Return the folder of the corpora: ``LIGHTNING_CSE_DATA``, else ``data`` in the working directory."""
    return Path(os.environ.get(DATA_DIR_VARIABLE) or "data").expanduser()


def read_corpus(name: str, split: str, data_dir: str | Path) -> "Rows":
    """Read one split of a corpus.

    ``python -m lightning_cse.prepare`` lists the names and splits; ``corpora.yaml`` lists the columns. The Hugging Face
    hub is queried only for files that ``data_dir`` holds neither plain nor as ``.gz``. Bad rows are a DataError. So is
    an official file without its declared number of rows, unless ``data_dir`` has a file named ``SAMPLE``.
    """
    corpus = get_corpus(name)
    folder = Path(data_dir).expanduser().absolute()
    counted = not corpus.made and not (folder / SAMPLE).exists()
    states = tuple(_state(find_file(folder, file)) for file in corpus.split_files(split))
    rows = (_read_split if None in states else _kept_split)(corpus, split, folder, counted, states)
    return rows.recounted(rows.counts)


def _read_split(
    corpus: Corpus, split: str, folder: Path, counted: bool, states: tuple[Any, ...]
) -> "Rows":
    parts: dict[str | None, list[CorpusFile]] = {}
    for file in corpus.split_files(split):
        parts.setdefault(file.part, []).append(file)
    tables = []
    for part, files in parts.items():
        rows = _side_by_side([_found_or_fetched(corpus, file, folder) for file in files])
        if counted and len(rows) != files[0].rows:
            again = f"python -m lightning_cse.prepare {corpus.name} --force --data-dir {shlex.quote(str(folder))}"
            raise DataError(
                f"{rows.files[0].path}: {len(rows):,} rows of split {files[0].split!r}, but the official file has "
                f"{files[0].rows:,}: is it cut off?\n  to fetch it again: {again}\n  if it differs on purpose: name "
                f"it as a file of your own, or put an empty file named {SAMPLE} into {folder}: then no rows are "
                "counted there"
            )
        tables.append(
            rows if part is None else rows.with_column(corpus.part_column, [part] * len(rows))
        )
    return tables[0] if len(tables) == 1 else type(tables[0]).cat(tables)


_kept_split = functools.lru_cache(maxsize=128)(
    _read_split
)  # the points of a sweep read each split once


def _state(path: Path | None) -> tuple[str, int, int, int, int] | None:
    """Return values that change when a file is replaced or written to, or None if there is no file."""
    if path is None:
        return None
    state = path.stat()
    return str(path), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def find_file(folder: Path, file: CorpusFile) -> Path | None:
    """Return the path of a file below the data directory, plain before ``.gz``; ``None`` if there is neither."""
    return next(
        (path for path in (folder / file.path, folder / f"{file.path}.gz") if path.exists()), None
    )


def absent(source: str, data_dir: str | Path) -> str | None:
    """Return which file of ``corpus/split`` is missing and how to get it; None if none is or the hub may have it."""
    from lightning_cse.data.own import is_own

    name, _, split = source.partition("/")
    if is_own(source) or (corpus := get_corpus(name)).hub is not None:
        return None
    folder, files = Path(data_dir).expanduser().absolute(), corpus.split_files(split)
    gone = next((file.path for file in files if find_file(folder, file) is None), None)
    return (
        None
        if gone is None
        else f"{gone} is not in paths.data_dir; prepare {name}: {corpus.prepare}"
    )


def read_file(corpus: Corpus, file: CorpusFile, path: Path) -> "Rows":
    """Read one file of a corpus from any path, or raise DataError with the file and line."""
    from lightning_cse.data.rows import Rows, SourceFile

    data = read_bytes(path)
    source = SourceFile(file.path, str(path), hashlib.sha256(data).hexdigest())
    columns, lines, dropped = parsers.parse(
        decoded(data, str(path), corpus.encoding), str(path), **file.layout
    )
    rows = Rows.of(
        columns, files=[source], lines=lines, counts=parsers.account(len(lines), dropped)
    )
    if not file.only:
        return rows
    column, value = file.only
    chosen = [row for row, found in enumerate(rows.column(column)) if found == value]
    if not chosen:
        raise DataError(f"{path}: no row of the split {file.split!r}: none has {column} = {value}")
    return rows.select(chosen).recounted()


def fetch_hub(corpus: Corpus, file: CorpusFile) -> "Rows":
    """Read one split from the hub; raise HubError if it has no copy, is switched off, or does not answer."""
    from lightning_cse.data.rows import Rows, SourceFile

    if corpus.hub is None:
        raise HubError("the Hugging Face hub has no known copy")
    name, revision, split = (
        corpus.hub["id"],
        corpus.hub["revision"],
        corpus.hub["splits"][file.split],
    )
    if offline := offline_mode():
        raise HubError(f"the Hugging Face hub ({name}) was not queried: {offline}")
    try:
        dataset = importlib.import_module("datasets").load_dataset(
            name, split=split, revision=revision
        )
    except Exception as error:  # the hub's client raises whatever its many layers raise
        raise HubError(
            f"the Hugging Face hub ({name}) could not load it: {type(error).__name__}: {error}"
        ) from error
    path = f"hf://datasets/{name}@{revision[:12]}/{split}"
    columns, lines, _ = parsers.columns_of(enumerate(dataset, start=1), corpus.hub["columns"], path)
    digest = hashlib.sha256(json.dumps(columns).encode()).hexdigest()
    return Rows.of(columns, files=[SourceFile(file.path, path, digest)], lines=lines)


def offline_mode() -> str:
    """Return a note that the hub is switched off, and by what, or an empty string if it is not."""
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        if (value := os.environ.get(variable, "")).upper() in {"1", "ON", "YES", "TRUE"}:
            return f"offline mode is on ({variable}={value})"
    return ""


def _found_or_fetched(corpus: Corpus, file: CorpusFile, folder: Path) -> "Rows":
    path = find_file(folder, file)
    try:
        return fetch_hub(corpus, file) if path is None else read_file(corpus, file, path)
    except HubError as error:
        hub = str(error)
    path = folder / file.path
    no_folder = "" if folder.is_dir() else f" ({folder} is not a folder)"
    fetch = f"to fetch it: python -m lightning_cse.prepare {corpus.name} --data-dir {shlex.quote(str(folder))}"
    if not corpus.sources and corpus.hub is None:
        fetch = f"the command that prepares corpora {corpus.prepare}"
    raise DataError(
        f"corpus {corpus.name!r}, split {file.split!r} was not found\n"
        f"  looked for: {path} and {path.name}.gz beside it{no_folder}\n  {hub}\n  {fetch}\n"
        f"  if you have it: set {DATA_DIR_VARIABLE} (or paths.data_dir) to the folder that holds {file.path}"
    )


def _side_by_side(tables: Sequence["Rows"]) -> "Rows":
    """Join files line by line into one table; a line that any of the files leaves out is left out."""
    if len(tables) == 1:
        return tables[0]
    lengths = {table.files[0].path: table.counts["read"] for table in tables}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{path}: {length} rows" for path, length in lengths.items())
        raise DataError(f"files that belong together differ in length: {shown}")
    kept = set.intersection(*(set(table.column("line")) for table in tables))
    columns: dict[str, Any] = {}
    for table in tables:
        rows = table.select([row for row, line in enumerate(table.column("line")) if line in kept])
        columns |= {name: rows.values(name) for name in table.names}
    counts = {key: count for table in tables for key, count in table.counts.items()}
    files = [file for table in tables for file in table.files]
    return type(tables[0]).of(columns, files=files, lines=sorted(kept), counts=counts)


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, uncompressed if its name ends in ``.gz``, or raise DataError."""
    try:
        if path.suffix != ".gz" or not (size := path.stat().st_size):
            return path.read_bytes()
        with gzip.open(path) as file:
            data = file.read(largest(size) + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}: the compressed data is cut off or broken ({error}); fetch it again"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > largest(size):
        raise DataError(
            f"{path}: expands to more than {largest(size):,} bytes, which is not text; fetch it again"
        )
    return data


def largest(size: int) -> int:
    """Return how many bytes a compressed file may expand to: 100 times its size (corpora: at most 12), plus 1 MiB."""
    return 100 * size + 2**20


def decoded(data: bytes, path: str, encoding: str | None = None) -> str:
    """Decode a file as UTF-8, or else in ``encoding``, if it is given; raise DataError if that is not text."""
    if not data:
        raise DataError(f"{path}: the file is empty (0 bytes)")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start = error.start + (
            3 if data.startswith(b"\xef\xbb\xbf") else 0
        )  # the error counts without the BOM
        line = data.count(b"\n", 0, start) + 1
        fault = f"{path}:{line}: not UTF-8 text: byte 0x{data[start]:02x} at position {start}"
        if encoding is None:
            raise DataError(f"{fault}; save the file as UTF-8") from None
        log.warning("%s; the file is read as %s", fault, encoding)
        text = data.decode(encoding)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}:{line}: a zero byte; save the file as UTF-8 text")
    return text
