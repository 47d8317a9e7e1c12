"""The report's sections of some runs: what they measured, their curves, and in what their configs differ."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from lightning_cse.errors import DataError
from lightning_cse.papers.cells import machine_of, short_commit
from lightning_cse.papers.figures import Series, overlay
from lightning_cse.papers.nested import leaves
from lightning_cse.papers.ngcse import Setting, fitting_difficulty_figure, setting_name
from lightning_cse.papers.report import (
    CellView,
    Chart,
    Heading,
    LineView,
    Section,
    TableView,
    draw_chart,
    rounded,
)
from lightning_cse.papers.significance import Point, Run, points
from lightning_cse.plots import plot_style, series_look
from lightning_cse.runs import Curves, decisive, summarise
from lightning_cse.runs import Run as RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lightning_cse.papers.records import Found

__all__ = ["ShownRun", "found_runs", "read_runs", "run_facts", "run_sections"]

_FOLDER: Final = re.compile(r"([0-9A-Za-z]+)-s(\d+)")
_PERCENT: Final = ("accuracy", "auprc", "pearson", "spearman")
_MEASURES: Final = ("alignment", "uniformity")
_AGGREGATES: Final = ("_mean", "_wmean")
_SHORT: Final = 60  # characters of a value in the table of differences
_MINUTE, _HOUR = 60, 3600
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_NOT_TOLD: Final = ("seed=", "hydra", "logger", "force=", "retry_failed=")


@dataclass(frozen=True)
class ShownRun:
    """A run as the report shows it.

    Attributes:
        path: its folder, or the file of its record.
        record: its record; of a run that is not finished, the part of one that its config gives.
        curves: what it logged.
        state: how far it is.
        told: what there is to say of a state, such as why it failed.
    """

    path: Path
    record: Mapping[str, Any] = field(repr=False)
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict, repr=False)
    state: str = "finished"
    told: str = ""


@dataclass(frozen=True)
class _Group:
    """The runs of one point over their seeds, and how they are drawn."""

    point: Point
    runs: tuple[ShownRun, ...]
    series: Series

    @property
    def label(self) -> str:
        return self.point.label

    @property
    def finished(self) -> list[ShownRun]:
        return [run for run in self.runs if run.state == "finished"]


# ----------------------------------------------------------------------------------------------------------- reading


def read_runs(paths: Iterable[Path]) -> list[ShownRun]:
    """Read runs, finished or not, each once.

    Args:
        paths: Run folders; folders with run folders somewhere below them, such as that of all runs; records kept as
            files, whose curves lie beside them as ``<record's name>.curves.csv``; folders of such files.

    Raises:
        DataError: if a path holds none of these, or a record is damaged.
    """
    found: dict[Path, ShownRun] = {}
    for path in paths:
        inner = list(_places(path))
        if not inner:
            raise DataError(f"{path} holds no runs: give folders of runs, or records kept as files")
        for place in inner:
            if place.resolve() not in found:
                found[place.resolve()] = _read_file(place) if place.is_file() else _read_folder(place)
    return list(found.values())


def found_runs(found: Iterable[Found]) -> list[ShownRun]:
    """Return finished runs that are known already, each once."""
    return [
        ShownRun(run.folder or run.source, run.record, _read_curves(run.curves))
        for run in {run.source: run for run in found}.values()
    ]


def _places(path: Path) -> Iterator[Path]:
    """Yield run folders and record files; what lies in a run folder, such as its evaluations, belongs to it."""
    started = _FOLDER.fullmatch(path.name) is not None and (path / "config.yaml").is_file()
    if path.is_file() or started or (path / "record.json").is_file():
        yield path
    elif path.is_dir():
        for inner in sorted(path.iterdir()):
            if inner.is_dir() or inner.suffix == ".json":
                yield from _places(inner)


def _read_file(path: Path) -> ShownRun:
    return ShownRun(path, _read_record(path), _read_curves(path.with_name(f"{path.stem}.curves.csv")))


def _read_folder(path: Path) -> ShownRun:
    curves = _read_curves(path / "curves.csv")
    if (path / "record.json").is_file():
        return ShownRun(path, _read_record(path / "record.json"), curves)
    folder = RunFolder.at(path)
    try:
        config = yaml.safe_load(folder.config_path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise DataError(f"{folder.config_path} is damaged ({why}): redo the run, or leave it out") from None
    if not isinstance(config, dict):
        raise DataError(f"{folder.config_path} is no mapping: redo the run, or leave it out")
    encoder = {"name": str((config.get("encoder") or {}).get("name", ""))}
    document = decisive(config, data={}, encoder=encoder, resolved={})
    name = str(config.get("name", path.parent.name))
    record = {
        "name": name,
        "config_hash": folder.config_hash,
        "seed": folder.seed,
        "encoder": encoder,
        "decisive": document,
    }
    return ShownRun(path, record, curves, folder.status, _failure(folder.failed_path))


def _failure(path: Path) -> str:
    try:
        failure = json.loads(path.read_text(encoding="utf-8"))
        return f"{failure['type']}: {failure['message']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}): redo the run with force=true, or leave it out") from None
    missing = [key for key in ("name", "config_hash", "seed") if not isinstance(record, dict) or key not in record]
    if missing:
        raise DataError(f"{path} has no {', '.join(missing)}: it is not the record of a run; leave it out")
    return dict(record)


def _read_curves(path: Path | None) -> Mapping[str, Sequence[tuple[int, float]]]:
    return Curves(path).read() if path is not None and path.is_file() else {}


# ---------------------------------------------------------------------------------------------------------- sections


def run_sections(runs: Sequence[ShownRun], *, name: str = "sweep", part: str = "") -> list[Section]:
    """Return the sections of some runs, each only where there is something to show.

    Args:
        runs: The runs, those that are not finished included.
        name: What the anchors begin with: letters, digits and hyphens, other for each part of a report.
        part: What the contents put them under.

    Raises:
        DataError: if two runs are of the same point and seed.
    """
    groups = _groups(runs, name)
    if not groups:
        return []
    tables = [_point_table(groups)] if any(len(group.runs) > 1 for group in groups) else []
    tables.append(_run_table(groups, legend=not tables))
    rest = _other_metrics(groups)
    sections = [Section("Runs", f"{name}-runs", tables=(*tables, *rest), text=_origins(groups), part=part)]
    legend = tuple(group.series for group in groups)
    with plot_style():
        learning = _learning_charts(groups, name)
        fitting = _fitting_charts(groups, name)
    if learning:
        sections.append(Section("Learning curves", f"{name}-learning", charts=learning, legend=legend, part=part))
    if fitting:
        sections.append(
            Section("Relative fitting difficulty", f"{name}-rfd", _RFD, charts=fitting, legend=legend, part=part)
        )
    if len(groups) > 1:
        differences = _difference_table(groups)
        sections.append(Section("What differs between the configs", f"{name}-configs", tables=differences, part=part))
    return sections


def _origins(groups: Iterable[_Group]) -> str:
    """Return in Markdown where the LLM rows of the runs come from, a paragraph a file; no word where none tells."""
    found: dict[str, None] = {}
    for group in groups:
        for run in group.finished:
            for name, document in _inner(run.record, "provenance").items():
                if isinstance(document, Mapping):
                    found[_origin(str(name), document)] = None
    return "\n\n".join(found)


def _origin(name: str, document: Mapping[str, Any]) -> str:
    if "damaged" in document:
        return f"LLM rows {_quoted(name)}: it is not known where they come from; the file beside them is of no use."
    about = f"LLM rows {_quoted(name)}:"
    if (count := _count(_inner(document, "rows").get("count"))) is not None:
        about += f" {count}"
    about += f" by {_quoted(document.get('model') or 'an unnamed model')}"
    if pattern := _inner(document, "pattern").get("name"):
        about += f", pattern {_quoted(pattern)}"
    if date := _DATE.match(str(_inner(document, "made").get("finished"))):
        about += f", {date[0]}"
    sources, roles = _inner(document, "acceptance", "sources"), _inner(document, "acceptance", "roles")
    told = [about]
    complete, given_up = (_count(sources.get(key)) for key in ("complete", "given_up"))
    if complete is not None and given_up is not None:
        told.append(f"{complete} of {complete + given_up} sources complete")
    accepted, asked = (_total(roles, key) for key in ("accepted", "asked"))
    if asked:
        told.append(f"{accepted} of {asked} replies accepted")
    cost = document.get("cost")
    if isinstance(cost, int | float) and not isinstance(cost, bool) and math.isfinite(cost):
        told.append(f"cost {cost:.2f} USD" if cost >= 0.01 or cost == 0 else "cost under 0.01 USD")
    edited = " The file was edited after it was made." if document.get("unchanged") is False else ""
    return f"{'; '.join(told)}.{edited}"


def _inner(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return a mapping inside another, empty where there is none: a side file may come from anywhere."""
    for key in keys:
        inner = document.get(key)
        document = inner if isinstance(inner, Mapping) else {}
    return document


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _total(roles: Mapping[str, Any], key: str) -> int:
    return sum(_count(_inner(roles, role).get(key)) or 0 for role in roles)


