"""GaussCSE's Figure 2: how much longer premises are than hypotheses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lightning_cse.evaluation import Direction
from lightning_cse.plots import BLUE, GREY, VERMILION, blank_figure, plot_style
from lightning_cse.tables.figures import Result, data_config, markdown_table, result, spread
from lightning_cse.tables.table import Table

if TYPE_CHECKING:
    from datasets import Dataset
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CORPORA = {"SNLI": "snli_test", "MNLI": "mnli_test", "SICK": "sick_test"}
_STEP = 0.2  # width of a bar: zero is an edge, so no bar holds both kinds of pairs
_LEFT_OUT = 0.001  # share of the pairs at either end, which count in the outermost bars
_ROOM = 0.28  # for the legend, as a share of the highest bar
_NOTE = (
    "Lengths in characters. Of the pairs entailed one way, the share whose premise is longer is the accuracy of "
    "LENGTH at telling the direction."
)
Array = NDArray[np.float64]


def length_ratios(table: Table) -> Result:
    """Make GaussCSE's Figure 2 from all pairs of the test sets, whatever their labels; no run is
    needed.

    Lengths are in characters, since only this unit gives the paper's length baseline (69.14 on
    SICK): the share of longer premises among the pairs of the direction task.
    """
    cfg = data_config(table)
    ratios = {}
    rows = []
    for name, key in _CORPORA.items():
        source = str(cfg.corpora[key])
        task = Direction(data_dir=str(cfg.paths.data_dir), test=source)
        ratios[name] = _log_ratios(task.table("test"))
        entailed = _log_ratios(task.rows("test"))
        rows.append(
            {
                "corpus": name,
                "source": source,
                "pairs": len(ratios[name]),
                "premise_longer": 100 * float((ratios[name] > 0).mean()),
                "entailed": len(entailed),
                "entailed_premise_longer": 100 * float((entailed > 0).mean()),
                **spread("log_ratio", ratios[name]),
            }
        )

    figure = length_figure(ratios)

    return result({"length_ratios": figure}, [markdown_table(rows), _NOTE], lengths=rows)


def _log_ratios(rows: Dataset) -> Array:
    premises = [len(text) for text in rows["premise"]]
    hypotheses = [len(text) for text in rows["hypothesis"]]
    return np.asarray(np.log(np.divide(premises, hypotheses)))


def length_figure(ratios: Mapping[str, Array]) -> Figure:
    """Draw one histogram per corpus on common axes, with the pairs whose premise is not longer in
    another colour.

    Source: GaussCSE, figure 2.  Differs: shares of the pairs in place of counts, and the two
    colours.
    """
    every = np.concatenate(list(ratios.values()))
    low, high = np.floor(np.quantile(every, (_LEFT_OUT, 1 - _LEFT_OUT)) / _STEP)
    edges = _STEP * np.arange(min(low, -1), max(high + 1, 1) + 1)
    with plot_style():
        figure = blank_figure(1.0 + 2.9 * len(ratios), 3.1)
        panels = figure.subplots(1, len(ratios), squeeze=False, sharex=True, sharey=True)[0]
        for axes, (name, values) in zip(panels, ratios.items(), strict=True):
            _draw_histogram(axes, np.clip(values, edges[0], edges[-1]), edges)
            axes.set_title(f"{name} ({len(values):,} pairs)")

        panels[0].set_ylabel("share of pairs")

    return figure


def _draw_histogram(axes: Axes, values: Array, edges: Array) -> None:
    kinds = {"premise longer": values > 0, "not longer": values <= 0}
    share = 1 / len(values)
    axes.hist(
        [values[kind] for kind in kinds.values()],
        bins=edges.tolist(),
        weights=[np.full(kind.sum(), share) for kind in kinds.values()],
        stacked=True,
        color=[BLUE, VERMILION],
        label=[f"{label}: {100 * kind.mean():.2f} %" for label, kind in kinds.items()],
    )
    axes.axvline(0, ymax=1 / (1 + _ROOM), color=GREY, linewidth=0.9)
    axes.set_xlabel("ln (premise length / hypothesis length)")
    axes.margins(y=_ROOM)
    axes.legend(loc="upper left", handlelength=1.2)
