"""The report: tables and charts of papers and of runs as one HTML file, which opens from disk
without a network.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from lightning_cse.papers.labels import settings_of
from lightning_cse.papers.nested import value_at
from lightning_cse.papers.records import Found
from lightning_cse.papers.render import environment, view
from lightning_cse.papers.significance import points
from lightning_cse.papers.tables import machine_of, short_commit
from lightning_cse.plots import (
    PALETTE,
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
_PERCENT: Final = re.compile(r"dev|.*/(accuracy|auc|auprc|pearson|spearman)[^/]*")
_SECONDARY: Final = ("threshold", "_mean", "_wmean", "_se")
_COLORS: Final = {
    **{color.lower(): f"var(--series-{number})" for number, color in enumerate(PALETTE)},
    "#000000": "var(--ink)",
    "#e6e6e6": "var(--grid)",
    "#ffffff": "var(--card)",
}
_DASHES: Final = {"-": "none", "--": "6 3", ":": "2 3", "-.": "7 3 2 3"}
_ABOUT: Final = (
    "Mean ± standard deviation over the seeds; accuracies, correlations and AUPRC × 100. Dev: the best dev score, by "
    "which the checkpoint is chosen."
)
_RFD: Final = (
    "The mean, over the evaluations so far, of the held-out side minus the evaluation side (step 0 left out). "
    "Above zero, what the run is trained on is harder to fit than what it is evaluated on."
)

Part = dict[str, Any]
"""A section of the page, or a table or chart in one, as the template shows it."""
Record = Mapping[str, Any]


def build_report(
    title: str,
    sections: Sequence[Record],
    *,
    facts: Mapping[str, str] | None = None,
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


def artefact_section(
    artefact: Artefact,
    table: Table | None,
    made: Result | None = None,
    *,
    part: str = "",
) -> Part:
    """Return a table or figure of a paper as a section; ``made`` holds its figures and its text."""
    anchor = slug(artefact.key)
    section: Part = {
        "title": artefact.title,
        "anchor": anchor,
        "kicker": artefact.source,
        "part": part,
        "paper_table": table and view(table),
        "intro": "" if table is not None else artefact.note,  # a table has it in its legend
    }
    if made is not None:
        section["text"] = made.text
        section["charts"] = [
            _chart(figure, name.replace("_", " "), f"{anchor}-{slug(name)}")
            for name, figure in made.figures.items()
        ]
    return section


def _chart(figure: Figure, title: str, name: str) -> Part:
    """Return a figure as a chart: SVG with text as text, in colours that follow the theme of the
    page.
    """
    import matplotlib as mpl

    buffer = io.StringIO()
    with plot_style(), mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        metadata = {"Date": None, "Creator": None}
        figure.savefig(buffer, format="svg", facecolor="none", metadata=metadata)
    head, _, svg = buffer.getvalue().partition("<svg")[2].partition(">")
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)[0]
    svg = re.sub(r"(?s)<metadata>.*?</metadata>|<style.*?</style>", "", svg)
    svg = re.sub(r'<g id="series\.', '<g data-series="', svg)  # the page shows and hides it
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for color, variable in _COLORS.items():
        svg = svg.replace(color, variable)
    svg = re.sub(r"(font: [^;\"]*?[\d.]+px)[^;\"]+", r"\1 var(--sans)", svg)
    return {
        "title": title,
        "svg": svg,
        "wide": float(width) > 380,
        "width": width,
        "height": height,
    }


class _Group(NamedTuple):
    """The runs of one point over their seeds, and their entry in the legend."""

    key: str
    label: str
    runs: Sequence[Found]
    look: Record
    color: str
    dashes: str


def _charts(groups: Sequence[_Group], keys: Sequence[str], name: str) -> list[Part]:
    """Return one chart of all runs for each key."""
    return [
        _chart(_curves_figure(groups, key), key, f"{name}-{number}")
        for number, key in enumerate(keys)
    ]


def _curves_figure(groups: Sequence[_Group], key: str) -> Figure:
    with plot_style():
        figure = blank_figure(4.2, 2.7)
        axes = figure.subplots()
        if "rfd_" in key:
            zero_line(axes)
        for group in groups:
            for run in group.runs:
                if points := sorted(run.curves.get(key, ())):
                    shown = smoothed(points)[0] if key == "train/loss" else points
                    line(axes, shown, linewidth=1.4, **group.look)
        by_step(axes)
    return figure


def run_facts(runs: Sequence[Found]) -> dict[str, str]:
    """Return short facts about runs: their states, encoders, machines and commits."""
    states = Counter(run.state for run in runs)
    records = [run.record for run in runs if run.record.get("environment")]
    facts = {
        "runs": {f"{count} {state}" for state, count in states.items()},
        "encoder": {str(value_at(record, "encoder.name")) for record in records},
        "machine": set(map(machine_of, records)),
        "commit": set(map(short_commit, records)),
    }
    return {fact: ", ".join(sorted(texts)) for fact, texts in facts.items()}


def run_sections(
    runs: Sequence[Found],
    *,
    name: str = "sweep",
    part: str = "",
) -> list[Part]:
    """Return the sections of runs; their anchors begin with ``name``, and the contents list them
    under ``part``.
    """
    groups = []
    for number, point in enumerate(points(runs)):
        color, style = series_look(number)
        key = f"{name}-{number}"
        look = {"color": color, "linestyle": style, "gid": f"series.{key}"}
        shown = (_COLORS[color.lower()], _DASHES[style])
        groups.append(_Group(key, point.label, point.runs, look, *shown))
    keys = sorted({key for run in runs for key in run.curves})
    learning = [key for key in ("train/loss", *sorted(set(map(_monitor, runs)))) if key in keys]
    fitting = [key for key in keys if re.fullmatch(r"diag/.*(alignment|uniformity)", key)]
    sections: list[Part] = [
        {"title": "Runs", "anchor": "runs", "tables": [_run_table(groups)] if groups else []},
        {
            "title": "Learning curves",
            "anchor": "learning",
            "legend": groups,
            "charts": _charts(groups, learning, f"{name}-0"),
        },
        {
            "title": "Relative fitting difficulty",
            "anchor": "rfd",
            "intro": _RFD,
            "legend": groups,
            "charts": _charts(groups, fitting, f"{name}-1"),
        },
        {
            "title": "What differs between the configs",
            "anchor": "configs",
            "tables": _difference_tables(groups),
        },
    ]
    return [
        {**section, "part": part, "anchor": f"{name}-{section['anchor']}"}
        for section in sections
        if section.get("tables") or section.get("charts")
    ]


def _run_table(groups: Sequence[_Group]) -> Part:
    """Return a table of the metrics over seeds, with the baselines below."""
    lines = [*map(_scores, groups), *_baselines(groups)]
    keys = sorted({key for _, scores in lines for one in scores for key in one})
    shown = [key for key in keys if key.startswith("test/") and not key.endswith(_SECONDARY)]
    rows = []
    for label, scores in lines:
        frame = pd.DataFrame(scores, columns=["dev", *shown], dtype=float)
        rows.append([label, str(len(scores)), *(_mean_text(frame[key]) for key in frame)])
    headings = ["run", "seeds", "dev", *(key.removeprefix("test/") for key in shown)]
    return {"headings": headings, "rows": rows, "notes": [_ABOUT]}


def _scores(group: _Group) -> tuple[Any, list[Record]]:
    records = [run.record for run in group.runs if run.state == "finished"]
    return group, [{"dev": value_at(one, "best.score"), **one["metrics"]} for one in records]


def _baselines(groups: Sequence[_Group]) -> Iterator[tuple[Any, list[Record]]]:
    """Yield the metrics of the baselines that were evaluated beside the runs, once per encoder."""
    found: dict[str, Record] = {}
    for record in (run.record for group in groups for run in group.runs):
        for name, metrics in (record.get("baselines") or {}).items():
            encoder = "" if name == "length" else value_at(record, "encoder.name")
            found.setdefault(f"{name} {encoder}".strip(), metrics)
    for label, metrics in found.items():
        yield (label, "baseline"), [metrics]


def _mean_text(values: pd.Series) -> str:
    """Return mean and standard deviation, on the scale on which a metric is shown."""
    scale, decimals = (100, 2) if _PERCENT.match(str(values.name)) else (1, 4)
    numbers = [scale * values.mean(), scale * values.std()]
    return " ± ".join(f"{number:.{decimals}f}" for number in numbers if not pd.isna(number))


def _monitor(run: Found) -> str:
    """Return the key of the dev score; a run that is not finished has it among its curves."""
    scores = (key for key in run.curves if key.startswith("val/") and not key.endswith("threshold"))
    return str(value_at(run.record, "best.monitor") or next(scores, ""))


def _difference_tables(groups: Sequence[_Group]) -> list[Part]:
    """Return a table of the config keys in which the points differ."""
    frame = pd.DataFrame([settings_of(group.runs[0].record) for group in groups]).fillna("")
    rows = [[key, *frame[key]] for key in sorted(frame) if frame[key].nunique() > 1]
    table = {"headings": ["key", *(group.label for group in groups)], "rows": rows, "words": True}
    return [table] if rows else []