def _quoted(text: object) -> str:
    """Return a foreign text as code, which Markdown leaves alone."""
    return f"`{_short(' '.join(str(text).replace('`', chr(39)).split())) or ' '}`"


_RFD: Final = (
    "The mean, over the evaluations so far, of the held-out side minus the evaluation side (step 0 left out). "
    "Above zero, what the run is trained on is harder to fit than what it is evaluated on."
)


def run_facts(runs: Sequence[ShownRun]) -> dict[str, str]:
    """Return in a few words what runs these are, and on what they were made."""
    records = [run.record for run in runs]
    known = [record for record in records if record.get("environment")]
    states = dict.fromkeys(run.state for run in runs)
    counts = [f"{sum(run.state == state for run in runs)} {state}" for state in states]
    facts = {
        "runs": ", ".join(counts) if list(states) != ["finished"] else str(len(runs)),
        "encoder": _distinct((record.get("encoder") or {}).get("name") for record in records),
        "machine": _distinct(machine_of(record) for record in known),
        "commit": _distinct(short_commit(record) for record in known),
    }
    return {fact: value for fact, value in facts.items() if value}


def _distinct(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value))


def _groups(runs: Sequence[ShownRun], name: str) -> list[_Group]:
    by_path = {run.path: run for run in runs}
    found = points(Run(run.path, run.record) for run in runs)
    groups = []
    looks = _looks([point.label for point in found])
    for number, (point, (color, style)) in enumerate(zip(found, looks, strict=True)):
        shown = tuple(by_path[run.path] for run in point.runs)
        series = Series(f"{name}-{number}", point.label, color, style, tuple(run.curves for run in shown))
        groups.append(_Group(point, shown, series))
    return groups


