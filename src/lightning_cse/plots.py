"""The plot style that all figures share, and how figures are made and saved."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_cse.runs import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

Points = Sequence[tuple[int, float]]
Curves = Mapping[str, Points]

# The palette of Okabe and Ito, which color-blind readers can distinguish; line styles differ in
# print.
BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
VERMILION = "#D55E00"
GREY = "#777777"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, GREY)
STYLES = ("-", "--", ":", "-.")

RFD_SIDES = {
    "held_out": {"label": "held-out side", "color": BLUE, "linestyle": "-"},
    "eval": {"label": "evaluation side", "color": ORANGE, "linestyle": "--"},
}
"""How the curves of the two sides that RFD compares are drawn, by the part of their keys."""


@contextlib.contextmanager
def plot_style() -> Iterator[None]:
    """Draw and save in the style of this project, whatever matplotlib's settings on this
    machine.
    """
    import matplotlib.style  # slow to load

    with matplotlib.style.context(Path(__file__).with_suffix(".mplstyle"), after_reset=True):
        yield


def save_figures(drawings: Mapping[str, Figure | None], folder: Path) -> list[Path]:
    """Write each figure that is not None as a PNG under its name, and return the files."""
    paths = []
    for name, figure in drawings.items():
        if figure is not None:
            buffer = io.BytesIO()
            with plot_style():
                figure.savefig(buffer, format="png", metadata={"Software": None})

            write_atomic(folder / name, buffer.getvalue())
            paths.append(folder / name)

    return paths


def blank_figure(width: float, height: float) -> Figure:
    """Return a figure that pyplot does not keep; sizes are in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.07))
    FigureCanvasAgg(figure)

    return figure


def series_look(number: int) -> tuple[str, str]:
    """Return the colour and the line style of a series; consecutive numbers run through all pairs
    of them.
    """
    return PALETTE[number % len(PALETTE)], STYLES[number // len(PALETTE) % len(STYLES)]


def xy(points: Points) -> NDArray[np.float64]:
    """Return steps and values, each in a row; matplotlib leaves a gap where a value is not
    finite.
    """
    return np.asarray(points, dtype=np.float64).reshape(-1, 2).T


def line(axes: Axes, points: Points, **options: Any) -> None:
    """Draw a curve, with markers if it has few points."""
    marker = "o" if len(points) <= 30 else ""
    axes.plot(*xy(points), **{"marker": marker, "markersize": 3.2, **options})


def zero_line(axes: Axes) -> None:
    """Mark zero on the vertical axis."""
    axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)


def by_step(axes: Axes) -> None:
    """Make the optimizer step the horizontal axis."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("optimizer step")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.margins(x=0.03, y=0.08)


def smoothed(points: Points) -> tuple[Points, int]:
    """Return the centred moving average of the finite values of a curve, and its odd span: 1, and
    so the curve itself, for a curve of fewer than 20 points.
    """
    import pandas as pd

    span = 2 * max(2, len(points) // 80) + 1 if len(points) >= 20 else 1
    steps, values = xy(points)
    finite = pd.Series(values).where(np.isfinite)
    average = finite.rolling(span, center=True, min_periods=1).mean()

    return list(zip(steps.tolist(), average, strict=True)), span
