"""How much longer premises are than what they entail: GaussCSE's Figure 2, and what LENGTH lives on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from lightning_cse.plots import BLUE, GREY, VERMILION, blank_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LengthRatios", "length_figure", "log_length_ratios"]

_STEP: Final = 0.2  # of the histogram: zero is an edge, so that no bar holds both kinds of pairs
_LEFT_OUT: Final = 0.001
_ROOM: Final = 0.28  # for the legend, above the highest bar as a share of it


@dataclass(frozen=True)
class LengthRatios:
    """The entailed pairs of a corpus by how much longer the premise is.

    Args:
        name: what the corpus is called.
        source: ``corpus/split`` that they are read from.
        log_ratios: one a pair, as `log_length_ratios` returns them; at least one.

    Raises:
        ValueError: if there is no pair.
    """

    name: str
    source: str
    log_ratios: NDArray[np.float64] = field(repr=False)

    def __post_init__(self) -> None:
        if not len(self.log_ratios):
            raise ValueError(f"{self.name}: no pair, so no lengths to compare")

    @property
    def premise_longer(self) -> float:
        """The share of pairs with the longer premise: the accuracy of LENGTH at telling the direction of entailment."""
        return float((self.log_ratios > 0).mean())


def log_length_ratios(premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
    r"""Return :math:`\ln (|p_i| / |h_i|)` of sentence pairs, with lengths in characters: (n,).

    Source: GaussCSE, figure 2; characters, since they alone give the paper's length baseline (69.14 on SICK).
    Differs: nothing known.

    Raises:
        ValueError: if the two differ in number, or a sentence is empty.

    Example:
        >>> log_length_ratios(["a long one", "same"], ["short", "even"]).round(3).tolist()
        [0.693, 0.0]
    """
    if len(premises) != len(hypotheses):
        raise ValueError(f"need as many premises as hypotheses, got {len(premises)} and {len(hypotheses)}")
    lengths = np.array([[len(sentence) for sentence in side] for side in (premises, hypotheses)], dtype=np.float64)
    if (lengths == 0).any():
        raise ValueError(f"pair {int((lengths == 0).any(axis=0).argmax())}: a sentence is empty")
    ratios: NDArray[np.float64] = np.log(lengths[0] / lengths[1])
    return ratios


def length_figure(sets: Sequence[LengthRatios]) -> Figure:
    """Draw a histogram a corpus, side by side on common axes; pairs that LENGTH gets wrong are of another colour.

    Bars are shares of the pairs, so that corpora of all sizes compare. The axis leaves out the farthest thousandth on
    either side, which counts in the outermost bars. To be called, and the figure to be saved, in the house style.

    Source: GaussCSE, figure 2.  Differs: shares in place of counts, and the two kinds of pairs.

    Raises:
        ValueError: if there is no corpus.
    """
    if not sets:
        raise ValueError("need at least one corpus")
    every = np.concatenate([each.log_ratios for each in sets])
    low, high = np.floor(np.quantile(every, (_LEFT_OUT, 1 - _LEFT_OUT)) / _STEP)
    edges = _STEP * np.arange(min(low, -1), max(high + 1, 1) + 1)
    figure = blank_figure(1.0 + 2.9 * len(sets), 3.1)
    row = figure.subplots(1, len(sets), squeeze=False, sharex=True, sharey=True)[0]
    for axes, each in zip(row, sets, strict=True):
        _panel(axes, each, edges)
    row[0].set_ylabel("share of entailed pairs")
    return figure


def _panel(axes: Axes, each: LengthRatios, edges: NDArray[np.float64]) -> None:
    right = each.log_ratios > 0
    shown = np.clip(each.log_ratios, edges[0], edges[-1])
    kinds = [shown[right], shown[~right]]
    share = each.premise_longer
    axes.hist(
        kinds,
        bins=edges.tolist(),
        weights=[np.full(len(kind), 1 / len(right)) for kind in kinds],
        stacked=True,
        color=[BLUE, VERMILION],
        label=[f"premise longer: {100 * share:.2f} %", f"not longer: {100 * (1 - share):.2f} %"],
    )
    axes.axvline(0, ymax=1 / (1 + _ROOM), color=GREY, linewidth=0.9)
    axes.set_title(f"{each.name} ({len(right):,} pairs)")
    axes.set_xlabel("ln (premise length / hypothesis length)")
    axes.margins(y=_ROOM)
    axes.legend(loc="upper left", handlelength=1.2)
