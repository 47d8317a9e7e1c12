"""A run's figures: which are drawn, what they show, and that they leave the process as it was."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from lightning_cse import plots as figures
from lightning_cse.errors import LightningCSEError
from lightning_cse.loggers.plots import run_figures

MONITOR = "val/rte/accuracy_all"
STEPS = [0, 125, 250, 375]


def curves(*views: str) -> dict[str, list[tuple[int, float]]]:
    """Return curves of a small run, of the primary view and of others."""
    found: dict[str, list[tuple[int, float]]] = {
        "train/loss": [(step, 2 + math.exp(-step / 50)) for step in range(1, 376)],
        MONITOR: [(0, 0.6), (125, 0.7), (250, 0.75), (375, 0.7)],
        "val/rte/accuracy_implied": [(step, 0.5) for step in STEPS],
        "val/rte/threshold": [(step, 0.5) for step in STEPS],
    }
    for prefix in ("", *(f"{view}/" for view in views)):
        for measure in ("alignment", "uniformity"):
            for side in ("held_out", "eval"):
                found[f"diag/{prefix}{side}/{measure}"] = [(step, 1.0) for step in STEPS]
            found[f"diag/{prefix}rfd_{measure}"] = [(step, 0.1) for step in STEPS[1:]]
    return found


def drawn(monkeypatch: pytest.MonkeyPatch, folder: Path, given: dict[str, list[tuple[int, float]]]) -> list[Figure]:
    """Draw and return the figures themselves, in the order in which they were saved."""
    kept: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: Any, **options: Any) -> None:
        kept.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    run_figures(given, folder, MONITOR)
    return kept


def lines(axes: Any) -> dict[str, Any]:
    """Return a figure's labelled lines."""
    return {line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")}


def test_three_png_files(tmp_path: Path) -> None:
    paths = run_figures(curves(), tmp_path / "figures", MONITOR)
    assert [path.name for path in paths] == ["loss.png", "dev_score.png", "diagnostics.png"]
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", content[16:24])
        assert 600 < width < 2000
        assert 400 < height < 1500
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(path.name for path in paths)


@pytest.mark.parametrize(
    ("start", "left_out"), [("train/", "loss.png"), ("val/", "dev_score.png"), ("diag/", "diagnostics.png")]
)
def test_a_figure_without_curves_is_left_out(tmp_path: Path, start: str, left_out: str) -> None:
    given = {key: points for key, points in curves().items() if not key.startswith(start)}
    names = [path.name for path in run_figures(given, tmp_path, MONITOR)]
    assert len(names) == 2
    assert left_out not in names


def test_nothing_logged(tmp_path: Path) -> None:
    assert run_figures({}, tmp_path / "figures", MONITOR) == []
    assert run_figures({"train/loss": [], "lr": [(0, 1.0)]}, tmp_path / "figures", MONITOR) == []
    assert not (tmp_path / "figures").exists()


def test_best_step_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, dev, _ = drawn(monkeypatch, tmp_path, curves())
    (axes,) = dev.axes
    shown = lines(axes)
    assert set(shown) == {"rte/accuracy_implied", "rte/accuracy_all (monitor)", "best: 0.7500 at step 250"}
    star = shown["best: 0.7500 at step 250"]
    assert (list(star.get_xdata()), list(star.get_ydata())) == ([250], [0.75])
    thick = shown["rte/accuracy_all (monitor)"].get_linewidth()
    assert thick > shown["rte/accuracy_implied"].get_linewidth()


def test_values_that_are_no_scores_get_axes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, dev, _ = drawn(monkeypatch, tmp_path, {**curves(), "val/loss": [(0, 7.0)]})
    scores, rest = dev.axes
    assert list(lines(rest)) == ["loss"]
    assert "rte/accuracy_all (monitor)" in lines(scores)


def test_a_monitor_that_was_not_logged(tmp_path: Path) -> None:
    given = {key: points for key, points in curves().items() if key != MONITOR}
    assert len(run_figures(given, tmp_path, MONITOR)) == 3


def test_a_row_a_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, figure = drawn(monkeypatch, tmp_path, curves("implicit"))
    assert len(figure.axes) == 6
    assert [axes.get_title() for axes in figure.axes[:3]] == [
        "Alignment (lower is closer)",
        "Uniformity (lower is more even)",
        "Relative fitting difficulty",
    ]
    for row in (0, 3):
        for axes in figure.axes[row : row + 2]:
            shown = lines(axes)
            assert shown["held-out side"].get_linestyle() == "-"
            assert shown["evaluation side"].get_linestyle() == "--"
        assert list(figure.axes[row + 2].get_lines()[0].get_xdata()) == STEPS[1:]
    names = [axes.get_ylabel() for axes in figure.axes[::3]]
    assert names == ["explicit view: alignment", "implicit view: alignment"]


def test_no_text_overlaps_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for figure in drawn(monkeypatch, tmp_path, curves("implicit", "another")):
        figure.canvas.draw()
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        texts = []
        for axes in figure.axes:
            texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
                texts += [tick.label1 for tick in ticks]
            if legend := axes.get_legend():
                texts += legend.get_texts()
        for legend in figure.legends:
            texts += legend.get_texts()
        shown = [(text, text.get_window_extent(renderer)) for text in texts if text.get_text() and text.get_visible()]
        assert len(shown) > 10
        for index, (text, box) in enumerate(shown):
            assert figure.bbox.expanded(1.001, 1.001).containsx(box.x0), text
            assert figure.bbox.expanded(1.001, 1.001).containsx(box.x1), text
            for other, other_box in shown[index + 1 :]:
                assert not box.overlaps(other_box), f"{text} and {other}"


def test_odd_curves_are_drawn(tmp_path: Path) -> None:
    given = {
        "train/loss": [(1, math.nan), (2, math.inf)],
        MONITOR: [(0, math.nan)],
        "val/b": [(5, 0.1), (0, 0.2)],
        "diag/held_out/alignment": [(0, 1.0)],
    }
    assert len(run_figures(given, tmp_path, MONITOR)) == 3


def test_only_another_view(tmp_path: Path) -> None:
    given = {key: points for key, points in curves("implicit").items() if key.startswith("diag/implicit/")}
    assert [path.name for path in run_figures(given, tmp_path, MONITOR)] == ["diagnostics.png"]


def test_the_process_keeps_its_settings_and_the_files_do_not_depend_on_them(tmp_path: Path) -> None:
    run_figures(curves(), tmp_path / "a", MONITOR)
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        before = dict(mpl.rcParams)
        run_figures(curves(), tmp_path / "b", MONITOR)
        assert dict(mpl.rcParams) == before
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import os

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LightningCSEError, match=r"no space left to write .*loss\.png"):
        run_figures(curves(), tmp_path, MONITOR)
    assert list(tmp_path.iterdir()) == []


class TestSmooth:
    def test_against_loop(self) -> None:
        values = [float(i * i % 7) for i in range(20)]
        want = []
        for i in range(20):
            window = [values[j] for j in range(20) if abs(j - i) <= 2]
            want.append(sum(window) / len(window))
        assert figures.moving_average(values, 5) == pytest.approx(want)

    def test_a_line_stays_a_line_and_gaps_count_for_nothing(self) -> None:
        line = [0.5 * i for i in range(30)]
        assert figures.moving_average(line, 7) == pytest.approx([0.75, 1.0, 1.25, *line[3:-3], 13.25, 13.5, 13.75])
        smooth = figures.moving_average([1.0, math.nan, 1.0, math.inf, 1.0], 3)
        assert smooth == pytest.approx([1.0] * 5)
        assert math.isnan(figures.moving_average([math.nan], 3)[0])
