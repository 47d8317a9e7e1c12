"""The figures of one run, drawn from its curves."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lightning_cse.plots import (
    BLUE,
    GREEN,
    PURPLE,
    RFD_SIDES,
    VERMILION,
    Curves,
    Points,
    blank_figure,
    by_step,
    line,
    moving_average,
    plot_style,
    save_figures,
    series_look,
    xy,
    zero_line,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_RFD: Final = {
    "rfd_alignment": {
        "label": "RFD of alignment",
        "color": GREEN,
        "linestyle": "-",
    },
    "rfd_uniformity": {
        "label": "RFD of uniformity",
        "color": PURPLE,
        "linestyle": "-.",
    },
}
_PANELS: Final = {  # title and vertical axis: the look of each curve by the end of its key
    ("Alignment (lower is closer)", "alignment"): {
        f"{side}/alignment": look for side, look in RFD_SIDES.items()
    },
    ("Uniformity (lower is more even)", "uniformity"): {
        f"{side}/uniformity": look for side, look in RFD_SIDES.items()
    },
    ("Relative fitting difficulty", "held-out minus evaluation"): _RFD,
}
_DIAGNOSTIC: Final = r"(diag/(?:.+/)?)((held_out|eval)/|rfd_)(alignment|uniformity)"
_MONITOR: Final = {
    "linewidth": 2.4,
    "markersize": 4.5,
    "zorder": 3,
}
_OTHER_SCORE: Final = {"linewidth": 1.1, "markersize": 2.4}
_STAR: Final = {
    "marker": "*",
    "markersize": 13,
    "markeredgecolor": "white",
    "linestyle": "none",
    "zorder": 4,
}


def run_figures(
    curves: dict[str, list[tuple[int, float]]],
    folder: Path,
    monitor: str,
) -> list[Path]:
    """Draw ``loss.png``, ``dev_score.png`` and ``diagnostics.png``, each only where its curves were
    logged.

    The curves are points ``(step, value)`` by key, and ``monitor`` is the key that picks the best
    checkpoint.
    """
    by_step = {key: sorted(points, key=lambda point: point[0]) for key, points in curves.items()}
    logged = {key: points for key, points in by_step.items() if points}
    with plot_style():
        drawings = {
            "loss.png": _loss(logged),
            "dev_score.png": _dev_score(logged, monitor),
            "diagnostics.png": _diagnostics(logged),
        }
        return save_figures(drawings, folder)


def _loss(curves: Curves) -> Figure | None:
    points = curves.get("train/loss")
    if not points:
        return None
    figure = blank_figure(6.4, 3.6)
    axes = figure.subplots()
    if len(points) < 20:
        line(axes, points, color=BLUE)
    else:
        _draw_smoothed(axes, points)
    axes.set_ylabel("training loss")
    by_step(axes)
    return figure


def _draw_smoothed(axes: Axes, points: Points) -> None:
    steps, values = xy(points)
    span = 2 * max(2, len(points) // 80) + 1
    average = moving_average(values.tolist(), span)
    look: Any = {
        "alpha": 0.28,
        "linewidth": 0.8,
        "label": "every logged step",
    }
    axes.plot(
        steps,
        values,
        color=BLUE,
        **look,
    )
    axes.plot(
        steps,
        average,
        color=BLUE,
        label=f"moving average of {span} points",
    )
    axes.legend(loc="upper right")


def _dev_score(curves: Curves, monitor: str) -> Figure | None:
    scores = [key for key in curves if key.startswith("val/") and not key.endswith("/threshold")]
    if not scores:
        return None
    figure = blank_figure(7.6, 3.8)
    axes = figure.subplots()
    for number, key in enumerate(sorted(scores, key=lambda key: (key != monitor, key))):
        color, style = series_look(number)
        label = key.removeprefix("val/")
        look = _OTHER_SCORE
        if key == monitor:
            label += " (monitor)"
            look = _MONITOR
        line(
            axes,
            curves[key],
            color=color,
            linestyle=style,
            label=label,
            **look,
        )
    _mark_best(axes, curves.get(monitor, ()))
    axes.set_ylabel("dev score")
    axes.legend(
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
    )
    by_step(axes)
    return figure


def _mark_best(axes: Axes, points: Points) -> None:
    """Mark the highest value, and the first step that has it."""
    finite = [(value, -step) for step, value in points if math.isfinite(value)]
    if not finite:
        return
    value, negative_step = max(finite)
    step = -negative_step
    label = f"best: {value:.4f} at step {step}"
    look: Any = _STAR
    axes.plot(
        [step],
        [value],
        color=VERMILION,
        label=label,
        **look,
    )


def _diagnostics(curves: Curves) -> Figure | None:
    """Draw one row of panels per view of the embeddings; the keys of the primary view begin with
    ``diag/``.
    """
    matches = [re.fullmatch(_DIAGNOSTIC, key) for key in curves]
    views = sorted({match[1] for match in matches if match})
    if not views:
        return None
    figure = blank_figure(10.5, 2.9 * len(views) + 0.5)
    grid = figure.subplots(
        len(views),
        len(_PANELS),
        squeeze=False,
        sharex=True,
    )
    for row, view in zip(grid, views, strict=True):
        _draw_view(row, view, curves)
    if len(views) > 1:
        primary = "explicit" if "diag/implicit/" in views else "primary"
        for axes, view in zip(grid[:, 0], views, strict=True):
            axes.set_ylabel(f"{view[len('diag/') : -1] or primary} view: alignment")
    for axes, (title, _) in zip(grid[0], _PANELS, strict=True):
        axes.set_title(title)
    for axes in grid[:-1].flat:
        axes.set_xlabel("")
    handles: dict[str, Any] = {}
    for axes in grid.flat:
        drawn, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    place: Any = {
        "loc": "outside lower center",
        "ncols": 4,
        "handlelength": 3,
    }
    figure.legend(
        list(handles.values()),
        list(handles),
        **place,
    )
    return figure


def _draw_view(
    row: Sequence[Axes],
    view: str,
    curves: Curves,
) -> None:
    for axes, ((_, measure), looks) in zip(row, _PANELS.items(), strict=True):
        for end, look in looks.items():
            if points := curves.get(f"{view}{end}"):
                line(axes, points, **look)
        axes.set_ylabel(measure)
        by_step(axes)
    zero_line(row[2])
