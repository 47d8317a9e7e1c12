"""The report: tables and charts of papers and of runs as one HTML file, which opens from disk without a network."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from lightning_cse.errors import DataError
from lightning_cse.papers.nested import leaves, value_at
from lightning_cse.papers.records import Found
from lightning_cse.papers.render import environment, view
from lightning_cse.papers.significance import points
from lightning_cse.papers.tables import is_number, machine_of, short_commit
from lightning_cse.plots import (
    PALETTE,
    blank_figure,
    by_step,
    line,
    moving_average,
    plot_style,
    series_look,
)
from lightning_cse.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lightning_cse.papers.artefacts import Artefact
    from lightning_cse.papers.tables import Table

_PERCENT: Final = re.compile(
    r".*/(accuracy|auc|auprc|pearson|spearman)[^/]*"
)  # metrics that are shown times 100
_SECONDARY: Final = ("threshold", "_mean", "_wmean", "_se")  # metrics that only accompany another
_RECORD: Final = {"name", "config_hash", "seed"}
_SHORT: Final = 60  # characters of a value in the table of differences
_COLORS: Final = {
    color.lower(): f"var(--series-{number})" for number, color in enumerate(PALETTE)
} | {
    "#000000": "var(--ink)",
    "#e6e6e6": "var(--grid)",
    "#ffffff": "var(--card)",
}
_DASHES: Final = {"-": "none", "--": "6 3", ":": "2 3", "-.": "7 3 2 3"}
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
    title: str, sections: Sequence[Mapping[str, Any]], *, facts: Mapping[str, str] | None = None
) -> str:
    """Return a self-contained page; all but the charts is escaped, and the same input gives the same text."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup, escape

    # Markdown without HTML, links and images, so nothing leads elsewhere or is loaded from there.
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.disable(["link", "image", "autolink", "reference"])
    filters = environment().filters
    filters["markdown"] = lambda text: Markup(markdown.render(text))  # noqa: S704 - escaped
    filters["breakable"] = lambda text: Markup(  # noqa: S704 - escaped
        re.sub(r"(?<=[^\W\d])([_./=,]+)(?=\w)", r"\1<wbr>", str(escape(text)))
    )
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for section in sections:
        parts.setdefault(section["part"], []).append(section)
    page = (
        environment()
        .get_template("report.html.jinja")
        .render(title=title, parts=parts, facts=facts or {})
    )
    # Only the page's own script may run: another one would have another digest.
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return page.replace("@script-digest@", f"sha256-{digest}", 1)


