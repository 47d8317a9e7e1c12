"""How far apart the pairs of data sets are, in words and to an encoder: the panels of NGCSE's Figure 7."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lightning_cse.reproduction.figures import BLUE, GREY, ORANGE, VERMILION, blank_figure, house_style, save_figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PairSet", "Pairs", "draw_histograms", "histograms_figure"]

_BINS: Final = 25
_LOWEST_COSINE: Final = 0.5
_STEP: Final = 0.1  # by which the axis of the cosine grows
_COLORS: Final = {"positive": (BLUE, ORANGE, "#009E73"), "negative": (VERMILION, "#CC79A7")}


@dataclass(frozen=True)
class Pairs:
    """Pairs of one kind: the match error rate and the cosine of each, (pairs,) both.

    Args:
        label: Which sentences they are of, such as ``anchor - positive``.
        mer: From 0 (the same words) to 1 (no word in common).
        cosine: From -1 to 1.

    Raises:
        ValueError: if the two differ in length, or a value is not a finite number.
    """

    label: str
    mer: Sequence[float]
    cosine: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.mer) != len(self.cosine):
            raise ValueError(f"{self.label}: {len(self.mer)} match error rates and {len(self.cosine)} cosines")
        if not np.isfinite([*self.mer, *self.cosine]).all():
            raise ValueError(f"{self.label}: some values are not finite numbers")


@dataclass(frozen=True)
class PairSet:
    """The pairs of one data set, a row of the figure; a kind that it does not have is empty."""

    name: str
    positive: Sequence[Pairs]
    negative: Sequence[Pairs]


def draw_histograms(sets: Sequence[PairSet], path: Path) -> Path:
    """Draw what `histograms_figure` does, and return the file.

    Raises:
        ValueError: if there is no data set.
        LightningCSEError: if the disk is full.
    """
    with house_style():
        save_figures({path.name: histograms_figure(sets)}, path.parent)
    return path


def histograms_figure(sets: Sequence[PairSet]) -> Figure:
    """Draw a row a data set: match error rates of positive and negative pairs, then their cosines.

    Bars are shares of the pairs, so that data sets of all sizes compare, and one line marks the mean. The axis of the
    match error rate goes from 0 to 1, that of the cosine from 0.5 to 1, or from the tenth below the lowest value. To be
    called, and the figure to be saved, in the house style.

    Source: NGCSE, figure 7.  Differs: data sets have a row each, and the axis of the cosine leaves no pair out.

    Raises:
        ValueError: if there is no data set.
    """
    if not sets:
        raise ValueError("need at least one data set")
    figure = blank_figure(11.0, 0.5 + 2.1 * len(sets))
    grid = figure.subplots(len(sets), 4, squeeze=False, sharex="col")
    lowest = _lowest([value for each in sets for pairs in (*each.positive, *each.negative) for value in pairs.cosine])
    cosine_bins = np.linspace(lowest, 1.0, max(_BINS, round((1.0 - lowest) * _BINS)) + 1)
    mer_bins = np.linspace(0.0, 1.0, _BINS + 1)
    for row, each in zip(grid, sets, strict=True):
        for column, axes in enumerate(row):
            kind = "positive" if column % 2 == 0 else "negative"
            measure = "mer" if column < 2 else "cosine"
            bins = mer_bins if measure == "mer" else cosine_bins
            _panel(axes, getattr(each, kind), measure, bins, _COLORS[kind])
        row[0].set_ylabel(f"{each.name}\nshare of pairs")
    titles = ("MER, positive pairs", "MER, negative pairs", "cosine, positive pairs", "cosine, negative pairs")
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title)
    for axes, name in zip(grid[-1], ("match error rate",) * 2 + ("cosine",) * 2, strict=True):
        axes.set_xlabel(name)
    return figure


def _lowest(cosines: Sequence[float]) -> float:
    """Return where the axis of the cosine begins: 0.5, or the tenth below all values, but never below -1."""
    low = min(cosines, default=_LOWEST_COSINE)
    return max(-1.0, min(_LOWEST_COSINE, math.floor(low / _STEP) * _STEP))


def _panel(axes: Axes, kinds: Sequence[Pairs], measure: str, bins: np.ndarray, colors: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    shown = [pairs for pairs in kinds if len(pairs.mer)]
    room = 0.05 + 0.28 * len(shown)  # for the legend, above the highest bar as a share of it
    for number, pairs in enumerate(shown):
        values = np.clip(getattr(pairs, measure), bins[0], bins[-1])  # a cosine of 1 may be rounded up
        color = colors[number % len(colors)]
        look: dict[str, Any] = {"alpha": 0.55} if number == 0 else {"histtype": "step", "linewidth": 1.6}
        label = f"{pairs.label}\nmean {values.mean():.2f}, n = {len(values)}"
        axes.hist(
            values, bins=bins.tolist(), weights=np.full(len(values), 1 / len(values)), color=color, label=label, **look
        )
        style = "-" if number == 0 else "--"
        axes.axvline(float(values.mean()), ymax=1 / (1 + room), color=color, linewidth=1.1, linestyle=style)
    axes.set_xlim(float(bins[0]), float(bins[-1]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    if shown:
        axes.margins(y=room)
        axes.legend(loc="upper center", fontsize=7, handlelength=1.2)
    else:
        axes.text(0.5, 0.5, "no such pairs", transform=axes.transAxes, ha="center", va="center", color=GREY)
        axes.set_yticks([])
