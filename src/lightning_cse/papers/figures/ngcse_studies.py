"""NGCSE's Figures 5 and 7: studies of the number of LLM rows and of the margins, and the complexity
of patterns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
from scipy import stats

from lightning_cse.config.compose import compose
from lightning_cse.papers.figures import Result, data_config, made, spread
from lightning_cse.papers.nested import value_at
from lightning_cse.papers.plan import Plan
from lightning_cse.plots import BLUE, GREY, ORANGE, VERMILION, blank_figure, plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lightning_cse.analysis.histograms import Pairs

_MARGIN = "method.hierarchical_triplet.margin"
_STUDIES = {  # the title of the horizontal axis by option, for each figure
    "llm_rows": {"data.llm_rows": "number of LLM rows"},
    "margins": {f"{_MARGIN}_positive": "margin $m_1$", f"{_MARGIN}_negative": "margin $m_2$"},
}

Study = tuple[pd.DataFrame, Mapping[float, float]]
"""The runs of a study, and the paper's scores by value."""


def studies(plan: Plan) -> Result:
    """Make NGCSE's Figure 5 for the first column: studies of the number of LLM rows and of each
    margin.
    """
    parts: list[str] = []
    rows: list[dict[Any, Any]] = []
    figures = {}
    for name, options in _STUDIES.items():
        drawn = {}
        for option, title in options.items():
            runs, published = study(plan, option)
            if runs["value"].nunique() > 1:
                drawn[title] = (runs, published)
                rows += runs.assign(study=option)[["study", *runs]].to_dict("records")
            else:
                parts.append(f"Not drawn: {option}, since no two values of it have finished runs.")

        figures[name] = studies_figure(drawn) if drawn else None

    return made(figures, parts, studies=rows)


def study(plan: Plan, option: str) -> Study:
    """Return the runs of the rows that set an option, by its value, and the paper's scores by
    value, in percent.
    """
    published = {each.row: each.value for each in plan.artefact.published}
    metric = plan.artefact.columns[0].keys[0]
    rows = []
    paper = {}
    for line in plan.lines:
        given = dict(override.split("=", 1) for override in line.row.overrides)
        if option not in given:
            continue
        if line.row.name in published:
            paper[float(given[option])] = published[line.row.name]

        for run in plan.found(line):
            value = float(value_at(run.record, f"decisive.config.{option}"))
            score = 100 * run.record["metrics"].get(metric, math.nan)
            rows.append((line.encoder, value, score))

    runs = pd.DataFrame(rows, columns=["encoder", "value", "score"])
    runs = runs.dropna().sort_values("value", kind="stable")
    runs.insert(2, "run", runs.groupby("value").cumcount())

    return runs, dict(sorted(paper.items()))


def studies_figure(drawn: Mapping[str, Study]) -> Figure:
    """Draw studies side by side with the paper's scores: the mean as a line, every run as a dot,
    the best as a star.

    The band is the 95 % interval of each mean, by Student's t with one standard deviation pooled
    over all values (two or three runs per value say little about their spread). Without repeated
    runs, there is no band.

    Source: NGCSE, figure 5.  Differs: the paper does not say what its band is.
    """
    with plot_style():
        figure = blank_figure(1.0 + 4.2 * len(drawn), 3.8)
        panels = figure.subplots(
            1,
            len(drawn),
            squeeze=False,
            sharey=True,
        )[0]
        for axes, (title, study) in zip(panels, drawn.items(), strict=True):
            _draw_study(axes, *study)
            axes.set_xlabel(title)
            axes.margins(x=0.04, y=0.1)
            axes.legend(
                ncols=2,
                loc="lower left",
                bbox_to_anchor=(0, 1),
            )

        panels[0].set_ylabel("score, ×100")

    return figure


