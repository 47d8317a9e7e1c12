"""Rank training sets before training, by their relative fitting difficulty (RFD)."""

import itertools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from lightning_cse.analysis import difficulty
from lightning_cse.analysis.difficulty import MEASURES
from lightning_cse.config.launch import call
from lightning_cse.errors import ConfigError, DataError, one_line
from lightning_cse.plots import BLUE, GREY, blank_figure, plot_style, save_figures
from lightning_cse.runs import read_object, write_atomic
from lightning_cse.runs.sweep import PointOutcome, settings_of

log = logging.getLogger(__name__)

LEAST_NEARER = 0.8
"""A smaller share of ``nearer`` is reported, since positives may be wrong: our choice, made after
the runs of ``ngcse/before_training``, whose wrong positives are all below it.
"""
_BASIS = ("rows", "pairs", "sentences", "nearer", "evaluation")


def rank_training_sets(
    sets: Mapping[str, str | Path | Sequence[str]],
    encoder: str = "minilm_l4",
    *,
    own_sts: str | Path | None = None,
    probe_steps: int = 0,
    overrides: Sequence[str] = (),
) -> pd.DataFrame:
    r"""Rank training sets by RFD before training: the sum of RFD of alignment and of uniformity.

    .. math:: \text{RFD} = \text{held-out rows} - \text{evaluation pairs}

    for each measure, by the untrained encoder. Above 0, the held-out rows of the training set fit
    worse than the evaluation pairs. One row for each set, the highest sum first: ``rows``,
    ``pairs`` and ``sentences`` that RFD rests on, ``rfd_alignment``, ``rfd_uniformity`` and
    ``rfd``, each with the ends of its 95 % interval over the held-out rows (``..._low``,
    ``..._high``), ``order``, and ``reason`` for a set that cannot be compared. With
    ``probe_steps``, the order is that of the mean over training, and the columns of step 0 begin
    with ``step_0_``. ``docs/choosing_data.md`` says where the order may be trusted.

    Args:
        sets: for each name, a file of training rows, or the words of a command line such as
            ``["data=nli_triplets"]``.
        encoder: a name of ``conf/encoder``, a folder, or a hub id.
        own_sts: pairs with scores to compare with, in place of STS-B dev.
        probe_steps: train each set for so many steps, and average over them.
        overrides: words for every set, such as ``["data.held_out_share=0.1"]``.

    Source: NGCSE, section on relative fitting difficulty.  Differs: step 0, which the paper leaves
    out; with ``probe_steps``, the steps after it, as in the paper.

    Raises:
        ConfigError: if ``sets`` is empty, or an override is wrong.
    """
    if not sets:
        raise ConfigError(["sets: must have at least one training set"])

    shared = [f"encoder={encoder}", f"probe_steps={probe_steps}", *overrides]
    if own_sts is not None:
        shared.append(f"own.sts={_quoted(own_sts)}")

    measured = {}
    for number, (name, source) in enumerate(sets.items(), 1):
        log.info("%s: training set %d of %d", name, number, len(sets))
        if isinstance(source, str | Path):
            words = ["data=file", f"data.train={_quoted(source)}"]
        else:
            words = list(source)

        try:
            measured[name] = call(f"{difficulty.__name__}:measure", "describe", [*words, *shared])
        except DataError as error:
            measured[name] = {"reason": one_line(error)}

    return frame_of(measured)