def slug(text: str) -> str:
    """Return a text as an anchor: letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "section"


def artefact_section(
    artefact: Artefact, table: Table | None, made: Any = None, *, part: str = ""
) -> dict[str, Any]:
    """Return a table or figure of a paper as a section; ``made`` holds its figures, its text and further tables."""
    anchor, tables = slug(artefact.key), []
    for name, rows in (made.tables if made else {}).items():
        frame = pd.DataFrame(rows).map(
            lambda value: f"{value:.4f}" if isinstance(value, float) else str(value)
        )
        folded = {"title": name.replace("_", " "), "folded": True}
        tables.append({"headings": list(frame), "rows": frame.to_numpy().tolist(), **folded})
    charts = [
        _chart(f, n.replace("_", " "), f"{anchor}-{slug(n)}")
        for n, f in (made.figures if made else {}).items()
    ]
    intro = "" if table is not None else artefact.note  # a table has it in its legend
    parts = {
        "paper_table": table and view(table),
        "tables": tables,
        "charts": charts,
        "intro": intro,
    }
    head = {"title": artefact.title, "anchor": anchor, "kicker": artefact.source, "part": part}
    return {**head, **parts, "text": made.text if made else ""}


def _chart(figure: Figure, title: str, name: str, groups: Sequence[_Group] = ()) -> dict[str, Any]:
    """Return a figure as a chart: SVG with text as text, in colours that follow the theme of the page."""
    import matplotlib as mpl

    sink = io.StringIO()
    with plot_style():
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": name})
        figure.savefig(
            sink, format="svg", facecolor="none", metadata={"Date": None, "Creator": None}
        )
    head, _, svg = sink.getvalue().partition("<svg")[2].partition(">")
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)[0]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    for group in groups:  # the page shows and hides it
        svg = svg.replace(f'<g id="series.{group.key}">', f'<g data-series="{group.key}">')
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"#[0-9a-fA-F]{6}\b", lambda match: _COLORS.get(match[0].lower(), match[0]), svg)
    svg = re.sub(r"(font: [^;\"]*?[\d.]+px)[^;\"]+", r"\1 var(--sans)", svg)
    return {
        "title": title,
        "svg": svg,
        "wide": float(width) > 380,
        "width": width,
        "height": height,
    }


def _charts(
    groups: Sequence[_Group], asked: Mapping[str, str], name: str
) -> Iterator[dict[str, Any]]:
    """Yield one chart of all runs for each key that any run has; ``asked`` maps keys to titles."""
    there = [
        key for key in asked if any(run.curves.get(key) for group in groups for run in group.runs)
    ]
    for number, key in enumerate(there):
        with plot_style():
            figure = blank_figure(4.2, 2.7)
            axes = figure.subplots()
            if "rfd_" in key:
                axes.axhline(0, color="#777777", linewidth=0.8, zorder=1)
            for group, run in [
                (of, run) for of in groups for run in of.runs if run.curves.get(key)
            ]:
                logged = sorted(run.curves[key])
                if key == "train/loss" and len(logged) >= 20:
                    values = moving_average(
                        [value for _, value in logged], 2 * max(2, len(logged) // 40) + 1
                    )
                    logged = [
                        (step, value) for (step, _), value in zip(logged, values, strict=True)
                    ]
                line(
                    axes,
                    logged,
                    color=group.color,
                    linestyle=group.style,
                    linewidth=1.4,
                    gid=f"series.{group.key}",
                )
            by_step(axes)
            yield _chart(figure, asked[key], f"{name}-{number}", groups)


def _fitting_titles(keys: Iterable[str]) -> dict[str, str]:
    """Return the chart titles of RFD, alignment and uniformity by key, for all views of the embeddings."""
    titles = {}
    for key in sorted(key for key in keys if re.fullmatch(r"diag/.*(alignment|uniformity)", key)):
        title = ", ".join(_FITTING.get(part, part) for part in reversed(key.split("/")[1:]))
        titles[key] = title[0].upper() + title[1:]
    return titles


class _Group(NamedTuple):
    """The runs of one point over their seeds, and how they are drawn."""

    key: str
    label: str
    runs: Sequence[Found]
    color: str
    style: str


def read_runs(paths: Iterable[Path], seeds: Sequence[int] | None = None) -> list[Found]:
    """Read runs, finished or not, each once.

    Args:
        paths: run folders; folders with run folders below them, such as that of all runs; the folder of a sweep;
            records kept as files, with their curves beside them as ``<name>.curves.csv``; folders of such files.
        seeds: read only the runs with these seeds.
    """
    found: dict[Path, Found] = {}
    for path in paths:
        runs = {place.resolve(): _read(place) for place in _places(path)}
        if not runs:
            raise DataError(f"{path} holds no runs: give folders of runs, or records kept as files")
        found |= runs
    return [run for run in found.values() if seeds is None or int(run.record["seed"]) in seeds]


def _places(path: Path) -> Iterator[Path]:
    """Yield run folders and record files; the contents of a run folder, such as evaluations, belong to it."""
    begun = re.fullmatch(r"[0-9A-Za-z]+-s\d+", path.name) and (path / "config.yaml").is_file()
    if begun or (path / "record.json").is_file():
        yield path
    elif path.is_dir():
        for inner in sorted(path.iterdir()):
            yield from _places(inner)
    elif path.suffix == ".json":
        content = _load(path)
        folder = content.get("folder")  # of a point of a sweep
        if content.keys() >= _RECORD:
            yield path
        elif isinstance(folder, str) and Path(folder).is_dir():
            yield from _places(Path(folder))


def _load(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file; an empty mapping if it is damaged or not a mapping."""
    with contextlib.suppress(ValueError):
        document = json.loads(path.read_text(encoding="utf-8"))
        return document if isinstance(document, dict) else {}
    return {}


def _read(path: Path) -> Found:
    if path.is_file():
        return Found(_load(path), None, path)
    run = Run.at(path)
    begun = {"name": run.name, "config_hash": run.config_hash, "seed": run.seed}
    record = run.read() if run.record_path.is_file() else begun
    return Found(record, path, path / "record.json", run.status)


def run_facts(runs: Sequence[Found]) -> dict[str, str]:
    """Return short facts about runs: their states, encoders, machines, commits and total time."""
    states = Counter(run.state for run in runs)
    known = [run.record for run in runs if run.record.get("environment")]
    seconds = sum(pd.Series(run.record.get("seconds") or {}, dtype=float).sum() for run in runs)
    facts = {
        "runs": [f"{count} {state}" for state, count in states.items()],
        "encoder": sorted({str(value_at(record, "encoder.name") or "") for record in known}),
        "machine": sorted(set(map(machine_of, known))),
        "commit": sorted(set(map(short_commit, known))),
        "time": [str(timedelta(seconds=round(seconds)))] if seconds else [],
    }
    return {fact: ", ".join(texts) for fact, texts in facts.items() if any(texts)}


