"""NGCSE's figures: fitting difficulty, the best step, the process, studies of options, and pattern complexity."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from matplotlib.collections import LineCollection
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from scipy import stats

from lightning_cse.config.compose import compose, options
from lightning_cse.errors import DataError
from lightning_cse.papers.artefacts import Artefact, Train
from lightning_cse.papers.figures import Made, Material, data_config, made, markdown_table, spread
from lightning_cse.plots import BLUE, GREY, ORANGE, VERMILION, blank_figure, plot_style, xy
from lightning_cse.runs import Curves, CurveSummary, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MONITOR: Final = "val/stsb/spearman"
SUMMARY: Final = [each.name for each in fields(CurveSummary)]
_RFD: Final = {"rfd_alignment": "RFD_a", "rfd_uniformity": "RFD_u", "rfd": "RFD_a + RFD_u"}
_MEASURES: Final = ("alignment", "uniformity")
_SIDES: Final = (("held_out", "held-out side", BLUE, "-"), ("eval", "evaluation side", ORANGE, "--"))
_MARGIN: Final = "method.hierarchical_triplet.margin"
_STUDIES: Final = {
    "llm_rows": {"data.llm_rows": "number of LLM rows"},
    "margins": {f"{_MARGIN}_positive": "margin $m_1$", f"{_MARGIN}_negative": "margin $m_2$"},
}
_AROUND: Final = [(1, 0), (-1, 0), (0, 1), (0, -1), (0.7, 0.7), (-0.7, 0.7), (0.7, -0.7), (-0.7, -0.7)]


def runs_of(material: Material) -> pd.DataFrame:
    """Return a row a run: its setting, encoder and seed, its summary, and its title and curves for figures."""
    rows = []
    for line in material.lines:
        for run in material.runs(line):
            curves = Curves(run.curves).read() if run.curves else None
            monitor = str((run.record.get("best") or {}).get("monitor", MONITOR))
            summary = asdict(summarise(curves, monitor)) if curves else run.record.get("summary") or {}
            row = [line.label, line.encoder, run.record.get("seed"), *map(summary.get, SUMMARY)]
            rows.append([*row, material.title(line), curves])
    columns = ["setting", "encoder", "seed", *SUMMARY, "title", "curves"]
    return pd.DataFrame(rows, columns=columns, dtype=object)


def settings(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean summary of the runs of each setting, with ``rfd``, the sum of both RFDs."""
    summary = runs[SUMMARY].astype(float)
    summary["rfd"] = summary["rfd_alignment"] + summary["rfd_uniformity"]
    return summary.groupby(runs["title"], sort=False).mean()


def published_settings(artefact: Artefact) -> pd.DataFrame:
    """Return the paper's own values by setting, of the columns that show a part of the summary."""
    shown = {c.title: (c.keys[0].removeprefix("summary."), c.scale) for c in artefact.columns if c.source == "field"}
    values: dict[str, dict[str, float]] = {}
    for each in artefact.published:
        if each.column in shown:
            name, scale = shown[each.column]
            values.setdefault(each.row, {})[name] = each.value / scale
    frame = pd.DataFrame.from_dict(values, orient="index").reindex(columns=SUMMARY)
    return settings(frame.rename_axis("title").reset_index())


def _domain(title: str) -> str:
    return title.partition(".")[0] if "." in title else ""


def _records(runs: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = runs.drop(columns=["title", "curves"]).to_dict("records")
    return rows


# ------------------------------------------------------------------------------------------------------ correlations


def correlation(x: Sequence[float], y: Sequence[float], *, ranks: bool) -> tuple[float | None, ...]:
    r"""Return Pearson's or, of ranks, Spearman's correlation and the ends of its 95 % interval.

    .. math:: \tanh \left( \operatorname{artanh} r \pm z_{0.975} \, \mathrm{se} \right), \qquad
        \mathrm{se} = \frac{1}{\sqrt{n - 3}} \;\text{ or, of ranks, }\; \sqrt{\frac{1 + r^2 / 2}{n - 3}}

    Fewer than three points or a constant have no correlation, and three points or |r| = 1 no interval: None.

    Source: Fisher 1921; for ranks Bonett and Wright 2000.  Differs: nothing.
    """
    if len(x) < 3 or len(set(x)) == 1 or len(set(y)) == 1:
        return None, None, None
    r = float((stats.spearmanr if ranks else stats.pearsonr)(x, y).statistic)
    if len(x) == 3 or 1 - abs(r) < 1e-12:
        return r, None, None
    half = float(stats.norm.ppf(0.975)) * math.sqrt((1 + ranks * r * r / 2) / (len(x) - 3))
    return r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def correlations(some: pd.DataFrame) -> list[dict[str, Any]]:
    """Return how each RFD, and their sum, goes with the final score, over all settings and within each domain.

    A point is a setting, the mean of its runs, since the runs of one setting do not stand for several settings.
    """
    rows: list[dict[str, Any]] = []
    domains = some.index.map(_domain)
    for scope in ("all", *filter(None, domains.unique())) if len(some) else ():
        for measure, heading in _RFD.items():
            both = some.loc[(domains == scope) | (scope == "all"), [measure, "final_score"]].dropna()
            rows.append({"measure": heading, "scope": scope, "settings": len(both)})
            for name in ("pearson", "spearman"):
                found = correlation(*both.to_numpy().T.tolist(), ranks=name == "spearman")
                rows[-1] |= dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))
    return rows


