"""What NGCSE's figures are made of, where runs come as records with their curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.collections import LineCollection

from lightning_cse.errors import DataError
from lightning_cse.papers.ngcse import (
    Setting,
    correlations,
    fitting_difficulty_figure,
    setting_of_runs,
    studies_figure,
    study_among,
)
from lightning_cse.plots import plot_style
from lightning_cse.runs import Curves, CurveSummary, summarise

CURVES = {
    "val/stsb/spearman": [(0, 0.2), (125, 0.7), (250, 0.8)],
    "val/snli/auprc": [(0, 0.1), (125, 0.6), (250, 0.5)],
    "diag/held_out/alignment": [(0, 0.9), (125, 0.1), (250, 0.2)],
    "diag/eval/alignment": [(0, 0.9), (125, 0.3), (250, 0.3)],
}


def test_a_setting_of_runs_with_and_without_curves(tmp_path: Path) -> None:
    path = tmp_path / "x.curves.csv"
    file = Curves(path)
    for key, points in CURVES.items():
        for step, value in points:
            file.append(step, {key: value})
    record = {"best": {"monitor": "val/snli/auprc"}, "summary": {"rfd_alignment": -0.5, "best_step": 7, "more": 1}}
    setting = setting_of_runs("NLI.SUP", [(record, path), (record, None), ({}, tmp_path / "gone.csv")])
    assert setting.summaries == (
        summarise(CURVES, "val/snli/auprc"),
        CurveSummary(rfd_alignment=-0.5, best_step=7),
        CurveSummary(),
    )
    assert setting.summaries[0].best_step == 125, "the record's own monitor"
    assert len(setting.curves) == 1
    assert setting.values("rfd_alignment") == pytest.approx([-0.15, -0.5])


def record(llm_rows: Any, score: float | None, *, weights: str = "a", seed: int = 0) -> dict[str, Any]:
    document = {"config": {"data": {"llm_rows": llm_rows}}, "encoder": {"weights": weights}}
    metrics = {} if score is None else {"test/a": score}
    return {"name": "x", "config_hash": "0", "seed": seed, "decisive": document, "metrics": metrics}


def test_a_study_among_other_runs(caplog: pytest.LogCaptureFixture) -> None:
    runs = [record(0, 0.5), record(625, 0.75), record(None, 0.9), record(1250, None), record(True, 0.1)]
    alone = record(20, 0.3, weights="b")
    assert study_among([*runs, alone], "data.llm_rows", "test/a") == {0.0: [50.0], 625.0: [75.0]}
    assert not caplog.records
    assert study_among([record(0, 0.5), alone], "data.llm_rows", "test/a") == {}
    assert study_among([record(0, 0.5), record(0, 0.6, seed=1)], "data.llm_rows", "test/a") == {}
    assert study_among([], "data.llm_rows", "test/a") == {}
    with pytest.raises(DataError, match=r"first in encoder\.weights"):
        study_among([*runs, alone, record(40, 0.3, weights="b")], "data.llm_rows", "test/a")


def test_the_paper_s_scores_stand_beside_a_study() -> None:
    with plot_style():
        figure = studies_figure({"rows": {0: [70.0], 10: [71.0]}}, {"rows": {20: 75.0, 0: 74.0}, "other": {1: 2.0}})
        bare = studies_figure({"rows": {0: [70.0]}})
    assert figure is not None
    assert bare is not None
    (paper,) = [line for line in figure.axes[0].get_lines() if line.get_label() == "the paper"]
    assert [list(values) for values in paper.get_data()] == [[0, 20], [74.0, 75.0]]
    assert not [line for line in bare.axes[0].get_lines() if line.get_label() == "the paper"]
    assert studies_figure({}, {"rows": {0: 74.0}}) is None, "the paper alone is no study made here"


def test_correlations_are_open_below_three_settings() -> None:
    some = [Setting(f"Wiki.{k}", (CurveSummary(k / 10, -k / 10, 0.8 + k / 100),)) for k in range(4)]
    found = {(each.measure, each.scope): each for each in correlations(some)}
    assert found["RFD_a", "Wiki"].pearson is not None
    assert found["RFD_a", "Wiki"].pearson.r == pytest.approx(1)
    assert found["RFD_u", "all"].spearman is not None
    assert found["RFD_u", "all"].spearman.r == pytest.approx(-1)
    assert found["RFD_a + RFD_u", "all"].pearson is None, "the sum does not vary"
    assert correlations(some[:2])[0] == ("RFD_a", "all", 2, None, None)


def test_a_label_that_stands_apart_is_tied_to_its_point() -> None:
    def ties(summaries: list[CurveSummary]) -> list[Any]:
        with plot_style():
            figure = fitting_difficulty_figure([Setting(f"Wiki.{k}", (one,)) for k, one in enumerate(summaries)])
        assert figure is not None
        lines = [one for one in figure.axes[0].collections if isinstance(one, LineCollection)]
        return [segment for one in lines for segment in one.get_segments()]

    assert ties([CurveSummary(k / 10, k / 10, 0.8) for k in range(3)]) == []
    crowd = [CurveSummary(k / 1000, k / 1000, 0.8 + k / 100) for k in range(12)]
    far = [CurveSummary(1.0, 1.0, 0.7)]
    segments = ties([*crowd, *far])
    assert segments
    points = {(round(k / 1000, 6), round(k / 1000, 6)) for k in range(12)}
    assert {tuple(round(float(x), 6) for x in segment[0]) for segment in segments} <= points
