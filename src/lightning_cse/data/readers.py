"""Reads corpora in their official layout: from the data directory, else from the hub, else one clear error."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import os
import shlex
import zlib
from pathlib import Path

from lightning_cse.data.corpora import Corpus, CorpusFile, get_corpus
from lightning_cse.data.rows import Rows, SourceFile
from lightning_cse.errors import DataError

DATA_DIR_VARIABLE = "LIGHTNING_CSE_DATA"
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


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
            ``sentence1``, ``sentence2``, ``score`` for STS; ``sentence`` for plain text.
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
    parts = []
    for file in files:
        path = find_file(folder, file)
        if path is not None:
            parts.append(read_file(corpus, file, path))
            continue
        try:
            parts.append(_parse(corpus, file, *fetch_hub(corpus, file)))
        except HubError as error:
            raise DataError(_missing(corpus, file, folder, str(error))) from None
    return parts[0] if len(parts) == 1 else _side_by_side(parts)


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


def read_file(corpus: Corpus, file: CorpusFile, path: Path) -> Rows:
    """Read one file of a corpus, wherever it lies.

    Raises:
        DataError: If the file cannot be read or has a bad row, with file and line.
    """
    return _parse(corpus, file, read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, uncompressed if its name ends in ``.gz``.

    Raises:
        DataError: If it is a folder, is not to be opened, or its compressed data is cut off or broken.
    """
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder, a file is needed") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if path.suffix != ".gz" or not data:
        return data
    parts: list[bytes] = []
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while part := stream.read1(1 << 16):
                parts.append(part)
    except EOFError:
        line = sum(part.count(b"\n") for part in parts) + 1
        raise DataError(f"{path}:{line}: the compressed file ends here, it is cut off; fetch it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        line = sum(part.count(b"\n") for part in parts) + 1
        raise DataError(f"{path}:{line}: the compressed data is broken from here on: {error}") from None
    return b"".join(parts)


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


def _parse(corpus: Corpus, file: CorpusFile, data: bytes, path: str) -> Rows:
    if not data:
        raise DataError(f"{path}: the file is empty (0 bytes)")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start = error.start + (3 if data.startswith(b"\xef\xbb\xbf") else 0)  # positions are told without the mark
        line = data.count(b"\n", 0, start) + 1
        raise DataError(
            f"{path}:{line}: not UTF-8 text: byte 0x{data[start]:02x} at position {start}; save the file as UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}:{line}: a zero byte; save the file as UTF-8 text")
    columns, lines, dropped = (file.parse or corpus.parse)(text, path)
    counts = {"read": len(lines) + sum(dropped.values())} | {f"dropped: {why}": n for why, n in dropped.items()}
    source = SourceFile(file.path, path, hashlib.sha256(data).hexdigest())
    rows = Rows(columns, files=[source], origins=[(0, line) for line in lines], counts=counts)
    if file.only is None:
        return rows
    column, value = file.only
    chosen = rows.select(row for row, found in enumerate(rows.column(column)) if found == value)
    if not chosen:
        raise DataError(f"{path}: no row of the split {file.split!r}: none has {column} = {value}")
    return chosen.recounted()


def _side_by_side(parts: list[Rows]) -> Rows:
    """Return the rows of several files that hold one row a line each, as one."""
    lengths = {part.files[0].path: len(part) for part in parts}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{path}: {length} rows" for path, length in lengths.items())
        raise DataError(f"files that belong together differ in length: {told}")
    return parts[0].beside(*parts[1:])


def _missing(corpus: Corpus, file: CorpusFile, folder: Path, hub: str) -> str:
    plain, packed = _candidates(folder, file)
    absent = "" if folder.is_dir() else f" ({folder} is no folder)"
    return (
        f"corpus {corpus.name!r}, split {file.split!r} is not there\n"
        f"  looked for: {plain} and {packed.name} beside it{absent}\n"
        f"  {hub}\n"
        f"  to fetch it: python -m lightning_cse.prepare {corpus.name} --data-dir {shlex.quote(str(folder))}\n"
        f"  if you have it: set {DATA_DIR_VARIABLE} (or paths.data_dir) to the folder that holds {file.path}"
    )