def correlation_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return `correlations` as a Markdown table; a cell is empty where there is no correlation."""
    cells = []
    for row in rows:
        cells.append([f"{row['measure']}, {row['scope']}", row["settings"]])
        for name in ("pearson", "spearman"):
            r, low, high = (row[key] for key in (name, f"{name}_low", f"{name}_high"))
            interval = "" if low is None else f" [{low:+.2f}, {high:+.2f}]"
            cells[-1].append("" if r is None else f"{r:+.3f}{interval}")
    heads = ("correlation with the final score", "settings", "Pearson", "Spearman")
    return markdown_table(heads, cells, "---|---:|---:|---:")


# ---------------------------------------------------------------------------------------------------- Figures 1 and 2


def fitting_difficulty(material: Material) -> Made:
    """Make NGCSE's Figure 1, and the correlations of RFD and final score: here, and in the paper's own numbers."""
    runs = runs_of(material)
    parts, table = material.missing(), []
    theirs = "The same of the settings that the authors released:"
    for of, heading, some in (
        ("here", "Here:", settings(runs)),
        ("authors", theirs, published_settings(material.artefact)),
    ):
        found = correlations(some)
        if any(row["pearson"] is not None for row in found):
            parts += [heading, correlation_table(found)]
        table += [{"of": of, **row} for row in found]
    figures = {"fitting_difficulty": fitting_difficulty_figure(runs)}
    return made(figures, parts, settings=_records(runs), correlations=table)


def fitting_difficulty_figure(runs: pd.DataFrame) -> Figure | None:
    """Draw RFD of uniformity and of alignment, coloured by the final score, with a line to each of several runs.

    Source: NGCSE, figure 1.  Differs: no marker is moved.
    """
    measures = ["rfd_uniformity", "rfd_alignment", "final_score"]
    some = settings(runs)[measures].dropna()
    if some.empty:
        return None
    several = runs[runs["title"].duplicated(keep=False) & runs["title"].isin(some.index)].dropna(subset=measures[:2])
    dots = several[measures[:2]].to_numpy(float).tolist()
    with plot_style():
        axes = _scatter(some, "final score (mean of five best, dev)")
        axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
        axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
        spokes = zip(some.loc[several["title"], measures[:2]].to_numpy().tolist(), dots, strict=True)
        axes.add_collection(LineCollection(list(spokes), color=GREY, linewidth=0.7, zorder=2))
        axes.scatter([x for x, _ in dots], [y for _, y in dots], s=7, color=GREY, zorder=2)
        axes.set(xlabel="RFD of uniformity", ylabel="RFD of alignment")
        return _label(axes, _labels(some), dots)


def best_step(material: Material) -> Made:
    """Make NGCSE's Figure 2; the encoder before training is step 0 of the runs themselves."""
    runs = runs_of(material)
    return made({"best_step": best_step_figure(runs)}, material.missing(), settings=_records(runs))


