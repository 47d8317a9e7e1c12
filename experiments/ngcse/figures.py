"""NGCSE's Figures 1, 2, 3 and 6: relative fitting difficulty, the best step, and the process of
training.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from lightning_cse.plots import (
    GREY,
    PALETTE,
    RFD_SIDES,
    blank_figure,
    by_step,
    plot_style,
    xy,
    zero_line,
)
from lightning_cse.runs import CurveSummary
from lightning_cse.tables.figures import Result, markdown_table, result
from lightning_cse.tables.files import read_spec
from lightning_cse.tables.spec import Request, Spec
from lightning_cse.tables.statistics import mean_interval
from lightning_cse.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MONITOR = "val/stsb/spearman"
TEST = ("test/stsb/spearman", "test/sickr/spearman")
"""The test sets whose pairs are others than those of STS-B dev, but for three of STS-B's; STS12 to
STS16 have most pairs of STS-B dev.
"""
OTHERS = (*(f"test/sts{year}/spearman_all" for year in (12, 13, 14, 15, 16)), "test/sickr/spearman")
"""The test sets of `before_training`, beside STS-B dev."""
WRONG = ("INLI.random", "INLI.overlap", "INLI.halves")
"""The sets whose positives do not mean what their anchors mean."""
SUMMARY = [each.name for each in fields(CurveSummary)]
FITTING = {
    "rfd_uniformity": "RFD of uniformity",
    "rfd_alignment": "RFD of alignment",
    "final_score": "final score (mean of up to five best, dev)",
}
BEST_STEP = {
    "eval_uniformity_at_best": "uniformity, evaluation side (lower is more even)",
    "eval_alignment_at_best": "alignment, evaluation side (lower is closer)",
    "best_score": "best dev score",
}
BOTH = ["rfd_alignment", "rfd_uniformity"]
_TEXT_HEIGHT = 0.06  # of the names beside a panel, as a share of its height
_RFD = {"rfd_alignment": "RFD_a", "rfd_uniformity": "RFD_u", "rfd": "RFD_a + RFD_u"}
_SCORES = {"final_score": "STS-B dev", "test_score": "other test sets"}
_PERMUTATIONS = 10_000
WITHIN = "within domains"
_MARKERS = {"Wiki": "o", "NLI": "s"}


def runs_of(table: Table, test: Sequence[str] = TEST) -> pd.DataFrame:
    """Return one row per run: its setting, encoder and seed, its summary, ``test_score`` (the mean
    of some metrics, by default of STS-B test and SICK-R), and its curves; a baseline has no
    training.
    """
    rows = []
    for line in table.lines.itertuples():
        for run in () if line.baseline else table.finished(line):
            metrics = run.record.get("metrics") or {}
            row = {
                "setting": line.label,
                "encoder": line.encoder,
                "seed": run.record.get("seed"),
                **(run.record.get("summary") or {}),
                "test_score": sum(metrics.get(key, math.nan) for key in test) / len(test),
                "curves": run.curves,
            }
            rows.append(row)

    columns = ["setting", "encoder", "seed", *SUMMARY, "test_score", "curves"]

    return pd.DataFrame(rows, columns=columns, dtype=object)


def settings(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean summary of the runs of each setting, with ``rfd``, the sum of both RFDs."""
    summary = runs[SUMMARY].astype(float).eval("rfd = rfd_alignment + rfd_uniformity")
    return summary.groupby(runs["setting"], sort=False).mean()


def published_settings(spec: Spec) -> pd.DataFrame:
    """Return the paper's values by setting, for the columns that show a part of the summary."""
    columns = {column.title: column for column in spec.columns if column.source == "field"}
    rows: dict[str, dict[str, float]] = {}
    for each in spec.published.itertuples():
        if column := columns.get(each.column):
            name = column.keys[0].removeprefix("summary.")
            rows.setdefault(each.row, {})[name] = each.value / column.scale

    found = pd.DataFrame(list(rows.values()), columns=SUMMARY)

    return settings(found.assign(setting=list(rows)))


def domain(title: str) -> str:
    """Return the domain of a setting: the part of its title before the dot, if there is one."""
    return title.rpartition(".")[0]


