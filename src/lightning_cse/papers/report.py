"""The report: tables and charts of papers and of runs as one HTML file, which opens from disk
without a network.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from lightning_cse.papers.nested import leaves, value_at
from lightning_cse.papers.records import Found
from lightning_cse.papers.render import environment, view
from lightning_cse.papers.significance import points
from lightning_cse.papers.tables import is_number, machine_of, short_commit
from lightning_cse.plots import (
    PALETTE,
    Points,
    blank_figure,
    by_step,
    line,
    moving_average,
    plot_style,
    series_look,
    xy,
    zero_line,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lightning_cse.papers.artefacts import Artefact
    from lightning_cse.papers.tables import Table

_PERCENT: Final = re.compile(
    r".*/(accuracy|auc|auprc|pearson|spearman)[^/]*"
)  # metrics that are shown times 100
_SECONDARY: Final = ("threshold", "_mean", "_wmean", "_se")  # metrics that only accompany another
_SHORT: Final = 60  # characters of a value in the table of differences
_COLORS: Final = {
    color.lower(): f"var(--series-{number})" for number, color in enumerate(PALETTE)
} | {
    "#000000": "var(--ink)",
    "#e6e6e6": "var(--grid)",
    "#ffffff": "var(--card)",
}
_DASHES: Final = {
    "-": "none",
    "--": "6 3",
    ":": "2 3",
    "-.": "7 3 2 3",
}
_ABOUT: Final = (
    "Mean ± standard deviation over the seeds; accuracies, correlations and AUPRC × 100. Dev: the best dev score, by "
    "which the checkpoint is chosen."
)
_FITTING: Final = {
    "held_out": "held-out side",
    "eval": "evaluation side",
    "rfd_alignment": "RFD of alignment",
    "rfd_uniformity": "RFD of uniformity",
}
_RFD: Final = (
    "The mean, over the evaluations so far, of the held-out side minus the evaluation side (step 0 left out). "
    "Above zero, what the run is trained on is harder to fit than what it is evaluated on."
)


def build_report(
    title: str,
    sections: Sequence[Mapping[str, Any]],
    *,
    facts: Mapping[str, str] | None = None,
) -> str:
    """Return a self-contained page; all but the charts is escaped, and the same input gives the
    same text.
    """
    from markdown_it import MarkdownIt
    from markupsafe import Markup, escape

    # Markdown without HTML, links and images, so nothing leads elsewhere or is loaded from there.
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.disable(["link", "image", "autolink", "reference"])

    def to_html(text: str) -> Markup:
        return Markup(markdown.render(text))  # noqa: S704 - escaped by MarkdownIt

    def breakable(text: str) -> Markup:
        """Allow line breaks within long names."""
        escaped = str(escape(text))
        broken = re.sub(r"(?<=[^\W\d])([_./=,]+)(?=\w)", r"\1<wbr>", escaped)
        return Markup(broken)  # noqa: S704 - escaped above

    environment().filters.update(
        markdown=to_html,
        breakable=breakable,
    )
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for section in sections:
        parts.setdefault(section["part"], []).append(section)
    template = environment().get_template("report.html.jinja")
    page = template.render(
        title=title,
        parts=parts,
        facts=facts or {},
    )
    # Only the page's own script may run: another one would have another digest.
    (script,) = re.findall(
        r"<script>(.*?)</script>",
        page,
        re.DOTALL,
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return page.replace(
        "@script-digest@",
        f"sha256-{digest}",
        1,
    )


def slug(text: str) -> str:
    """Return a text as an anchor: letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "section"


def artefact_section(
    artefact: Artefact,
    table: Table | None,
    made: Any = None,
    *,
    part: str = "",
) -> dict[str, Any]:
    """Return a table or figure of a paper as a section; ``made`` holds its figures, its text and
    further tables.
    """
    anchor = slug(artefact.key)
    section: dict[str, Any] = {
        "title": artefact.title,
        "anchor": anchor,
        "kicker": artefact.source,
        "part": part,
        "paper_table": table and view(table),
        "intro": "" if table is not None else artefact.note,  # a table has it in its legend
        "text": "",
    }
    if made is not None:
        section["text"] = made.text
        section["tables"] = [_folded_table(name, rows) for name, rows in made.tables.items()]
        section["charts"] = [
            _chart(
                figure,
                name.replace("_", " "),
                f"{anchor}-{slug(name)}",
            )
            for name, figure in made.figures.items()
        ]
    return section


