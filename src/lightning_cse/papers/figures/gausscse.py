"""GaussCSE's Figure 2: how much longer premises are than what they entail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from lightning_cse.evaluation import Direction
from lightning_cse.papers.figures import Made, Material, data_config, made, markdown_table, spread
from lightning_cse.plots import BLUE, GREY, VERMILION, blank_figure, plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["length_figure", "length_ratios", "log_length_ratios"]

_CORPORA: Final = {"SNLI": "snli_test", "MNLI": "mnli_test", "SICK": "sick_test"}
_STEP: Final = 0.2  # of the histogram: zero is an edge, so no bar holds both kinds of pairs
_LEFT_OUT: Final = 0.001  # of the pairs on either side, which count in the outermost bars
_ROOM: Final = 0.28  # for the legend, as a share of the highest bar
_WHY: Final = (
    "The share of pairs whose premise is longer, in characters, is the accuracy of LENGTH at telling the direction."
)


def length_ratios(material: Material) -> Made:
    """Make GaussCSE's Figure 2 of the test sets of the direction task; no run is needed."""
    cfg = data_config(material)
    ratios, table = {}, []
    for name, key in _CORPORA.items():
        source = str(cfg.corpora[key])
        rows = Direction(data_dir=str(cfg.paths.data_dir), test=source).rows("test")
        ratios[name] = log_length_ratios(rows.column("premise"), rows.column("hypothesis"))
        longer = 100 * float((ratios[name] > 0).mean())
        pairs = {"corpus": name, "source": source, "pairs": len(rows), "premise_longer": longer}
        table.append({**pairs, **spread("log_ratio", ratios[name])})
    cells = [
        (
            row["corpus"],
            row["source"],
            f"{row['pairs']:,}",
            f"{row['premise_longer']:.2f} %",
            f"{np.exp(row['log_ratio_median']):.2f}",
        )
        for row in table
    ]
    heads = ("corpus", "read from", "entailed pairs", "premise longer", "median ratio")
    text = [markdown_table(heads, cells, "---|---|---:|---:|---:"), _WHY]
    return made({"length_ratios": length_figure(ratios)}, text, {"lengths": table})


def log_length_ratios(premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
    r"""Return :math:`\ln (|p_i| / |h_i|)` of pairs of sentences, with lengths in characters: (n,).

    Source: GaussCSE, figure 2; characters, since they alone give the paper's length baseline (69.14 on SICK).

    Example:
        >>> log_length_ratios(["a long one", "same"], ["short", "even"]).round(3).tolist()
        [0.693, 0.0]
    """
    ratios: NDArray[np.float64] = np.log([len(p) / len(h) for p, h in zip(premises, hypotheses, strict=True)])
    return ratios


def length_figure(ratios: Mapping[str, NDArray[np.float64]]) -> Figure:
    """Draw a histogram a corpus on common axes, with the pairs that LENGTH gets wrong in another colour.

    Source: GaussCSE, figure 2.  Differs: shares of the pairs in place of counts, and the two kinds of pairs.
    """
    low, high = np.floor(np.quantile(np.concatenate(list(ratios.values())), (_LEFT_OUT, 1 - _LEFT_OUT)) / _STEP)
    edges = _STEP * np.arange(min(low, -1), max(high + 1, 1) + 1)
    with plot_style():
        figure = blank_figure(1.0 + 2.9 * len(ratios), 3.1)
        panels = figure.subplots(1, len(ratios), squeeze=False, sharex=True, sharey=True)[0]
        for axes, (name, values) in zip(panels, ratios.items(), strict=True):
            _panel(axes, values, edges)
            axes.set_title(f"{name} ({len(values):,} pairs)")
        panels[0].set_ylabel("share of entailed pairs")
    return figure


def _panel(axes: Axes, values: NDArray[np.float64], edges: NDArray[np.float64]) -> None:
    longer = values > 0
    shown = np.clip(values, edges[0], edges[-1])
    kinds = [shown[longer], shown[~longer]]
    axes.hist(
        kinds,
        bins=edges.tolist(),
        weights=[np.full(len(kind), 1 / len(values)) for kind in kinds],
        stacked=True,
        color=[BLUE, VERMILION],
        label=[f"premise longer: {100 * longer.mean():.2f} %", f"not longer: {100 * (~longer).mean():.2f} %"],
    )
    axes.axvline(0, ymax=1 / (1 + _ROOM), color=GREY, linewidth=0.9)
    axes.set_xlabel("ln (premise length / hypothesis length)")
    axes.margins(y=_ROOM)
    axes.legend(loc="upper left", handlelength=1.2)
