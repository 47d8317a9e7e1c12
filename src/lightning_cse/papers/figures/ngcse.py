"""NGCSE's figures: fitting difficulty, the best step, the process, studies of options, and pattern complexity."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox
from scipy import stats

from lightning_cse.config.compose import compose
from lightning_cse.papers.artefacts import Artefact
from lightning_cse.papers.figures import Made, Material, data_config, made, markdown_table, spread
from lightning_cse.plots import BLUE, GREY, ORANGE, VERMILION, blank_figure, plot_style, xy
from lightning_cse.runs import CurveSummary, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DRAWN: Final = ["title", "curves"]  # the columns of runs that only the figures use
MONITOR: Final = "val/stsb/spearman"
SUMMARY: Final = [each.name for each in fields(CurveSummary)]
FITTING: Final = {
    "rfd_uniformity": "RFD of uniformity",
    "rfd_alignment": "RFD of alignment",
    "final_score": "final score (mean of up to five best, dev)",
}
BEST_STEP: Final = {
    "eval_uniformity_at_best": "uniformity, evaluation side (lower is more even)",
    "eval_alignment_at_best": "alignment, evaluation side (lower is closer)",
    "best_score": "best dev score",
}
_RFD: Final = {"rfd_alignment": "RFD_a", "rfd_uniformity": "RFD_u", "rfd": "RFD_a + RFD_u"}
_SIDES: Final = (
    ("held_out", "held-out side", BLUE, "-"),
    ("eval", "evaluation side", ORANGE, "--"),
)
_MARGIN: Final = "method.hierarchical_triplet.margin"
_STUDIES: Final = {
    "llm_rows": {"data.llm_rows": "number of LLM rows"},
    "margins": {f"{_MARGIN}_positive": "margin $m_1$", f"{_MARGIN}_negative": "margin $m_2$"},
}
_MARKERS: Final = {"Wiki": "o", "NLI": "s"}
_PLACES: Final = [  # of a label around its point, in points
    {
        "position": (far * x, far * y),
        "ha": ("right", "center", "left")[x + 1],
        "va": ("top", "center", "bottom")[y + 1],
    }
    for far, x, y in itertools.product((7, 14), (1, -1, 0), (0, 1, -1))
    if x or y
]


def runs_of(material: Material) -> pd.DataFrame:
    """Return one row per run: its setting, encoder and seed, its summary, and its title and curves for figures."""
    rows = []
    for line in material.lines:
        for run in material.runs(line):
            monitor = str((run.record.get("best") or {}).get("monitor", MONITOR))
            summary = (
                asdict(summarise(run.curves, monitor))
                if run.curves
                else run.record.get("summary") or {}
            )
            values = [run.record.get("seed"), *map(summary.get, SUMMARY)]
            rows.append([line.label, line.encoder, *values, material.title(line), run.curves])
    return pd.DataFrame(
        rows, columns=["setting", "encoder", "seed", *SUMMARY, "title", "curves"], dtype=object
    )


def settings(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean summary of the runs of each setting, with ``rfd``, the sum of both RFDs."""
    summary = runs[SUMMARY].astype(float).eval("rfd = rfd_alignment + rfd_uniformity")
    return summary.groupby(runs["title"], sort=False).mean()


def published_settings(artefact: Artefact) -> pd.DataFrame:
    """Return the paper's values by setting, for the columns that show a part of the summary."""
    shown = {
        c.title: (c.keys[0].removeprefix("summary."), c.scale)
        for c in artefact.columns
        if c.source == "field"
    }
    values: dict[str, dict[str, Any]] = {}
    for each in artefact.published:
        if each.column in shown:
            name, scale = shown[each.column]
            values.setdefault(each.row, {"title": each.row})[name] = each.value / scale
    return settings(pd.DataFrame(list(values.values()), columns=["title", *SUMMARY]))


def domain(title: str) -> str:
    """Return the domain of a setting: the part of its title before the first dot, if there is one."""
    return title.partition(".")[0] if "." in title else ""