def run_sections(
    runs: Sequence[Found], *, name: str = "sweep", part: str = ""
) -> list[dict[str, Any]]:
    """Return the sections of runs; their anchors begin with ``name``, and the contents list them under ``part``."""
    if not runs:
        return []
    groups = [
        _Group(f"{name}-{number}", point.label, point.runs, *series_look(number))
        for number, point in enumerate(points(runs))
    ]
    legend = [
        {
            "key": of.key,
            "label": of.label,
            "color": _COLORS[of.color.lower()],
            "dashes": _DASHES[of.style],
        }
        for of in groups
    ]
    keys = {key for run in runs for key in run.curves}
    learning = {key: f"Dev score: {key.removeprefix('val/')}" for key in map(_monitor, runs)}
    learning = dict(sorted(learning.items())) | {"train/loss": "Training loss, moving average"}
    learned = {"legend": legend, "charts": list(_charts(groups, learning, f"{name}-0"))}
    fitted = {"legend": legend, "charts": list(_charts(groups, _fitting_titles(keys), f"{name}-1"))}
    found: list[dict[str, Any]] = [
        {"title": "Runs", "anchor": f"{name}-runs", "tables": [_run_table(groups, legend)]},
        {"title": "Learning curves", "anchor": f"{name}-learning", **learned},
        {"title": "Relative fitting difficulty", "anchor": f"{name}-rfd", "intro": _RFD, **fitted},
        {
            "title": "What differs between the configs",
            "anchor": f"{name}-configs",
            "tables": _difference_tables(groups),
        },
    ]
    return [
        section | {"part": part}
        for section in found
        if section.get("tables") or section.get("charts")
    ]


def _run_table(groups: Sequence[_Group], legend: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return a table of the metrics over seeds, with the baselines below."""
    runs = [(number, run) for number, group in enumerate(groups) for run in group.runs]
    best = [
        _scaled({_monitor(run): value_at(run.record, "best.score")}).values() for _, run in runs
    ]
    frame = pd.DataFrame([_scaled(run.record.get("metrics")) for _, run in runs], dtype=float)
    frame["dev"] = [next(iter(score), math.nan) for score in best]
    keys = [
        "dev",
        *sorted(key for key in frame if key.startswith("test/") and not key.endswith(_SECONDARY)),
    ]
    seeds = frame.groupby([number for number, _ in runs])
    means, deviations = seeds.mean(), seeds.std()
    rows: list[list[Any]] = []
    for number, group in enumerate(groups):
        spread = {key: f" ± {_number(deviations.at[number, key], key)}" for key in keys}
        values = [
            _number(means.at[number, key], key) + spread[key] * (len(spread[key]) > 3)
            for key in keys
        ]
        rows.append(
            [legend[number], str(sum(run.state == "finished" for run in group.runs)), *values]
        )
    baselines: dict[str, dict[str, float]] = {}
    for _, run in runs:
        for name, metrics in (run.record.get("baselines") or {}).items():
            called = (
                "LENGTH" if name == "length" else f"{name}, {value_at(run.record, 'encoder.name')}"
            )
            baselines.setdefault(called, _scaled(metrics))
    for called, known in baselines.items():
        rows.append([(called, "baseline", ""), "", *(_number(known.get(key), key) for key in keys)])
    parts = [key.removeprefix("test/").rpartition("/") for key in keys]
    headings = [(task or metric, metric if task else "", "") for task, _, metric in parts]
    return {"headings": ["run", "seeds", *headings], "rows": rows, "notes": [_ABOUT]}


def _monitor(run: Found) -> str:
    """Return the key of the dev score."""
    keys = [key for key in run.curves if key.startswith("val/") and not key.endswith("threshold")]
    return str(value_at(run.record, "best.monitor") or next(iter(keys), ""))


def _scaled(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the metrics that are numbers, on the scale on which they are shown."""
    numbers = {key: float(value) for key, value in (metrics or {}).items() if is_number(value)}
    return {key: value * (100 if _PERCENT.match(key) else 1) for key, value in numbers.items()}


def _number(value: float | None, key: str) -> str:
    decimals = 2 if key == "dev" or _PERCENT.match(key) else 4
    return "" if value is None or pd.isna(value) else f"{value:.{decimals}f}".replace("-", "−")


def _difference_tables(groups: Sequence[_Group]) -> list[dict[str, Any]]:
    """Return a table of the config keys, and the digests of files and encoders, in which the points differ."""
    settings = pd.DataFrame([dict(_settings(group.runs[0].record)) for group in groups]).fillna("")
    keys = sorted(key for key in settings if settings[key].nunique() > 1)
    rows = [[key, *((value[:_SHORT], "", value) for value in settings[key])] for key in keys]
    notes = [f"{len(keys)} keys differ, {settings.shape[1] - len(keys)} are the same for all."]
    headings = ["key", *(group.label for group in groups)]
    return [{"headings": headings, "rows": rows, "notes": notes, "words": True}] if rows else []


def _settings(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    document = record.get("decisive") or {}
    for key, value in leaves(document.get("config") or {}):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield key, text.removeprefix("lightning_cse.") or '""'
    for key, digest in (
        (key, of) for part in ("data", "encoder") for key, of in (document.get(part) or {}).items()
    ):
        yield f"digest of {key}", str(digest)[:10]
