"""Reads corpora in their official layout: from the data directory, else from the hub, else one clear error."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import logging
import os
import shlex
import zlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lightning_cse.data.corpora import Corpus, CorpusFile, get_corpus
from lightning_cse.data.corpora.spec import Parse, Table
from lightning_cse.data.rows import Rows, SourceFile
from lightning_cse.errors import DataError

DATA_DIR_VARIABLE = "LIGHTNING_CSE_DATA"
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
OWN: Final = {".txt": "sentences:parse_sentences", ".jsonl": "ngcse:parse_rows", ".csv": "own:parse_own"}
"""The suffixes of a user's own files, plain or followed by ``.gz``, and what of `corpora` parses them."""

log = logging.getLogger(__name__)

BLOCK: Final = 1 << 20
"""Bytes of a file that are held at a time where it is streamed."""

_UNPACKED: Final = 1 << 16  # bytes of compressed files; how many decides at which line a fault is told


class HubError(DataError):
    """The Hugging Face hub could not give the corpus."""


def sample_dir() -> Path:
    """Return the folder of the sample corpus that the package carries, in the layout of the official files."""
    return Path(__file__).resolve().parent / "sample"


def default_data_dir() -> Path:
    """Return the folder of the corpora: ``LIGHTNING_CSE_DATA``, else ``data`` in the working directory."""
    return Path(os.environ.get(DATA_DIR_VARIABLE) or "data").expanduser()


def read_corpus(name: str, split: str, data_dir: str | Path) -> Rows:
    """Read one split of a corpus.

    Args:
        name: Name of the corpus, one of `corpora.CORPORA`. Columns by kind of corpus: ``premise``, ``hypothesis`` and
            ``label`` (``entailment``, ``neutral``, ``contradiction``, or ``-`` where annotators did not agree) for
            sentence pairs of NLI; ``premise`` and its hypotheses by role for INLI and ready-made triplets;
            ``sentence1``, ``sentence2``, ``score`` for STS, and ``subset`` where a split has several; ``sentence`` for
            plain text, with ``label`` for transfer tasks; ``anchor``, ``positive``, ``negative`` and, for STS patterns,
            ``intermediate`` for LLM rows; ``pos_implicit``, ``pos_explicit``, ``neg_implicit``, ``neg_explicit`` for
            implicit/explicit pairs.
        split: One of the corpus's splits, as ``python -m lightning_cse.prepare`` lists them.
        data_dir: The folder that holds the official files; each is looked for plain and with ``.gz``. Only where
            there is neither is the Hugging Face hub asked, if it has the corpus and is not switched off.

    Returns:
        All rows of the split, in the file's order; outer white space of sentences is removed, nothing else is changed.

    Raises:
        DataError: If the corpus, the split or a file is not there, or at the first bad row, with file and line.
    """
    corpus = get_corpus(name)
    files = corpus.split_files(split)
    folder = Path(data_dir).expanduser().absolute()
    paths = [find_file(folder, file) for file in files]
    if None in paths:
        return _read_split(corpus, files, folder)
    key = (name, split, tuple(_state(path) for path in paths if path is not None))
    rows = _KEPT.get(key)
    if rows is None:
        rows = _read_split(corpus, files, folder)
        if key[2] == tuple(_state(path) for path in paths if path is not None):  # not written to in the meantime
            _KEPT.put(key, rows)
    return rows.recounted(rows.counts)


def _read_split(corpus: Corpus, files: Sequence[CorpusFile], folder: Path) -> Rows:
    parts: dict[str | None, list[tuple[Table, SourceFile]]] = {}
    for file in files:
        path = find_file(folder, file)
        if path is not None:
            parts.setdefault(file.part, []).append(_parse(corpus, file, read_bytes(path), str(path)))
            continue
        try:
            parts.setdefault(file.part, []).append(_parse(corpus, file, *fetch_hub(corpus, file)))
        except HubError as error:
            raise DataError(_missing(corpus, file, folder, str(error))) from None
    tables = []
    for part, beside in parts.items():
        rows = _side_by_side(beside)
        if part is not None:
            rows = rows.with_column(corpus.part_column, [part] * len(rows))
        tables.append(rows)
    return tables[0] if len(tables) == 1 else Rows.cat(tables)