def _looks(labels: Sequence[str]) -> list[tuple[str, str]]:
    """Return a colour and line style for each: NGCSE's settings by pattern and domain, all else one after the other."""
    parts = [setting_name(label).partition(".")[::2] for label in labels]
    domains, patterns = (list(dict.fromkeys(side)) for side in zip(*parts, strict=True)) if parts else ([], [])
    if len(set(parts)) == len(parts) and all(pattern for _, pattern in parts):
        looks = [series_look(patterns.index(pattern), domains.index(domain)) for domain, pattern in parts]
        if len(set(looks)) == len(looks):
            return looks
    return [series_look(number) for number in range(len(labels))]


# ------------------------------------------------------------------------------------------------------------ tables


def _metrics(groups: Iterable[_Group]) -> list[str]:
    keys = {key for group in groups for run in group.finished for key in run.record.get("metrics") or ()}
    return sorted(key for key in keys if key.startswith("test/"))


def _secondary(key: str, keys: Iterable[str]) -> bool:
    """Tell whether a metric only goes with another: a threshold, or an aggregate where there is that of all."""
    stem = next((key.removesuffix(aggregate) for aggregate in _AGGREGATES if key.endswith(aggregate)), None)
    return "threshold" in key.rpartition("/")[2] or (stem is not None and f"{stem}_all" in keys)


def _heading(key: str) -> Heading:
    task, _, metric = key.removeprefix("test/").rpartition("/")
    return Heading(task or metric, metric.replace("_", " ") if task else "")


def _scaled(key: str) -> tuple[float, int]:
    """Return the factor and the decimals with which a metric is shown."""
    return (100, 2) if key.rpartition("/")[2].startswith(_PERCENT) else (1, 4)


