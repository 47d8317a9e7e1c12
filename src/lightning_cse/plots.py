"""The plot style that all figures share, and how figures are made and saved."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lightning_cse.runs import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[tuple[int, float]]
Curves = Mapping[str, Points]

# The palette of Okabe and Ito, which color-blind readers can distinguish; line styles carry the difference in print.
BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
)
GREY: Final = "#777777"
PALETTE: Final = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, GREY)
STYLES: Final = ("-", "--", ":", "-.")


@contextlib.contextmanager
def plot_style() -> Iterator[None]:
    """Draw and save in the style of this project, whatever matplotlib's settings on this machine."""
    import matplotlib.style  # slow to load

    with matplotlib.style.context(Path(__file__).with_suffix(".mplstyle"), after_reset=True):
        yield


def save_figures(drawings: Mapping[str, Figure | None], folder: Path) -> list[Path]:
    """Write each figure that is not None as a PNG under its name, and return the files."""
    drawn = {folder / name: figure for name, figure in drawings.items() if figure is not None}
    for path, figure in drawn.items():
        sink = io.BytesIO()
        with plot_style():
            figure.savefig(sink, format="png", metadata={"Software": None})
        write_atomic(path, sink.getvalue())
    return list(drawn)


def blank_figure(width: float, height: float) -> Figure:
    """Return a figure that pyplot does not keep; sizes are in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.07))
    FigureCanvasAgg(figure)
    return figure


def series_look(number: int) -> tuple[str, str]:
    """Return the colour and the line style of a series; consecutive numbers run through all pairs of them."""
    return PALETTE[number % len(PALETTE)], STYLES[number // len(PALETTE) % len(STYLES)]


def xy(points: Points) -> tuple[list[int], list[float]]:
    """Return steps and values; a value that is not finite becomes NaN, which leaves a gap."""
    return [step for step, _ in points], [
        value if math.isfinite(value) else math.nan for _, value in points
    ]


def line(axes: Axes, points: Points, **options: Any) -> None:
    """Draw a curve, with markers where it has few points."""
    axes.plot(
        *xy(points), **{"marker": "o" if len(points) <= 30 else "", "markersize": 3.2, **options}
    )


def by_step(axes: Axes) -> None:
    """Make the optimizer step the horizontal axis."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("optimizer step")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.margins(x=0.03, y=0.08)


def moving_average(values: Sequence[float], span: int) -> list[float]:
    """Return the centred moving average of the finite values over an odd span, which is cut off at both ends."""
    import pandas as pd

    finite = pd.Series(values, dtype=float).where(lambda column: column.abs() < math.inf)
    return list(finite.rolling(span, center=True, min_periods=1).mean())
