"""The numbers that summarise the curves of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lightning_cse.metrics import mean_of_best, relative_fitting_difficulty

__all__ = ["CurveSummary", "Curves", "summarise"]

Curves = Mapping[str, Sequence[tuple[int, float]]]
"""Points ``(step, value)`` by key, as `lightning_cse.runs.Curves.read` returns them."""

_BEST: Final = 5  # how many dev values make the final score


@dataclass(frozen=True)
class CurveSummary:
    """A summary of the evaluations of one run after step 0; None where the curves lack the values.

    ``final_score`` is the mean of the five highest dev scores (of all, where there are fewer), ``best_step`` the first
    step with the highest; relative fitting difficulty (RFD) is of the primary view.
    """

    rfd_alignment: float | None = None
    rfd_uniformity: float | None = None
    final_score: float | None = None
    best_score: float | None = None
    best_step: int | None = None
    eval_alignment_at_best: float | None = None
    eval_uniformity_at_best: float | None = None


def summarise(curves: Curves, monitor: str = "val/stsb/spearman") -> CurveSummary:
    """Summarise the curves of a run, or of the authors' release.

    Step 0 and dev scores that are not finite do not count. Of a step that is there twice, the later value counts.

    Source: NGCSE, section on relative fitting difficulty, and the authors' plotting code (five best, step 0).
    Differs: the last step counts as an evaluation even where it is no multiple of ``eval_every`` (the authors stop at
    the last multiple); alignment and uniformity are those of the step with the best score (the authors' plot takes its
    score one evaluation late).
    """
    scores = {step: value for step, value in _after_start(curves, monitor).items() if math.isfinite(value)}
    best = max(sorted(scores), key=scores.__getitem__, default=None)
    at_best = {
        measure: None if best is None else _after_start(curves, f"diag/eval/{measure}").get(best)
        for measure in ("alignment", "uniformity")
    }
    return CurveSummary(
        rfd_alignment=_fitting_difficulty(curves, "alignment"),
        rfd_uniformity=_fitting_difficulty(curves, "uniformity"),
        final_score=mean_of_best(scores.values(), count=_BEST) if scores else None,
        best_score=None if best is None else scores[best],
        best_step=best,
        **{f"eval_{m}_at_best": v if v is not None and math.isfinite(v) else None for m, v in at_best.items()},
    )


def _after_start(curves: Curves, key: str) -> dict[int, float]:
    return {step: value for step, value in curves.get(key, ()) if step > 0}


def _fitting_difficulty(curves: Curves, measure: str) -> float | None:
    """Return the mean difference over the steps at which both sides were measured."""
    held_out, evaluation = (_after_start(curves, f"diag/{side}/{measure}") for side in ("held_out", "eval"))
    steps = [step for step in held_out if step in evaluation]
    ours, theirs = [held_out[step] for step in steps], [evaluation[step] for step in steps]
    if not steps or not all(map(math.isfinite, ours + theirs)):
        return None
    return relative_fitting_difficulty(ours, theirs)
