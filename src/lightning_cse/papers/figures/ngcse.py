"""NGCSE's figures: fitting difficulty, the best step, the process, studies of options, and pattern complexity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from matplotlib.collections import LineCollection
from matplotlib.transforms import Bbox
from scipy import stats

from lightning_cse.config.compose import compose, options
from lightning_cse.errors import DataError
from lightning_cse.papers.artefacts import Artefact, Train
from lightning_cse.papers.figures import Made, Material, data_config, made, markdown_table, missing, spread
from lightning_cse.plots import BLUE, GREY, ORANGE, VERMILION, blank_figure, plot_style
from lightning_cse.runs import Curves, CurveSummary, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lightning_cse.papers.points import Found

MONITOR: Final = "val/stsb/spearman"
SUMMARY: Final = [each.name for each in fields(CurveSummary)]
_RFD: Final = {"rfd_alignment": "RFD_a", "rfd_uniformity": "RFD_u", "rfd": "RFD_a + RFD_u"}
_MEASURES: Final = ("alignment", "uniformity")
_SIDES: Final = (("held_out", "held-out side", BLUE, "-"), ("eval", "evaluation side", ORANGE, "--"))
_SIDE_BY_SIDE: Final = 4  # settings in one figure of the process; more are drawn a figure a domain
_LLM_ROWS, _MARGINS = "data.llm_rows", "method.hierarchical_triplet.margin"
_STUDIES: Final = {
    "llm_rows": {_LLM_ROWS: "number of LLM rows"},
    "margins": {f"{_MARGINS}_positive": "margin $m_1$", f"{_MARGINS}_negative": "margin $m_2$"},
}
# Where a label may be placed around its point, near places first: direction, and distance in points.
_PLACES: Final = [
    (across, up, distance)
    for distance in (7.0, 12.0, 18.0, 24.0)
    for across, up in ((1, 0), (-1, 0), (0, 1), (0, -1), (0.7, 0.7), (-0.7, 0.7), (0.7, -0.7), (-0.7, -0.7))
]


# ----------------------------------------------------------------------------------------------- runs and settings


def summary_of(record: Mapping[str, Any], curves: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the summary of a run's curves; without curves, that of its record."""
    if curves is None:
        return {name: (record.get("summary") or {}).get(name) for name in SUMMARY}
    return asdict(summarise(curves, str((record.get("best") or {}).get("monitor", MONITOR))))


def _runs(material: Material) -> list[dict[str, Any]]:
    """Return a row a run: setting, encoder, seed, the summary, and the setting's title and the curves for figures."""
    rows = []
    for line in material.lines:
        for run in material.runs(line):
            curves = Curves(run.curves).read() if run.curves else None
            row = {"setting": line.label, "encoder": line.encoder, "seed": run.record.get("seed")}
            rows.append({**row, **summary_of(run.record, curves), "title": material.title(line), "curves": curves})
    return rows


def _settings_table(runs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: row[key] for key in ("setting", "encoder", "seed", *SUMMARY)} for row in runs]


