"""The runs that a paper keeps, in three files of one folder: their records, curves and predictions.

- ``runs.jsonl``: a record a line, sorted by the names of the runs.
- ``curves.parquet``: a row for each logged value, with the columns ``run, key, step, value``.
- ``predictions.parquet``: a row for each array of `lightning_cse.tables.predictions`, with the
  columns ``task, column, run, dtype, values``. ``values`` has the bytes of the array. Arrays that
  many runs share, such as labels, are stored once.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray

from lightning_cse.errors import DataError, LightningCSEError, one_line
from lightning_cse.runs import disk_errors, parse_record, write_atomic

log = logging.getLogger(__name__)

RECORDS = "runs.jsonl"
CURVES = "curves.parquet"
PREDICTIONS = "predictions.parquet"

Arrays = Mapping[str, NDArray[Any]]
Curves = Mapping[str, Sequence[tuple[int, float]]]
_Runs = TypeVar("_Runs")

_LEFT_OUT = ("train/learning_rate",)  # curves that the config says


class Content(NamedTuple):
    """What is kept of a run."""

    record: Mapping[str, Any]
    curves: Curves
    predictions: Arrays


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Replace the error of a damaged or unreadable file by a warning, so that it does not stop a
    command for the other runs.
    """
    try:
        yield
    except (LightningCSEError, OSError) as error:
        log.warning("left out: %s", one_line(error))


def name_of(record: Mapping[str, Any]) -> str:
    """Return the name of a run in the three files, such as ``gausscse-9f001e10b2-s0``."""
    suite = f"-{record['suite']}" if "suite" in record else ""
    name = record["name"].replace("/", "-")

    return f"{name}{suite}-{record['config_hash']}-s{record['seed']}"


class KeptRuns:
    """The runs that are kept in a folder; each file is read once, when it is needed.

    A damaged line of ``runs.jsonl`` or a damaged file is left out with a warning. With ``strict``,
    it raises DataError, which names the file.
    """

    def __init__(self, folder: Path, *, strict: bool = False) -> None:
        self.folder = folder
        self._unless_strict = contextlib.nullcontext if strict else left_out

    @functools.cached_property
    def records(self) -> dict[str, dict[str, Any]]:
        """The records by the names of their runs."""
        path = self.folder / RECORDS
        records: dict[str, dict[str, Any]] = {}
        lines: list[bytes] = []
        with self._unless_strict(), disk_errors(path):
            lines = path.read_bytes().splitlines() if path.is_file() else []

        for number, line in enumerate(lines, start=1):
            with self._unless_strict():
                record = parse_record(line, f"{path}, line {number},")
                records[name_of(record)] = record

        return records

    @functools.cached_property
    def curves(self) -> Mapping[str, Curves]:
        """The logged values by run and key."""
        return self._read(CURVES, _curves_of)

    @functools.cached_property
    def predictions(self) -> Mapping[str, Arrays]:
        """The arrays of predictions by run and ``<task>/<column>``."""
        return self._read(PREDICTIONS, _arrays_of)

    def _read(self, name: str, convert: Callable[[pa.Table], _Runs]) -> _Runs | dict[str, Any]:
        path = self.folder / name
        with self._unless_strict():
            if path.is_file():
                return _read_file(path, convert)

        return {}


def write_runs(folder: Path, runs: Mapping[str, Content]) -> list[Path]:
    """Write all runs that a folder keeps, by name, and return the files that changed.

    The same runs give the same bytes, whatever their order.
    """
    in_order = {name: runs[name] for name in sorted(runs)}
    contents = {
        PREDICTIONS: _predictions_file({name: run.predictions for name, run in in_order.items()}),
        CURVES: _curves_file({name: run.curves for name, run in in_order.items()}),
        # Last, since the records have the digests of the predictions.
        RECORDS: b"".join(_line(run.record) for run in in_order.values()),
    }
    changed = []
    for name, content in contents.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            write_atomic(path, content)
            changed.append(path)

    return changed


def _line(record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _curves_file(curves: Mapping[str, Curves]) -> bytes:
    rows = [
        (name, key, step, value)
        for name, by_key in curves.items()
        for key, points in sorted(by_key.items())
        if key not in _LEFT_OUT
        for step, value in points
    ]
    frame = pd.DataFrame(rows, columns=["run", "key", "step", "value"])
    types = {"run": pa.string(), "key": pa.string(), "step": pa.int32(), "value": pa.float64()}
    table = pa.table({name: pa.array(frame[name], dtype) for name, dtype in types.items()})

    return _parquet(
        table, use_dictionary=["run", "key", "step"], column_encoding={"value": "BYTE_STREAM_SPLIT"}
    )


def _curves_of(table: pa.Table) -> Mapping[str, Curves]:
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    columns = (table[name].to_pylist() for name in ("run", "key", "step", "value"))
    for name, key, step, value in zip(*columns, strict=True):
        curves.setdefault(name, {}).setdefault(key, []).append((step, value))

    return curves


def _predictions_file(predictions: Mapping[str, Arrays]) -> bytes:
    rows = sorted(
        (*column.split("/", 1), name, values.dtype.str, values.tobytes())
        for name, arrays in predictions.items()
        for column, values in arrays.items()
    )
    frame = pd.DataFrame(rows, columns=["task", "column", "run", "dtype", "values"], dtype=object)
    table = pa.table(
        {
            name: pa.array(frame[name], pa.binary() if name == "values" else pa.string())
            for name in frame
        }
    )

    # One dictionary of all arrays, so that one which many runs share is stored once.
    return _parquet(table, dictionary_pagesize_limit=2**30)


def _arrays_of(table: pa.Table) -> Mapping[str, Arrays]:
    predictions: dict[str, dict[str, NDArray[Any]]] = {}
    names = table.select(["run", "task", "column", "dtype"]).to_pylist()
    contents = table["values"].combine_chunks()
    for row, number in zip(names, contents.indices.to_pylist(), strict=True):
        values = np.frombuffer(contents.dictionary[number].as_buffer(), row["dtype"])
        predictions.setdefault(row["run"], {})[f"{row['task']}/{row['column']}"] = values

    return predictions


def _parquet(table: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(
        table,
        buffer,
        compression="zstd",
        compression_level=19,
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
        **options,
    )

    return buffer.getvalue()


def _read_file(path: Path, convert: Callable[[pa.Table], _Runs]) -> _Runs:
    """Return what a Parquet file has; raise DataError, which names the file, if it is damaged."""
    with disk_errors(path):
        content = path.read_bytes()

    try:
        return convert(
            pq.read_table(
                pa.BufferReader(content),
                read_dictionary=["values"],
                page_checksum_verification=True,
            )
        )
    except Exception as error:  # pyarrow raises many classes for damaged files
        fault = " ".join(str(error).split())[:200]
        raise DataError(f"{path} is damaged ({fault}): restore it") from error
