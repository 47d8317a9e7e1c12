"""The figures of one run, drawn from its curves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_cse.plots import (
    BLUE,
    GREEN,
    PURPLE,
    RFD_SIDES,
    VERMILION,
    Curves,
    blank_figure,
    by_step,
    line,
    plot_style,
    save_figures,
    series_look,
    smoothed,
    zero_line,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS = {  # title: the look of each curve by the end of its key
    "Alignment (lower is closer)": {f"{side}/alignment": look for side, look in RFD_SIDES.items()},
    "Uniformity (lower is more even)": {
        f"{side}/uniformity": look for side, look in RFD_SIDES.items()
    },
    "Relative fitting difficulty": {
        "rfd_alignment": {"label": "RFD of alignment", "color": GREEN, "linestyle": "-"},
        "rfd_uniformity": {"label": "RFD of uniformity", "color": PURPLE, "linestyle": "-."},
    },
}
_MEASURES = ("alignment", "uniformity", "held-out minus evaluation")
_DIAGNOSTIC = r"(diag/(?:.+/)?)((held_out|eval)/|rfd_)(alignment|uniformity)"


def run_figures(
    curves: dict[str, list[tuple[int, float]]], folder: Path, monitor: str
) -> list[Path]:
    """Draw ``loss.png``, ``dev_score.png`` and ``diagnostics.png``, each only where its curves were
    logged.

    The curves are points ``(step, value)`` by key, and ``monitor`` is the key that picks the best
    checkpoint.
    """
    logged = {key: sorted(points) for key, points in curves.items() if points}
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
    average, span = smoothed(points)
    if span > 1:
        line(
            axes,
            points,
            color=BLUE,
            marker="",
            alpha=0.28,
            linewidth=0.8,
            label="every logged step",
        )
        line(axes, average, color=BLUE, marker="", label=f"moving average of {span} points")
        axes.legend(loc="upper right")
    else:
        line(axes, points, color=BLUE)

    axes.set_ylabel("training loss")
    by_step(axes)

    return figure


def _dev_score(curves: Curves, monitor: str) -> Figure | None:
    scores = [key for key in curves if key.startswith("val/") and not key.endswith("/threshold")]
    if not scores:
        return None

    figure = blank_figure(7.6, 3.8)
    axes = figure.subplots()
    for number, key in enumerate(sorted(scores, key=lambda key: (key != monitor, key))):
        color, style = series_look(number)
        label = key.removeprefix("val/")
        look: Any = {"linewidth": 1.1, "markersize": 2.4}
        if key == monitor:
            label += " (monitor)"
            look = {"linewidth": 2.4, "markersize": 4.5, "zorder": 3}

        line(axes, curves[key], color=color, linestyle=style, label=label, **look)

    if monitor in curves:  # the first step of the highest value
        step, value = max(curves[monitor], key=lambda point: point[1])
        label = f"best: {value:.4f} at step {step}"
        line(
            axes,
            [(step, value)],
            label=label,
            color=VERMILION,
            marker="*",
            markersize=13,
            markeredgecolor="white",
            linestyle="none",
            zorder=4,
        )

    axes.set_ylabel("dev score")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    by_step(axes)

    return figure


def _diagnostics(curves: Curves) -> Figure | None:
    """Draw one row of panels per view of the embeddings; the keys of the primary view begin with
    ``diag/``.
    """
    matches = [re.fullmatch(_DIAGNOSTIC, key) for key in curves]
    views = sorted({match[1] for match in matches if match})
    if not views:
        return None

    figure = blank_figure(10.5, 2.9 * len(views) + 0.5)
    grid = figure.subplots(len(views), len(_PANELS), squeeze=False, sharex=True)
    handles: dict[str, Any] = {}
    for row, view in zip(grid, views, strict=True):
        for axes, looks, measure in zip(row, _PANELS.values(), _MEASURES, strict=True):
            for end, look in looks.items():
                if points := curves.get(f"{view}{end}"):
                    line(axes, points, **look)

            by_step(axes)
            axes.set_ylabel(measure)
            lines, labels = axes.get_legend_handles_labels()
            handles |= dict(zip(labels, lines, strict=True))

        row[0].set_ylabel(f"{view.removeprefix('diag/')}alignment")
        zero_line(row[2])

    for axes in grid[:-1].flat:
        axes.set_xlabel("")

    for axes, title in zip(grid[0], _PANELS, strict=True):
        axes.set_title(title)

    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=4, handlelength=3
    )

    return figure
