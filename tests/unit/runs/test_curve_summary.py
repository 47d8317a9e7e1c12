"""The summary of curves: hand-made cases, and a run's own diagnostics."""

import math

import pytest

from lightning_cse.runs import CurveSummary, summarise


def test_step_zero_does_not_count():
    curves = {
        "val/stsb/spearman": [
            (0, 0.99),
            *((step, score / 10) for step, score in enumerate((4, 8, 5, 8, 6, 7, 1), 1)),
        ],
        "diag/held_out/alignment": [(0, 100.0), (1, 0.5), (2, 0.75)],
        "diag/eval/alignment": [(0, 0.0), (1, 0.25), (2, 0.25)],
        "diag/held_out/uniformity": [(0, -100.0), (1, -2.0), (2, -2.0)],
        "diag/eval/uniformity": [(0, 0.0), (1, -3.0), (2, -1.5)],
    }
    assert summarise(curves) == CurveSummary(
        rfd_alignment=0.375,
        rfd_uniformity=0.25,
        final_score=pytest.approx((8 + 8 + 7 + 6 + 5) / 50),
        best_score=0.8,
        best_step=2,  # the first of two
        eval_alignment_at_best=0.25,
        eval_uniformity_at_best=-1.5,
        evaluations=7,
    )


def test_non_finite_values_give_none():
    curves = {
        "val/rte/accuracy_all": [(5, 0.5), (10, math.nan), (15, 0.25)],
        "diag/held_out/alignment": [(5, 0.5), (10, math.inf)],
        "diag/eval/alignment": [(5, math.nan), (10, math.inf)],
    }
    got = summarise(curves, "val/rte/accuracy_all")
    assert got == CurveSummary(final_score=0.375, best_score=0.5, best_step=5, evaluations=2)
