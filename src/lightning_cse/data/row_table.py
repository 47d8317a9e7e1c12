"""From the rows of a source to a `datasets.Dataset`; that of a large file is kept in the cache."""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset
from datasets.table import InMemoryTable

from lightning_cse.data.columns import Columns, converters, is_number, listed
from lightning_cse.data.files import sha256_of, state_of
from lightning_cse.data.formats import Row, RowReport
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

VERSION = 3  # of the files in the cache
LARGE = 2**24  # bytes; a smaller file is read into memory


def read_rows(
    load: Callable[[RowReport], tuple[Columns, Iterable[Row]]],
    name: str,
    report: RowReport,
    *,
    identity: Any,
    sha256: str | None = None,
    only: tuple[str, str] | None = None,
    size: int = 0,
    cache_dir: Path | None = None,
    account: Account | None = None,
) -> Dataset:
    """Return the declared columns of a source, with the ``file`` and ``line`` of each row.

    Args:
        load: returns the columns and the rows; not called if the cache has their table.
        name: the name of the source in the official layout.
        report: its path, and what happens to its bad rows.
        identity: what decides the rows beside the content of the source and ``only``.
        sha256: identifies the content of a data set; None: that of the bytes of the file.
        only: a column and the value that it must have.
        size: bytes, which decide whether the table is written to the cache.
        cache_dir: the folder of the cache; None keeps the table in memory.
        account: adds how many rows were ``read`` and ``dropped: <reason>``.

    Raises:
        DataError: for a bad row, a source without rows, or a cache that cannot be used.
    """
    path = report.path
    counts: Account = Counter()

    if cache_dir is None or size < LARGE:
        sha256 = sha256 or sha256_of(Path(path))
        schema, batches = _batches(load, only, report, counts)
        table: Any = InMemoryTable(pa.Table.from_batches(batches, schema))
    else:
        state = sha256 or state_of(Path(path))
        stored = cache_dir / "rows" / f"{_digest(path, state, identity, only)}.arrow"
        notes = stored.with_suffix(".json")

        with usable(stored):
            if not notes.exists():
                sha256 = sha256 or sha256_of(Path(path))
                schema, batches = _batches(load, only, report, counts)
                with atomic_file(stored) as out, pa.ipc.new_stream(out, schema) as writer:
                    for batch in batches:
                        writer.write_batch(batch)

                write_json(notes, {"sha256": sha256, "counts": dict(counts)})

            saved = json.loads(notes.read_bytes())
            sha256, counts = saved["sha256"], Counter(saved["counts"])
            table = Dataset.from_file(str(stored)).data

    if not table.num_rows:
        reasons = ", ".join(name.removeprefix("dropped: ") for name in counts if name != "read")
        which = f" with {only[0]} {only[1]}" if only else ""
        usable_rows = f" that can be used: {reasons}" if reasons else ""
        raise DataError(f"{path}: no rows{which}{usable_rows}")

    if account is not None:
        account.update(counts)

    rows = Dataset(table, fingerprint=_digest(path, sha256, identity, only))

    return with_files(rows, [SourceFile(name, path, sha256)])


def _batches(
    load: Callable[[RowReport], tuple[Columns, Iterable[Row]]],
    only: tuple[str, str] | None,
    report: RowReport,
    counts: Account,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of a table, and its batches, which count their rows."""
    columns, rows = load(report)
    plan = list(converters(columns))
    types = {name: pa.float64() if is_number(convert) else pa.string() for name, _, convert in plan}
    schema = pa.schema(types | {FILE: pa.string(), LINE: pa.int64()})
    path = public(report.path)

    def converted() -> Iterator[dict[str, Any]]:
        for line, row in rows:
            values: dict[str, Any] = {FILE: path, LINE: line}
            try:
                for name, cell, convert in plan:
                    values[name] = convert(row[cell])
            except KeyError:
                report.stop(line, f"no column {cell!r}; found: {listed(row)}")
            except ValueError as error:
                report.bad(line, f"{cell} {error}")
            else:
                if only is None or values[only[0]] == only[1]:
                    yield values

    def batches() -> Iterator[pa.RecordBatch]:
        values = converted()
        for batch in iter(lambda: list(itertools.islice(values, BATCH)), []):
            counts["read"] += len(batch)
            yield pa.RecordBatch.from_pylist(batch, schema)

        counts["read"] += sum(report.dropped.values())
        count_dropped(counts, report.dropped)

    return schema, batches()


def fingerprint_sha256(dataset: Dataset) -> str:
    """Return the sha256 of a fingerprint, which identifies the content of a dataset."""
    return hashlib.sha256(dataset._fingerprint.encode()).hexdigest()  # no public name


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps([VERSION, *parts]).encode()).hexdigest()[:32]