def correlations(summary: pd.DataFrame) -> list[dict[str, Any]]:
    """Correlate each RFD and their sum with the final score: over all settings, by domain, and over
    all settings given the domain (``within domains``). Return a row for each.

    A point is a setting, the mean of its runs, since several runs of one setting do not count as
    several settings. A difference between the domains alone is a correlation over all settings, and
    none within domains.
    """
    domains = summary.index.map(domain)
    names = [name for name in domains.unique() if name]
    scopes = {"all": summary} if len(summary) else {}
    scopes |= {name: summary[domains == name] for name in names}
    if len(names) > 1:
        scopes[WITHIN] = summary[domains.isin(names)]

    rows = []
    for (scope, some), (measure, title) in itertools.product(scopes.items(), _RFD.items()):
        both = some[[measure, "final_score"]].dropna()
        row = {"measure": title, "scope": scope, "settings": len(both)}
        groups = both.index.map(domain) if scope == WITHIN else None
        for name in ("pearson", "spearman"):
            ends = correlation(*both.to_numpy().T.tolist(), ranks=name == "spearman", groups=groups)
            row |= _with_ends(name, ends)

        rows.append(row)

    return rows


def _with_ends(name: str, ends: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def differences(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the mean differences of RFD and final score, paired by seed, of each setting from
    dropout on the same domain, and of each ``STS_HT`` from ``STS``, with 95 % intervals.
    """
    values = runs.set_index(["setting", "seed"])[["final_score", *BOTH]].astype(float)
    known = values.index.unique("setting")
    rows = []
    for setting in known:
        for other in (f"{domain(setting)}.dropout", setting.removesuffix("_HT")):
            if other == setting or other not in known:
                continue

            paired = (values.loc[setting] - values.loc[other]).dropna(how="all")
            if paired.empty:
                continue

            row = {"setting": setting, "against": other, "seeds": len(paired)}
            for measure in paired:
                row |= _with_ends(measure, mean_interval(paired[measure]))

            rows.append(row)

    return rows


def lower_in_both(summary: pd.DataFrame) -> dict[str, Any]:
    """Test the paper's statement: of two settings of a domain, the one that is lower in both RFDs
    has the lower final score (see `ordered_pairs`).
    """
    known = summary[[*BOTH, "final_score"]].dropna()
    found = ordered_pairs(known[BOTH], known["final_score"], known.index.map(domain))

    return {"settings": len(known), **found._asdict()}


def correlation(
    x: Sequence[float], y: Sequence[float], *, ranks: bool, groups: Sequence[Any] | None = None
) -> tuple[float, float, float]:
    """Return Pearson's correlation or, with ``ranks``, Spearman's, and the ends of its 95 %
    interval.

    With ``groups``, the group of each point, it is the partial correlation given the group: that of
    the differences from the group's means, of values or of ranks.

    The ends are tanh(artanh r ± 1.96 se) with se = 1 / √m or, for ranks, √((1 + r² / 2) / m), where
    m is the number of points minus 3, and minus 1 for each group after the first. For fewer than
    three points or a constant, all are NaN; for m < 1 or |r| = 1, the ends are NaN.

    Source: Fisher 1921 and 1924 (partial); for ranks Bonett and Wright 2000.  Differs: nothing.
    """
    points = pd.DataFrame({"x": x, "y": y}, dtype=np.float64)
    if ranks:
        points = points.rank()

    by_group = points.groupby(np.zeros(len(points)) if groups is None else np.asarray(groups))
    points -= by_group.transform("mean")
    if len(points) < 3 or np.ptp(points, axis=0).min() < 1e-12:
        return math.nan, math.nan, math.nan

    r = float(stats.pearsonr(points["x"], points["y"]).statistic)
    left = len(points) - 2 - by_group.ngroups
    if left < 1 or 1 - abs(r) < 1e-12:
        return r, math.nan, math.nan

    variance = (1 + ranks * r * r / 2) / left
    half = float(stats.norm.ppf(0.975)) * math.sqrt(variance)

    return r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


class Ordered(NamedTuple):
    """How many pairs of points are ordered by all measures, how many of them the score orders
    likewise, and the p-value of so many or more.
    """

    pairs: int
    agreeing: int
    pvalue: float


def ordered_pairs(measures: ArrayLike, score: ArrayLike, groups: Sequence[Any]) -> Ordered:
    """Test whether the point of a pair that is lower in all measures also has the lower score.

    Pairs are those of points of one group. The p-value is the share of 10,000 permutations of the
    scores within the groups, and of the scores as they are, in which as many pairs or more agree;
    it is one-sided.

    Args:
        measures: (points, measures).
        score: (points,).
        groups: the group of each point.
    """
    scores = np.asarray(score, dtype=np.float64)
    names = np.asarray(groups)
    lower, higher = lower_and_higher(measures, groups)
    rng = np.random.default_rng(0)
    members = [np.flatnonzero(names == name) for name in np.unique(names)]
    agreeing = int((scores[lower] < scores[higher]).sum())
    as_many = 1

    for _ in range(_PERMUTATIONS):
        drawn = scores.copy()
        for inside in members:
            drawn[inside] = rng.permutation(scores[inside])

        as_many += int((drawn[lower] < drawn[higher]).sum()) >= agreeing

    return Ordered(len(lower), agreeing, as_many / (_PERMUTATIONS + 1))


def lower_and_higher(
    measures: ArrayLike, groups: Sequence[Any]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the numbers of the points of each pair of one group that all measures, ``(points,
    measures)``, order: those of the lower points, and those of the higher ones.
    """
    values = np.asarray(measures, dtype=np.float64)
    names = np.asarray(groups)
    is_lower = (values[:, None] < values[None, :]).all(axis=2)
    lower, higher = np.nonzero(is_lower & (names[:, None] == names[None, :]))

    return lower, higher


def fitting_difficulty(table: Table) -> Result:
    """Make NGCSE's Figure 1, the correlations of RFD with the final score, and the test of pairs of
    settings, here and in the paper's numbers.
    """
    runs = runs_of(table)
    # RFD and the final score are measured on the same sentences of STS-B dev.
    on_test = runs.assign(final_score=runs["test_score"])
    sources = {
        "here": settings(runs),
        "here, other sets": settings(on_test.dropna(subset=["final_score"])),
        "authors": published_settings(table.spec),
    }
    rows = []
    pairs = []
    for source, summary in sources.items():
        rows += [{"of": source, **row} for row in correlations(summary)]
        if len(summary):
            pairs.append({"of": source, **lower_in_both(summary)})

    paired = differences(runs)
    texts = {
        "Correlations with the final score, which is measured on STS-B dev; for other sets, with the "
        "mean of the checkpoint on STS-B test and SICK-R:": rows,
        "Pairs of settings of a domain of which one is lower in both RFDs; in how many it has the "
        "lower score:": pairs,
        "Differences, paired by seed, with 95 % intervals:": paired,
    }
    shown = [(title, markdown_table(rows)) for title, rows in texts.items() if rows]

    return result(
        {"fitting_difficulty": scatter_figure(runs, FITTING), "score": score_figure(runs)},
        [*itertools.chain.from_iterable(shown)],
        settings=_summaries(runs),
        correlations=rows,
        pairs=pairs,
        differences=paired,
    )


def before_training(table: Table) -> Result:
    """Test whether RFD at step 0 orders training sets as the score after training does: the kept
    runs of Figure 1, and sets that NGCSE does not have.
    """
    path = table.spec.path.with_name("figure1.yaml")
    request = Request(table.request.profile, config_dir=table.request.config_dir)
    in_paper = runs_of(Table(read_spec(path), request, table.runs))
    others = runs_of(table, OTHERS)
    right = others[~others["setting"].isin(WRONG)]
    sources = {"Figure 1": in_paper, "other sets": others, "right positives": right}
    rows = []
    regrets = []
    for (source, runs), score in itertools.product(sources.items(), _SCORES):
        scored = runs.assign(final_score=runs[score]).dropna(subset=["final_score"])
        if scored.empty:
            continue

        summaries = {"step 0": settings(at_step_0(scored)), "training": settings(scored)}
        for when, summary in summaries.items():
            names = {"of": source, "score": _SCORES[score], "RFD": when}
            rows += [{**names, **row} for row in rule(summary)]
            regrets += [{**names, **row} for row in regret(summary)]

    texts = {
        "Correlation of the sum of both RFDs with the score, with its 95 % interval (within domains: "
        "partial). Pairs: sets of a domain that the sum orders, and in how many the score has the "
        "same order; both: pairs of which one set is lower in both RFDs, and in how many it has the "
        "lower score; p: its permutation test.": rows,
        "Regret in points: the best score of a domain minus the score of the set with the highest "
        "sum of both RFDs, and minus the mean of all sets, which is that of a random choice:": regrets,
    }
    shown = [(title, markdown_table(rows)) for title, rows in texts.items() if rows]
    parts = [*itertools.chain.from_iterable(shown)]
    if in_paper.empty:
        parts.append("The kept runs of Figure 1 are left out: add --kept.")

    return result(
        {
            "figure1": score_figure(at_step_0(in_paper)),
            "other_sets": score_figure(at_step_0(others)),
        },
        parts,
        settings=_summaries(at_step_0(others)),
        rule=rows,
        regret=regrets,
    )


def at_step_0(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the RFD of the encoder before training in place of the mean over it."""

    def difference(curves: Mapping[str, Any], measure: str) -> float:
        held_out, evaluation = (
            dict(curves.get(f"diag/{side}/{measure}", ())).get(0, math.nan)
            for side in ("held_out", "eval")
        )
        return float(held_out - evaluation)

    measured = {
        f"rfd_{measure}": [difference(curves, measure) for curves in runs["curves"]]
        for measure in ("alignment", "uniformity")
    }

    return runs.assign(**measured)


def rule(summary: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the correlation of the sum of both RFDs with the final score, and the pairs of
    settings that RFD orders, for each domain and within domains.
    """
    known = summary.dropna(subset=["rfd", "final_score"])
    rows = []
    for row in correlations(known):
        scope = row["scope"]
        if row["measure"] != _RFD["rfd"] or scope == "all":
            continue

        domains = known.index.map(domain)
        some = known if scope == WITHIN else known[domains == scope]
        names = some.index.map(domain)
        scores = some["final_score"].to_numpy()
        lower, higher = lower_and_higher(some[["rfd"]], names)
        of_both = ordered_pairs(some[BOTH], scores, names)
        rows.append(
            {
                "scope": scope,
                "settings": row["settings"],
                **{key: row[key] for key in ("pearson", "pearson_low", "pearson_high")},
                "pairs": f"{(scores[lower] < scores[higher]).sum()} of {len(lower)}",
                "both": f"{of_both.agreeing} of {of_both.pairs}",
                "p": of_both.pvalue,
            }
        )

    return rows


def regret(summary: pd.DataFrame) -> list[dict[str, Any]]:
    """Return for each domain the set with the highest sum of both RFDs, and by how many points it
    and the mean of all sets are below the best.
    """
    known = summary.dropna(subset=["rfd", "final_score"])
    rows = []
    for name, some in known.groupby(known.index.map(domain), sort=False):
        scores = 100 * some["final_score"]
        chosen = some["rfd"].idxmax()
        rows.append(
            {
                "domain": name,
                "settings": len(some),
                "best": scores.idxmax(),
                "chosen": chosen,
                "place": int(scores.rank(ascending=False)[chosen]),
                "regret": float(scores.max() - scores[chosen]),
                "random": float(scores.max() - scores.mean()),
            }
        )

    return rows


def best_step(table: Table) -> Result:
    """Make NGCSE's Figure 2; the encoder before training is step 0 of the runs themselves."""
    runs = runs_of(table)
    figure = scatter_figure(runs, BEST_STEP)

    return result({"best_step": figure}, [], settings=_summaries(runs))


def _summaries(runs: pd.DataFrame) -> list[dict[Any, Any]]:
    return list(runs.drop(columns="curves").to_dict("records"))


def scatter_figure(runs: pd.DataFrame, measures: Mapping[str, str]) -> Figure | None:
    """Draw settings by two measures, coloured by a third; None where no setting has all three.

    In the figure of RFD, lines connect a setting with each of its runs; in the other, a diamond
    marks the encoder before training.

    Source: NGCSE, figures 1 and 2.  Differs: no marker is moved, and the score is that of the same
    step.
    """
    points = settings(runs)[list(measures)].dropna()
    if points.empty:
        return None

    labels = {}
    for title, x, y, value in points.itertuples():
        labels[f"{title} ({100 * value:.1f})"] = (x, y)

    with plot_style():
        figure = blank_figure(8.6, 4.6)
        axes = figure.subplots()
        _scatter(axes, points, measures)
        if measures is FITTING:
            zero_line(axes)
            axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
            _connect_runs(axes, points, runs)
        else:
            labels |= _draw_start(axes, runs)

        numbers = range(1, len(labels) + 1)
        _write_beside(axes, numbers, labels.values())
        figure.legend(
            [Line2D([], [], linestyle="none")] * len(labels),
            [f"{number}  {label}" for number, label in zip(numbers, labels, strict=True)],
            loc="outside right upper",
            handlelength=0,
        )

    return figure


def score_figure(runs: pd.DataFrame) -> Figure | None:
    """Draw the final score by the sum of both RFDs, a panel for each domain, with 95 % intervals
    over the seeds (Student's t) and a line fitted to the settings; None without two settings.

    Source: ours; NGCSE's figure 1 shows the score as a colour.
    """
    known = runs.dropna(subset=[*BOTH, "final_score"])
    groups = list(known.groupby(known["setting"].map(domain), sort=False))
    if known["setting"].nunique() < 2:
        return None

    with plot_style():
        figure = blank_figure(1.0 + 4.2 * len(groups), 3.6)
        panels = figure.subplots(1, len(groups), squeeze=False)[0]
        for number, (axes, (name, some)) in enumerate(zip(panels, groups, strict=True)):
            look = PALETTE[number % len(PALETTE)], _MARKERS.get(str(name), "^")
            points = _draw_scores(axes, some, *look)
            axes.set(title=name, xlabel="RFD of alignment + RFD of uniformity")
            axes.margins(x=0.05)
            _write_at_right(axes, points)

        panels[0].set_ylabel("final score (dev), ×100")

    return figure


def _draw_scores(axes: Axes, runs: pd.DataFrame, color: str, marker: str) -> pd.DataFrame:
    """Draw the settings of a domain with their intervals and the fitted line, and return them."""
    rows = []
    for setting, some in runs.groupby("setting", sort=False):
        rfd = some[BOTH].astype(float).sum(axis=1)
        scores = 100 * some["final_score"].astype(float)
        rows.append((setting, *mean_interval(rfd), *mean_interval(scores)))

    names = ["setting", "x", "x_low", "x_high", "y", "y_low", "y_high"]
    points = pd.DataFrame(rows, columns=names).sort_values("x")
    axes.errorbar(
        points["x"],
        points["y"],
        xerr=points["x"] - points["x_low"],
        yerr=points["y"] - points["y_low"],
        color=color,
        fmt=marker,
        markersize=5,
        elinewidth=0.8,
        capsize=2,
        zorder=3,
    )
    if points["x"].nunique() > 1:
        fitted = np.polyval(np.polyfit(points["x"], points["y"], 1), points["x"])
        axes.plot(points["x"], fitted, color=GREY, linewidth=1, linestyle="--", zorder=1)

    return points


def _write_at_right(axes: Axes, points: pd.DataFrame) -> None:
    """Write the names of the settings beside a panel, from the lowest score up, with a line to each
    point.
    """
    bottom, top = axes.get_ylim()
    height = -math.inf
    for point in points.sort_values("y").itertuples():
        height = max((point.y - bottom) / (top - bottom), height + _TEXT_HEIGHT)
        axes.annotate(
            str(point.setting).rpartition(".")[2],
            (point.x, point.y),
            xytext=(1.02, height),
            textcoords="axes fraction",
            verticalalignment="center",
            fontsize=8,
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.6},
        )


def _write_beside(axes: Axes, texts: Iterable[Any], points: Iterable[Any]) -> None:
    """Write a text beside each point, by turns above and below it."""
    for number, (text, point) in enumerate(zip(texts, points, strict=True)):
        axes.annotate(
            str(text),
            point,
            xytext=(5, -10 if number % 2 else 5),
            textcoords="offset points",
            fontsize=8,
            zorder=5,
        )


def _connect_runs(axes: Axes, points: pd.DataFrame, runs: pd.DataFrame) -> None:
    """Draw a line from each setting to each of its runs."""
    across, up, _ = points
    both = runs.merge(points, left_on="setting", right_index=True, suffixes=("_of_run", ""))
    ends = [[both[key], both[f"{key}_of_run"].astype(float)] for key in (across, up)]
    axes.plot(*ends, color=GREY, linewidth=0.7, marker=".", markersize=3, markevery=[1], zorder=2)


def _draw_start(axes: Axes, runs: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Draw the encoder before training, and return its label with its place.

    Step 0 is that of NLI.dropout, or else of the first run. Its score has no colour: it is so low
    that on a common scale the others would look alike.
    """
    in_order = runs.sort_values("setting", key=lambda names: names != "NLI.dropout", kind="stable")
    for curves in in_order["curves"]:
        keys = ("diag/eval/uniformity", "diag/eval/alignment", MONITOR)
        x, y, score = (dict(curves.get(key, ())).get(0, math.nan) for key in keys)
        if not math.isnan(x + y):
            axes.scatter(
                x, y, marker="D", s=48, facecolor="white", edgecolor=GREY, linewidth=1.4, zorder=3
            )
            return {f"pretrained ({100 * score:.1f})": (x, y)}

    return {}


def _scatter(axes: Axes, points: pd.DataFrame, measures: Mapping[str, str]) -> None:
    """Draw settings by the first two columns, coloured by the third, with one marker per domain."""
    across, up, score = measures
    percent = 100 * points[score]
    for name, some in points.groupby(domain, sort=False):
        drawn = axes.scatter(
            some[across],
            some[up],
            c=percent[some.index],
            vmin=percent.min(),
            vmax=percent.max(),
            s=62,
            edgecolor="black",
            linewidth=0.6,
            marker=_MARKERS.get(str(name), "^"),
            label=name or "other",
            zorder=3,
        )

    for handle in filter(None, axes.legend(loc="best").legend_handles):
        handle.set(array=None, facecolor="white")  # a domain has no score

    bar = axes.figure.colorbar(drawn, ax=axes, label=f"{measures[score]}, ×100")
    bar.outline.set_visible(False)
    axes.margins(0.14)
    axes.set(xlabel=measures[across], ylabel=measures[up])


def process(table: Table) -> Result:
    """Make NGCSE's Figures 3 and 6: alignment and uniformity by step, the settings side by side."""
    return result({"process": process_figure(runs_of(table))}, [])


def process_figure(runs: pd.DataFrame) -> Figure | None:
    """Draw alignment above uniformity by step: one column per setting, one line per run and side;
    None without curves.

    Source: NGCSE, figures 3 and 6.  Differs: the axes span the measured values.
    """
    groups = list(runs[runs["curves"].astype(bool)].groupby("setting", sort=False)["curves"])
    if not groups:
        return None

    with plot_style():
        figure = blank_figure(1.3 + 2.1 * len(groups), 4.6)
        grid = figure.subplots(2, len(groups), squeeze=False, sharex=True, sharey="row")
        for column, (title, curves) in zip(grid.T, groups, strict=True):
            for axes, measure in zip(column, ("alignment", "uniformity"), strict=True):
                for side, look in RFD_SIDES.items():
                    for run in curves:
                        points = xy(sorted(run.get(f"diag/{side}/{measure}", ())))
                        axes.plot(*points, linewidth=1.4, **look)

            column[0].set_title(title)
            by_step(column[1])

        grid[0][0].set_ylabel("alignment")
        grid[1][0].set_ylabel("uniformity")
        looks: Any = RFD_SIDES.values()
        figure.legend(
            handles=[Line2D([], [], **look) for look in looks],
            loc="outside lower center",
            ncols=2,
            handlelength=3,
        )

    return figure
