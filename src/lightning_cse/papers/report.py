"""The report: tables and charts of papers and of runs as one HTML file, which opens from disk
without a network.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from lightning_cse.papers.nested import value_at
from lightning_cse.papers.records import FinishedRun
from lightning_cse.papers.render import environment, view
from lightning_cse.papers.significance import Setting, settings
from lightning_cse.papers.tables import machine_of, short_commit
from lightning_cse.plots import (
    blank_figure,
    by_step,
    line,
    plot_style,
    series_look,
    smoothed,
    zero_line,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lightning_cse.papers.artefacts import Artefact
    from lightning_cse.papers.figures import Result
    from lightning_cse.papers.tables import Table

# The metrics that are shown times 100, and those that only accompany another.
_PERCENT = re.compile(r"dev|.*/(accuracy|auc|auprc|pearson|spearman)[^/]*")
_SECONDARY = ("threshold", "_mean", "_wmean", "_se")
_ABOUT = (
    "Mean ± standard deviation over the seeds; accuracies, correlations and AUPRC × 100. Dev: the best dev score, by "
    "which the checkpoint is chosen."
)
_RFD = (
    "The mean, over the evaluations so far, of the held-out side minus the evaluation side (step 0 left out). "
    "Above zero, what the run is trained on is harder to fit than what it is evaluated on."
)

Part = dict[str, Any]
"""A section of the page, or a table or chart in one, as the template shows it."""
Record = Mapping[str, Any]


def build_report(
    title: str, sections: Sequence[Record], *, facts: Mapping[str, str] | None = None
) -> str:
    """Return a self-contained page; all but the charts is escaped, and the same input gives the
    same text.
    """
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    # Markdown without HTML, links and images, so nothing leads elsewhere or is loaded from there.
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.disable(["link", "image", "autolink", "reference"])
    jinja = environment()
    jinja.filters["markdown"] = lambda text: Markup(markdown.render(text))  # noqa: S704 - escaped
    parts: dict[str, list[Record]] = {}
    for section in sections:
        parts.setdefault(section["part"], []).append(section)

    return jinja.get_template("report.html.jinja").render(title=title, parts=parts, facts=facts)


def slug(text: str) -> str:
    """Return a text as an anchor: letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def artefact_section(artefact: Artefact, table: Table | None, result: Result, *, part: str) -> Part:
    """Return a table or figure of a paper as a section; ``result`` has its figures and its text."""
    return {
        "title": artefact.title,
        "anchor": slug(artefact.key),
        "kicker": artefact.source,
        "part": part,
        "paper_table": table and view(table),
        "intro": "" if table is not None else artefact.note,  # a table has it in its legend,
        "text": result.text,
        "charts": [
            _chart(figure, name.replace("_", " ")) for name, figure in result.figures.items()
        ],
    }


def _chart(figure: Figure, title: str) -> Part:
    """Return a figure as a chart, whose image is in the page itself."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    with plot_style(), mpl.rc_context({"svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})

    image = base64.b64encode(buffer.getvalue()).decode()

    return {
        "title": title,
        "image": f"data:image/svg+xml;base64,{image}",
        "wide": figure.get_figwidth() > 5,
    }


def _charts(groups: Sequence[Setting], keys: Sequence[str]) -> list[Part]:
    """Return one chart of all runs for each key."""
    return [_chart(curves_figure(groups, key), key) for key in keys]


def curves_figure(groups: Sequence[Setting], key: str) -> Figure:
    """Draw the curves of one key, a line for each run, in one colour and style for each setting."""
    with plot_style():
        figure = blank_figure(4.2, 2.7)
        axes = figure.subplots()
        if "rfd_" in key:
            zero_line(axes)

        for number, group in enumerate(groups):
            color, style = series_look(number)
            drawn = [sorted(run.curves[key]) for run in group.runs if key in run.curves]
            for place, points in enumerate(drawn):
                shown = smoothed(points)[0] if key == "train/loss" else points
                label = None if place else group.label  # an entry of the legend is a setting
                look = {"color": color, "linestyle": style, "label": label}
                line(axes, shown, linewidth=1.4, **look)

        by_step(axes)
        figure.legend(loc="outside lower center", handlelength=3)

    return figure


def run_facts(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return short facts about runs: their number, encoders, machines and commits."""
    records = [run.record for run in runs]
    facts = {
        "runs": {str(len(runs))},
        "encoder": {str(value_at(record, "encoder.name")) for record in records},
        "machine": set(map(machine_of, records)),
        "commit": set(map(short_commit, records)),
    }

    return {fact: ", ".join(sorted(texts - {""})) for fact, texts in facts.items()}


def run_sections(runs: Sequence[FinishedRun], *, name: str = "sweep", part: str = "") -> list[Part]:
    """Return the sections of runs; their anchors begin with ``name``, and the contents list them
    under ``part``.
    """
    groups = settings(runs)
    keys = sorted({key for run in runs for key in run.curves})
    monitors = {str(value_at(run.record, "best.monitor")) for run in runs}
    learning = [key for key in ("train/loss", *sorted(monitors)) if key in keys]
    fitting = [key for key in keys if re.fullmatch(r"diag/.*(alignment|uniformity)", key)]
    sections: list[Part] = [
        {"title": "Runs", "anchor": "runs", "tables": [_run_table(groups)] if groups else []},
        {"title": "Learning curves", "anchor": "learning", "charts": _charts(groups, learning)},
        {
            "title": "Relative fitting difficulty",
            "anchor": "rfd",
            "intro": _RFD,
            "charts": _charts(groups, fitting),
        },
    ]

    return [
        {**section, "part": part, "anchor": f"{name}-{section['anchor']}"}
        for section in sections
        if section.get("tables") or section.get("charts")
    ]


def _run_table(groups: Sequence[Setting]) -> Part:
    """Return a table of the metrics over seeds."""
    every = {key for group in groups for run in group.runs for key in run.record["metrics"]}
    shown = [
        key for key in sorted(every) if key.startswith("test/") and not key.endswith(_SECONDARY)
    ]
    rows = []
    for group in groups:
        records = [run.record for run in group.runs]
        scores = [{"dev": value_at(one, "best.score"), **one["metrics"]} for one in records]
        frame = pd.DataFrame(scores, columns=["dev", *shown], dtype=float)
        rows.append([group.label, str(len(scores)), *(_mean_text(frame[key]) for key in frame)])

    headings = ["run", "seeds", "dev", *(key.removeprefix("test/") for key in shown)]

    return {"headings": headings, "rows": rows, "notes": [_ABOUT]}


def _mean_text(values: pd.Series) -> str:
    """Return mean and standard deviation, on the scale on which a metric is shown."""
    scale, decimals = (100, 2) if _PERCENT.match(str(values.name)) else (1, 4)
    numbers = [scale * values.mean(), scale * values.std()]

    return " ± ".join(f"{number:.{decimals}f}" for number in numbers if not pd.isna(number))
