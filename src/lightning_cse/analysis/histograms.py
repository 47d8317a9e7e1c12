"""How far apart the pairs of data sets are, in words and to an encoder: the panels of NGCSE's Figure 7."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lightning_cse.plots import GREY, blank_figure, plot_style, save_figures, series_look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PairSet", "Pairs", "bins_of", "draw_histograms", "histograms_figure", "overlap", "shares"]

_BINS: Final = 25
_LOWEST_COSINE: Final = 0.5
_STEP: Final = 0.1  # by which the axis of the cosine grows
# Six of the house's colours, which the colour-blind tell apart; more kinds in a panel differ by the style of the line.
_PALETTE: Final = tuple(series_look(number)[0] for number in range(6))
_STYLES: Final = ("-", "--", ":")
_ALL: Final = "all"
_COLORS: Final = {
    "positive": _PALETTE,
    "negative": tuple(_PALETTE[number] for number in (5, 3, 4, 2, 1, 0)),
    _ALL: _PALETTE,
}
_NAMES: Final = {"mer": ("MER", "match error rate"), "cosine": ("cosine", "cosine")}  # above and below the panels
_LEGEND: Final = textwrap.TextWrapper(width=36, max_lines=2, placeholder=" ...")  # what a panel has room for
_INSIDE: Final = 2  # kinds whose legend has room above the bars
_LEGEND_SIZE: Final = 7  # points
_AXIS: Final = 34  # points that the numbers and the name below an axis take


@dataclass(frozen=True)
class Pairs:
    """Pairs of one kind: the match error rate and the cosine of each, (pairs,) both.

    Args:
        label: Which sentences they are of, such as ``anchor - positive``.
        mer: From 0 (the same words) to 1 (no word in common).
        cosine: From -1 to 1; empty where no encoder measured it.

    Raises:
        ValueError: if the two differ in length, or a value is not a finite number.
    """

    label: str
    mer: Sequence[float]
    cosine: Sequence[float] = ()

    def __post_init__(self) -> None:
        if len(self.cosine) and len(self.mer) != len(self.cosine):
            raise ValueError(f"{self.label}: {len(self.mer)} match error rates and {len(self.cosine)} cosines")
        if not np.isfinite([*self.mer, *self.cosine]).all():
            raise ValueError(f"{self.label}: some values are not finite numbers")


@dataclass(frozen=True)
class PairSet:
    """The pairs of one data set, a row of the figure; a kind that it does not have is empty.

    ``neither`` are pairs of which nobody said that methods pull them together or push them apart.
    """

    name: str
    positive: Sequence[Pairs]
    negative: Sequence[Pairs]
    neither: Sequence[Pairs] = ()

    def of(self, kind: str) -> Sequence[Pairs]:
        """Return the pairs of a kind, or ``all``, the near ones first."""
        if kind == _ALL:
            return (*self.positive, *self.neither, *self.negative)
        return self.positive if kind == "positive" else self.negative


def draw_histograms(sets: Sequence[PairSet], path: Path) -> Path:
    """Draw what `histograms_figure` does, and return the file.

    Raises:
        ValueError: if there is no data set.
        LightningCSEError: if the disk is full.
    """
    with plot_style():
        save_figures({path.name: histograms_figure(sets)}, path.parent)
    return path


def histograms_figure(sets: Sequence[PairSet]) -> Figure:
    """Draw a row a data set: match error rates of positive and negative pairs, then their cosines.

    Bars are shares of the pairs, so that data sets of all sizes compare, and one line marks the mean. The axis of the
    match error rate goes from 0 to 1, that of the cosine from 0.5 to 1, or from the tenth below the lowest value. The
    panels of cosines are left out where none was measured. If a data set has pairs that are neither positive nor
    negative, all pairs share one panel, twice as wide. Legends stand above the bars, but below the axes in a row that
    has more than two kinds in a panel. Pairs have the same colour in all rows if they have the same place in their
    data sets, which empty ones keep. To be called, and the figure to be saved, in the house style.

    Source: NGCSE, figure 7.  Differs: data sets have a row each, and the axis of the cosine leaves no pair out.

    Raises:
        ValueError: if there is no data set, or if some pairs have cosines and others have none.
    """
    if not sets:
        raise ValueError("need at least one data set")
    bins = bins_of(sets)
    kinds = (_ALL,) if any(each.neither for each in sets) else ("positive", "negative")
    beside = 3 - len(kinds)  # legends, in a panel that is so much wider
    columns = [(measure, kind) for measure in bins for kind in kinds]
    below = [_below([each.of(kind) for kind in kinds], beside) for each in sets]
    figure = blank_figure(2.75 * beside * len(columns), 0.5 + 2.1 * len(sets) + sum(below))
    grid = figure.subplots(len(sets), len(columns), squeeze=False, sharex="col")
    for number, (row, each) in enumerate(zip(grid, sets, strict=True)):
        for axes, (measure, kind) in zip(row, columns, strict=True):
            _panel(axes, each.of(kind), measure, bins[measure], _COLORS[kind], inside=not below[number])
            if below[number]:
                _legend_below(axes, beside, _AXIS if number == len(sets) - 1 else 0)
        row[0].set_ylabel(f"{each.name}\nshare of pairs")
    for top, bottom, (measure, kind) in zip(grid[0], grid[-1], columns, strict=True):
        above, axis = _NAMES[measure]
        top.set_title(f"{above}, {kind} pairs")
        bottom.set_xlabel(axis)
    return figure


def bins_of(sets: Sequence[PairSet]) -> dict[str, np.ndarray]:
    """Return the edges of the bars by measure, ``mer`` and ``cosine``; only the first where there are no cosines.

    Raises:
        ValueError: if some pairs have cosines and others have none.
    """
    shown = [pairs for each in sets for pairs in each.of(_ALL) if len(pairs.mer)]
    bins = {"mer": np.linspace(0.0, 1.0, _BINS + 1)}
    without = [pairs.label for pairs in shown if not len(pairs.cosine)]
    if len(without) == len(shown) > 0:
        return bins
    if without:
        raise ValueError(f"{without[0]}: no cosines, and other pairs have them")
    lowest = _lowest([value for pairs in shown for value in pairs.cosine])
    return bins | {"cosine": np.linspace(lowest, 1.0, max(_BINS, round((1.0 - lowest) * _BINS)) + 1)}


def shares(values: Sequence[float], bins: np.ndarray) -> np.ndarray:
    """Return the share of the values in each bin; what rounding put beyond the last edge is in the last bin.

    Raises:
        ValueError: if there is no value.
    """
    if not len(values):
        raise ValueError("need at least one value")
    counts, _ = np.histogram(np.clip(values, bins[0], bins[-1]), bins)
    return counts / len(values)


def overlap(first: np.ndarray, second: np.ndarray) -> float:
    r"""Return the area that two histograms share, from 0 (no bin in common) to 1 (the same).

    .. math:: \sum_b \min(p_b, q_b)

    with the `shares` :math:`p` and :math:`q` of the two in the same bins.

    Source: Swain and Ballard 1991, "Color indexing", histogram intersection.  Differs: nothing.

    Raises:
        ValueError: if they do not have the same bins.
    """
    if first.shape != second.shape:
        raise ValueError(f"need two histograms of the same bins, got {first.shape} and {second.shape}")
    return float(np.minimum(first, second).sum())


def _lowest(cosines: Sequence[float]) -> float:
    """Return where the axis of the cosine begins: 0.5, or the tenth below all values, but never below -1."""
    low = min(cosines, default=_LOWEST_COSINE)
    return max(-1.0, min(_LOWEST_COSINE, math.floor(low / _STEP) * _STEP))


def _below(panels: Sequence[Sequence[Pairs]], beside: int) -> float:
    """Return the inches that the legends of a row take below its axes; 0 where all have room in their panels."""
    shown = [[pairs for pairs in kinds if len(pairs.mer)] for kinds in panels]
    if all(len(kinds) <= _INSIDE for kinds in shown):
        return 0.0
    highest = 0.0
    for kinds in shown:
        heights = [0.06 + 0.12 * (_LEGEND.fill(pairs.label).count("\n") + 2) for pairs in kinds]
        column = max(1, math.ceil(len(heights) / beside))
        highest = max([highest, *(sum(heights[start : start + column]) for start in range(0, len(heights), column))])
    return 0.2 + highest


def _legend_below(axes: Axes, beside: int, room: float) -> None:
    """Write a panel's legend below its axes, so many points away."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            handles,
            labels,
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            borderaxespad=room / _LEGEND_SIZE + 0.3,
            ncols=beside,
            fontsize=_LEGEND_SIZE,
            handlelength=1.2,
        )


