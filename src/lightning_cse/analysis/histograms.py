"""Histograms of the match error rate and the cosine of pairs of data sets: the panels of NGCSE's
Figure 7.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from lightning_cse.plots import blank_figure, plot_style, series_look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

BINS = 25
LOWEST_COSINE = 0.5
NAMES = {"mer": "match error rate", "cosine": "cosine"}

Kind = Literal["positive", "negative"]


@dataclass(frozen=True)
class Pairs:
    """The drawn pairs of one kind; ``total`` counts all pairs, ``dropout`` marks two passes over
    one sentence.

    Once they are measured, ``mer`` and ``cosine`` are the match error rate and the cosine of each
    pair; without an encoder there are no cosines.
    """

    kind: Kind
    label: str
    first: Sequence[str]
    second: Sequence[str]
    total: int
    dropout: bool = False
    mer: Sequence[float] = ()
    cosine: Sequence[float] = ()


PairSets = Mapping[str, Sequence[Pairs]]
"""The measured pairs of data sets, by their names."""


@plot_style()
def histograms_figure(sets: PairSets) -> Figure:
    """Draw one row per data set: match error rates of positive and negative pairs, then their
    cosines.

    Bars are shares of the pairs; dashed lines are means.

    Source: NGCSE, figure 7.  Differs: each data set has its own row, and the axis of the cosine
    leaves no pair out.
    """
    bins = bins_of(sets)
    lines = sum(len(pairs) for pairs in sets.values())
    height = 0.4 + 2.2 * len(sets) + 0.22 * lines  # with the legends above
    figure = blank_figure(5.0 * len(bins), height)
    grid = figure.subplots(len(sets), 2 * len(bins), squeeze=False, sharex="col")
    for row, (name, groups) in zip(grid, sets.items(), strict=True):
        row[0].set_ylabel(f"{name}\nshare of pairs")
        panels = itertools.product(bins, (("positive", 0), ("negative", 3)))
        for axes, (measure, (pair_kind, color)) in zip(row, panels, strict=True):
            values = {
                pairs.label: getattr(pairs, measure) for pairs in groups if pairs.kind == pair_kind
            }
            _panel(axes, values, bins[measure], color)
            axes.set_xlabel(f"{NAMES[measure]}, {pair_kind} pairs")

    return figure


def _panel(
    axes: Axes, samples: Mapping[str, Sequence[float]], bins: np.ndarray, first_color: int
) -> None:
    axes.set_xlim(float(bins[0]), float(bins[-1]))
    for index, (label, values) in enumerate(samples.items()):
        if not len(values):
            continue

        color, style = series_look(first_color + index)
        mean = float(np.mean(values))
        name = f"{textwrap.fill(label, 32)}\nmean {mean:.2f}, n = {len(values)}"
        filled = {"fill": True, "alpha": 0.55}
        look = {"linewidth": 1.6, "linestyle": style} if axes.patches else filled
        # A value beyond an edge counts in the bin beside it.
        heights = np.histogram(np.clip(values, bins[0], bins[-1]), bins)[0] / len(values)
        axes.stairs(heights, bins, color=color, label=name, **look)
        axes.axvline(mean, color=color, linewidth=1.1, linestyle="--")

    if axes.patches:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), handlelength=1.2)


def bins_of(sets: PairSets) -> dict[str, np.ndarray]:
    """Return the edges of the bars by measure: ``mer`` and, if there are cosines, ``cosine``.

    The axis of the cosine begins at 0.5, or at the tenth below the lowest value if this is lower.
    """
    bins = {"mer": np.linspace(0.0, 1.0, BINS + 1)}
    cosines = [value for groups in sets.values() for pairs in groups for value in pairs.cosine]
    if cosines:
        low = min(LOWEST_COSINE, math.floor(min(cosines) / 0.1) * 0.1)
        bins["cosine"] = np.linspace(low, 1.0, BINS + 1)

    return bins


def quartiles(values: Sequence[float] | NDArray[np.float64]) -> dict[str, float] | None:
    """Return the mean and the quartiles of some values; None without values."""
    if not len(values):
        return None

    names = ("lower_quartile", "median", "upper_quartile")
    quantiles = np.quantile(values, (0.25, 0.5, 0.75)).tolist()

    return {"mean": float(np.mean(values)), **dict(zip(names, quantiles, strict=True))}
