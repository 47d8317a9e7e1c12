"""NGCSE's Figures 5 and 7: studies of the number of LLM rows and of the margins, and the complexity
of patterns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from lightning_cse.config.check import check
from lightning_cse.config.compose import compose
from lightning_cse.plots import BLUE, GREY, ORANGE, blank_figure, plot_style, zero_line
from lightning_cse.tables.figures import Result, data_config, result, spread
from lightning_cse.tables.nested import value_at
from lightning_cse.tables.statistics import mean_interval
from lightning_cse.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lightning_cse.analysis.histograms import Pairs

_MARGIN = "method.hierarchical_triplet.margin"
_STUDIES = {  # the title of the horizontal axis by option, for each figure
    "llm_rows": {"data.llm_rows": "LLM rows, share of the largest number"},
    "margins": {f"{_MARGIN}_positive": "margin $m_1$", f"{_MARGIN}_negative": "margin $m_2$"},
}
_FINAL = {f"{_MARGIN}_negative": max}
"""Which value changes are counted from, that of the final models, if not the smallest."""


def studies(table: Table) -> Result:
    """Make NGCSE's Figure 5 for the column that the paper prints, or else the first: studies of the
    number of LLM rows and of each margin.
    """
    parts: list[str] = []
    rows: list[dict[Any, Any]] = []
    figures = {}
    for name, options in _STUDIES.items():
        drawn = {}
        for option, title in options.items():
            runs, published = study(table, option)
            if runs["value"].nunique() > 1:
                drawn[title] = (option, runs, published)
                rows += runs.assign(study=option)[["study", *runs]].to_dict("records")
            else:
                parts.append(f"Not drawn: {option}, since no two values of it have finished runs.")

        figures[name] = studies_figure(drawn) if drawn else None

    return result(figures, parts, studies=rows)


def study(table: Table, option: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return the runs of the rows that set an option, by its value, and the paper's scores by
    value, in percent.
    """
    printed = table.spec.published
    published = dict(zip(printed["row"], printed["value"], strict=True))
    title = printed["column"][0] if len(printed) else table.spec.columns[0].title
    rows = []
    paper = {}
    values = table.values[table.values["column"] == title]
    for line in table.lines.itertuples():
        overrides = dict(override.split("=", 1) for override in line.overrides)
        if option not in overrides:
            continue
        if line.name in published:
            paper[float(overrides[option])] = published[line.name]

        cell = values[values["line"] == line.Index]
        for run, score in zip(cell["run"], cell["value"], strict=True):
            value = float(value_at(run.record, f"decisive.config.{option}"))
            rows.append((line.encoder, value, score))

    runs = pd.DataFrame(rows, columns=["encoder", "value", "score"])
    runs = runs.sort_values("value", kind="stable")
    runs.insert(2, "run", runs.groupby("value").cumcount())

    return runs, pd.Series(paper, dtype=float).sort_index()


def studies_figure(drawn: Mapping[str, tuple[str, pd.DataFrame, pd.Series]]) -> Figure:
    """Draw studies side by side, here and in the paper: how much the score changes from the first
    value, or from that of the final model.

    A point is the mean change, paired by run, with its 95 % interval (Student's t); a dot is one
    run. The paper's runs cannot be paired, so it has no intervals. Changes make the effects of
    two encoders comparable whose scores are far apart.

    Source: NGCSE, figure 5.  Differs: it shows scores; it does not say what its band is.
    """
    with plot_style():
        figure = blank_figure(1.0 + 3.6 * len(drawn), 3.4)
        panels = figure.subplots(1, len(drawn), squeeze=False, sharey=True)[0]
        for axes, (title, study) in zip(panels, drawn.items(), strict=True):
            zero_line(axes)
            _draw_study(axes, *study)
            axes.set_xlabel(title)
            axes.margins(x=0.06, y=0.1)

        panels[0].set_ylabel("change of the score, points")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)

    return figure