def _panel(
    axes: Axes, kinds: Sequence[Pairs], measure: str, bins: np.ndarray, colors: Sequence[str], *, inside: bool
) -> None:
    """Draw a panel, with its legend if that goes inside."""
    from matplotlib.ticker import MaxNLocator

    shown = [(place, pairs, _LEGEND.fill(pairs.label)) for place, pairs in enumerate(kinds) if len(pairs.mer)]
    room = 0.05  # for the legend, as a share of the bars
    if inside:
        room += sum(0.14 * (label.count("\n") + 2) for _, _, label in shown)
    for number, (place, pairs, named) in enumerate(shown):
        values = np.clip(getattr(pairs, measure), bins[0], bins[-1])  # a cosine of 1 may be rounded up
        color, style = colors[place % len(colors)], _STYLES[place // len(colors) % len(_STYLES)]
        look: dict[str, Any] = {"histtype": "step", "linewidth": 1.6, "linestyle": style}
        if number == 0:
            look = {"alpha": 0.55}
        label = f"{named}\nmean {values.mean():.2f}, n = {len(values)}"
        axes.hist(
            values, bins=bins.tolist(), weights=np.full(len(values), 1 / len(values)), color=color, label=label, **look
        )
        style = "-" if number == 0 else "--"
        axes.axvline(float(values.mean()), ymax=1 / (1 + room), color=color, linewidth=1.1, linestyle=style)
    axes.set_xlim(float(bins[0]), float(bins[-1]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    if not shown:
        axes.text(0.5, 0.5, "no such pairs", transform=axes.transAxes, ha="center", va="center", color=GREY)
        axes.set_yticks([])
        return
    axes.margins(y=room)
    if inside:
        axes.legend(loc="upper center", fontsize=_LEGEND_SIZE, handlelength=1.2)
    else:
        axes.set_ylim(top=min(1.0, axes.get_ylim()[1]))
    if axes.get_ylim()[1] > 1:  # what is above is the legend's room
        axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= 1])