def _value(run: ShownRun, key: str) -> float | None:
    value = (run.record.get("metrics") or {}).get(key)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _dev(run: ShownRun) -> float | None:
    """Return the best dev score as it is shown."""
    best = run.record.get("best") or {}
    score = best.get("score")
    if not isinstance(score, int | float) or not math.isfinite(score):
        return None
    return _scaled(str(best.get("monitor")))[0] * score


def _number(value: float | None, factor: float = 1, decimals: int = 4) -> CellView:
    return CellView() if value is None else CellView(rounded(factor * value, decimals), order=factor * value)


def _mean(group: _Group, value: Callable[[ShownRun], float | None], factor: float = 1, decimals: int = 4) -> CellView:
    by_seed = {run.record["seed"]: value(run) for run in group.finished}
    values = [factor * one for one in by_seed.values() if one is not None]
    if not values:
        return CellView()
    mean = statistics.fmean(values)
    spread = f" ± {statistics.stdev(values):.{decimals}f}" if len(values) > 1 else ""
    hint = ", ".join(
        f"seed {seed}: {rounded(factor * one, decimals)}" for seed, one in by_seed.items() if one is not None
    )
    return CellView(f"{rounded(mean, decimals)}{spread}", hint=hint, order=mean)


def _shown_metrics(groups: Sequence[_Group]) -> list[str]:
    keys = _metrics(groups)
    return [key for key in keys if not _secondary(key, keys)]


def _point_table(groups: Sequence[_Group]) -> TableView:
    keys = _shown_metrics(groups)
    monitors = _distinct((run.record.get("best") or {}).get("monitor") for group in groups for run in group.runs)
    headings = [Heading("point", number=False), Heading("seeds"), Heading("dev", "best"), *map(_heading, keys)]
    lines = [
        LineView(
            group.label,
            (
                CellView(str(len(group.finished)), order=len(group.finished)),
                _mean(group, _dev, decimals=2),
                *(_mean(group, lambda run, key=key: _value(run, key), *_scaled(key)) for key in keys),  # type: ignore[misc]
            ),
            series=group.series,
        )
        for group in groups
    ]
    notes = (
        "Mean ± standard deviation over the seeds; the value of each seed shows when the pointer rests on a cell. "
        f"Accuracies, correlations and AUPRC are × 100. Dev best: {monitors or 'the highest dev score'}.",
    )
    return TableView("Points, over their seeds", tuple(headings), tuple(lines), notes)


def _run_table(groups: Sequence[_Group], *, legend: bool) -> TableView:
    keys = _shown_metrics(groups)
    runs = [run for group in groups for run in group.runs]
    states = any(run.state != "finished" for run in runs)
    different = _different_overrides(runs)
    headings = [
        Heading("run", number=False),
        Heading("seed"),
        *([Heading("state", number=False)] if states else []),
        *([Heading("what differs", number=False)] if any(different) else []),
        Heading("dev", "best"),
        Heading("step", "of the best"),
        *map(_heading, keys),
        Heading("time"),
        Heading("device", number=False),
    ]
    told = dict(zip((run.path for run in runs), different, strict=True))
    lines = []
    for group in groups:
        for number, run in enumerate(group.runs):
            best = run.record.get("best") or {}
            step = best.get("step")
            cells = [
                CellView(str(run.record["seed"]), order=float(run.record["seed"])),
                *([CellView(run.state, below=run.told)] if states else []),
                *([CellView(told[run.path])] if any(different) else []),
                _number(_dev(run), decimals=2),
                CellView() if step is None else CellView(str(step), below=_of_steps(run), order=float(step)),
                *(_number(_value(run, key), *_scaled(key)) for key in keys),
                _time(run.record.get("seconds")),
                CellView(str(run.record.get("device") or ""), below=str(run.record.get("precision") or "")),
            ]
            series = group.series if legend else None
            lines.append(LineView(group.label, tuple(cells), series=series, apart=number == 0 and not legend))
    title = "" if legend else "Runs, one by one"
    notes = (
        f"{'Accuracies, correlations and AUPRC are × 100. ' if legend else ''}Time: training, evaluation and tests "
        "together; the parts show when the pointer rests on it.",
    )
    return TableView(title, tuple(headings), tuple(lines), notes)