def best_step_figure(runs: pd.DataFrame) -> Figure | None:
    """Draw uniformity and alignment of the evaluation side at the best step, coloured by the dev score there.

    The encoder before training is the diamond, where the curves of NLI.dropout, or else of the first run, have step 0.

    Source: NGCSE, figure 2.  Differs: no marker is moved, and the score is that of the same step.
    """
    some = settings(runs)[["eval_uniformity_at_best", "eval_alignment_at_best", "best_score"]].dropna()
    if some.empty:
        return None
    labels = _labels(some)
    with plot_style():
        axes = _scatter(some, "best dev score")
        for curves in runs.sort_values("title", key=lambda titles: titles != "NLI.dropout", kind="stable")["curves"]:
            keys = ("diag/eval/uniformity", "diag/eval/alignment", MONITOR)
            x, y, score = (dict((curves or {}).get(key, ())).get(0) for key in keys)
            if x is not None and y is not None:
                # Its score is so far below the others that a common colour scale would make these all alike.
                axes.scatter(x, y, marker="D", s=48, facecolor="white", edgecolor=GREY, linewidth=1.4, zorder=3)
                labels["pretrained" if score is None else f"pretrained ({100 * score:.1f})"] = (x, y)
                break
        axes.set_xlabel("uniformity, evaluation side (lower is more even)")
        axes.set_ylabel("alignment, evaluation side (lower is closer)")
        return _label(axes, labels)


def _labels(some: pd.DataFrame) -> dict[str, tuple[float, float]]:
    return {f"{title} ({100 * score:.1f})": (x, y) for title, x, y, score in some.itertuples()}


def _scatter(some: pd.DataFrame, title: str) -> Axes:
    """Draw settings by the first two columns, coloured by the third, with a marker a domain."""
    figure = blank_figure(6.8, 4.6)
    axes = figure.subplots()
    scores = 100 * some.iloc[:, 2]
    top = scores.max() if scores.nunique() > 1 else scores.max() + 1
    look: dict[str, Any] = {"s": 62, "edgecolor": "black", "linewidth": 0.6, "vmin": scores.min(), "vmax": top}
    for domain, of in some.groupby(_domain, sort=False):
        look["marker"] = {"Wiki": "o", "NLI": "s"}.get(domain, "^")
        drawn = axes.scatter(of.iloc[:, 0], of.iloc[:, 1], c=scores[of.index], cmap="viridis", zorder=3, **look)
        if len(of) < len(some):
            axes.scatter([], [], facecolor="white", label=domain or "other", **look)
            axes.legend(loc="best")
    figure.colorbar(drawn, ax=axes, label=f"{title}, ×100").outline.set_visible(False)
    axes.margins(0.14)
    return axes


def _label(axes: Axes, labels: Mapping[str, tuple[float, float]], dots: Iterable[Sequence[float]] = ()) -> Figure:
    """Write each label near its point, where it covers least; a line ties one that is farther off to its point."""
    figure: Any = axes.figure
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what is measured here must not move any more
    unit = figure.dpi / 72  # pixels a point
    taken = [legend.get_window_extent()] if (legend := axes.get_legend()) else []
    for points, size in ((labels.values(), 5 * unit), (dots, 2 * unit)):
        taken += [Bbox([at - size, at + size]) for at in map(axes.transData.transform, points)]
    tie = {"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkB": 3}
    look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "zorder": 5, "arrowprops": tie}
    texts: list[Any] = [axes.annotate(label, point, (0, 0), **look) for label, point in labels.items()]
    sizes = [Text.get_window_extent(text).size for text in texts]
    boxes: dict[int, Bbox] = {}
    for _ in range(4):  # from the second time on, with regard to the labels that came later
        for k, (text, (width, height)) in enumerate(zip(texts, sizes, strict=True)):
            x, y = axes.transData.transform(text.xy)
            others = [*taken, *(box for other, box in boxes.items() if other != k)]
            best = math.inf
            for distance, (across, up) in itertools.product((7, 12, 18, 24), _AROUND):
                left = across * distance * unit - width * (1 - across) / 2
                low = up * distance * unit - height * (1 - up) / 2
                box = Bbox.from_bounds(x + left, y + low, width, height)
                outside = width * height - _overlap(box, axes.bbox)
                cost = distance + 5 * outside + sum(_overlap(box, other) for other in others)
                if cost < best:
                    best, boxes[k] = cost, box
                    text.set_position((left / unit, low / unit))
                    text.arrow_patch.set_visible(distance > 12)
    return axes.figure  # type: ignore[return-value]  # no subfigure


def _overlap(a: Any, b: Any) -> float:
    shared = Bbox.intersection(a, b)
    return 0.0 if shared is None else float(shared.width * shared.height)


# ---------------------------------------------------------------------------------------------------- Figures 3 and 6


def process(material: Material) -> Made:
    """Make NGCSE's Figures 3 and 6: alignment and uniformity by step, the settings side by side."""
    runs = runs_of(material)
    bare = runs.loc[runs["curves"].isna(), "title"].unique()
    parts = [f"Not drawn where a run's curves were not kept: {', '.join(bare)}."] if len(bare) else []
    return made({"process": process_figure(runs)}, [*material.missing(), *parts])


