"""Every logged value of a run, in one CSV, and the numbers that summarise them."""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lightning_cse import metrics  # the lazy package: importing its names loads torch
from lightning_cse.errors import LightningCSEError
from lightning_cse.runs.files import disk_errors, write_atomic

Row = tuple[int, str, float]


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

    _HEADER: Final = ("step", "key", "value")

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def append(
        self,
        step: int,
        values: Mapping[str, float],
    ) -> None:
        """Write the values of one step."""
        rows: list[Sequence[Any]] = [
            (int(step), key, float(value)) for key, value in values.items()
        ]
        with disk_errors(self.path):
            self.path.parent.mkdir(
                parents=True,
                exist_ok=True,
            )
            with self.path.open(
                "a",
                encoding="utf-8",
                newline="",
            ) as file:
                writer = csv.writer(file, lineterminator="\n")
                if file.tell() == 0:
                    writer.writerow(self._HEADER)
                writer.writerows(rows)

    def keep(self, wanted: Callable[[int, str], bool]) -> None:
        """Keep the rows whose step and key are wanted; drop a last line written only in part."""
        if not self.path.is_file():
            return
        rows = [row for row in self._rows() if wanted(row[0], row[1])]
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerow(self._HEADER)
        writer.writerows(rows)
        write_atomic(self.path, sink.getvalue())

    def read(self) -> dict[str, list[tuple[int, float]]]:
        """Return the points ``(step, value)`` of each key, in the order of logging."""
        curves: dict[str, list[tuple[int, float]]] = {}
        for step, key, value in self._rows():
            curves.setdefault(key, []).append((step, value))
        return curves

    def _rows(self) -> list[Row]:
        if not self.path.is_file():
            return []
        text = self.path.read_text(
            encoding="utf-8",
            errors="replace",
        )
        lines = text.split("\n")[1:-1]  # the last line is empty, or was written only in part
        rows = []
        for number, line in enumerate(lines, start=2):
            try:
                step, key, value = next(csv.reader([line], strict=True))
                rows.append((int(step), key, float(value)))
            except (ValueError, csv.Error, StopIteration):
                if number == len(lines) + 1:
                    break  # after a power failure
                header = ",".join(self._HEADER)
                raise LightningCSEError(
                    f"{self.path}, line {number}: {line!r} is not {header}"
                ) from None
        return rows


Points = Mapping[str, Sequence[tuple[int, float]]]
"""Steps and values by key, as `Curves.read` returns them."""
_BEST: Final = 5
"""The number of dev scores in the final score."""


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
    best = max(
        sorted(scores),
        key=scores.__getitem__,
        default=0,
    )
    return CurveSummary(
        rfd_alignment=_fitting_difficulty(curves, "alignment"),
        rfd_uniformity=_fitting_difficulty(curves, "uniformity"),
        final_score=metrics.mean_of_best(scores.values(), count=_BEST) if scores else None,
        best_score=scores.get(best),
        best_step=best or None,
        evaluations=len(scores) or None,
        eval_alignment_at_best=_finite_at(
            curves,
            "diag/eval/alignment",
            best,
        ),
        eval_uniformity_at_best=_finite_at(
            curves,
            "diag/eval/uniformity",
            best,
        ),
    )


def mean_of_text(*evaluations: int | None) -> str:
    """Return how many dev scores the final scores average, given numbers of evaluations."""
    counts = [count for count in evaluations if count]  # old records lack the number
    if not counts:
        return "mean of the best dev scores, at most five"
    fewest = min(counts)
    most = max(counts)
    best = _range_text(min(_BEST, fewest), min(_BEST, most))
    return f"mean of the {best} best of {_range_text(fewest, most)} dev scores"


def _range_text(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _after_start(curves: Points, key: str) -> dict[int, float]:
    return {step: value for step, value in curves.get(key, ()) if step > 0}


def _finite_at(
    curves: Points,
    key: str,
    step: int,
) -> float | None:
    value = _after_start(curves, key).get(step, math.nan)
    return value if math.isfinite(value) else None


def _fitting_difficulty(curves: Points, measure: str) -> float | None:
    """Return the mean difference over the steps at which both sides were measured."""
    held_out = _after_start(curves, f"diag/held_out/{measure}")
    evaluation = _after_start(curves, f"diag/eval/{measure}")
    steps = [step for step in held_out if step in evaluation]
    ours = [held_out[step] for step in steps]
    theirs = [evaluation[step] for step in steps]
    if not steps or not all(map(math.isfinite, ours + theirs)):
        return None
    return metrics.relative_fitting_difficulty(ours, theirs)
