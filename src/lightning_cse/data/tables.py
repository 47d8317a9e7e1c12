"""Rows of files as Arrow tables; those of a large file are read once, a batch at a time, into a
memory-mapped file of the cache.
"""

import hashlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from lightning_cse.data.cells import (
    AT_ONCE,
    BadRows,
    Columns,
    Row,
    TextFile,
    converted,
    converters,
    is_number,
)
from lightning_cse.data.mapped import usable
from lightning_cse.data.rows import Rows, SourceFile
from lightning_cse.errors import DataError
from lightning_cse.runs import atomic_file, write_json

VERSION = 1  # of the files in the cache
LARGE = 2**24  # bytes; a smaller file is read into memory
_SETTLED = 2.0  # seconds after which a further change of a file also changes its time


@dataclass(frozen=True)
class Notes:
    """What is known of the rows of a file beside their table: the names of its columns, the lines
    that were left out, by reason, and the sha256.
    """

    found: list[str] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    sha256: str = ""


def cached_file(cache_dir: Path | None, size: int, *identity: Any) -> Path | None:
    """Return the file of the cache for the rows of a source of so many bytes, or None if they stay
    in memory; everything that decides the rows identifies it.
    """
    if cache_dir is None or size < LARGE:
        return None

    return cache_dir / "rows" / f"{_digest(VERSION, *identity)}.arrow"


def notes_of(file: Path | None) -> Notes | None:
    """Return the notes of a table in the cache, or None if it is not there."""
    if file is None or not file.with_suffix(".json").exists():
        return None

    with usable(file):
        return Notes(**json.loads(file.with_suffix(".json").read_bytes()))


def read_rows(
    cells: Iterable[Row],
    columns: Columns,
    bad: BadRows,
    name: str,
    *,
    notes: Notes | None = None,
    file: Path | None = None,
    cache_dir: Path | None = None,
) -> Rows:
    """Return the declared columns of a file's rows, or raise DataError if there are none.

    The file is ``bad.path``, and ``name`` its place in the official layout; raises like
    `table_of`.
    """
    table, known = table_of(cells, columns, bad, file, notes)

    if not len(table):
        usable_ones = f" that can be used: {', '.join(known.dropped)}" if known.dropped else ""
        raise DataError(f"{bad.path}: no rows{usable_ones}")

    return Rows.read(table, SourceFile(name, bad.path, known.sha256), known.dropped, cache_dir)


def table_of(
    rows: Iterable[Row],
    columns: Columns,
    bad: BadRows,
    file: Path | None = None,
    notes: Notes | None = None,
) -> tuple[pa.Table, Notes]:
    """Return the declared columns, and the column ``line``, of some rows, with the notes.

    Args:
        rows: the rows, which are not read if the cache has their table.
        columns: the columns, and the cell each comes from.
        bad: what happens to rows that cannot be used.
        file: the file of the cache that the table is written to, and mapped from; None keeps it in
            memory.
        notes: what is known already; without a sha256, it is that of the values as JSON.

    Raises:
        DataError: for a bad cell, or a cache that cannot be used.
    """
    stored = notes_of(file)
    if file is not None and stored is not None:
        return _mapped(file), stored

    known = notes or Notes()
    dropped: Counter[str] = Counter()
    schema = _schema(columns)
    values = converted(rows, columns, bad, dropped)
    parts = iter(lambda: list(itertools.islice(values, AT_ONCE)), [])
    batches = (pa.RecordBatch.from_pylist(part, schema) for part in parts)

    if file is None:
        table = pa.Table.from_batches(batches, schema)
        return table, Notes(known.found, dict(dropped), known.sha256 or _sha256_of(table))

    with usable(file):
        with atomic_file(file) as out, pa.ipc.new_stream(out, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)

        table = _mapped(file)
        written = Notes(known.found, dict(dropped), known.sha256 or _sha256_of(table))
        write_json(file.with_suffix(".json"), asdict(written))

    return table, written


def _mapped(file: Path) -> pa.Table:
    with usable(file):
        return pa.ipc.open_stream(pa.memory_map(str(file))).read_all()


def known_file(
    path: Path, cache_dir: Path | None, examine: Callable[[Path], TextFile], *options: Any
) -> TextFile:
    """Return what ``examine`` finds out about a file; for a large one, from the cache unless the
    file, or an option of the examination, has changed.
    """
    state = path.stat() if path.is_file() else None
    if cache_dir is None or state is None or state.st_size < LARGE:
        return examine(path)

    times = (state.st_mtime_ns, state.st_ctime_ns)
    identity = (str(path), state.st_ino, state.st_size, *times, *options)
    note = cache_dir / "files" / f"{_digest(VERSION, *identity)}.json"

    with usable(note):
        if note.exists():
            return TextFile(path, **json.loads(note.read_bytes()))

    file = examine(path)

    # A file that is still written to may change again within the resolution of its time.
    if time.time() - state.st_ctime > _SETTLED:
        with usable(note):
            write_json(note, {"sha256": file.sha256, "encoding": file.encoding})

    return file


def _schema(columns: Columns) -> pa.Schema:
    """Return the schema of declared columns and ``line``."""
    kinds = {
        name: pa.float64() if is_number(convert) else pa.string()
        for name, _, convert in converters(columns)
    }

    return pa.schema(kinds | {"line": pa.int64()})


def _sha256_of(table: pa.Table) -> str:
    """Return the sha256 of the columns as JSON, without the lines."""
    digest = hashlib.sha256()
    for piece in _json(table.drop_columns(["line"])):
        digest.update(piece.encode())

    return digest.hexdigest()


def _json(table: pa.Table) -> Iterator[str]:
    """Yield the JSON of the columns by name, as `json.dumps` writes it, in pieces."""
    opening = "{"

    for name in table.column_names:
        yield f"{opening}{json.dumps(name)}: ["
        column = table.column(name)

        for start in range(0, len(column), AT_ONCE):
            values = json.dumps(column.slice(start, AT_ONCE).to_pylist())[1:-1]
            yield f", {values}" if start else values

        yield "]"
        opening = ", "

    yield "}"


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