def settings(runs: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the mean summary by setting, with ``rfd``, the sum of both RFDs."""
    frame = pd.DataFrame(runs, columns=["title", *SUMMARY]).astype(dict.fromkeys(SUMMARY, float))
    frame["rfd"] = frame["rfd_alignment"] + frame["rfd_uniformity"]
    return frame.groupby("title", sort=False).mean()


def published_settings(artefact: Artefact) -> pd.DataFrame:
    """Return the paper's own values by setting, of the columns that show a part of the summary."""
    known = {c.title: (c.keys[0].removeprefix("summary."), c.scale) for c in artefact.columns if c.source == "field"}
    rows: dict[str, dict[str, Any]] = {}
    for each in artefact.published:
        if each.column in known and known[each.column][0] in SUMMARY:
            name, scale = known[each.column]
            rows.setdefault(each.row, {"title": each.row})[name] = each.value / scale
    return settings(list(rows.values()))


def domain(title: str) -> str:
    """Return the domain of a setting, which is what precedes the point."""
    return title.partition(".")[0] if "." in title else ""


# ----------------------------------------------------------------------------------------------------- correlations


def correlation(x: Sequence[float], y: Sequence[float], *, ranks: bool) -> tuple[float | None, ...]:
    r"""Return Pearson's or, of ranks, Spearman's correlation and the ends of its 95 % interval.

    .. math:: \tanh \left( \operatorname{artanh} r \pm z_{0.975} \, \mathrm{se} \right), \qquad
        \mathrm{se} = \frac{1}{\sqrt{n - 3}} \;\text{ or, of ranks, }\; \sqrt{\frac{1 + r^2 / 2}{n - 3}}

    None where fewer than three points or a constant leave it undefined; no interval for three points or |r| = 1.

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
    domains = [domain(title) for title in some.index]
    rows = []
    for scope in ("all", *filter(None, dict.fromkeys(domains))):
        inside = some[[scope in {"all", each} for each in domains]]
        for measure, heading in _RFD.items():
            both = inside[[measure, "final_score"]].dropna()
            row: dict[str, Any] = {"measure": heading, "scope": scope, "settings": len(both)}
            for name in ("pearson", "spearman"):
                found = correlation(*both.to_numpy().T.tolist(), ranks=name == "spearman")
                row |= dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))
            rows.append(row)
    return rows


def correlation_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return `correlations` as a Markdown table; a cell is empty where there is no correlation."""

    def cell(row: Mapping[str, Any], name: str) -> str:
        r, low, high = (row[key] for key in (name, f"{name}_low", f"{name}_high"))
        return "" if r is None else f"{r:+.3f}" if low is None else f"{r:+.3f} [{low:+.2f}, {high:+.2f}]"

    cells = [
        (f"{row['measure']}, {row['scope']}", row["settings"], cell(row, "pearson"), cell(row, "spearman"))
        for row in rows
    ]
    heads = ("correlation with the final score", "settings", "Pearson", "Spearman")
    return markdown_table(heads, cells, "---|---:|---:|---:")


# ---------------------------------------------------------------------------------------------------- Figures 1 and 2


def fitting_difficulty(material: Material) -> Made:
    """Make NGCSE's Figure 1, and the correlations of RFD and final score: here, and in the paper's own numbers."""
    runs = _runs(material)
    parts, table = missing(material), []
    for of, heading, some in (
        ("here", "Here:", settings(runs)),
        ("authors", "The same of the settings that the authors released:", published_settings(material.artefact)),
    ):
        found = correlations(some) if len(some) else []
        if any(row["pearson"] is not None for row in found):
            parts += [heading, correlation_table(found)]
        table += [{"of": of, **row} for row in found]
    figures = {"fitting_difficulty": fitting_difficulty_figure(runs)}
    return made(figures, parts, {"settings": _settings_table(runs), "correlations": table})


def fitting_difficulty_figure(runs: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Draw RFD of uniformity and of alignment, coloured by the final score, with a line to each of several runs.

    Source: NGCSE, figure 1.  Differs: no marker is moved.
    """
    measures = ["rfd_uniformity", "rfd_alignment", "final_score"]
    some = settings(runs)[measures].dropna()
    if some.empty:
        return None
    spokes, dots = [], []
    for title, x, y, _ in some.itertuples():
        each = [tuple(run[key] for key in measures[:2]) for run in runs if run["title"] == title]
        each = [run for run in each if None not in run]
        if len(each) > 1:
            spokes += [[(x, y), run] for run in each]
            dots += each
    with plot_style():
        figure, axes = _scatter(some, "final score (mean of five best, dev)")
        axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
        axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
        axes.add_collection(LineCollection(spokes, color=GREY, linewidth=0.7, zorder=2))
        axes.scatter([x for x, _ in dots], [y for _, y in dots], s=7, color=GREY, zorder=2)
        axes.set(xlabel="RFD of uniformity", ylabel="RFD of alignment")
        _label(axes, _labelled(some), dots)
    return figure


def best_step(material: Material) -> Made:
    """Make NGCSE's Figure 2; the encoder before training is step 0 of the runs themselves."""
    runs = _runs(material)
    return made({"best_step": best_step_figure(runs)}, missing(material), {"settings": _settings_table(runs)})


def best_step_figure(runs: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Draw uniformity and alignment of the evaluation side at the best step, coloured by the dev score there.

    The encoder before training is the diamond, where the curves of NLI.dropout, or else of the first run, have step 0.

    Source: NGCSE, figure 2.  Differs: no marker is moved, and the score is that of the same step.
    """
    some = settings(runs)[["eval_uniformity_at_best", "eval_alignment_at_best", "best_score"]].dropna()
    if some.empty:
        return None
    labels = _labelled(some)
    starts = [
        [dict(curves.get(key, ())).get(0) for key in ("diag/eval/uniformity", "diag/eval/alignment", MONITOR)]
        for curves in (run["curves"] or {} for run in sorted(runs, key=lambda run: run["title"] != "NLI.dropout"))
    ]
    start = next((start for start in starts if None not in start[:2]), None)
    with plot_style():
        figure, axes = _scatter(some, "best dev score")
        if start is not None:
            # Its score is so far below the others that a common colour scale would make these all alike.
            axes.scatter(*start[:2], marker="D", s=48, facecolor="white", edgecolor=GREY, linewidth=1.4, zorder=3)
            score = "" if start[2] is None else f" ({100 * start[2]:.1f})"
            labels[f"pretrained{score}"] = (start[0], start[1])
        axes.set(
            xlabel="uniformity, evaluation side (lower is more even)",
            ylabel="alignment, evaluation side (lower is closer)",
        )
        _label(axes, labels)
    return figure


def _labelled(some: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Return the points of settings by their labels, with the score in the last column."""
    return {f"{title} ({100 * score:.1f})": (x, y) for title, x, y, score in some.itertuples()}


def _scatter(some: pd.DataFrame, title: str) -> tuple[Figure, Axes]:
    """Draw settings by the first two columns, coloured by the third, with a marker a domain."""
    figure = blank_figure(6.8, 4.6)
    axes = figure.subplots()
    domains = pd.Series([domain(each) for each in some.index], some.index)
    scores = 100 * some.iloc[:, 2]
    look: dict[str, Any] = {"s": 62, "edgecolor": "black", "linewidth": 0.6}
    low, high = scores.min(), scores.max()
    for name in domains.unique():
        of = some[domains == name]
        marker = {"Wiki": "o", "NLI": "s"}.get(name, "^")
        limits = {"vmin": low, "vmax": high if high > low else low + 1}
        drawn = axes.scatter(
            of.iloc[:, 0], of.iloc[:, 1], c=scores[of.index], cmap="viridis", marker=marker, zorder=3, **limits, **look
        )
        if domains.nunique() > 1:
            axes.scatter([], [], facecolor="white", marker=marker, label=name or "other", **look)
    if domains.nunique() > 1:
        axes.legend(loc="best")
    figure.colorbar(drawn, ax=axes, label=f"{title}, ×100").outline.set_visible(False)
    axes.margins(0.14)
    return figure, axes


def _label(axes: Axes, labels: Mapping[str, tuple[float, float]], dots: Sequence[tuple[float, ...]] = ()) -> None:
    """Write each label beside its point, where it covers least; a label that is farther off is tied to its point."""
    figure = axes.figure
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what is measured here must not move any more
    unit = figure.dpi / 72  # pixels a point
    taken = [_box(*axes.transData.transform(point), 5 * unit) for point in labels.values()]
    taken += [_box(*axes.transData.transform(dot), 2 * unit) for dot in dots]
    if legend := axes.get_legend():
        taken.append(legend.get_window_extent())
    frame = axes.get_window_extent()
    thin = [line.get_window_extent().padded(unit) for line in axes.lines]
    texts = [
        axes.annotate(text, point, (0, 0), textcoords="offset points", fontsize=8, zorder=5)
        for text, point in labels.items()
    ]
    boxes: dict[int, tuple[Bbox, float]] = {}
    for _ in range(4):  # from the second time on, with regard to the labels that came later
        for k, text in enumerate(texts):
            (x, y), (width, height) = axes.transData.transform(text.xy), text.get_window_extent().size
            others = [*taken, *(box for other, (box, _) in boxes.items() if other != k)]
            costs = {}
            for across, up, distance in _PLACES:
                left = x + across * distance * unit - width * (1 - across) / 2
                box = Bbox.from_bounds(left, y + up * distance * unit - height * (1 - up) / 2, width, height)
                covered = sum(_overlap(box, other) for other in others) + sum(_overlap(box, t) for t in thin) / 4
                outside = width * height - _overlap(box, frame)
                costs.setdefault(covered + 5 * outside + distance, (box, distance))
            boxes[k] = costs[min(costs)]
    ties = []
    for k, text in enumerate(texts):
        (x, y), (box, distance) = axes.transData.transform(text.xy), boxes[k]
        text.set_position(((box.x0 - x) / unit, (box.y0 - y) / unit))
        if distance > 12:
            ties.append([text.xy, axes.transData.inverted().transform((min(max(x, box.x0), box.x1), min(max(y, box.y0), box.y1)))])
    axes.add_collection(LineCollection(ties, color=GREY, linewidth=0.6, zorder=2), autolim=False)


def _box(x: float, y: float, half: float) -> Bbox:
    return Bbox.from_extents(x - half, y - half, x + half, y + half)


def _overlap(a: Bbox, b: Bbox) -> float:
    shared = Bbox.intersection(a, b)
    return 0.0 if shared is None else float(shared.width * shared.height)


# ---------------------------------------------------------------------------------------------------- Figures 3 and 6


def process(material: Material) -> Made:
    """Make NGCSE's Figures 3 and 6: settings side by side, in the order of the lines; more than four by domain."""
    curves: dict[str, list[Any]] = {}
    for run in _runs(material):
        curves.setdefault(run["title"], []).append(run["curves"])
    bare = [title for title, found in curves.items() if None in found]
    parts = [f"Not drawn where a run's curves were not kept: {', '.join(bare)}."] if bare else []
    groups: dict[str, list[str]] = {"process": list(curves)}
    if len(curves) > _SIDE_BY_SIDE:
        groups = {}
        for title in curves:
            groups.setdefault(f"process_{domain(title).lower() or 'other'}", []).append(title)
    figures = {name: process_figure({title: curves[title] for title in titles}) for name, titles in groups.items()}
    return made(figures, [*missing(material), *parts], {})


def process_figure(curves: Mapping[str, Sequence[Mapping[str, Any] | None]]) -> Figure | None:
    """Draw alignment above uniformity by step, a column a setting, a line a run and side; None without curves.

    Source: NGCSE, figures 3 and 6.  Differs: the axes span what was measured.
    """
    keys = [f"diag/{side}/{measure}" for side, *_ in _SIDES for measure in _MEASURES]
    kept = {title: [run for run in runs if run and any(map(run.get, keys))] for title, runs in curves.items()}
    shown = {title: runs for title, runs in kept.items() if runs}
    if not shown:
        return None
    with plot_style():
        figure = blank_figure(1.3 + 2.1 * len(shown), 4.6)
        grid = figure.subplots(2, len(shown), squeeze=False, sharex=True, sharey="row")
        for column, (title, runs) in zip(grid.T, shown.items(), strict=True):
            for axes, measure in zip(column, _MEASURES, strict=True):
                for side, label, color, style in _SIDES:
                    for number, run in enumerate(runs):
                        points = sorted(run.get(f"diag/{side}/{measure}", [(0, math.nan)]))
                        named = label if number == 0 else None
                        axes.plot(*zip(*points, strict=True), color=color, linestyle=style, linewidth=1.4, label=named)
            column[0].set_title(title)
            column[1].set_xlabel("optimizer step")
            column[1].margins(x=0.03)
        for axes, measure in zip(grid[:, 0], _MEASURES, strict=True):
            axes.set_ylabel(measure)
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2, handlelength=3)
    return figure


# ----------------------------------------------------------------------------------------------------------- Figure 5


def studies(material: Material) -> Made:
    """Make NGCSE's Figure 5 of the score in the first column: the number of LLM rows, and one margin at a time.

    Each study is of the runs that differ in its option alone; where there are several encoders, each has its own.
    """
    metric = next(column.keys[0] for column in material.artefact.columns if column.source == "metric")
    encoders = dict.fromkeys(line.encoder for line in material.lines if material.runs(line))
    figures, parts, table = {}, missing(material), []
    for encoder in encoders:
        runs = [run for line in material.lines if line.encoder == encoder for run in material.runs(line)]
        several = f" ({encoder})" if len(encoders) > 1 else ""
        for name, varied in _STUDIES.items():
            found = {option: study(runs, option, metric) for option in varied}
            for option, scores in found.items():
                if scores.empty:
                    why = f"since no two finished runs with {metric} differ in it alone."
                    parts.append(f"Not drawn{several}: {option}, {why}")
                named = scores.assign(study=option, encoder=encoder)
                table += named[["study", "encoder", "value", "run", "score"]].to_dict("records")
            drawn = {varied[option]: scores for option, scores in found.items() if not scores.empty}
            printed = {title: _printed(material, option, encoder) for option, title in varied.items()}
            figures[f"{name}_{encoder}" if several else name] = studies_figure(drawn, printed)
    return made(figures, parts, {"studies": table})


def study(runs: Iterable[Found], option: str, metric: str) -> pd.DataFrame:
    """Return ``value`` of an option, number of the ``run`` and ``score`` in percent, of runs that differ in it alone.

    Of several such families the one with the most values counts, then the one with the most runs.

    Raises:
        DataError: if two families have as many values and runs.
    """
    records = list({run.source: run.record for run in runs}.values())
    config = pd.json_normalize([record["decisive"] for record in records]).astype(object)
    frame = pd.DataFrame({"value": pd.to_numeric(config.get(f"config.{option}", pd.Series(dtype=float)))})
    frame["score"] = [100 * record["metrics"].get(metric, math.nan) for record in records]
    frame["rest"] = config.drop(columns=f"config.{option}", errors="ignore").astype(str).agg("|".join, axis=1)
    families = [family for _, family in frame.dropna().groupby("rest") if family["value"].nunique() > 1]
    sizes = [(family["value"].nunique(), len(family)) for family in families]
    if sizes.count(max(sizes, default=(0, 0))) > 1:
        names = ", ".join(sorted({str(record.get("name")) for record in records}))
        raise DataError(f"{option}: the runs of {names} are of several studies; name the runs of one with --only")
    best = families[sizes.index(max(sizes))] if families else frame.iloc[:0]
    best = best.sort_values("value", kind="stable")
    return best.assign(run=best.groupby("value").cumcount())[["value", "run", "score"]]


def _printed(material: Material, option: str, encoder: str | None) -> dict[float, float]:
    """Return the paper's scores by the value of an option that rows set."""
    scores = {(each.row, each.encoder): each.value for each in material.artefact.published}
    found = {}
    for line in material.lines:
        score = scores.get((line.name, line.paper_encoder))
        if line.encoder == encoder and score is not None and isinstance(line.way, Train):
            values = dict(override.split("=", 1) for override in line.way.overrides)
            if option in values:
                found[float(values[option])] = score
    return found


def studies_figure(
    studied: Mapping[str, pd.DataFrame], printed: Mapping[str, Mapping[float, float]]
) -> Figure | None:
    """Draw studies side by side, the mean as a line, every run as a dot, the best mean as a star.

    The band is the 95 % interval of each mean, by Student's t with one standard deviation pooled over all values (two
    or three runs a value say little about their spread); without repeated runs there is none.

    Source: NGCSE, figure 5.  Differs: the paper does not say what its band is.
    """
    if not studied:
        return None
    with plot_style():
        figure = blank_figure(1.0 + 4.2 * len(studied), 3.8)
        row = figure.subplots(1, len(studied), squeeze=False, sharey=True)[0]
        for axes, (varied, scores) in zip(row, studied.items(), strict=True):
            groups = scores.groupby("value")["score"]
            means = groups.mean()
            half = pooled_interval(groups)
            label = "one run each" if half is None else "mean of the runs"
            axes.plot(means.index, means, color=BLUE, marker="o", markersize=4, zorder=3, label=label)
            if half is not None:
                band = {"color": BLUE, "alpha": 0.15, "linewidth": 0, "label": "95 % interval"}
                axes.fill_between(means.index, means - half, means + half, **band)
                axes.scatter(scores["value"], scores["score"], s=9, color=GREY, linewidth=0, zorder=2, label="one run")
            if paper := sorted(printed.get(varied, {}).items()):
                look = {"color": ORANGE, "linestyle": "--", "linewidth": 1.2, "marker": "s", "markersize": 3}
                axes.plot(*zip(*paper, strict=True), **look, zorder=2, label="the paper")
            best = means.idxmax()
            star = {"marker": "*", "markersize": 13, "markeredgecolor": "white", "markeredgewidth": 0.8}
            label = f"best: {means[best]:.2f} at {best:g}"
            axes.plot(best, means[best], color=VERMILION, linestyle="none", zorder=4, label=label, **star)
            axes.set_xlabel(varied)
            axes.margins(x=0.04, y=0.1)
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)  # above the axes, where it covers no run
        row[0].set_ylabel("score, ×100")
    return figure


def pooled_interval(groups: Any) -> pd.Series | None:
    """Return half the 95 % interval of each group's mean, with one variance for all; None where no group has two."""
    counts = groups.count()
    freedom = int((counts - 1).sum())
    if freedom == 0:
        return None
    variance = float((groups.var().fillna(0) * (counts - 1)).sum()) / freedom
    return float(stats.t.ppf(0.975, freedom)) * (variance / counts) ** 0.5


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
        way = line.way
        name = way.experiment if isinstance(way, Train) else f"ngcse_{line.label.lower().replace('.', '_')}"
        if name not in options("experiment"):
            unknown.append(line.label)
        elif line.label not in configs:
            data = str(compose("train", f"+experiment={name}").hydra.runtime.choices["data"])
            own = way.overrides if isinstance(way, Train) else ()
            configs[line.label] = data_config(material, line.label, own, data=data, encoder=encoder)
    parts = [f"Not drawn, since no experiment is called so: {', '.join(unknown)}."] if unknown else []
    if not configs:
        return made({}, parts, {})
    *sets, stsb = pair_sets(configs)
    figures, table = {}, []
    with plot_style():
        for name in dict.fromkeys(each.name.partition(".")[0].lower() for each in sets):
            some = [each for each in sets if each.name.partition(".")[0].lower() == name]
            figures[f"pattern_complexity_{name}"] = histograms_figure([*some, stsb])
    for each in (*sets, stsb):
        for kind, pairs in [("positive", p) for p in each.positive] + [("negative", p) for p in each.negative]:
            row = {"set": each.name, "kind": kind, "pairs": pairs.label, "number": len(pairs.mer)}
            table.append({**row, **spread("mer", pairs.mer), **spread("cosine", pairs.cosine)})
    return made(figures, parts, {"pairs": table})


# ------------------------------------------------------------------------------------------------- the authors' curves


_RELEASED: Final = {
    "metrics": {"stsb": MONITOR},
    "train_alignment_and_uniformity": {measure: f"diag/held_out/{measure}" for measure in _MEASURES},
    "eval_alignment_and_uniformity": {measure: f"diag/eval/{measure}" for measure in _MEASURES},
}


def released_curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Read one setting of the authors' release, such as ``wiki/dropout``, under the keys of a run."""
    curves = {}
    for file, columns in _RELEASED.items():
        table = pd.read_csv(folder / file)
        for column, key in columns.items():
            curves[key] = list(zip(table["step"].tolist(), table[column].tolist(), strict=True))
    return curves