@dataclass
class _Kept:
    """The splits read last, so that the points of a sweep read each once; as many as have so many values together."""

    most: int
    tables: dict[Hashable, Rows] = field(default_factory=dict)

    def get(self, key: Hashable) -> Rows | None:
        """Return the rows under a key, which become the last to be dropped."""
        rows = self.tables.pop(key, None)
        if rows is not None:
            self.tables[key] = rows
        return rows

    def put(self, key: Hashable, rows: Rows) -> None:
        """Keep rows, and drop those that have not been asked for longest."""
        if _size(rows) > self.most:
            return
        self.tables[key] = rows
        while sum(map(_size, self.tables.values())) > self.most:
            self.tables.pop(next(iter(self.tables)))


_KEPT = _Kept(most=1_000_000)
"""Some 150 MB of sentences at most; a corpus larger than that is read anew, which its training outlasts by far."""


def _size(rows: Rows) -> int:
    return len(rows) * len(rows.names)


def _state(path: Path) -> tuple[str, int, int, int, int]:
    """Return what changes when a file is replaced or written to."""
    state = path.stat()
    return str(path), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def find_file(folder: Path, file: CorpusFile) -> Path | None:
    """Return the path of a file below the data directory, plain before ``.gz``; ``None`` if there is neither."""
    for path in _candidates(folder, file):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        return path
    return None


def absent(name: str, split: str, data_dir: str | Path) -> str | None:
    """Return which file of a split is not there and how to get it, or None where all are, or the hub may have them.

    Raises:
        DataError: If there is no such corpus or split.
    """
    corpus = get_corpus(name)
    folder = Path(data_dir).expanduser().absolute()
    if corpus.hub is not None:
        return None
    gone = next((file for file in corpus.split_files(split) if find_file(folder, file) is None), None)
    return None if gone is None else f"{folder / gone.path} is not there; prepare {name}: {corpus.prepare}"


def read_file(corpus: Corpus, file: CorpusFile, path: Path) -> Rows:
    """Read one file of a corpus, wherever it lies.

    Raises:
        DataError: If the file cannot be read or has a bad row, with file and line.
    """
    return _side_by_side([_parse(corpus, file, read_bytes(path), str(path))])


def is_own(name: str) -> bool:
    """Return whether a name is the path of a user's own file, which its ending tells."""
    return name.removesuffix(".gz").endswith(tuple(OWN))