def _draw_study(axes: Axes, runs: pd.DataFrame, published: Mapping[float, float]) -> None:
    means = runs.groupby("value")["score"].mean()
    half = pooled_interval(runs)
    label = "one run each" if half is None else "mean of the runs"
    axes.plot(
        means.index,
        means,
        color=BLUE,
        marker="o",
        markersize=4,
        zorder=3,
        label=label,
    )
    if half is not None:
        axes.fill_between(
            means.index,
            means - half,
            means + half,
            color=BLUE,
            alpha=0.15,
            linewidth=0,
            label="95 % interval",
        )
        axes.scatter(
            runs["value"],
            runs["score"],
            s=9,
            color=GREY,
            linewidth=0,
            zorder=2,
            label="one run",
        )

    if published:
        axes.plot(
            list(published),
            list(published.values()),
            "s--",
            color=ORANGE,
            linewidth=1.2,
            markersize=3,
            label="the paper",
        )

    best = means.idxmax()
    axes.scatter(
        best,
        means[best],
        color=VERMILION,
        marker="*",
        s=160,
        edgecolor="white",
        linewidth=0.8,
        zorder=4,
        label=f"best: {means[best]:.2f} at {best:g}",
    )


def pooled_interval(runs: pd.DataFrame) -> Any:
    """Return half the 95 % interval of each value's mean, with one pooled variance; None if no
    value has two runs.
    """
    groups = runs.groupby("value")["score"]
    freedom = len(runs) - groups.ngroups
    if not freedom:
        return None

    variance = ((runs["score"] - groups.transform("mean")) ** 2).sum() / freedom

    return stats.t.ppf(0.975, freedom) * (variance / groups.count()) ** 0.5


def pattern_complexity(plan: Plan) -> Result:
    """Make NGCSE's Figure 7: match error rates and cosines of the pairs of training sets, with
    STS-B below each domain.

    No run is needed: a line stands for the data of the experiment of that name.
    """
    from lightning_cse.analysis.describing import pair_sets
    from lightning_cse.analysis.histograms import histograms_figure

    configs = {}
    for label in dict.fromkeys(line.label for line in plan.lines):
        experiment = f"ngcse_{label.lower().replace('.', '_')}"
        data = str(compose("train", f"+experiment={experiment}").hydra.runtime.choices["data"])
        configs[label] = data_config(
            plan,
            label,
            data=data,
            encoder=plan.request.encoder,
        )

    sets = pair_sets(configs)
    *names, stsb = sets
    figures = {}
    for domain in dict.fromkeys(name.partition(".")[0] for name in names):
        shown = [name for name in names if name.startswith(f"{domain}.")]
        with plot_style():
            figure = histograms_figure({name: sets[name] for name in (*shown, stsb)})

        figures[f"pattern_complexity_{domain.lower()}"] = figure

    rows = []
    for name, measured in sets.items():
        for pairs in measured:
            row = {
                "set": name,
                "kind": pairs.kind,
                "pairs": pairs.label,
                "number": len(pairs.mer),
                **spread("mer", pairs.mer),
                **spread("cosine", pairs.cosine),
            }
            rows.append(row)

    return made(figures, [], pairs=rows)


def patterns(plan: Plan) -> Result:
    """Make the histograms of the pairs that a language model wrote by each prompt, in the form of
    NGCSE's Figure 7, with those of the pattern's own pairs below.
    """
    from lightning_cse.analysis.histograms import histograms_figure

    sets = {}
    for line in plan.lines:
        for run in plan.found(line):
            values = run.record["summary"]["values"]
            last = values["pattern"]
            sets[line.label] = [_pairs_of(one) for one in values["written"]]

    if not sets:
        return made({}, ["Not drawn: no rows are written."])

    sets["the pattern"] = [_pairs_of(one) for one in last]
    with plot_style():
        figure = histograms_figure(sets)

    return made({"patterns": figure}, [])


def _pairs_of(values: Mapping[str, Any]) -> Pairs:
    """Return the measured pairs of a record, without their sentences."""
    from lightning_cse.analysis.histograms import Pairs

    return Pairs(
        values["kind"],
        values["label"],
        (),
        (),
        len(values["mer"]),
        mer=values["mer"],
        cosine=values["cosine"],
    )
