"""What runs predicted for each example, from their folders or packed beside kept records.

A packed file has what tests of significance need and nothing else: no sentences, and scores as
ranks, which give the same AUCs and the same comparisons.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lightning_cse.errors import DataError
from lightning_cse.runs import read_predictions

if TYPE_CHECKING:
    from lightning_cse.tables.records import FinishedRun

EXAMPLE = ("row", "type", "label", "subset", "gold")
"""The columns that identify an example; a file may lack some of them."""

Arrays = Mapping[str, NDArray[Any]]


def read_task(run: FinishedRun, task: str, baseline: str = "") -> pd.DataFrame | None:
    """Return the predictions of a run for a task, or those of its ``baseline``, a row for each
    example; None if they are not kept.
    """
    start = f"{baseline}-{task}/" if baseline else f"{task}/"
    columns = {
        name.removeprefix(start): values
        for name, values in run.packed.items()
        if name.startswith(start)
    }

    return pd.DataFrame(columns) if columns else None


def files(folder: Path) -> list[Path]:
    """Return the files of predictions in a run's folder, one per task."""
    return sorted(folder.glob("predictions/*.parquet"))


def pack(folder: Path) -> dict[str, NDArray[Any]]:
    """Return the predictions of a run's folder as arrays by ``<task>/<column>``; raises as
    `pack_file`.
    """
    return {key: values for path in files(folder) for key, values in pack_file(path).items()}


def pack_file(path: Path) -> dict[str, NDArray[Any]]:
    """Return the predictions of one task as arrays by ``<task>/<column>``; raises as
    `lightning_cse.runs.read_predictions`.
    """
    columns = pack_frame(read_predictions(path))
    return {f"{path.stem}/{column}": values for column, values in columns.items()}


def pack_frame(frame: pd.DataFrame) -> dict[str, NDArray[Any]]:
    """Return the columns that tests need: those that identify an example, what was answered, and
    the dense rank of the score.
    """
    columns = {}
    for name, values in frame.items():
        is_answer = name == "prediction" or str(name).startswith("correct")
        if name == "score":
            columns["score"] = _compact(values.rank(method="dense").astype(int) - 1)
        # Where nothing was predicted for some examples, `correct` says what is right.
        elif (name in EXAMPLE or is_answer) and values.notna().all():
            columns[str(name)] = _compact(values)

    return columns


def _compact(values: pd.Series) -> NDArray[Any]:
    """Return a column as booleans, the smallest integers, float32 or text."""
    if pd.api.types.is_integer_dtype(values):
        return np.asarray(pd.to_numeric(values, downcast="unsigned"))
    if pd.api.types.is_float_dtype(values):
        return np.asarray(values, np.float32)

    return np.asarray(values, dtype=bool if pd.api.types.is_bool_dtype(values) else str)


def check_digest(arrays: Arrays, record: Mapping[str, Any], source: str) -> None:
    """Raise DataError, which names ``source``, if a record has another digest than these arrays."""
    if digest(arrays) != (record.get("predictions") or {}).get("sha256"):
        raise DataError(
            f"{source}: its predictions are not those that its record names (another digest): "
            "restore the file, or keep the run again"
        )


def digest(arrays: Arrays) -> str:
    """Return the SHA-256 of the contents of arrays, which does not depend on their compression."""
    sha256 = hashlib.sha256()
    for name in sorted(arrays):
        values = arrays[name]
        sha256.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        sha256.update(np.ascontiguousarray(values).tobytes())

    return sha256.hexdigest()