def _of_steps(run: ShownRun) -> str:
    return f"of {run.record['steps']}" if run.record.get("steps") is not None else ""


def _time(seconds: Mapping[str, Any] | None) -> CellView:
    parts = {what: float(value) for what, value in (seconds or {}).items() if isinstance(value, int | float)}
    if not parts:
        return CellView()
    total = math.fsum(parts.values())
    return CellView(
        _clock(total), hint=", ".join(f"{what} {_clock(value)}" for what, value in parts.items()), order=total
    )


def _clock(seconds: float) -> str:
    whole = round(seconds)
    if whole >= _HOUR:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02d} min"
    return f"{whole // _MINUTE} min {whole % _MINUTE:02d} s" if whole >= _MINUTE else f"{seconds:.1f} s"


def _different_overrides(runs: Sequence[ShownRun]) -> list[str]:
    """Return, for each run, the overrides that not all of them were given; none of them tells a secret."""
    given = [
        [
            one
            for one in map(str, run.record.get("overrides") or ())
            if not one.lstrip("+~").startswith(_NOT_TOLD) and one != f"+experiment={run.record['name']}"
        ]
        for run in runs
    ]
    finished = [set(one) for one, run in zip(given, runs, strict=True) if run.state == "finished"]
    common = set.intersection(*finished) if finished else set()
    return ["\n".join(one for one in own if one not in common) for own in given]


def _other_metrics(groups: Sequence[_Group]) -> tuple[TableView, ...]:
    """Return the metrics that the tables of points and runs leave out, and those of the baselines."""
    keys = _metrics(groups)
    secondary = [key for key in keys if _secondary(key, keys)]
    tables = []
    if secondary:
        lines = [
            LineView(
                key.removeprefix("test/"),
                tuple(_mean(group, lambda run: _value(run, key), *_scaled(key)) for group in groups),  # noqa: B023
            )
            for key in secondary
        ]
        headings = (Heading("metric", number=False), *(Heading(group.label) for group in groups))
        tables.append(TableView("Thresholds and other aggregates", headings, tuple(lines), folded=True))
    baselines = _baseline_table(groups)
    return (*tables, *([baselines] if baselines else []))


def _baseline_table(groups: Sequence[_Group]) -> TableView | None:
    found: dict[str, Mapping[str, Any]] = {}
    for group in groups:
        for run in group.finished:
            for name, metrics in (run.record.get("baselines") or {}).items():
                encoder = (run.record.get("encoder") or {}).get("name", "")
                found.setdefault(f"{name}, {encoder}" if name != "length" else "LENGTH", metrics)
    all_keys = {key for metrics in found.values() for key in metrics if key.startswith("test/")}
    keys = sorted(key for key in all_keys if not _secondary(key, all_keys))
    if not keys:
        return None
    lines = []
    for name, metrics in found.items():
        run = ShownRun(Path(), {"metrics": metrics})
        lines.append(LineView(name, tuple(_number(_value(run, key), *_scaled(key)) for key in keys)))
    return TableView(
        "Baselines, evaluated beside the runs",
        (Heading("baseline", number=False), *map(_heading, keys)),
        tuple(lines),
    )


def _difference_table(groups: Sequence[_Group]) -> tuple[TableView, ...]:
    """Return what is not the same for all points, a column a point: keys of the configs, and digests of files."""
    records = [(group.finished or list(group.runs))[0].record for group in groups]
    headings = (Heading("key", number=False), *(Heading(group.label, number=False) for group in groups))
    settings = list(map(_settings, records))
    lines, same = _differences(settings)
    of_suite = tuple(line for line in lines if line.name.startswith("suite."))
    rest = tuple(line for line in lines if line not in of_suite)
    notes = (
        f"{len(lines)} keys differ, {same} are the same for all; what only some have stands out. "
        "Keys that look like secrets are left out.",
    )
    files, _ = _differences(list(map(_digests, records)))
    folded = {"The suites of test tasks": of_suite, "Digests of data files and encoders": files}
    return (
        TableView("", headings, rest, notes),
        *(TableView(title, headings, inner, folded=True) for title, inner in folded.items() if inner),
    )