def _quoted(path: str | Path) -> str:
    """Return a path as a value of Hydra's grammar."""
    text = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def frame_of(measured: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return the values of `measure` by name as one row each, the highest sum first."""
    rows = [{**dict.fromkeys(_BASIS), **values} for values in measured.values()]
    frame = pd.DataFrame(rows, index=list(measured)).drop(columns="data", errors="ignore")
    frame["reason"] = frame.pop("reason").fillna("") if "reason" in frame else ""
    if "rfd" not in frame:
        return frame

    frame = frame.sort_values("rfd", ascending=False, kind="stable")
    frame.insert(0, "order", frame["rfd"].rank(ascending=False, method="first").astype("Int64"))

    return frame


def sweep_ranking(points: Sequence[PointOutcome], folder: Path) -> str:
    """Return the ranking of the training sets of a multirun of ``describe`` as a table, and write
    ``ranking.csv`` and ``ranking.png`` into the folder of the sweep.
    """
    measured: dict[str, dict[str, Any]] = {}
    for name, point in zip(settings_of(points), points, strict=True):
        entries = {"reason": f"{point.status}: {point.reason}"}
        if point.folder is not None:
            advice = "the same command describes the set again"
            summary = read_object(Path(point.folder, "summary.json"), advice=advice)
            entries = summary["rfd"]

        measured[name] = entries

    frame = frame_of(measured)
    lines = ["", ranking_table(frame)]
    if "rfd" in frame:
        write_atomic(folder / "ranking.csv", frame.to_csv(index_label="training set"))
        save_figures({"ranking.png": ranking_figure(frame)}, folder)
        lines += [f"figure: {folder / 'ranking.png'}", f"table: {folder / 'ranking.csv'}"]

    return "\n".join([*lines, ""])


def ranking_table(frame: pd.DataFrame) -> str:
    """Return the ranking as text: a line for each training set, and how to read it."""
    ranked = frame.dropna(subset=["rfd"]) if "rfd" in frame else frame[:0]
    lines = []
    if len(ranked):
        lines = [_cells(ranked).to_string(index=False), "", *_notes(ranked)]

    others = frame.drop(ranked.index)
    lines += [f"{name}: not compared: {row['reason']}" for name, row in others.iterrows()]

    return "\n".join(lines)


def _cells(ranked: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of the ranking as text."""
    cells = pd.DataFrame({"": ranked["order"], "training set": ranked.index})
    counts = {"rows": "rows", "pairs": "held-out pairs", "sentences": "sentences"}
    for key, title in counts.items():
        cells[title] = ranked[key].map("{:,.0f}".format)

    cells["nearer"] = ranked["nearer"].map("{:.0%}".format)
    for key, title in MEASURES.items():
        ends = [ranked[f"{key}{end}"].map("{:+.3f}".format) for end in ("", "_low", "_high")]
        cells[title] = ends[0] + " [" + ends[1] + ", " + ends[2] + "]"

    return cells


def _notes(ranked: pd.DataFrame) -> list[str]:
    """Return what the values are, and where two neighbours are not told apart."""
    is_probed = "steps" in ranked
    steps = ranked["steps"].max() if is_probed else 0
    when = f"mean over {steps:.0f} training steps" if is_probed else "before training"
    notes = [
        f"RFD {when}: held-out rows minus {' / '.join(ranked['evaluation'].unique())}, with 95 % "
        "intervals over the held-out rows.",
        "Above 0, the training rows fit worse than these pairs: the set is harder, because it teaches "
        "more or because its positives are wrong.",
        "RFD does not tell which, so the first is not the best by itself: docs/choosing_data.md says "
        "what the order was worth in a test.",
        "nearer: how often a positive is nearer to its anchor than another row's positive is.",
    ]
    suspects = ranked[ranked["nearer"] < LEAST_NEARER].index
    if len(suspects):
        notes.append(
            f"Positives hardly nearer to their anchors than those of other rows, so perhaps wrong: "
            f"{', '.join(map(str, suspects))}."
        )

    neighbours = itertools.pairwise(ranked.iterrows())
    ties = [f"{a} and {b}" for (a, x), (b, y) in neighbours if y["rfd_high"] > x["rfd_low"]]
    if ties:
        notes.append(f"Their intervals overlap, so their order is open: {'; '.join(ties)}.")

    return notes


def ranking_figure(frame: pd.DataFrame) -> Figure:
    """Draw RFD of alignment, of uniformity and their sum for each training set, with 95 %
    intervals.
    """
    ranked = frame.dropna(subset=["rfd"])[::-1]
    with plot_style():
        figure = blank_figure(9.0, 1.2 + 0.34 * len(ranked))
        panels = figure.subplots(1, len(MEASURES), sharey=True)
        for axes, (key, title) in zip(panels, MEASURES.items(), strict=True):
            ends = [ranked[key] - ranked[f"{key}_low"], ranked[f"{key}_high"] - ranked[key]]
            axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
            axes.errorbar(
                ranked[key],
                range(len(ranked)),
                xerr=ends,
                color=BLUE,
                fmt="o",
                markersize=5,
                capsize=3,
            )
            axes.set(xlabel=title, ylim=(-0.6, len(ranked) - 0.4))

        panels[0].set_yticks(range(len(ranked)), [str(name) for name in ranked.index])

    return figure
