"""The curves of a run: the file with every logged value, and the numbers that summarise it."""

import csv
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_cse import metrics  # the lazy package: importing its names loads torch
from lightning_cse.errors import DataError
from lightning_cse.runs.files import CHECKPOINT_ADVICE, disk_errors

Points = Mapping[str, Sequence[tuple[int, float]]]
"""Steps and values by key, as `Curves.read` returns them."""
_BEST = 5
"""The number of dev scores in the final score."""


@dataclass(frozen=True)
class Curves:
    """Every logged value of a run: a CSV with the columns ``step, key, value``, read back exactly.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     curves = Curves(Path(folder) / "curves.csv")
        ...     curves.append(100, {"train/loss": 0.5})
        ...     curves.read()
        {'train/loss': [(100, 0.5)]}
    """

    path: Path
    _HEADER = ("step", "key", "value")

    def append(self, step: int, values: Mapping[str, float]) -> None:
        """Write the values of one step."""
        rows = [(int(step), key, float(value)) for key, value in values.items()]
        with disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if file.tell() == 0:
                    writer.writerow(self._HEADER)

                writer.writerows(rows)

    def sync(self) -> dict[str, Any]:
        """Wait until the file is on the disk, and return its state for `restore`: the number of
        bytes and their sha256.
        """
        with disk_errors(self.path):
            try:
                with self.path.open("rb") as file:
                    os.fsync(file.fileno())
                    content = file.read()
            except FileNotFoundError:
                content = b""

        return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remove what was appended after `sync` returned a state.

        Raises DataError, which names the file, if the rows before it are not the same any more.
        """
        length = state["bytes"]
        with disk_errors(self.path):
            try:
                with self.path.open("r+b") as file:
                    content = file.read(length)
                    fault = "it is too short" if len(content) < length else "its digest is wrong"
                    if hashlib.sha256(content).hexdigest() == state["sha256"]:
                        file.truncate(length)
                        return
            except FileNotFoundError:
                if length == 0:
                    return

                fault = "it is missing"

        raise DataError(
            f"{self.path} is damaged ({fault}; it belongs to the last checkpoint): "
            f"{CHECKPOINT_ADVICE}"
        )

    def read(self) -> dict[str, list[tuple[int, float]]]:
        """Return the points ``(step, value)`` of each key, in the order of logging, up to a line
        that was damaged by a power failure.
        """
        curves: dict[str, list[tuple[int, float]]] = {}
        if not self.path.is_file():
            return curves

        with disk_errors(self.path):
            text = self.path.read_text(encoding="utf-8", errors="replace")

        for line in text.split("\n")[1:-1]:  # the last line is empty, or was written only in part
            try:
                step, key, value = next(csv.reader([line], strict=True))
                point = (int(step), float(value))
            except (ValueError, csv.Error, StopIteration):
                break

            curves.setdefault(key, []).append(point)

        return curves


@dataclass(frozen=True)
class CurveSummary:
    """A summary of the evaluations of one run after step 0; None where the curves lack the values.

    ``final_score`` is the mean of the five highest dev scores (of all, if there are fewer),
    ``evaluations`` the number of dev scores, and ``best_step`` the first step with the highest
    score. RFD is that of the primary view.
    """

    rfd_alignment: float | None = None
    rfd_uniformity: float | None = None
    final_score: float | None = None
    best_score: float | None = None
    best_step: int | None = None
    eval_alignment_at_best: float | None = None
    eval_uniformity_at_best: float | None = None
    evaluations: int | None = None


def summarise(curves: Points, monitor: str = "val/stsb/spearman") -> CurveSummary:
    """Summarise the curves of a run, or of the authors' release.

    Step 0 and dev scores that are not finite do not count. If a step occurs twice, the later value
    counts.

    Source: NGCSE, section on relative fitting difficulty, and the authors' plotting code (five
    best, step 0). Differs: the last step counts as an evaluation even if it is not a multiple of
    ``eval_every`` (the authors stop at the last multiple); alignment and uniformity are those of
    the step with the best score (the authors' plot takes its score one evaluation late).
    """
    monitored = _after_start(curves, monitor)
    scores = {step: value for step, value in monitored.items() if math.isfinite(value)}
    best = max(sorted(scores), key=scores.__getitem__, default=0)

    return CurveSummary(
        rfd_alignment=_fitting_difficulty(curves, "alignment"),
        rfd_uniformity=_fitting_difficulty(curves, "uniformity"),
        final_score=metrics.mean_of_best(scores.values(), count=_BEST) if scores else None,
        best_score=scores.get(best),
        best_step=best or None,
        evaluations=len(scores) or None,
        eval_alignment_at_best=_finite(curves, "diag/eval/alignment").get(best),
        eval_uniformity_at_best=_finite(curves, "diag/eval/uniformity").get(best),
    )


def mean_of_text(evaluations: int | None) -> str:
    """Return how many dev scores the final score averages, given the number of evaluations."""
    if not evaluations:  # old records lack the number
        return "mean of the best dev scores, at most five"

    return f"mean of the {min(_BEST, evaluations)} best of {evaluations} dev scores"


def _after_start(curves: Points, key: str) -> dict[int, float]:
    return {step: value for step, value in curves.get(key, ()) if step > 0}


def _finite(curves: Points, key: str) -> dict[int, float]:
    values = _after_start(curves, key)
    return {step: value for step, value in values.items() if math.isfinite(value)}


def _fitting_difficulty(curves: Points, measure: str) -> float | None:
    """Return the mean difference over the steps at which both sides were measured."""
    held_out = _after_start(curves, f"diag/held_out/{measure}")
    evaluation = _after_start(curves, f"diag/eval/{measure}")
    steps = [step for step in held_out if step in evaluation]
    held_out_values = [held_out[step] for step in steps]
    evaluation_values = [evaluation[step] for step in steps]
    if not steps or not all(map(math.isfinite, held_out_values + evaluation_values)):
        return None

    return metrics.relative_fitting_difficulty(held_out_values, evaluation_values)