def process_figure(runs: pd.DataFrame) -> Figure | None:
    """Draw alignment above uniformity by step, a column a setting, a line a run and side; None without curves.

    Source: NGCSE, figures 3 and 6.  Differs: the axes span what was measured.
    """
    keys = [f"diag/{side}/{measure}" for side, *_ in _SIDES for measure in _MEASURES]
    shown = runs[[bool(curves) and any(curves.get(key) for key in keys) for curves in runs["curves"]]]
    titles = shown["title"].unique()
    if not len(titles):
        return None
    with plot_style():
        figure = blank_figure(1.3 + 2.1 * len(titles), 4.6)
        grid = figure.subplots(2, len(titles), squeeze=False, sharex=True, sharey="row")
        for row, measure in zip(grid, _MEASURES, strict=True):
            row[0].set_ylabel(measure)
            for axes, title in zip(row, titles, strict=True):
                for side, label, color, style in _SIDES:
                    for curves in shown.loc[shown["title"] == title, "curves"]:
                        steps, values = xy(sorted(curves.get(f"diag/{side}/{measure}", ())))
                        axes.plot(steps, values, color=color, linestyle=style, linewidth=1.4, label=label)
        for (top, bottom), title in zip(grid.T, titles, strict=True):
            top.set_title(title)
            bottom.set_xlabel("optimizer step")
            bottom.margins(x=0.03)
        handles, labels = grid[0][0].get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        figure.legend(list(unique.values()), list(unique), loc="outside lower center", ncols=2, handlelength=3)
    return figure


# ----------------------------------------------------------------------------------------------------------- Figure 5


def studies(material: Material) -> Made:
    """Make NGCSE's Figure 5 of the score in the first column: the number of LLM rows, and one margin at a time."""
    metric = next(column.keys[0] for column in material.artefact.columns if column.source == "metric")
    runs = {run.source: run.record for line in material.lines for run in material.runs(line)}  # lines may share a run
    encoder = next((line.encoder for line in material.lines if material.runs(line)), None)
    figures: dict[str, Figure | None] = {}
    parts, table = material.missing(), []
    for name, varied in _STUDIES.items() if runs else ():
        drawn = {}
        for option, title in varied.items():
            scores = study(list(runs.values()), option, metric)
            if scores.empty:
                parts.append(f"Not drawn: {option}, since no two finished runs with {metric} differ in it alone.")
                continue
            drawn[title] = scores, _printed(material, option)
            table += [{"study": option, "encoder": encoder, **row} for row in scores.to_dict("records")]
        figures[name] = studies_figure(drawn)
    return made(figures, parts, studies=table)


def study(records: Sequence[Mapping[str, Any]], option: str, metric: str) -> pd.DataFrame:
    """Return ``value`` of an option, number of the ``run`` and ``score`` in percent, of runs that differ in it alone.

    Of several such groups the one with the most values counts, then the one with the most runs; a tie is a DataError.
    """
    config = pd.json_normalize([record["decisive"] for record in records])
    rest = config.drop(columns=f"config.{option}", errors="ignore").astype(str).agg("|".join, axis=1)
    values = pd.to_numeric(config.get(f"config.{option}", pd.Series(math.nan, config.index)), errors="coerce")
    scores = [100 * record["metrics"].get(metric, math.nan) for record in records]
    found = pd.DataFrame({"value": values, "score": scores}).dropna()
    groups = [group for _, group in found.groupby(rest) if group["value"].nunique() > 1]
    sizes = [(group["value"].nunique(), len(group)) for group in groups]
    if sizes.count(max(sizes, default=(0, 0))) > 1:
        raise DataError(f"{option}: two groups of runs are as large and differ in more; choose rows of one by --only")
    one = groups[sizes.index(max(sizes))].sort_values("value", kind="stable") if groups else found[:0]
    return one.assign(run=one.groupby("value").cumcount())[["value", "run", "score"]]


def _printed(material: Material, option: str) -> list[tuple[float, float]]:
    """Return the paper's scores by the values of an option that rows set."""
    scores = {(each.row, each.encoder): each.value for each in material.artefact.published}
    found = {}
    for line in material.lines:
        for key, _, value in (override.partition("=") for override in getattr(line.way, "overrides", ())):
            if key == option and (line.name, line.paper_encoder) in scores:
                found[float(value)] = scores[line.name, line.paper_encoder]
    return sorted(found.items())