def _folded_table(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    frame = pd.DataFrame(rows).map(_text)
    return {
        "title": name.replace("_", " "),
        "folded": True,
        "headings": list(frame),
        "rows": frame.to_numpy().tolist(),
    }


def _text(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _chart(
    figure: Figure,
    title: str,
    name: str,
    groups: Sequence[_Group] = (),
) -> dict[str, Any]:
    """Return a figure as a chart: SVG with text as text, in colours that follow the theme of the
    page.
    """
    import matplotlib as mpl

    buffer = io.StringIO()
    with plot_style(), mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        metadata = {"Date": None, "Creator": None}
        figure.savefig(
            buffer,
            format="svg",
            facecolor="none",
            metadata=metadata,
        )
    head, _, svg = buffer.getvalue().partition("<svg")[2].partition(">")
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)[0]
    svg = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>",
        "",
        svg,
        flags=re.DOTALL,
    )
    for group in groups:  # the page shows and hides it
        svg = svg.replace(f'<g id="series.{group.key}">', f'<g data-series="{group.key}">')
    svg = re.sub(
        r'(\bid="|url\(#|href="#)',
        rf"\g<1>{name}-",
        svg,
    )
    svg = re.sub(
        r"#[0-9a-fA-F]{6}\b",
        lambda match: _COLORS.get(match[0].lower(), match[0]),
        svg,
    )
    svg = re.sub(
        r"(font: [^;\"]*?[\d.]+px)[^;\"]+",
        r"\1 var(--sans)",
        svg,
    )
    return {
        "title": title,
        "svg": svg,
        "wide": float(width) > 380,
        "width": width,
        "height": height,
    }


def _charts(
    groups: Sequence[_Group],
    titles: Mapping[str, str],
    name: str,
) -> Iterator[dict[str, Any]]:
    """Yield one chart of all runs for each key that any run has."""
    logged = {key for group in groups for run in group.runs for key in run.curves}
    keys = [key for key in titles if key in logged]
    for number, key in enumerate(keys):
        with plot_style():
            figure = _curves_figure(groups, key)
            yield _chart(
                figure,
                titles[key],
                f"{name}-{number}",
                groups,
            )


def _curves_figure(groups: Sequence[_Group], key: str) -> Figure:
    figure = blank_figure(4.2, 2.7)
    axes = figure.subplots()
    if "rfd_" in key:
        zero_line(axes)
    for group in groups:
        look = {
            "color": group.color,
            "linestyle": group.style,
            "gid": f"series.{group.key}",
        }
        for run in group.runs:
            if points := sorted(run.curves.get(key, ())):
                shown = _smoothed(points) if key == "train/loss" else points
                line(
                    axes,
                    shown,
                    linewidth=1.4,
                    **look,
                )
    by_step(axes)
    return figure


