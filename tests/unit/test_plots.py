"""The plot style, and the figures of a run: which are drawn and what they show."""

import math

import pytest
from matplotlib.figure import Figure

from lightning_cse import plots
from lightning_cse.loggers.plots import run_figures

MONITOR = "val/rte/accuracy_all"
STEPS = [0, 125, 250, 375]


def curves():
    """Return curves of a small run with two views."""
    points = {
        "train/loss": [(step, 2 + math.exp(-step / 50)) for step in range(1, 376)],
        MONITOR: list(zip(STEPS, [0.6, 0.7, 0.75, 0.7], strict=True)),
        "val/rte/accuracy_implied": [(step, 0.5) for step in STEPS],
        "val/rte/threshold": [(step, 0.5) for step in STEPS],
    }
    for measure in ("alignment", "uniformity"):
        for view in ("", "implicit/"):
            for side in ("held_out/", "eval/", "rfd_"):
                points[f"diag/{view}{side}{measure}"] = [(step, 1.0) for step in STEPS]

    return points


@pytest.fixture
def figures(monkeypatch):
    """The figures themselves, in the order in which they are saved."""
    figures = []
    save = Figure.savefig
    keep = lambda figure, *a, **b: (figures.append(figure), save(figure, *a, **b))  # noqa: E731
    monkeypatch.setattr(Figure, "savefig", keep)

    return figures


def test_best_step_and_a_row_for_each_view(tmp_path, figures):
    run_figures(curves(), tmp_path, MONITOR)
    _, scores, diagnostics = figures
    by_label = {line.get_label(): line for line in scores.axes[0].get_lines()}
    best = "best: 0.7500 at step 250"
    assert set(by_label) == {"rte/accuracy_implied", "rte/accuracy_all (monitor)", best}
    assert by_label[best].get_xydata().tolist() == [[250, 0.75]]
    labels = [panel.get_ylabel() for panel in diagnostics.axes[::3]]
    assert labels == ["alignment", "implicit/alignment"]
    for panel in (diagnostics.axes[0], diagnostics.axes[4]):
        styles = {line.get_label(): line.get_linestyle() for line in panel.get_lines()}
        assert styles == {"held-out side": "-", "evaluation side": "--"}


def test_the_moving_average_against_a_loop():
    values = [float(i * i % 7) for i in range(20)]
    values[5] = math.nan
    values[9] = math.inf
    want = []
    for i in range(20):
        window = [values[j] for j in range(20) if abs(j - i) <= 2 and math.isfinite(values[j])]
        want.append(sum(window) / len(window))

    points, span = plots.smoothed(list(enumerate(values)))
    assert span == 5
    assert [value for _, value in points] == pytest.approx(want)
