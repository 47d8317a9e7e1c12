"""What the curves of a run come to, and the curves the authors of NGCSE released in the same shape."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lightning_cse.errors import DataError
from lightning_cse.metrics import mean_of_best, relative_fitting_difficulty

__all__ = ["CurveSummary", "read_released", "summarise"]

Curves = Mapping[str, Sequence[tuple[int, float]]]
"""Points ``(step, value)`` by key, as `lightning_cse.runs.Curves.read` returns them."""

_MEASURES: Final = ("alignment", "uniformity")
_BEST: Final = 5  # how many dev values make the final score

# The release names the sides after the data they look at, a run after what they are for.
_SIDES: Final = {"train_alignment_and_uniformity": "held_out", "eval_alignment_and_uniformity": "eval"}
_SCORES: Final = {"stsb": "val/stsb/spearman", "sickr": "val/sickr/spearman"}


@dataclass(frozen=True)
class CurveSummary:
    """What the evaluations of one run after step 0 come to; None where the curves do not hold it.

    Attributes:
        rfd_alignment: relative fitting difficulty of alignment, of the primary view.
        rfd_uniformity: the same of uniformity.
        final_score: mean of the five highest dev scores (of all, where there are fewer).
        best_score: the highest dev score.
        best_step: the first step that has it.
        eval_alignment_at_best: alignment of the evaluation side at that step.
        eval_uniformity_at_best: uniformity of the evaluation side at that step.
    """

    rfd_alignment: float | None = None
    rfd_uniformity: float | None = None
    final_score: float | None = None
    best_score: float | None = None
    best_step: int | None = None
    eval_alignment_at_best: float | None = None
    eval_uniformity_at_best: float | None = None


def summarise(curves: Curves, monitor: str = "val/stsb/spearman") -> CurveSummary:
    """Return what the curves of any run come to, those of the authors' release included.

    Step 0 counts for nothing, and neither does a dev score that is not finite. A run that was resumed may hold a step
    twice: the later value counts.

    Source: NGCSE, section on relative fitting difficulty, and the authors' plotting code (five best, step 0).
    Differs: the last step counts as an evaluation even where it is no multiple of ``eval_every`` (the authors stop at
    the last multiple); alignment and uniformity are those of the step with the best score (the authors' plot takes its
    score one evaluation late).

    Args:
        curves: Points by key.
        monitor: The key of the dev score.
    """
    scores = {step: value for step, value in _after_start(curves, monitor).items() if math.isfinite(value)}
    best = max(sorted(scores), key=scores.__getitem__, default=None)
    alignment, uniformity = (_after_start(curves, f"diag/eval/{measure}") for measure in _MEASURES)
    return CurveSummary(
        rfd_alignment=_fitting_difficulty(curves, "alignment"),
        rfd_uniformity=_fitting_difficulty(curves, "uniformity"),
        final_score=mean_of_best(scores.values(), count=_BEST) if scores else None,
        best_score=None if best is None else scores[best],
        best_step=best,
        eval_alignment_at_best=None if best is None else _finite(alignment.get(best)),
        eval_uniformity_at_best=None if best is None else _finite(uniformity.get(best)),
    )


def read_released(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Read one setting of the release of NGCSE's authors into the keys of a run.

    The folder holds three CSV files: ``metrics`` (step, loss, stsb, sickr, avg), ``train_alignment_and_uniformity``
    (step, alignment, uniformity of the held-out side) and ``eval_alignment_and_uniformity``. The loss is left out: it
    is a mean over 125 steps where a run logs every step, and some of its exponents were lost. So is ``avg``, which
    follows from the rest.

    Args:
        folder: The setting's, such as ``wiki/dropout``.

    Raises:
        DataError: if a file is missing, lacks a column, holds anything but finite numbers, or repeats a step, or if the
            steps of the two sides differ.
    """
    curves = {}
    metrics = _columns(folder / "metrics", tuple(_SCORES))
    for column, key in _SCORES.items():
        curves[key] = metrics[column]
    steps: dict[str, list[int]] = {}
    for name, side in _SIDES.items():
        columns = _columns(folder / name, _MEASURES)
        for measure in _MEASURES:
            curves[f"diag/{side}/{measure}"] = columns[measure]
        steps[name] = [step for step, _ in columns[_MEASURES[0]]]
    (held_out, ours), (evaluation, theirs) = steps.items()
    if ours != theirs:
        first = min(set(ours) ^ set(theirs))
        raise DataError(
            f"{folder}: {held_out} and {evaluation} hold different steps (the first that one lacks: {first}); "
            "fetch both files of the same run anew"
        )
    return curves


def _after_start(curves: Curves, key: str) -> dict[int, float]:
    return {step: value for step, value in curves.get(key, ()) if step > 0}


def _fitting_difficulty(curves: Curves, measure: str) -> float | None:
    """Return the mean difference over the steps at which both sides were measured."""
    held_out, evaluation = (_after_start(curves, f"diag/{side}/{measure}") for side in _SIDES.values())
    steps = [step for step in held_out if step in evaluation]
    values = [*(held_out[step] for step in steps), *(evaluation[step] for step in steps)]
    if not steps or not all(map(math.isfinite, values)):
        return None
    return relative_fitting_difficulty(values[: len(steps)], values[len(steps) :])


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _columns(path: Path, columns: Sequence[str]) -> dict[str, list[tuple[int, float]]]:
    """Return some columns of a CSV with a header, each as points by its column ``step``."""
    try:
        file = path.open(encoding="utf-8", newline="")
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{path} is missing: a setting's folder holds {', '.join(['metrics', *_SIDES])}; "
            "give the folder of one setting, such as <release>/wiki/dropout"
        ) from None
    points: dict[str, list[tuple[int, float]]] = {column: [] for column in columns}
    seen: set[int] = set()
    with file:
        reader = csv.DictReader(file)
        absent = [column for column in ("step", *columns) if column not in (reader.fieldnames or ())]
        if absent:
            raise DataError(
                f"{path}, line 1: no column {', '.join(absent)} in {reader.fieldnames}; fetch the file anew"
            )
        for row in reader:
            try:
                step, values = int(row["step"]), {column: float(row[column]) for column in columns}
            except (TypeError, ValueError):
                values = {}
            if not values or not all(map(math.isfinite, values.values())):
                raise DataError(
                    f"{path}, line {reader.line_num}: expected finite numbers under step, {', '.join(columns)}, "
                    f"found {list(row.values())}; fetch the file anew"
                )
            if step in seen:
                raise DataError(f"{path}, line {reader.line_num}: step {step} is there twice; fetch the file anew")
            seen.add(step)
            for column, value in values.items():
                points[column].append((step, value))
    return points
