"""The curves that the authors of NGCSE released, in the keys of our runs."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Final

from lightning_cse.errors import DataError

__all__ = ["read_released"]

_FILES: Final = {
    "metrics": {"stsb": "val/stsb/spearman", "sickr": "val/sickr/spearman"},
    **{
        f"{name}_alignment_and_uniformity": {m: f"diag/{side}/{m}" for m in ("alignment", "uniformity")}
        for name, side in (("train", "held_out"), ("eval", "eval"))
    },
}


def read_released(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Read one setting of the release into the keys of a run.

    The loss is left out: it is a mean over 125 steps where a run logs every step, and some of its exponents were lost.
    So is ``avg``, which follows from the rest.

    Args:
        folder: The setting's, such as ``wiki/dropout``: three CSV files, ``metrics`` (step, loss, stsb, sickr, avg),
            ``train_alignment_and_uniformity`` (the held-out side) and ``eval_alignment_and_uniformity``.

    Raises:
        DataError: if a file is missing, lacks a column, holds anything but finite numbers, or repeats a step, or if the
            steps of the two sides differ.
    """
    curves: dict[str, list[tuple[int, float]]] = {}
    for name, columns in _FILES.items():
        curves |= _columns(folder / name, columns)
    held_out, evaluation = ([step for step, _ in curves[f"diag/{side}/alignment"]] for side in ("held_out", "eval"))
    if held_out != evaluation:
        first = min(set(held_out) ^ set(evaluation))
        raise DataError(f"{folder}: the two sides have different steps, first {first}; fetch both files of one run")
    return curves


def _columns(path: Path, columns: dict[str, str]) -> dict[str, list[tuple[int, float]]]:
    try:
        file = path.open(encoding="utf-8", newline="")
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{path} is missing: give the folder of one setting, such as <release>/wiki/dropout") from None
    points: dict[str, list[tuple[int, float]]] = {key: [] for key in columns.values()}
    seen: set[int] = set()
    with file:
        reader = csv.DictReader(file)
        absent = [column for column in ("step", *columns) if column not in (reader.fieldnames or ())]
        if absent:
            raise DataError(f"{path}, line 1: no column {', '.join(absent)} in {reader.fieldnames}")
        for row in reader:
            try:
                step, values = int(row["step"]), {key: float(row[column]) for column, key in columns.items()}
            except (TypeError, ValueError):
                values = {}
            if not values or not all(map(math.isfinite, values.values())):
                raise DataError(f"{path}, line {reader.line_num}: expected finite numbers, found {list(row.values())}")
            if step in seen:
                raise DataError(f"{path}, line {reader.line_num}: step {step} is there twice")
            seen.add(step)
            for key, value in values.items():
                points[key].append((step, value))
    return points