def studies_figure(drawn: Mapping[str, tuple[pd.DataFrame, Sequence[tuple[float, float]]]]) -> Figure | None:
    """Draw studies side by side with the paper's scores: the mean as a line, every run as a dot, the best as a star.

    The band is the 95 % interval of each mean, by Student's t with one standard deviation pooled over all values (two
    or three runs a value say little about their spread); without repeated runs there is none.

    Source: NGCSE, figure 5.  Differs: the paper does not say what its band is.
    """
    if not drawn:
        return None
    with plot_style():
        figure = blank_figure(1.0 + 4.2 * len(drawn), 3.8)
        panels = figure.subplots(1, len(drawn), squeeze=False, sharey=True)[0]
        for axes, (varied, (scores, paper)) in zip(panels, drawn.items(), strict=True):
            means, half = scores.groupby("value")["score"].mean(), pooled_interval(scores)
            label = "one run each" if half is None else "mean of the runs"
            axes.plot(means.index, means, color=BLUE, marker="o", markersize=4, zorder=3, label=label)
            if half is not None:
                band: dict[str, Any] = {"alpha": 0.15, "linewidth": 0, "label": "95 % interval"}
                axes.fill_between(means.index, means - half, means + half, color=BLUE, **band)
                axes.scatter(scores["value"], scores["score"], s=9, color=GREY, linewidth=0, zorder=2, label="one run")
            if paper:
                look: dict[str, Any] = {"linewidth": 1.2, "marker": "s", "markersize": 3, "label": "the paper"}
                axes.plot(*zip(*paper, strict=True), color=ORANGE, linestyle="--", zorder=2, **look)
            best, score = means.idxmax(), means.max()
            star: dict[str, Any] = {"marker": "*", "s": 160, "edgecolor": "white", "linewidth": 0.8}
            axes.scatter(best, score, color=VERMILION, zorder=4, label=f"best: {score:.2f} at {best:g}", **star)
            axes.set_xlabel(varied)
            axes.margins(x=0.04, y=0.1)
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)  # above the axes, where it covers no run
        panels[0].set_ylabel("score, ×100")
    return figure


def pooled_interval(scores: pd.DataFrame) -> Any:
    """Return half the 95 % interval of each value's mean, with one variance for all; None where none has two runs."""
    groups = scores.groupby("value")["score"]
    freedom = len(scores) - groups.ngroups
    if not freedom:
        return None
    variance = ((scores["score"] - groups.transform("mean")) ** 2).sum() / freedom
    return stats.t.ppf(0.975, freedom) * (variance / groups.count()) ** 0.5


# ----------------------------------------------------------------------------------------------------------- Figure 7


def pattern_complexity(material: Material) -> Made:
    """Make NGCSE's Figure 7 of the training sets of its lines: match error rates and cosines of their pairs.

    No run is needed: a line that trains stands for the data of its experiment, another one for that of the experiment
    with its name. STS-B stands below the data sets of each domain.
    """
    from lightning_cse.analysis.describing import pair_sets
    from lightning_cse.analysis.histograms import histograms_figure

    encoder = next((line.encoder for line in material.lines if line.encoder), material.request.encoder)
    configs, unknown = {}, []
    for line in material.lines:
        train = line.way if isinstance(line.way, Train) else Train(f"ngcse_{line.label.lower().replace('.', '_')}")
        if train.experiment not in options("experiment"):
            unknown.append(line.label)
        elif line.label not in configs:
            data = str(compose("train", f"+experiment={train.experiment}").hydra.runtime.choices["data"])
            configs[line.label] = data_config(material, line.label, train.overrides, data=data, encoder=encoder)
    parts = [f"Not drawn, since no experiment has their name: {', '.join(unknown)}."] if unknown else []
    sets = pair_sets(configs) if configs else []
    by_domain: dict[str, list[Any]] = {}
    for each in sets[:-1]:
        by_domain.setdefault(each.name.partition(".")[0].lower(), []).append(each)
    with plot_style():
        figures = {
            f"pattern_complexity_{name}": histograms_figure([*some, sets[-1]]) for name, some in by_domain.items()
        }
    table = [
        {"set": each.name, "kind": kind, "pairs": pairs.label, "number": len(pairs.mer)}
        | {**spread("mer", pairs.mer), **spread("cosine", pairs.cosine)}
        for each in sets
        for kind in ("positive", "negative")
        for pairs in getattr(each, kind)
    ]
    return made(figures, parts, pairs=table)