def correlation(x: Sequence[float], y: Sequence[float], *, ranks: bool) -> tuple[float | None, ...]:
    """Return Pearson's correlation or, with ``ranks``, Spearman's, and the ends of its 95 % interval.

    The ends are tanh(artanh r ± 1.96 se) with se = 1 / √(n - 3) or, for ranks, √((1 + r² / 2) / (n - 3)). For fewer
    than three points or a constant, all are None; for three points or |r| = 1, the ends are None.

    Source: Fisher 1921; for ranks Bonett and Wright 2000.  Differs: nothing.
    """
    if len(x) < 3 or len(set(x)) == 1 or len(set(y)) == 1:
        return None, None, None
    r = float((stats.spearmanr if ranks else stats.pearsonr)(x, y).statistic)
    if len(x) == 3 or 1 - abs(r) < 1e-12:
        return r, None, None
    half = float(stats.norm.ppf(0.975)) * math.sqrt((1 + ranks * r * r / 2) / (len(x) - 3))
    return r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def correlations(some: pd.DataFrame) -> tuple[list[dict[str, Any]], str]:
    """Correlate each RFD and their sum with the final score, overall and by domain; return rows and Markdown.

    A point is a setting, the mean of its runs, since several runs of one setting do not count as several settings.
    """
    domains = some.index.map(domain)
    scopes = ("all", *filter(None, domains.unique())) if len(some) else ()
    rows: list[dict[str, Any]] = []
    cells: list[list[object]] = []
    for scope, (measure, title) in itertools.product(scopes, _RFD.items()):
        both = some.loc[(domains == scope) | (scope == "all"), [measure, "final_score"]].dropna()
        rows.append({"measure": title, "scope": scope, "settings": len(both)})
        cells.append([f"{title}, {scope}", len(both)])
        for name in ("pearson", "spearman"):
            r, low, high = correlation(*both.to_numpy().T.tolist(), ranks=name == "spearman")
            rows[-1] |= {name: r, f"{name}_low": low, f"{name}_high": high}
            interval = "" if low is None else f" [{low:+.2f}, {high:+.2f}]"
            cells[-1].append("" if r is None else f"{r:+.3f}{interval}")
    return rows, markdown_table(
        ["correlation with the final score", "settings", "Pearson", "Spearman"], cells
    )


def fitting_difficulty(material: Material) -> Made:
    """Make NGCSE's Figure 1, and the correlations of RFD with the final score, here and in the paper's numbers."""
    runs, parts, table = runs_of(material), material.missing(), []
    theirs = (
        "The same of the settings that the authors released:",
        published_settings(material.artefact),
    )
    for of, (heading, some) in {"here": ("Here:", settings(runs)), "authors": theirs}.items():
        rows, text = correlations(some)
        parts += [heading, text] if any(row["pearson"] is not None for row in rows) else []
        table += [{"of": of, **row} for row in rows]
    tables = {"settings": runs.drop(columns=_DRAWN).to_dict("records"), "correlations": table}
    return made({"fitting_difficulty": scatter_figure(runs, FITTING)}, parts, **tables)


def best_step(material: Material) -> Made:
    """Make NGCSE's Figure 2; the encoder before training is step 0 of the runs themselves."""
    runs = runs_of(material)
    table = runs.drop(columns=_DRAWN).to_dict("records")
    return made({"best_step": scatter_figure(runs, BEST_STEP)}, material.missing(), settings=table)


