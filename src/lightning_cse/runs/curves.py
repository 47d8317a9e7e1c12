"""The numbers that summarise the curves of a run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightning_cse import metrics  # the lazy package: importing its names loads torch

Points = Mapping[str, Sequence[tuple[int, float]]]
"""Steps and values by key, as `Curves.read` returns them."""
_BEST = 5
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
