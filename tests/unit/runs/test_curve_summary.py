"""The summary of curves: hand-made cases, and a run's own diagnostics."""

import math

import pytest
import torch

from lightning_cse.callbacks import Diagnostics, Side
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.evaluation import Embedded
from lightning_cse.runs import Curves, CurveSummary, summarise


def test_step_zero_does_not_count():
    curves = {
        "val/stsb/spearman": [
            (0, 0.99),
            *((step, score / 10) for step, score in enumerate((4, 8, 5, 8, 6, 7, 1), 1)),
        ],
        "diag/held_out/alignment": [
            (0, 100.0),
            (1, 0.5),
            (2, 0.75),
        ],
        "diag/eval/alignment": [
            (0, 0.0),
            (1, 0.25),
            (2, 0.25),
        ],
        "diag/held_out/uniformity": [
            (0, -100.0),
            (1, -2.0),
            (2, -2.0),
        ],
        "diag/eval/uniformity": [
            (0, 0.0),
            (1, -3.0),
            (2, -1.5),
        ],
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
        "val/rte/accuracy_all": [
            (5, 0.5),
            (10, math.nan),
            (15, 0.25),
        ],
        "diag/held_out/alignment": [(5, 0.5), (10, math.inf)],
        "diag/eval/alignment": [(5, math.nan), (10, math.inf)],
    }
    got = summarise(curves, "val/rte/accuracy_all")
    assert got == CurveSummary(
        final_score=0.375,
        best_score=0.5,
        best_step=5,
        evaluations=2,
    )


def test_run_reports_the_same_summary(tmp_path):
    """The summary is, to the last bit, the running RFD that a run logs at its last evaluation."""
    generator = torch.Generator().manual_seed(0)

    class Moving:
        """Embeds every sentence as a vector that is new at every asking."""

        def embed(self, sentences):
            return PointEmbedding(
                torch.randn(
                    len(sentences),
                    8,
                    generator=generator,
                )
                + 1
            )

    sides = ([f"{side}{k}" for k in range(12)] for side in "he")
    diagnostics = Diagnostics(*(Side({"primary": (s[:6], s[6:])}, s) for s in sides))
    curves = Curves(tmp_path / "curves.csv")
    for step in range(0, 100, 7):
        embedded = Embedded(Moving(), diagnostics.sentences())
        logged = diagnostics.measure(
            embedded,
            embedded,
            step,
        )
        curves.append(step, logged)
    got = summarise(curves.read())
    assert got.rfd_alignment == logged["diag/rfd_alignment"] != 0
    assert got.rfd_uniformity == logged["diag/rfd_uniformity"] != 0
    assert got.best_step is None
