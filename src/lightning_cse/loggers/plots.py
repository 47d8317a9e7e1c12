"""The figures of one run, drawn from its curves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lightning_cse import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDES: Final = {
    "held_out": ("held-out side", plots.BLUE, "-"),
    "eval": ("evaluation side", plots.ORANGE, "--"),
}
_PANELS: Final = {  # (title, vertical axis): the lines, by the end of their keys
    ("Alignment (lower is closer)", "alignment"): {
        f"{side}/alignment": look for side, look in _SIDES.items()
    },
    ("Uniformity (lower is more even)", "uniformity"): {
        f"{side}/uniformity": look for side, look in _SIDES.items()
    },
    ("Relative fitting difficulty", "held-out minus evaluation"): {
        "rfd_alignment": ("RFD of alignment", plots.GREEN, "-"),
        "rfd_uniformity": ("RFD of uniformity", plots.PURPLE, "-."),
    },
}


def run_figures(
    curves: dict[str, list[tuple[int, float]]], folder: Path, monitor: str
) -> list[Path]:
    """Draw ``loss.png``, ``dev_score.png`` and ``diagnostics.png``, each only where its curves were logged.

    The curves are points ``(step, value)`` by key, and ``monitor`` is the key that picks the best checkpoint.
    """
    ordered = {
        key: sorted(points, key=lambda point: point[0]) for key, points in curves.items() if points
    }
    with plots.plot_style():
        drawings = {"loss.png": _loss(ordered), "dev_score.png": _dev_score(ordered, monitor)}
        return plots.save_figures({**drawings, "diagnostics.png": _diagnostics(ordered)}, folder)


def _loss(curves: plots.Curves) -> Figure | None:
    points = curves.get("train/loss")
    if not points:
        return None
    figure = plots.blank_figure(6.4, 3.6)
    axes = figure.subplots()
    if len(points) < 20:
        plots.line(axes, points, color=plots.BLUE)
    else:
        steps, values = plots.xy(points)
        span = 2 * max(2, len(points) // 80) + 1
        axes.plot(
            steps, values, color=plots.BLUE, alpha=0.28, linewidth=0.8, label="every logged step"
        )
        axes.plot(
            steps,
            plots.moving_average(values, span),
            color=plots.BLUE,
            label=f"moving average of {span} points",
        )
        axes.legend(loc="upper right")
    axes.set_ylabel("training loss")
    plots.by_step(axes)
    return figure


def _dev_score(curves: plots.Curves, monitor: str) -> Figure | None:
    found = {
        key: points
        for key, points in curves.items()
        if key.startswith("val/") and not key.endswith("/threshold")
    }
    if not found:
        return None
    figure = plots.blank_figure(7.6, 3.8)
    axes = figure.subplots()
    for index, key in enumerate(sorted(found, key=lambda key: (key != monitor, key))):
        color, style = plots.series_look(index)
        wide: Any = {"linewidth": 2.4, "markersize": 4.5, "zorder": 3}
        look = wide if key == monitor else {"linewidth": 1.1, "markersize": 2.4}
        label = key.removeprefix("val/") + (" (monitor)" if key == monitor else "")
        plots.line(axes, found[key], color=color, linestyle=style, label=label, **look)
    finite = [(value, -step) for step, value in found.get(monitor, ()) if math.isfinite(value)]
    if finite:
        value, step = max(finite)
        star: Any = {
            "marker": "*",
            "markersize": 13,
            "markeredgecolor": "white",
            "linestyle": "none",
            "zorder": 4,
        }
        axes.plot(
            [-step],
            [value],
            color=plots.VERMILION,
            label=f"best: {value:.4f} at step {-step}",
            **star,
        )
    axes.set_ylabel("dev score")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    plots.by_step(axes)
    return figure


def _diagnostics(curves: plots.Curves) -> Figure | None:
    """Draw one row of panels per view."""
    ends = [end for lines in _PANELS.values() for end in lines]
    keys = [
        (key, end)
        for key in curves
        for end in ends
        if key.startswith("diag/") and key.endswith(f"/{end}")
    ]
    prefixes = sorted(
        {key.removesuffix(end) for key, end in keys}
    )  # the first is diag/, that of the primary view
    if not prefixes:
        return None
    primary = "explicit" if "diag/implicit/" in prefixes else "primary"
    figure = plots.blank_figure(10.5, 2.9 * len(prefixes) + 0.5)
    grid = figure.subplots(len(prefixes), len(_PANELS), squeeze=False, sharex=True)
    handles: dict[str, Any] = {}
    for row, prefix in zip(grid, prefixes, strict=True):
        for axes, ((title, measure), lines) in zip(row, _PANELS.items(), strict=True):
            for end, (label, color, style) in lines.items():
                if points := curves.get(f"{prefix}{end}"):
                    plots.line(axes, points, color=color, linestyle=style, label=label)
            axes.set(ylabel=measure, title=title if prefix == prefixes[0] else "")
            plots.by_step(axes)
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        row[2].axhline(0, color=plots.GREY, linewidth=0.8, zorder=1)
        if len(prefixes) > 1:
            row[0].set_ylabel(
                f"{prefix.removeprefix('diag/').rstrip('/') or primary} view: alignment"
            )
    for axes in grid[:-1].flat:
        axes.set_xlabel("")
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=4, handlelength=3
    )
    return figure
