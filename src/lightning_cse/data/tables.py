"""Rows of files as datasets; those of a large file are written once, a batch at a time, to a
memory-mapped file of the cache.
"""

import hashlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset
from datasets.table import InMemoryTable

from lightning_cse.data.cells import BadRows, Columns, Row, converted, converters, is_number
from lightning_cse.data.files import sha256_of
from lightning_cse.data.rows import (
    BATCH,
    FILE,
    LINE,
    Account,
    SourceFile,
    count_dropped,
    with_files,
)
from lightning_cse.data.token_cache import usable
from lightning_cse.errors import DataError
from lightning_cse.runs import atomic_file, public, write_json

VERSION = 2  # of the files in the cache
LARGE = 2**24  # bytes; a smaller file is read into memory
_SETTLED = 2.0  # seconds after which a further change of a file also changes its time


def read_rows(
    content: Callable[[], tuple[Columns, Iterable[Row]]],
    file: SourceFile,
    bad: BadRows,
    *,
    identity: Any,
    only: tuple[str, str] | None = None,
    size: int = 0,
    cache_dir: Path | None = None,
    account: Account | None = None,
) -> Dataset:
    """Return the declared columns of a file's rows, with the ``file`` and ``line`` of each.

    Args:
        content: returns the columns and the rows; not called if the cache has their table.
        file: the file.
        bad: what happens to rows that cannot be used.
        identity: what decides the rows beside the bytes of the file and ``only``.
        only: a column and the value that it must have.
        size: bytes of the file, which decide whether its table is written to the cache.
        cache_dir: the folder of the cache; None keeps the table in memory.
        account: adds how many rows were ``read`` and ``dropped: <reason>``.

    Raises:
        DataError: for a bad row, a file without rows, or a cache that cannot be used.
    """
    digest = _digest(VERSION, file.path, file.sha256, identity, only)
    counts: Account = Counter()

    def batches() -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        columns, rows = content()
        return _schema(columns), _batches(rows, columns, only, bad, counts)

    if cache_dir is None or size < LARGE:
        schema, parts = batches()
        table = InMemoryTable(pa.Table.from_batches(parts, schema))
        rows = Dataset(table, fingerprint=digest)
    else:
        stored = cache_dir / "rows" / f"{digest}.arrow"
        notes = stored.with_suffix(".json")

        with usable(stored):
            if not notes.exists():
                schema, parts = batches()
                with atomic_file(stored) as out, pa.ipc.new_stream(out, schema) as writer:
                    for part in parts:
                        writer.write_batch(part)

                write_json(notes, dict(counts))

            counts = Counter(json.loads(notes.read_bytes()))
            rows = Dataset(Dataset.from_file(str(stored)).data, fingerprint=digest)

    if not len(rows):
        reasons = ", ".join(name.removeprefix("dropped: ") for name in counts if name != "read")
        which = f" with {only[0]} {only[1]}" if only else ""
        raise DataError(
            f"{bad.path}: no rows{which}{f' that can be used: {reasons}' if reasons else ''}"
        )

    if account is not None:
        account.update(counts)

    return with_files(rows, [file])


def _schema(columns: Columns) -> pa.Schema:
    types = {
        name: pa.float64() if is_number(convert) else pa.string()
        for name, _, convert in converters(columns)
    }

    return pa.schema(types | {FILE: pa.string(), LINE: pa.int64()})


def _batches(
    rows: Iterable[Row],
    columns: Columns,
    only: tuple[str, str] | None,
    bad: BadRows,
    counts: Account,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches, and count them."""
    dropped: Counter[str] = Counter()
    path = public(bad.path)
    schema = _schema(columns)
    values = converted(rows, columns, bad, dropped)

    if only is not None:
        column, value = only
        values = (row for row in values if row[column] == value)

    for part in iter(lambda: list(itertools.islice(values, BATCH)), []):
        counts["read"] += len(part)
        yield pa.RecordBatch.from_pylist([{**row, FILE: path} for row in part], schema)

    counts["read"] += dropped.total()
    count_dropped(counts, dropped)


def cached_sha256(path: Path, cache_dir: Path | None) -> str:
    """Return the sha256 of a file's uncompressed bytes; that of a large one from the cache, unless
    the file has changed.
    """
    state = path.stat() if path.is_file() else None
    if cache_dir is None or state is None or state.st_size < LARGE:
        return sha256_of(path)

    times = (state.st_mtime_ns, state.st_ctime_ns)
    identity = _digest(VERSION, str(path), state.st_ino, state.st_size, *times)
    notes = cache_dir / "files" / f"{identity}.json"

    with usable(notes):
        if notes.exists():
            return str(json.loads(notes.read_bytes()))

    sha256 = sha256_of(path)

    # A file that is still written to may change again within the resolution of its time.
    if time.time() - state.st_ctime > _SETTLED:
        with usable(notes):
            write_json(notes, sha256)

    return sha256


def fingerprint_sha256(dataset: Dataset) -> str:
    """Return the sha256 of a fingerprint, which identifies the content of a dataset."""
    return hashlib.sha256(dataset._fingerprint.encode()).hexdigest()  # no public name


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