def scatter_figure(runs: pd.DataFrame, measures: Mapping[str, str]) -> Figure | None:
    """Draw settings by two measures, coloured by a third; None where no setting has all three.

    In the figure of RFD, lines connect a setting with each of its runs; in the other, a diamond marks the encoder
    before training.

    Source: NGCSE, figures 1 and 2.  Differs: no marker is moved, and the score is that of the same step.
    """
    across, up, score = measures
    some = settings(runs)[[across, up, score]].dropna()
    if some.empty:
        return None
    labels = {f"{title} ({100 * score:.1f})": (x, y) for title, x, y, score in some.itertuples()}
    with plot_style():
        axes = _scatter(some, measures[score])
        axes.set(xlabel=measures[across], ylabel=measures[up])
        if score == "final_score":
            axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
            axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
            each = (
                runs[runs["title"].duplicated(keep=False)]
                .set_index("title")[[across, up]]
                .astype(float)
                .dropna()
            )
            for title, *end in each[each.index.isin(some.index)].itertuples():
                spoke = zip(some.loc[title, [across, up]], end, strict=True)
                axes.plot(
                    *spoke,
                    color=GREY,
                    linewidth=0.7,
                    marker=".",
                    markersize=3,
                    markevery=[1],
                    zorder=2,
                )
        elif start := _start(runs):
            x, y, first = (
                start  # `first` is so low that a common colour scale would make the others look alike
            )
            axes.scatter(
                x, y, marker="D", s=48, facecolor="white", edgecolor=GREY, linewidth=1.4, zorder=3
            )
            labels["pretrained" if first is None else f"pretrained ({100 * first:.1f})"] = (x, y)
        return _label(axes, labels)


def _start(runs: pd.DataFrame) -> Any:
    """Return uniformity, alignment and score at step 0, of NLI.dropout or else of the first run that has them."""
    keys = ("diag/eval/uniformity", "diag/eval/alignment", MONITOR)
    first = runs.sort_values("title", key=lambda titles: titles != "NLI.dropout", kind="stable")
    found = [tuple(dict(curves.get(key, ())).get(0) for key in keys) for curves in first["curves"]]
    return next((start for start in found if None not in start[:2]), None)


def _scatter(some: pd.DataFrame, title: str) -> Axes:
    """Draw settings by the first two columns, coloured by the third, with one marker per domain."""
    figure = blank_figure(6.8, 4.6)
    axes = figure.subplots()
    scores = 100 * some.iloc[:, 2]
    scale = {"vmin": scores.min(), "vmax": scores.max()}
    for name, of in some.groupby(domain, sort=False):
        look: Any = {
            "s": 62,
            "edgecolor": "black",
            "linewidth": 0.6,
            "marker": _MARKERS.get(name, "^"),
        }
        points = axes.scatter(
            of.iloc[:, 0], of.iloc[:, 1], c=scores[of.index], zorder=3, **scale, **look
        )
        if len(of) < len(some):
            axes.scatter([], [], facecolor="white", label=name or "other", **look)
            axes.legend(loc="best")
    figure.colorbar(points, ax=axes, label=f"{title}, ×100").outline.set_visible(False)
    axes.margins(0.14)
    return axes


def _label(axes: Axes, labels: Mapping[str, tuple[float, float]]) -> Figure:
    """Write each label near its point, where it covers the fewest points and labels."""
    figure: Any = axes.figure
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # positions measured below must no longer change
    taken = [legend.get_window_extent()] if (legend := axes.get_legend()) else []
    taken += [Bbox([at, at]).padded(8) for at in axes.transData.transform(list(labels.values()))]
    sides = (0, axes.bbox.x0), (axes.bbox.x1, figure.bbox.x1)  # with the axis and the colour bar
    taken += [Bbox.from_extents(left, axes.bbox.y0, right, axes.bbox.y1) for left, right in sides]

    def covered(text: Any, place: Mapping[str, Any]) -> int:
        text.set(**place)
        return int(text.get_window_extent().count_overlaps(taken))

    halo = [withStroke(linewidth=2.5, foreground="white")]
    for label, point in labels.items():
        text = axes.annotate(
            label,
            point,
            (0, 0),
            textcoords="offset points",
            fontsize=8,
            zorder=5,
            path_effects=halo,
        )
        text.set(**min(_PLACES, key=functools.partial(covered, text)))
        taken.append(text.get_window_extent())
    return figure  # type: ignore[no-any-return]