def _differences(settings: Sequence[Mapping[str, str]]) -> tuple[tuple[LineView, ...], int]:
    """Return a line for each key that differs, and how many do not."""
    keys = sorted({key for one in settings for key in one})
    different = [key for key in keys if len({one.get(key) for one in settings}) > 1]
    lines = []
    for key in different:
        values = [one.get(key, "") for one in settings]
        ((usual, _),) = Counter(values).most_common(1)
        cells = (CellView(_short(value), hint=value, stands_out=value != usual) for value in values)
        lines.append(LineView(key, tuple(cells)))
    return tuple(lines), len(keys) - len(different)


def _settings(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the config that decides a run's result, as text by dotted key."""
    config = (record.get("decisive") or {}).get("config") or {}
    return {key: _told(value) for key, value in leaves(config) if key != "name"}


def _digests(record: Mapping[str, Any]) -> dict[str, str]:
    document = record.get("decisive") or {}
    encoder = {f"encoder's {key}": value for key, value in (document.get("encoder") or {}).items() if key != "name"}
    return {key: str(value)[:10] for key, value in {**encoder, **(document.get("data") or {})}.items()}


def _told(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.removeprefix("lightning_cse.") or '""'


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


# ------------------------------------------------------------------------------------------------------------ charts


def _learning_charts(groups: Sequence[_Group], name: str) -> tuple[Chart, ...]:
    series = [group.series for group in groups]
    found = (_monitor(run.record) for group in groups for run in group.runs)
    monitors = dict.fromkeys(str(monitor) for monitor in found if monitor)
    asked = [
        *((key, f"Dev score: {key.removeprefix('val/')}", "", False) for key in monitors),
        ("train/loss", "Training loss", "Moving average.", True),
    ]
    charts = []
    for number, (key, title, caption, smooth) in enumerate(asked):
        figure = overlay(series, key, smooth=smooth)
        if figure is not None:
            anchor = f"{name}-learning-{number}"
            charts.append(draw_chart(figure, title, anchor, caption=caption, series=series))
    return tuple(charts)


def _monitor(record: Mapping[str, Any]) -> object:
    """Return the key of the dev score; of a run that has no best step yet, from its config."""
    config = (record.get("decisive") or {}).get("config") or {}
    return (record.get("best") or {}).get("monitor") or config.get("monitor")


def _fitting_charts(groups: Sequence[_Group], name: str) -> tuple[Chart, ...]:
    series = [group.series for group in groups]
    keys = {key for one in series for curves in one.curves for key in curves}
    views = sorted({match[1] for key in keys if (match := re.fullmatch(r"diag/(.*)rfd_(?:alignment|uniformity)", key))})
    charts: list[Chart] = []
    for view in views:
        of = f", {view.rstrip('/')} view" if view else (", explicit view" if "implicit/" in views else "")
        asked = [
            *((f"rfd_{measure}", f"RFD of {measure}", True) for measure in _MEASURES),
            *(
                (f"{side}/{measure}", f"{measure.capitalize()}, {told}", False)
                for measure in _MEASURES
                for side, told in (("held_out", "held-out side"), ("eval", "evaluation side"))
            ),
        ]
        for key, title, zero in asked:
            figure = overlay(series, f"diag/{view}{key}", zero=zero)
            if figure is not None:
                charts.append(draw_chart(figure, f"{title}{of}", f"{name}-rfd-{len(charts)}", series=series))
    scatter = _scatter(groups)
    if scatter is not None:
        caption = "A mark is a point's mean, a spoke one of its seeds."
        charts.append(draw_chart(scatter, "RFD and the final score", f"{name}-rfd-scatter", caption=caption))
    return tuple(charts)


def _scatter(groups: Sequence[_Group]) -> Figure | None:
    """Draw the points by their RFD, coloured by the final score, where that is the same score for several."""
    monitors = {_monitor(run.record) for group in groups for run in group.finished}
    if len(monitors) != 1:
        return None
    settings = []
    for group in groups:
        summaries = (summarise(run.curves, str(_monitor(run.record))) for run in group.finished)
        known = tuple(one for one in summaries if one.rfd_uniformity is not None and one.final_score is not None)
        if known:
            # A dollar sign would begin a formula.
            settings.append(Setting(setting_name(group.label).replace("$", r"\$"), known))
    return fitting_difficulty_figure(settings) if len(settings) > 1 else None