def read_own(name: str) -> Rows:
    """Read a user's own file: ``.txt`` has a sentence a line, ``.jsonl`` LLM rows, ``.csv`` what its header tells.

    A ``.csv`` has quadruples in INLI's layout, of which some sentences may be None, or implicit/explicit pairs. Each
    kind may be compressed (``.gz``).

    Raises:
        DataError: If there is no such file, it cannot be read or has a bad row, with file and line.
    """
    path = Path(name).expanduser().absolute()
    if not path.exists():
        raise DataError(f"{path}: there is no such file; relative paths start at the working directory, {Path.cwd()}")
    plain = name.removesuffix(".gz")
    data = read_bytes(path)
    module, _, name = next(parser for suffix, parser in OWN.items() if plain.endswith(suffix)).partition(":")
    parse: Parse = getattr(importlib.import_module(f"lightning_cse.data.corpora.{module}"), name)
    table = parse(_decoded(data, str(path)), str(path))
    return _side_by_side([(table, SourceFile(plain, str(path), hashlib.sha256(data).hexdigest()))])


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, uncompressed if its name ends in ``.gz``.

    Raises:
        DataError: As `blocks`.
    """
    return b"".join(blocks(path))


def blocks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file one after the other, uncompressed if its name ends in ``.gz``, at most `BLOCK` at once.

    Raises:
        DataError: If it is a folder, is not to be opened, or, when that is reached, its compressed data is cut off or
            broken.
    """
    line = 1
    try:
        with opened(path) as stream:
            most = _UNPACKED if isinstance(stream, gzip.GzipFile) else BLOCK
            while block := stream.read1(most):
                line += block.count(b"\n")
                yield block
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder, a file is needed") from None
    except EOFError:
        raise DataError(f"{path}:{line}: the compressed file ends here, it is cut off; fetch it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}:{line}: the compressed data is broken from here on: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def opened(path: Path) -> io.BufferedReader | gzip.GzipFile:
    """Open a file for reading, uncompressed if its name ends in ``.gz``."""
    return gzip.GzipFile(path) if path.suffix == ".gz" else path.open("rb")


def fetch_hub(corpus: Corpus, file: CorpusFile) -> tuple[bytes, str]:
    """Return one split of the hub's data set as a file in the official layout, and what to call it.

    Raises:
        HubError: If the hub has no copy, is switched off, or does not answer.
        DataError: At the first bad row.
    """
    hub = corpus.hub
    if hub is None:
        raise HubError("the Hugging Face hub has no copy that we know of")
    for name in OFFLINE_VARIABLES:
        if (value := os.environ.get(name, "")).upper() in {"1", "ON", "YES", "TRUE"}:
            raise HubError(f"the Hugging Face hub ({hub.id}) was not asked: it is switched off ({name}={value})")
    split = hub.splits[file.split]
    path = f"hf://datasets/{hub.id}@{hub.revision[:12]}/{split}"
    try:
        datasets = importlib.import_module("datasets")  # only now: it takes a second
        rows = datasets.load_dataset(hub.id, split=split, revision=hub.revision)
    except Exception as error:  # the hub's client raises whatever its many layers raise
        raise HubError(f"the Hugging Face hub ({hub.id}) gave nothing: {type(error).__name__}: {error}") from error
    return hub.to_official(rows, path), path


def _candidates(folder: Path, file: CorpusFile) -> tuple[Path, Path]:
    return folder / file.path, folder / f"{file.path}.gz"


def _parse(corpus: Corpus, file: CorpusFile, data: bytes, path: str) -> tuple[Table, SourceFile]:
    table = (file.parse or corpus.parse)(_decoded(data, path, corpus.encoding), path)
    source = SourceFile(file.path, path, hashlib.sha256(data).hexdigest())
    if file.only is None:
        return table, source
    column, value = file.only
    chosen = [row for row, found in enumerate(table.columns[column]) if found == value]
    if not chosen:
        raise DataError(f"{path}: no row of the split {file.split!r}: none has {column} = {value}")
    return _chosen(table, chosen), source


def _decoded(data: bytes, path: str, encoding: str | None = None) -> str:
    """Return the text of a file, which is UTF-8 or else of the other encoding, if there is one."""
    if not data:
        raise DataError(f"{path}: the file is empty (0 bytes)")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start = error.start + (3 if data.startswith(b"\xef\xbb\xbf") else 0)  # positions are told without the mark
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


def _chosen(table: Table, rows: Sequence[int]) -> Table:
    """Return some rows of a table, as if it had no others."""
    columns = {name: [values[row] for row in rows] for name, values in table.columns.items()}
    return Table(dict(columns), [table.lines[row] for row in rows])  # type: ignore[arg-type]


def _side_by_side(parts: Sequence[tuple[Table, SourceFile]]) -> Rows:
    """Return the rows of files that hold one row a line each, as one: those of the lines that none of them leaves out.

    Rows are told by the line of the first file.
    """
    lengths = {source.path: len(table.lines) + sum(table.dropped.values()) for table, source in parts}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{path}: {length} rows" for path, length in lengths.items())
        raise DataError(f"files that belong together differ in length: {told}")
    lines = parts[0][0].lines
    counts = {"read": max(lengths.values())}
    counts |= {f"dropped: {why}": count for table, _ in parts for why, count in table.dropped.items()}
    columns = dict(parts[0][0].columns)
    if len(parts) > 1:
        kept = set(lines).intersection(*(table.lines for table, _ in parts))
        tables = [_chosen(table, [row for row, line in enumerate(table.lines) if line in kept]) for table, _ in parts]
        columns = {name: values for table in tables for name, values in table.columns.items()}
        lines = tables[0].lines
    return Rows.of(columns, files=[source for _, source in parts], lines=lines, counts=counts)


def _missing(corpus: Corpus, file: CorpusFile, folder: Path, hub: str) -> str:
    plain, packed = _candidates(folder, file)
    absent = "" if folder.is_dir() else f" ({folder} is no folder)"
    fetch = f"to fetch it: python -m lightning_cse.prepare {corpus.name} --data-dir {shlex.quote(str(folder))}"
    if not corpus.sources and corpus.hub is None:
        fetch = f"the command that prepares corpora {corpus.prepare}"
    return (
        f"corpus {corpus.name!r}, split {file.split!r} is not there\n"
        f"  looked for: {plain} and {packed.name} beside it{absent}\n"
        f"  {hub}\n"
        f"  {fetch}\n"
        f"  if you have it: set {DATA_DIR_VARIABLE} (or paths.data_dir) to the folder that holds {file.path}"
    )