def _smoothed(points: Points) -> Points:
    """Return the moving average of a curve that has enough points for one."""
    if len(points) < 20:
        return points
    steps, values = xy(points)
    average = moving_average(values.tolist(), 2 * max(2, len(points) // 40) + 1)
    return list(
        zip(
            steps.astype(int).tolist(),
            average,
            strict=True,
        )
    )


def _fitting_titles(keys: Iterable[str]) -> dict[str, str]:
    """Return the chart titles of RFD, alignment and uniformity by key, for all views of the
    embeddings.
    """
    titles = {}
    for key in sorted(keys):
        if re.fullmatch(r"diag/.*(alignment|uniformity)", key):
            parts = [_FITTING.get(part, part) for part in reversed(key.split("/")[1:])]
            title = ", ".join(parts)
            titles[key] = title[0].upper() + title[1:]
    return titles


class _Group(NamedTuple):
    """The runs of one point over their seeds, and how they are drawn."""

    key: str
    label: str
    runs: Sequence[Found]
    color: str
    style: str


def run_facts(runs: Sequence[Found]) -> dict[str, str]:
    """Return short facts about runs: their states, encoders, machines, commits and total time."""
    states = Counter(run.state for run in runs)
    records = [run.record for run in runs if run.record.get("environment")]
    seconds = sum(pd.Series(run.record.get("seconds") or {}, dtype=float).sum() for run in runs)
    facts = {
        "runs": [f"{count} {state}" for state, count in states.items()],
        "encoder": sorted({str(value_at(record, "encoder.name") or "") for record in records}),
        "machine": sorted(set(map(machine_of, records))),
        "commit": sorted(set(map(short_commit, records))),
        "time": [str(timedelta(seconds=round(seconds)))] if seconds else [],
    }
    return {fact: ", ".join(texts) for fact, texts in facts.items() if any(texts)}


def run_sections(
    runs: Sequence[Found],
    *,
    name: str = "sweep",
    part: str = "",
) -> list[dict[str, Any]]:
    """Return the sections of runs; their anchors begin with ``name``, and the contents list them
    under ``part``.
    """
    if not runs:
        return []
    groups = []
    for number, point in enumerate(points(runs)):
        color, style = series_look(number)
        groups.append(
            _Group(
                f"{name}-{number}",
                point.label,
                point.runs,
                color,
                style,
            )
        )
    legend = [_legend_entry(group) for group in groups]
    monitors = sorted({_monitor(run) for run in runs})
    learning = {key: f"Dev score: {key.removeprefix('val/')}" for key in monitors}
    learning["train/loss"] = "Training loss, moving average"
    fitting = _fitting_titles({key for run in runs for key in run.curves})
    sections: list[dict[str, Any]] = [
        {
            "title": "Runs",
            "anchor": f"{name}-runs",
            "tables": [_run_table(groups, legend)],
        },
        {
            "title": "Learning curves",
            "anchor": f"{name}-learning",
            "legend": legend,
            "charts": list(_charts(groups, learning, f"{name}-0")),
        },
        {
            "title": "Relative fitting difficulty",
            "anchor": f"{name}-rfd",
            "intro": _RFD,
            "legend": legend,
            "charts": list(_charts(groups, fitting, f"{name}-1")),
        },
        {
            "title": "What differs between the configs",
            "anchor": f"{name}-configs",
            "tables": _difference_tables(groups),
        },
    ]
    shown = [section for section in sections if section.get("tables") or section.get("charts")]
    return [{**section, "part": part} for section in shown]


def _legend_entry(group: _Group) -> dict[str, str]:
    return {
        "key": group.key,
        "label": group.label,
        "color": _COLORS[group.color.lower()],
        "dashes": _DASHES[group.style],
    }


def _run_table(groups: Sequence[_Group], legend: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return a table of the metrics over seeds, with the baselines below."""
    runs = [(number, run) for number, group in enumerate(groups) for run in group.runs]
    frame = pd.DataFrame([_scaled(run.record.get("metrics")) for _, run in runs], dtype=float)
    frame["dev"] = [_dev_score(run) for _, run in runs]
    keys = ["dev", *(key for key in sorted(frame) if _is_shown(key))]
    by_group = frame.groupby([number for number, _ in runs])
    means = by_group.mean()
    deviations = by_group.std()
    rows: list[list[Any]] = []
    for number, group in enumerate(groups):
        finished = sum(run.state == "finished" for run in group.runs)
        values = []
        for key in keys:
            mean = _number(means.at[number, key], key)
            deviation = _number(deviations.at[number, key], key)
            values.append(f"{mean} ± {deviation}" if deviation else mean)
        rows.append(
            [
                legend[number],
                str(finished),
                *values,
            ]
        )
    for name, metrics in _baselines(groups).items():
        values = [_number(metrics.get(key), key) for key in keys]
        rows.append(
            [
                (name, "baseline", ""),
                "",
                *values,
            ]
        )
    headings = [
        "run",
        "seeds",
        *map(_heading, keys),
    ]
    return {
        "headings": headings,
        "rows": rows,
        "notes": [_ABOUT],
    }


def _heading(key: str) -> tuple[str, str, str]:
    task, _, metric = key.removeprefix("test/").rpartition("/")
    return (task, metric, "") if task else (metric, "", "")


def _is_shown(key: str) -> bool:
    return key.startswith("test/") and not key.endswith(_SECONDARY)


def _dev_score(run: Found) -> float:
    """Return the best dev score of a run; NaN without one."""
    best = _scaled({_monitor(run): value_at(run.record, "best.score")})
    return next(iter(best.values()), math.nan)


def _baselines(groups: Sequence[_Group]) -> dict[str, dict[str, float]]:
    """Return the metrics of the baselines that were evaluated beside the runs; each is measured
    once per encoder.
    """
    found: dict[str, dict[str, float]] = {}
    for run in (run for group in groups for run in group.runs):
        for name, metrics in (run.record.get("baselines") or {}).items():
            title = f"{name}, {value_at(run.record, 'encoder.name')}"
            found.setdefault("LENGTH" if name == "length" else title, _scaled(metrics))
    return found


def _monitor(run: Found) -> str:
    """Return the key of the dev score."""
    if best := value_at(run.record, "best.monitor"):
        return str(best)
    scores = (key for key in run.curves if key.startswith("val/") and not key.endswith("threshold"))
    return next(scores, "")


def _scaled(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the metrics that are numbers, on the scale on which they are shown."""
    numbers = {key: float(value) for key, value in (metrics or {}).items() if is_number(value)}
    return {key: value * (100 if _PERCENT.match(key) else 1) for key, value in numbers.items()}


def _number(value: float | None, key: str) -> str:
    if value is None or pd.isna(value):
        return ""
    decimals = 2 if key == "dev" or _PERCENT.match(key) else 4
    return f"{value:.{decimals}f}".replace("-", "−")


def _difference_tables(groups: Sequence[_Group]) -> list[dict[str, Any]]:
    """Return a table of the config keys, and the digests of files and encoders, in which the points
    differ.
    """
    settings = pd.DataFrame([_settings(group.runs[0].record) for group in groups]).fillna("")
    keys = sorted(key for key in settings if settings[key].nunique() > 1)
    if not keys:
        return []
    rows = [[key, *((value[:_SHORT], "", value) for value in settings[key])] for key in keys]
    same = settings.shape[1] - len(keys)
    table = {
        "headings": ["key", *(group.label for group in groups)],
        "rows": rows,
        "notes": [f"{len(keys)} keys differ, {same} are the same for all."],
        "words": True,
    }
    return [table]


def _settings(record: Mapping[str, Any]) -> dict[str, str]:
    document = record.get("decisive") or {}
    settings = {}
    for key, value in leaves(document.get("config") or {}):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        settings[key] = text.removeprefix("lightning_cse.") or '""'
    for part in ("data", "encoder"):
        for key, digest in (document.get(part) or {}).items():
            settings[f"digest of {key}"] = str(digest)[:10]
    return settings