def process(material: Material) -> Made:
    """Make NGCSE's Figures 3 and 6: alignment and uniformity by step, the settings side by side."""
    runs, parts = runs_of(material), material.missing()
    if len(bare := runs.loc[~runs["curves"].astype(bool), "title"].unique()):
        parts.append(f"Not drawn where a run's curves were not kept: {', '.join(bare)}.")
    return made({"process": process_figure(runs)}, parts)


def process_figure(runs: pd.DataFrame) -> Figure | None:
    """Draw alignment above uniformity by step: one column per setting, one line per run and side; None without curves.

    Source: NGCSE, figures 3 and 6.  Differs: the axes span the measured values.
    """
    shown = runs.loc[[any(key.startswith("diag/") for key in curves) for curves in runs["curves"]]]
    groups = list(shown.groupby("title", sort=False)["curves"])
    if not groups:
        return None
    with plot_style():
        figure = blank_figure(1.3 + 2.1 * len(groups), 4.6)
        grid = figure.subplots(2, len(groups), squeeze=False, sharex=True, sharey="row")
        for row, measure in zip(grid, ("alignment", "uniformity"), strict=True):
            for axes, (_, some) in zip(row, groups, strict=True):
                for (side, label, color, style), (k, curves) in itertools.product(
                    _SIDES, enumerate(some)
                ):
                    points = xy(sorted(curves.get(f"diag/{side}/{measure}", ())))
                    axes.plot(
                        *points,
                        color=color,
                        linestyle=style,
                        linewidth=1.4,
                        label=None if k else label,
                    )
            row[0].set_ylabel(measure)
        for (above, below), (title, _) in zip(grid.T, groups, strict=True):
            above.set_title(title)
            below.set_xlabel("optimizer step")
            below.margins(x=0.03)
        figure.legend(
            *grid[0][0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=2,
            handlelength=3,
        )
    return figure


def studies(material: Material) -> Made:
    """Make NGCSE's Figure 5 for the first metric column: studies of the number of LLM rows and of each margin."""
    metric = next(
        column.keys[0] for column in material.artefact.columns if column.source == "metric"
    )
    parts, table, figures = material.missing(), [], {}
    for name, varied in _STUDIES.items() if any(map(material.runs, material.lines)) else ():
        drawn = {}
        for option, title in varied.items():
            runs, paper = study(material, option, metric)
            if runs["value"].nunique() > 1:
                drawn[title] = runs, paper
                table += [{"study": option, **row} for row in runs.to_dict("records")]
            else:
                parts.append(
                    f"Not drawn: {option}, since no two values of it have finished runs with {metric}."
                )
        figures[name] = studies_figure(drawn)
    return made(figures, parts, studies=table)


def study(
    material: Material, option: str, metric: str
) -> tuple[pd.DataFrame, list[tuple[float, float]]]:
    """Return the runs of the rows that set an option, by its value, and the paper's scores by value, in percent."""
    printed = {(each.row, each.encoder): each.value for each in material.artefact.published}
    rows, paper = [], {}
    for line in material.lines:
        given = dict(override.split("=", 1) for override in getattr(line.way, "overrides", ()))
        if option in given and line.encoder == material.lines[0].encoder:
            if (line.name, line.paper_encoder) in printed:
                paper[float(given[option])] = printed[line.name, line.paper_encoder]
            for run in material.runs(line):
                value = pd.json_normalize(run.record["decisive"]).at[0, f"config.{option}"]
                rows.append(
                    (line.encoder, float(value), 100 * run.record["metrics"].get(metric, math.nan))
                )
    runs = (
        pd.DataFrame(rows, columns=["encoder", "value", "score"])
        .dropna()
        .sort_values("value", kind="stable")
    )
    runs.insert(2, "run", runs.groupby("value").cumcount())
    return runs, sorted(paper.items())


def studies_figure(
    drawn: Mapping[str, tuple[pd.DataFrame, Sequence[tuple[float, float]]]],
) -> Figure | None:
    """Draw studies side by side with the paper's scores: the mean as a line, every run as a dot, the best as a star.

    The band is the 95 % interval of each mean, by Student's t with one standard deviation pooled over all values (two
    or three runs per value say little about their spread). Without repeated runs, there is no band.

    Source: NGCSE, figure 5.  Differs: the paper does not say what its band is.
    """
    if not drawn:
        return None
    with plot_style():
        figure = blank_figure(1.0 + 4.2 * len(drawn), 3.8)
        panels = figure.subplots(1, len(drawn), squeeze=False, sharey=True)[0]
        for axes, (varied, (runs, paper)) in zip(panels, drawn.items(), strict=True):
            means, half = runs.groupby("value")["score"].mean(), pooled_interval(runs)
            label = "one run each" if half is None else "mean of the runs"
            axes.plot(
                means.index, means, color=BLUE, marker="o", markersize=4, zorder=3, label=label
            )
            if half is not None:
                band = (means.index, means - half, means + half)
                axes.fill_between(*band, color=BLUE, alpha=0.15, linewidth=0, label="95 % interval")
                axes.scatter(
                    runs["value"],
                    runs["score"],
                    s=9,
                    color=GREY,
                    linewidth=0,
                    zorder=2,
                    label="one run",
                )
            if paper:
                values, scores = zip(*paper, strict=True)
                axes.plot(
                    values,
                    scores,
                    "s--",
                    color=ORANGE,
                    linewidth=1.2,
                    markersize=3,
                    label="the paper",
                )
            best, score = means.idxmax(), means.max()
            star: Any = {
                "marker": "*",
                "s": 160,
                "edgecolor": "white",
                "linewidth": 0.8,
                "zorder": 4,
            }
            axes.scatter(
                best, score, color=VERMILION, label=f"best: {score:.2f} at {best:g}", **star
            )
            axes.set_xlabel(varied)
            axes.margins(x=0.04, y=0.1)
            axes.legend(
                loc="lower left", bbox_to_anchor=(0, 1), ncols=2
            )  # above the axes, where it covers no run
        panels[0].set_ylabel("score, ×100")
    return figure


def pooled_interval(runs: pd.DataFrame) -> Any:
    """Return half the 95 % interval of each value's mean, with one pooled variance; None if no value has two runs."""
    groups = runs.groupby("value")["score"]
    freedom = len(runs) - groups.ngroups
    if not freedom:
        return None
    variance = ((runs["score"] - groups.transform("mean")) ** 2).sum() / freedom
    return stats.t.ppf(0.975, freedom) * (variance / groups.count()) ** 0.5


def pattern_complexity(material: Material) -> Made:
    """Make NGCSE's Figure 7: match error rates and cosines of the pairs of training sets, with STS-B below each domain.

    No run is needed: a line stands for the data of the experiment of that name.
    """
    from lightning_cse.analysis.describing import pair_sets
    from lightning_cse.analysis.histograms import histograms_figure

    configs = {}
    for label in dict.fromkeys(line.label for line in material.lines):
        experiment = f"ngcse_{label.lower().replace('.', '_')}"
        data = str(compose("train", f"+experiment={experiment}").hydra.runtime.choices["data"])
        configs[label] = data_config(material, label, data=data, encoder=material.request.encoder)
    sets = pair_sets(configs)
    *own, stsb = sets
    by_domain: dict[str, list[str]] = {}
    for name in own:
        by_domain.setdefault(f"pattern_complexity_{name.partition('.')[0].lower()}", []).append(
            name
        )
    with plot_style():
        figures = {
            title: histograms_figure({name: sets[name] for name in (*some, stsb)})
            for title, some in by_domain.items()
        }
    table = []
    for name, measured in sets.items():
        for pairs in measured:
            row = {"set": name, "kind": pairs.kind, "pairs": pairs.label, "number": len(pairs.mer)}
            table.append(row | spread("mer", pairs.mer) | spread("cosine", pairs.cosine))
    return made(figures, [], pairs=table)
