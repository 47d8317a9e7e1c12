"""The figures of one run, drawn from its curves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lightning_cse.plots import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    STYLES,
    VERMILION,
    Curves,
    Points,
    blank_figure,
    by_step,
    line,
    moving_average,
    plot_style,
    save_figures,
    xy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOSS: Final = "train/loss"
_STEP: Final = "optimizer step"
_MEASURES: Final = ("alignment", "uniformity")
_OTHERS: Final = (ORANGE, GREEN, PURPLE, SKY, VERMILION, GREY)


def run_figures(curves: dict[str, list[tuple[int, float]]], folder: Path, monitor: str) -> list[Path]:
    """Draw ``loss.png``, ``dev_score.png`` and ``diagnostics.png``, each only where its curves were logged.

    Args:
        curves: Points ``(step, value)`` by key, as `lightning_cse.runs.Curves.read` returns them.
        folder: Where the figures go; made if need be.
        monitor: The key whose highest value picks the best checkpoint.

    Returns:
        The files written.

    Raises:
        LightningCSEError: if the disk is full.
    """
    ordered = {key: sorted(points, key=lambda point: point[0]) for key, points in curves.items() if points}
    with plot_style():
        drawings = {
            "loss.png": _loss(ordered),
            "dev_score.png": _dev_score(ordered, monitor),
            "diagnostics.png": _diagnostics(ordered),
        }
        return save_figures(drawings, folder)


def _loss(curves: Curves) -> Figure | None:
    points = curves.get(_LOSS)
    if not points:
        return None
    figure = blank_figure(6.4, 3.6)
    axes = figure.subplots()
    steps, values = xy(points)
    if len(points) < 20:
        line(axes, points, color=BLUE)
    else:
        span = 2 * max(2, len(points) // 80) + 1
        axes.plot(steps, values, color=BLUE, alpha=0.28, linewidth=0.8, label="every logged step")
        axes.plot(steps, moving_average(values, span), color=BLUE, label=f"moving average of {span} points")
        axes.legend(loc="upper right")
    axes.set_ylabel("training loss")
    by_step(axes)
    return figure


def _dev_score(curves: Curves, monitor: str) -> Figure | None:
    found = {key: points for key, points in curves.items() if key.startswith("val/") and not key.endswith("/threshold")}
    if not found:
        return None
    others = sorted(key for key in found if key != monitor)
    # Scores are at most one; what is not (a loss, say) would press them flat, and gets axes of its own.
    scores = [key for key in others if all(abs(v) <= 1 for _, v in found[key] if math.isfinite(v))]
    rest = [key for key in others if key not in scores]
    panels = [panel for panel in ([monitor, *scores] if monitor in found else scores, rest) if panel]
    figure = blank_figure(7.6, 3.8 * len(panels))
    for axes, keys in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        for index, key in enumerate(key for key in keys if key != monitor):
            style = STYLES[(index // len(_OTHERS) + index) % len(STYLES)]
            color = _OTHERS[index % len(_OTHERS)]
            line(axes, found[key], color=color, linestyle=style, linewidth=1.1, markersize=2.4, label=_short(key))
        if monitor in keys:
            _monitored(axes, found[monitor], _short(monitor))
        axes.set_ylabel("dev score" if keys is panels[0] else "other dev values")
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        by_step(axes)
    return figure


def _monitored(axes: Axes, points: Points, name: str) -> None:
    line(axes, points, color=BLUE, linewidth=2.4, markersize=4.5, zorder=3, label=f"{name} (monitor)")
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if not finite:
        return
    step, value = max(finite, key=lambda point: point[1])
    axes.axvline(step, color=BLUE, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    look: dict[str, Any] = {
        "marker": "*",
        "markersize": 13,
        "markeredgecolor": "white",
        "markeredgewidth": 0.8,
        "linestyle": "none",
    }
    axes.plot([step], [value], color=VERMILION, zorder=4, label=f"best: {value:.4f} at step {step}", **look)


def _short(key: str) -> str:
    return key.removeprefix("val/")


def _diagnostics(curves: Curves) -> Figure | None:
    views = _views(curves)
    if not views:
        return None
    figure = blank_figure(10.5, 2.9 * len(views) + 0.5)
    grid = figure.subplots(len(views), 3, squeeze=False, sharex=True)
    for row, (view, prefix) in enumerate(views.items()):
        for axes, measure in zip(grid[row], _MEASURES, strict=False):
            _two_sides(axes, curves, prefix, measure)
        _fitting_difficulty(grid[row][2], curves, prefix)
        if len(views) > 1:
            grid[row][0].annotate(
                view,
                xy=(0, 0.5),
                xycoords=grid[row][0].yaxis.label,
                xytext=(-10, 0),
                textcoords="offset points",
                rotation=90,
                ha="right",
                va="center",
                fontsize=10,
                fontweight="bold",
            )
        for axes in grid[row]:
            by_step(axes)
            if row + 1 < len(views):
                axes.set_xlabel("")
    titles = ("Alignment (lower is closer)", "Uniformity (lower is more even)", "Relative fitting difficulty")
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title)
    _legend_below(figure, grid)
    return figure


def _views(curves: Curves) -> dict[str, str]:
    """Return the prefix of each view's keys by the view's name, the primary one first."""
    ends = tuple(end for measure in _MEASURES for end in (f"held_out/{measure}", f"eval/{measure}", f"rfd_{measure}"))
    prefixes = {
        key.removesuffix(end) for key in curves for end in ends if key.startswith("diag/") and key.endswith(f"/{end}")
    }
    others = sorted(prefix for prefix in prefixes if prefix != "diag/")
    names = {f"{prefix.removeprefix('diag/').rstrip('/')} view": prefix for prefix in others}
    if "diag/" not in prefixes:
        return names
    return {"explicit view" if "implicit view" in names else "primary view": "diag/", **names}


def _two_sides(axes: Axes, curves: Curves, prefix: str, measure: str) -> None:
    sides = (("held_out", "held-out side", BLUE, "-"), ("eval", "evaluation side", ORANGE, "--"))
    for side, label, color, style in sides:
        points = curves.get(f"{prefix}{side}/{measure}")
        if points:
            line(axes, points, color=color, linestyle=style, label=label)
    axes.set_ylabel(measure)


def _fitting_difficulty(axes: Axes, curves: Curves, prefix: str) -> None:
    for measure, color, style in (("alignment", GREEN, "-"), ("uniformity", PURPLE, "-.")):
        points = curves.get(f"{prefix}rfd_{measure}")
        if points:
            line(axes, points, color=color, linestyle=style, label=f"RFD of {measure}")
    axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    if not axes.get_legend_handles_labels()[1]:
        axes.text(0.5, 0.56, "not measured", transform=axes.transAxes, ha="center", color=GREY)
    axes.set_ylabel("held-out minus evaluation")


def _legend_below(figure: Figure, grid: Any) -> None:
    """Put one legend for all axes under them, where it covers no curve."""
    handles: dict[str, Any] = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    order = ["held-out side", "evaluation side", "RFD of alignment", "RFD of uniformity"]
    labels = [label for label in order if label in handles]
    shown: list[Any] = [handles[label] for label in labels]
    figure.legend(shown, labels, loc="outside lower center", ncols=4, handlelength=3)
