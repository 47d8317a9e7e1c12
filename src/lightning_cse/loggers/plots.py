"""The figures of one run, drawn from its curves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lightning_cse import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDES: Final = (("held_out", "held-out side", plots.BLUE, "-"), ("eval", "evaluation side", plots.ORANGE, "--"))
_TITLES: Final = ("Alignment (lower is closer)", "Uniformity (lower is more even)", "Relative fitting difficulty")


def run_figures(curves: dict[str, list[tuple[int, float]]], folder: Path, monitor: str) -> list[Path]:
    """Draw ``loss.png``, ``dev_score.png`` and ``diagnostics.png``, each only where its curves were logged.

    The curves are points ``(step, value)`` by key, and ``monitor`` is the key that picks the best checkpoint.
    """
    ordered = {key: sorted(points, key=lambda point: point[0]) for key, points in curves.items() if points}
    with plots.plot_style():
        drawings = {
            "loss.png": _loss(ordered),
            "dev_score.png": _dev_score(ordered, monitor),
            "diagnostics.png": _diagnostics(ordered),
        }
        return plots.save_figures(drawings, folder)


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
        axes.plot(steps, values, color=plots.BLUE, alpha=0.28, linewidth=0.8, label="every logged step")
        axes.plot(steps, plots.moving_average(values, span), color=plots.BLUE, label=f"moving average of {span} points")
        axes.legend(loc="upper right")
    axes.set_ylabel("training loss")
    plots.by_step(axes)
    return figure


def _dev_score(curves: plots.Curves, monitor: str) -> Figure | None:
    found = {key: points for key, points in curves.items() if key.startswith("val/") and not key.endswith("/threshold")}
    if not found:
        return None
    # Scores are at most one; a loss, say, would flatten them, and gets axes of its own.
    scores = [k for k in found if k == monitor or all(abs(v) <= 1 for _, v in found[k] if math.isfinite(v))]
    panels = [panel for panel in (scores, [key for key in found if key not in scores]) if panel]
    figure = plots.blank_figure(7.6, 3.8 * len(panels))
    for axes, keys in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        for index, key in enumerate(sorted(keys, key=lambda key: (key != monitor, key))):
            name = key.removeprefix("val/")
            color, style = plots.series_look(index)
            if key != monitor:
                plots.line(axes, found[key], color=color, linestyle=style, linewidth=1.1, markersize=2.4, label=name)
                continue
            plots.line(
                axes, found[key], color=plots.BLUE, linewidth=2.4, markersize=4.5, zorder=3, label=f"{name} (monitor)"
            )
            finite = [(value, -step) for step, value in found[key] if math.isfinite(value)]
            if finite:
                value, step = max(finite)
                best = {"marker": "*", "markersize": 13, "markeredgecolor": "white", "linestyle": "none"}
                label = f"best: {value:.4f} at step {-step}"
                axes.plot([-step], [value], color=plots.VERMILION, zorder=4, label=label, **best)
        axes.set_ylabel("dev score" if keys is scores else "other dev values")
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        plots.by_step(axes)
    return figure


def _diagnostics(curves: plots.Curves) -> Figure | None:
    views = _views(curves)
    if not views:
        return None
    figure = plots.blank_figure(10.5, 2.9 * len(views) + 0.5)
    grid = figure.subplots(len(views), 3, squeeze=False, sharex=True)
    for index, (view, prefix) in enumerate(views.items()):
        left, middle, right = grid[index]
        for axes, measure in ((left, "alignment"), (middle, "uniformity")):
            for side, label, color, style in _SIDES:
                if points := curves.get(f"{prefix}{side}/{measure}"):
                    plots.line(axes, points, color=color, linestyle=style, label=label)
            axes.set_ylabel(f"{view}: {measure}" if len(views) > 1 else measure)
        for measure, color, style in (("alignment", plots.GREEN, "-"), ("uniformity", plots.PURPLE, "-.")):
            if points := curves.get(f"{prefix}rfd_{measure}"):
                plots.line(right, points, color=color, linestyle=style, label=f"RFD of {measure}")
        right.axhline(0, color=plots.GREY, linewidth=0.8, zorder=1)
        right.set_ylabel("held-out minus evaluation")
        for axes in grid[index]:
            plots.by_step(axes)
            if index + 1 < len(views):
                axes.set_xlabel("")
    for axes, title in zip(grid[0], _TITLES, strict=True):
        axes.set_title(title)
    handles: dict[str, Any] = {}
    for axes in grid.flat:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, handlelength=3)
    return figure


def _views(curves: plots.Curves) -> dict[str, str]:
    """Return the prefix of each view's keys by the view's name, the primary one first."""
    ends = [end for m in ("alignment", "uniformity") for end in (f"held_out/{m}", f"eval/{m}", f"rfd_{m}")]
    keys = [(key, end) for key in curves for end in ends if key.startswith("diag/") and key.endswith(f"/{end}")]
    prefixes = sorted({key.removesuffix(end) for key, end in keys})
    names = {prefix.removeprefix("diag/").rstrip("/"): prefix for prefix in prefixes}
    primary = "explicit" if "implicit" in names else "primary"
    return {f"{name or primary} view": prefix for name, prefix in names.items()}
