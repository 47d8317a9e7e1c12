"""What runs predicted for each example, from their folders or packed beside kept records.

A packed file has what tests of significance need and nothing else: no sentences, and scores as
ranks, which give the same AUCs and the same comparisons.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lightning_cse.errors import DataError

if TYPE_CHECKING:
    from lightning_cse.papers.records import FinishedRun

EXAMPLE = ("row", "type", "label", "subset", "gold")
"""The columns that identify an example; a file may lack some of them."""

Arrays = Mapping[str, NDArray[Any]]


class Answers(NamedTuple):
    """The predictions of a task: a file of a run or, with ``task``, its part of a packed file."""

    path: Path
    task: str = ""
    packed: Arrays = MappingProxyType({})

    def read(self) -> pd.DataFrame:
        """Return the packed columns of the task, one row per example."""
        if self.task:
            start = f"{self.task}/"
            named = self.packed.items()
            arrays = {key.removeprefix(start): one for key, one in named if key.startswith(start)}
        else:
            arrays = pack_frame(pd.read_parquet(self.path))

        return pd.DataFrame(arrays)

    def __str__(self) -> str:
        return f"{self.path} ({self.task})" if self.task else str(self.path)


def answers(run: FinishedRun, stem: str = "") -> dict[str, Answers]:
    """Return the predictions of a run by task; those of a baseline have its name and a hyphen as
    ``stem``.

    Raises DataError if a packed file is not the one that its record names.
    """
    if run.folder is not None:
        files = run.folder.glob("predictions/*.parquet")
        found = {path.stem: Answers(path) for path in files}
    else:
        path, packed = run.predictions_path, run.kept_predictions
        tasks = [key.partition("/")[0] for key in packed]
        found = {task: Answers(path, task, packed) for task in tasks}

    by_task = {
        name.removeprefix(stem): file for name, file in found.items() if name.startswith(stem)
    }

    return {task: file for task, file in by_task.items() if "-" not in task}


def pack(folder: Path) -> dict[str, NDArray[Any]]:
    """Return the predictions of a run's folder as arrays by ``<task>/<column>``."""
    packed = {}
    for path in sorted(folder.glob("predictions/*.parquet")):
        for column, values in pack_frame(pd.read_parquet(path)).items():
            packed[f"{path.stem}/{column}"] = values

    return packed


def pack_frame(frame: pd.DataFrame) -> dict[str, NDArray[Any]]:
    """Return the columns that tests need: those that identify an example, what was answered, which
    directions tie, and the dense rank of the score.
    """
    kept = {}
    for name in frame:
        is_answer = name == "prediction" or name.startswith("correct")
        if name in EXAMPLE or is_answer:
            values = frame[name]
            # Where nothing was predicted for some examples, `correct` says what is right.
            if values.isna().any():
                continue

            kept[name] = _compact(values)
        elif name == "lead":
            kept["tie"] = (frame[name] == 0).to_numpy()
        elif name == "score":
            kept[name] = _compact(frame[name].rank(method="dense").astype(int) - 1)

    return kept


def _compact(values: pd.Series) -> NDArray[Any]:
    """Return a column as booleans, the smallest integers, float32 or text."""
    if pd.api.types.is_integer_dtype(values):
        return np.asarray(pd.to_numeric(values, downcast="unsigned"))
    if pd.api.types.is_float_dtype(values):
        return np.asarray(values, np.float32)

    return np.asarray(values, dtype=bool if pd.api.types.is_bool_dtype(values) else str)


def packed_bytes(arrays: Arrays) -> bytes:
    """Return arrays as a compressed NumPy file; the same arrays give the same bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]

    return buffer.getvalue()


def load(path: Path, sha256: str) -> dict[str, NDArray[Any]]:
    """Read a packed file; raise DataError if it cannot be read or has another digest."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file.items())
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read ({error}): restore it, or remove it") from None

    if digest(arrays) != sha256:
        raise DataError(
            f"{path} is not the file that its record names (another digest): restore it, or "
            "keep the run again"
        )

    return arrays


def digest(arrays: Arrays) -> str:
    """Return the SHA-256 of the contents of arrays, which does not depend on their compression."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        values = arrays[name]
        found.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        found.update(np.ascontiguousarray(values).tobytes())

    return found.hexdigest()