def _draw_study(axes: Axes, option: str, runs: pd.DataFrame, published: pd.Series) -> None:
    start = _FINAL.get(option, min)
    each = changes(runs, start(runs["value"]))
    ends = [mean_interval(each[value].dropna()) for value in each]
    found = pd.DataFrame(ends, columns=["mean", "low", "high"])
    share = option == "data.llm_rows"
    scale = each.columns.max() if share else 1
    axes.errorbar(
        each.columns / scale,
        found["mean"],
        yerr=found["high"] - found["mean"],
        color=BLUE,
        marker="o",
        markersize=4,
        capsize=3,
        zorder=3,
        label="here, 95 % interval",
    )
    dots = each.melt(value_name="change")
    axes.scatter(
        dots["value"] / scale,
        dots["change"],
        s=9,
        color=GREY,
        linewidth=0,
        zorder=4,
        label="one run",
    )

    if len(published):
        axes.plot(
            published.index / (published.index.max() if share else 1),
            published - published[start(published.index)],
            "s--",
            color=ORANGE,
            linewidth=1.2,
            markersize=3,
            zorder=2,
            label="the paper",
        )


def changes(runs: pd.DataFrame, start: float) -> pd.DataFrame:
    """Return the change of the score from a value to each one: a row for each run, a column for
    each value.
    """
    by_run = runs.pivot_table(index="run", columns="value", values="score")

    return by_run.sub(by_run[start], axis=0)


def pattern_complexity(table: Table) -> Result:
    """Make NGCSE's Figure 7: match error rates and cosines of the pairs of training sets, with
    STS-B below each domain.

    No run is needed: a line stands for the data of the experiment of that name.
    """
    from lightning_cse.analysis.describing import pair_sets
    from lightning_cse.analysis.histograms import histograms_figure

    configs = {}
    for label in table.labels:
        experiment = f"ngcse_{label.lower().replace('.', '_')}"
        data = str(compose("train", f"+experiment={experiment}").hydra.runtime.choices["data"])
        configs[label] = data_config(table, label, data=data, encoder=table.request.encoder)
        check(configs[label], "describe")

    sets = pair_sets(configs)
    *names, stsb = sets
    figures = {}
    for domain in dict.fromkeys(name.partition(".")[0] for name in names):
        shown = [name for name in names if name.startswith(f"{domain}.")]
        figure = histograms_figure({name: sets[name] for name in (*shown, stsb)})
        figures[f"pattern_complexity_{domain.lower()}"] = figure

    rows = []
    for name, measured in sets.items():
        rows += [
            {
                "set": name,
                "kind": pairs.kind,
                "pairs": pairs.label,
                "number": len(pairs.mer),
                **spread("mer", pairs.mer),
                "mer_deviation": _deviation(pairs.mer),
                **spread("cosine", pairs.cosine),
                "cosine_deviation": _deviation(pairs.cosine),
            }
            for pairs in measured
        ]

    return result(figures, [], pairs=rows)


def _deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of a sample; NaN for fewer than two values."""
    return float(pd.Series(values, dtype=float).std())


def patterns(table: Table) -> Result:
    """Make the histograms of the pairs that a language model wrote by each prompt, in the form of
    NGCSE's Figure 7, with those of the pattern's own pairs below.
    """
    from lightning_cse.analysis.histograms import histograms_figure

    sets = {}
    for line in table.lines.itertuples():
        for run in table.finished(line):
            values = run.record["summary"]["values"]
            last = values["pattern"]
            sets[line.label] = [_pairs_of(one) for one in values["written"]]

    if not sets:
        return result({}, ["Not drawn: no rows are written."])

    sets["the pattern"] = [_pairs_of(one) for one in last]

    return result({"patterns": histograms_figure(sets)}, [])


def _pairs_of(values: Mapping[str, Any]) -> Pairs:
    """Return the measured pairs of a record, without their sentences."""
    from lightning_cse.analysis.histograms import Pairs

    return Pairs(first=(), second=(), total=len(values["mer"]), **values)
