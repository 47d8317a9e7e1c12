"""The files of a stream: Parquet or JSON lines, on this machine or behind a URL of `fsspec`."""

import glob
import hashlib
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import datasets
from datasets import IterableDataset
from fsspec.core import url_to_fs

from lightning_cse.data.cells import BadRows, listed, sha256_of
from lightning_cse.data.own import declared_columns, loading, paths_of, recognise, with_class_names
from lightning_cse.data.rows import Rows, SourceFile
from lightning_cse.data.tables import LARGE, Notes, table_of
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.runs import public

log = logging.getLogger(__name__)

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")
_END = 2**20  # bytes at the start and at the end of a large file that identify it
_AT_ONCE = 16  # files that a server is asked about at once
# What names the content of a file, in the words of HTTP, S3 and Google's storage, best first.
_MARKS = ("ETag", "etag", "Content-MD5", "md5Hash", "Last-Modified")


class Shards:
    """The files of a stream, and how their rows are read.

    Args:
        sources: paths, globs and URLs.
        columns: our names mapped to columns of the files, besides those that are recognised.
        takes: which columns the method takes, for messages.

    Raises:
        ConfigError: if a name is not that of a Parquet or JSON-lines file, or there is none.
        DataError: if a file cannot be read, or its columns fit no layout.
    """

    def __init__(self, sources: Sequence[str], columns: Mapping[str, str], *, takes: str) -> None:
        self.files = find_shards(sources)
        self._names: dict[str, str] = {}
        first = self.open(0)
        with loading(self.files[0].path):
            self._features = dict(first.features or dict.fromkeys(next(iter(first))))

        found = list(self._features)
        path = public(self.files[0].path)
        self._names = recognise(found, columns, "data.columns", f"{path}: {takes}")
        self._declared = declared_columns(self._names)
        log.info("%s: columns: %s; used: %s", path, listed(found), listed(self._names.values()))

    def __len__(self) -> int:
        return len(self.files)

    def open(self, number: int) -> IterableDataset:
        """Return the rows of a file, which are read as they are iterated over."""
        path = self.files[number].path
        is_parquet = _bare(path).endswith(".parquet")
        options: dict[str, Any] = {}

        if is_parquet and self._names:  # of the others, nothing is fetched
            options["columns"] = list(dict.fromkeys(self._names.values()))

        # Otherwise, every file that is opened is reported to the hub.
        datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False

        with loading(path):
            return datasets.load_dataset(
                "parquet" if is_parquet else "json",
                data_files=[path],
                split="train",
                streaming=True,
                **options,
            )

    def rows(self, number: int, cells: Iterable[dict[str, Any]], line: int) -> Rows:
        """Return rows of a file, the first of which is on a line (for Parquet: its number).

        A row with a bad cell is dropped and counted, since nobody can look at a stream before it is
        trained on.
        """
        file = self.files[number]
        bad = BadRows(public(file.path), skip=True)
        columns = dict.fromkeys(self._names.values())
        complete = (columns | row for row in cells)
        named = with_class_names(complete, self._features, columns)
        known = Notes(sha256=file.sha256)
        table, _ = table_of(enumerate(named, start=line), self._declared, bad, notes=known)

        if bad.count:
            log.warning("%d rows of a stream are dropped: %s", bad.count, next(iter(bad.dropped)))

        return Rows.read(table, file, {"bad cell": bad.count})

    def first(self, count: int) -> list[tuple[int, list[dict[str, Any]]]]:
        """Return the first rows of the stream in the order of its files: their file's number, and
        their cells.
        """
        parts = []

        for number in range(len(self)):
            with loading(self.files[number].path):
                cells = list(itertools.islice(self.open(number), count))

            parts.append((number, cells))
            count -= len(cells)
            if not count:
                break

        return parts


def find_shards(sources: Sequence[str]) -> list[SourceFile]:
    """Return the files that paths, globs and URLs name, each with what identifies its content.

    That is, for a file on this machine, the sha256 of its bytes or, from 16 MiB on, its size and
    the sha256 of its first and last MiB; for another, its size and ETag, or when it was modified if
    the server gives no ETag. Raises like `Shards`.
    """
    for name in sources:
        if not glob.has_magic(_bare(name)):
            _check_suffix(name)

    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # a server takes its time for each file
            files = list(itertools.chain.from_iterable(pool.map(_named, sources)))
    except DataError as error:
        raise DataError(f"data.train: {error}") from None

    for file in files:
        _check_suffix(file.path)

    if not files:
        raise ConfigError(["data.train: give Parquet or JSON-lines files, or their URLs"])

    return files


def _bare(name: str) -> str:
    """Return a path or URL without the query, which may be a signature."""
    return name.partition("?")[0] if "://" in name else name


def _check_suffix(name: str) -> None:
    if _bare(name).endswith(SUFFIXES):
        return

    ends = ", ".join(SUFFIXES)
    fault = (
        f"data.train: {public(name)!r} is not a file that is streamed, whose name ends in {ends}"
    )
    raise ConfigError([f"{fault}; without data.streaming, more sources are read"])


def _named(source: str) -> list[SourceFile]:
    return _remote(source) if "://" in source else [_local(path) for path in paths_of(source)]


def _local(name: str) -> SourceFile:
    path = Path(name).expanduser().absolute()
    size = path.stat().st_size

    if size < LARGE:
        return SourceFile(name.removesuffix(".gz"), str(path), sha256_of(path))

    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(_END))
        file.seek(size - _END)
        digest.update(file.read(_END))

    return SourceFile(
        name.removesuffix(".gz"), str(path), f"{size} bytes, ends {digest.hexdigest()}"
    )


def _remote(name: str) -> list[SourceFile]:
    with loading(name):
        system, path = url_to_fs(name)

        if glob.has_magic(_bare(name)):
            infos = dict(sorted(system.glob(path, detail=True).items()))
            infos = {system.unstrip_protocol(path): info for path, info in infos.items()}
        else:
            infos = {name: system.info(path)}

    if not infos:
        raise DataError(f"{public(name)}: there is no such file")

    return [SourceFile(public(url), url, _identity(info)) for url, info in infos.items()]


def _identity(info: Mapping[str, Any]) -> str:
    marks = [f"{mark} {info[mark]}" for mark in _MARKS if info.get(mark)]
    return ", ".join([f"{info.get('size')} bytes", *marks[:1]])
