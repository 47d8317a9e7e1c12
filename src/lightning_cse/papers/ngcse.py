"""NGCSE's figures, tables and correlations, by one code for the authors' released settings and for our runs."""

from __future__ import annotations

import csv
import json
import logging
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from lightning_cse.errors import DataError
from lightning_cse.metrics import spearman
from lightning_cse.papers.nested import leaves
from lightning_cse.papers.released import read_released
from lightning_cse.papers.significance import read_run
from lightning_cse.plots import BLUE, GREY, ORANGE, VERMILION, blank_figure, plot_style, save_figures
from lightning_cse.runs import Curves, CurveSummary, summarise
from lightning_cse.runs.curves import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

__all__ = [
    "Association",
    "Correlation",
    "Setting",
    "Study",
    "best_step_figure",
    "correlation_table",
    "correlation_with_interval",
    "correlations",
    "draw_settings",
    "draw_studies",
    "fitting_difficulty_figure",
    "keep_curves",
    "process_figure",
    "process_figures",
    "read_published",
    "read_release",
    "read_settings",
    "read_study",
    "setting_name",
    "setting_of_runs",
    "settings_table",
    "studies_figure",
    "study_among",
    "study_of_records",
]

log = logging.getLogger(__name__)

Study = Mapping[float, Sequence[float]]
"""Scores in percent, one a run, by the value of the option that was varied."""

PRETRAINED: Final = "pretrained"
"""The name of the encoder before training, in figures and in the published summaries."""

ROWS_STUDIED: Final = "number of LLM rows"
POSITIVE_STUDIED: Final = "margin $m_1$"
NEGATIVE_STUDIED: Final = "margin $m_2$"
"""What the studies of the paper's Figure 5 vary, as their figures say it."""

_MONITOR: Final = "val/stsb/spearman"
_DOMAINS: Final = {"wiki": "Wiki", "nli": "NLI"}
_PATTERNS: Final = ("dropout", "token_shuffle", "token_cutoff", "NLI", "STS", "STS_HT", "SUP")
_CAPITALS: Final = {pattern.lower(): pattern for pattern in _PATTERNS if pattern.isupper()}
_MARKERS: Final = {"Wiki": "o", "NLI": "s"}
_KEPT: Final = ("diag/", "val/")
_FIGURE_3: Final = ("NLI.SUP", "NLI.dropout", "Wiki.dropout")
_CONFIDENCE: Final = 0.95
_SIDES: Final = (("held_out", "held-out side", BLUE, "-"), ("eval", "evaluation side", ORANGE, "--"))

_ROUNDS: Final = 4
_CROSSED: Final = 0.25  # what crossing a thin line costs a label, by what covering another label does
_FAR: Final = 18.0  # points between a label and its marker from which a line ties them
# Where a label may stand: right, left, above, below and between, first near and then farther off.
_PLACES: Final = tuple(
    (across, up, distance)
    for distance in (7.0, 12.0, 18.0, 24.0)
    for across, up in ((1, 0), (-1, 0), (0, 1), (0, -1), (0.7, 0.7), (-0.7, 0.7), (0.7, -0.7), (-0.7, -0.7))
)


@dataclass(frozen=True)
class Setting:
    """One training set in the paper's sense, and what its runs came to.

    Args:
        name: The domain and the pattern, such as ``Wiki.STS_HT``.
        summaries: One a run.
        curves: One a run; none where only the summaries are known.
    """

    name: str
    summaries: tuple[CurveSummary, ...]
    curves: tuple[Points, ...] = field(default=(), repr=False)

    @property
    def domain(self) -> str:
        """What stands before the point: where the sentences are from."""
        return self.name.partition(".")[0] if "." in self.name else ""

    def values(self, measure: str) -> list[float]:
        """Return a measure of every run that has it: a field of `CurveSummary`, or ``rfd`` for the sum of both."""
        parts = ("rfd_alignment", "rfd_uniformity") if measure == "rfd" else (measure,)
        found = [[getattr(summary, part) for part in parts] for summary in self.summaries]
        return [math.fsum(values) for values in found if None not in values]

    def mean(self, measure: str) -> float | None:
        """Return the mean of a measure over the runs; None where no run has it."""
        values = self.values(measure)
        return statistics.fmean(values) if values else None


# ----------------------------------------------------------------------------------------------------------- reading


def setting_name(name: str) -> str:
    """Return a setting's name in the paper's spelling, of an experiment's name or of a folder of the release.

    Example:
        >>> setting_name("ngcse_wiki_sts_ht"), setting_name("nli/token_cutoff"), setting_name("nli/sup")
        ('Wiki.STS_HT', 'NLI.token_cutoff', 'NLI.SUP')
        >>> setting_name("simcse_sup")
        'simcse_sup'
    """
    domain, *rest = re.split(r"[_/]", name.removeprefix("ngcse_"), maxsplit=1)
    if domain not in _DOMAINS or not rest:
        return name
    pattern, final, _ = rest[0].partition("_final")
    return f"{_DOMAINS[domain]}.{_CAPITALS.get(pattern, pattern)}{' final' if final else ''}"


def read_release(folder: Path) -> list[Setting]:
    """Read every setting below a folder of the authors' release, ``<folder>/<domain>/<pattern>/metrics`` and the like.

    Raises:
        DataError: if there is none, or as `read_released`.
    """
    places = sorted(path.parent for path in folder.rglob("metrics"))
    if not places:
        raise DataError(f"{folder} holds no released setting: give the folder above wiki/dropout/metrics and its like")
    curves = {setting_name(place.relative_to(folder).as_posix()): read_released(place) for place in places}
    return _ordered(Setting(name, (summarise(found),), (found,)) for name, found in curves.items())


def read_settings(paths: Iterable[Path], monitor: str = _MONITOR) -> list[Setting]:
    """Read the curves of runs made here, and put the seeds of a setting together.

    Args:
        paths: Folders of finished runs; CSV files ``<name>-s<seed>.csv`` as `keep_curves` leaves them; or folders of
            such files.
        monitor: The key of the dev score, for the CSV files; a run's record says its own.

    Raises:
        DataError: if a path is none of these, a seed of a setting is there twice, or two runs of one name are not of
            the same point.
    """
    found: dict[str, dict[int, tuple[Path, Points, str]]] = {}
    identities: dict[str, tuple[str, Path]] = {}
    for path in (inner for given in paths for inner in _curve_files(given)):
        if path.name == "curves.csv":
            run = read_run(path.parent)
            name, seed = run.name, run.seed
            key = str((run.record.get("best") or {}).get("monitor", monitor))
            identity, first = identities.setdefault(name, (run.config_hash, path))
            if identity != run.config_hash:
                raise DataError(f"{first} and {path} are of two points of {name}: give the runs of one point only")
        else:
            name, seed, key = *_name_and_seed(path), monitor
        runs = found.setdefault(setting_name(name), {})
        if seed in runs:
            raise DataError(f"{runs[seed][0]} and {path} are both seed {seed} of {name}: give only one of them")
        runs[seed] = (path, Curves(path).read(), key)
    return _ordered(
        Setting(
            name,
            tuple(summarise(curves, key) for _, curves, key in runs.values()),
            tuple(curves for _, curves, _ in runs.values()),
        )
        for name, runs in ((name, dict(sorted(runs.items()))) for name, runs in found.items())
    )


def setting_of_runs(name: str, runs: Iterable[tuple[Mapping[str, Any], Path | None]]) -> Setting:
    """Return a setting made of runs: of each its record, and its curves where they were kept.

    A run without curves counts with the summary in its record, and is missing where a figure draws curves.

    Args:
        name: The setting's name.
        runs: Records, each with the file of its curves or None.
    """
    summaries, curves = [], []
    for record, path in runs:
        if path is not None and path.is_file():
            curves.append(Curves(path).read())
            summaries.append(summarise(curves[-1], str((record.get("best") or {}).get("monitor", _MONITOR))))
        else:
            kept = record.get("summary") or {}
            summaries.append(CurveSummary(**{one.name: kept.get(one.name) for one in fields(CurveSummary)}))
    return Setting(name, tuple(summaries), tuple(curves))


def keep_curves(run_folders: Iterable[Path], folder: Path) -> list[Path]:
    """Copy the dev scores and diagnostics of finished runs to ``<folder>/<name>-s<seed>.csv``, and return the files.

    Raises:
        DataError: if a folder holds no finished run.
        LightningCSEError: if the disk is full.
    """
    kept = []
    for run_folder in run_folders:
        run = read_run(run_folder)
        by_step: dict[int, dict[str, float]] = {}
        for key, points in Curves(run_folder / "curves.csv").read().items():
            if key.startswith(_KEPT):
                for step, value in points:
                    by_step.setdefault(step, {})[key] = value
        path = folder / f"{run.name}-s{run.seed}.csv"
        path.unlink(missing_ok=True)
        for step in sorted(by_step):
            Curves(path).append(step, by_step[step])
        kept.append(path)
    return kept


def read_published(path: Path) -> dict[str, Setting]:
    """Read summaries by setting from a CSV of ``setting`` and the fields of `CurveSummary`, which may be empty.

    Raises:
        DataError: if the file is missing, a column is, or a cell is neither empty nor a number.
    """
    names = [one.name for one in fields(CurveSummary)]
    found = {}
    for number, row in _rows(path, ["setting", *names]):
        try:
            values = {name: float(row[name]) if row[name] else None for name in names}
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}; leave the cell empty where nothing is known") from None
        step = values.pop("best_step")
        summary = CurveSummary(**values, best_step=None if step is None else int(step))
        found[row["setting"]] = Setting(row["setting"], (summary,))
    return found


def read_study(path: Path) -> dict[float, list[float]]:
    """Read a study of the release: a CSV of two columns, the varied number and ``avg`` in percent, one line a run.

    Raises:
        DataError: if the file is missing, or a line does not hold two numbers.
    """
    study: dict[float, list[float]] = {}
    for number, row in _rows(path, ["avg"]):
        try:
            value, score = (float(cell) for cell in row.values())
        except (TypeError, ValueError):
            raise DataError(f"{path}, line {number}: expected two numbers, found {list(row.values())}") from None
        study.setdefault(value, []).append(score)
    return dict(sorted(study.items()))


def study_of_records(records: Iterable[Mapping[str, Any]], option: str, metric: str) -> dict[float, list[float]]:
    """Return a metric of finished runs, in percent, by the value of an option that was varied between them.

    Only runs whose configs are alike but for the option and the seed are put together. Of
    several such families the one with the most values of the option is kept, then the one with the most runs; what is
    left out is logged.

    Args:
        records: The records.
        option: The dotted key of the option in the config.
        metric: The metric's key.

    Raises:
        DataError: if a record has no such option or a kept one no such metric, the option is no number there, no two
            runs differ in the option alone, or two families have as many values and runs.
    """
    families = _families(records, option)
    if not families:
        return {}
    kept, *others = families
    if others and (_size(kept) == _size(others[0]) or _size(kept)[0] == 1):
        one, other = kept[0], others[0][0]
        raise DataError(
            f"which runs make the study of {option} is not clear, since some differ in more: {_told(one.record)} and "
            f"{_told(other.record)} first in {_difference(one, other)}; give the runs of one of the two only"
        )
    for family in others:
        log.warning(
            "the study of %s leaves out %s: unlike the %d runs that it keeps in %s",
            option,
            "; ".join(_told(run.record) for run in family),
            len(kept),
            _difference(kept[0], family[0]),
        )
    study: dict[float, list[float]] = {}
    for run in kept:
        if metric not in run.record["metrics"]:
            there = ", ".join(sorted(run.record["metrics"])) or "none"
            raise DataError(f"{_told(run.record)} has no metric {metric}; metrics there: {there}")
        study.setdefault(run.value, []).append(100 * run.record["metrics"][metric])
    return dict(sorted(study.items()))


def study_among(records: Iterable[Mapping[str, Any]], option: str, metric: str) -> dict[float, list[float]]:
    """Return the study of an option as `study_of_records` does, of those of many runs that are part of one.

    Runs without the metric, or whose option is no number, are no part of it; there is none, so the result is empty,
    where no two runs differ in the option alone.

    Raises:
        DataError: if two families of runs have as many values and runs.
    """
    fit = []
    for record in records:
        value = dict(leaves(record["decisive"])).get(f"config.{option}")
        if isinstance(value, int | float) and not isinstance(value, bool) and metric in record["metrics"]:
            fit.append(record)
    families = _families(fit, option)
    if not families or _size(families[0])[0] == 1:
        return {}
    clear = len(families) == 1 or _size(families[0]) > _size(families[1])
    return study_of_records([run.record for run in families[0]] if clear else fit, option, metric)


def _families(records: Iterable[Mapping[str, Any]], option: str) -> list[list[_Run]]:
    """Return the runs in groups alike but for the option, that with the most values and then the most runs first."""
    families: dict[frozenset[tuple[str, str]], list[_Run]] = {}
    for record in records:
        decisive = dict(leaves(record["decisive"]))
        value = decisive.pop(f"config.{option}", None)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DataError(
                f"{_told(record)}: {option} is {value!r}, which is no number; name the option that was varied"
            )
        rest = {key: json.dumps(other) for key, other in decisive.items()}
        families.setdefault(frozenset(rest.items()), []).append(_Run(float(value), rest, record))
    return sorted(families.values(), key=_size, reverse=True)


class _Run(NamedTuple):
    """A run of a study: the option's value, the rest of its identity as JSON by dotted key, and its record."""

    value: float
    rest: dict[str, str]
    record: Mapping[str, Any]


def _size(family: Sequence[_Run]) -> tuple[int, int]:
    return len({run.value for run in family}), len(family)


def _told(record: Mapping[str, Any]) -> str:
    return f"{record.get('name')} {record.get('config_hash')}, seed {record.get('seed')}"


def _difference(one: _Run, other: _Run) -> str:
    """Name the first key in which two runs of different families differ, with both values."""
    keys = sorted(one.rest.keys() | other.rest.keys())
    key = next(key for key in keys if one.rest.get(key) != other.rest.get(key))
    return f"{key.removeprefix('config.')} ({' and '.join(run.rest.get(key, 'not there') for run in (one, other))})"


def _curve_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if (path / "curves.csv").is_file():
        return [path / "curves.csv"]
    found = sorted(path.glob("*.csv"))
    if not found:
        raise DataError(f"{path} holds no curves: give run folders, <name>-s<seed>.csv files or a folder of these")
    return found


def _name_and_seed(path: Path) -> tuple[str, int]:
    match = re.fullmatch(r"(.+)-s(\d+)", path.stem)
    if not match:
        raise DataError(f"{path}: the file's name must be <name>-s<seed>.csv; rename it")
    return match[1], int(match[2])


def _ordered(settings: Iterable[Setting]) -> list[Setting]:
    """Sort as the paper does: Wikipedia before NLI, and within a domain from dropout to supervised."""
    domains = list(_DOMAINS.values())

    def place(setting: Setting) -> tuple[int, int, str]:
        pattern = setting.name.partition(".")[2].removesuffix(" final")
        return (
            domains.index(setting.domain) if setting.domain in domains else len(domains),
            _PATTERNS.index(pattern) if pattern in _PATTERNS else len(_PATTERNS),
            setting.name,
        )

    return sorted(settings, key=place)


def _rows(path: Path, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a CSV with their line numbers."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            absent = [column for column in columns if column not in (reader.fieldnames or ())]
            if absent:
                raise DataError(f"{path}, line 1: no column {', '.join(absent)} in {reader.fieldnames}; add it")
            return [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        raise DataError(f"{path} is missing; give the path of a CSV with the columns {', '.join(columns)}") from None


# ------------------------------------------------------------------------------------------------------ correlations


class Correlation(NamedTuple):
    """A correlation and the ends of its 95 % interval, which are None where there is no interval."""

    r: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        """Return the correlation with its interval."""
        return f"{self.r:+.3f}" if self.low is None else f"{self.r:+.3f} [{self.low:+.2f}, {self.high:+.2f}]"


def correlation_with_interval(x: ArrayLike, y: ArrayLike, *, ranks: bool = False) -> Correlation:
    r"""Return Pearson's or, of ranks, Spearman's correlation with its 95 % interval.

    .. math:: \tanh \left( \operatorname{artanh} r \pm z_{0.975} \, \mathrm{se} \right), \qquad
        \mathrm{se} = \frac{1}{\sqrt{n - 3}} \;\text{ or, of ranks, }\; \sqrt{\frac{1 + r^2 / 2}{n - 3}}

    with ``x`` and ``y`` of shape ``(n,)``. There is no interval below four points, nor for :math:`|r| = 1`, where the
    formula has no end.

    Source: Fisher 1921; for ranks Bonett and Wright 2000.  Differs: nothing.

    Raises:
        ValueError: if an input is constant, not finite or not 1-d, there are fewer than three points, or the lengths
            differ.

    Example:
        >>> str(correlation_with_interval([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]))
        '+0.800 [-0.28, +0.99]'
    """
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or len(a) < 3:
        raise ValueError(f"need two equally long columns of at least 3 numbers, got shapes {a.shape} and {b.shape}")
    rho = spearman(a, b)  # tells what is constant or not finite
    r = rho if ranks else float(np.clip(stats.pearsonr(a, b).statistic, -1, 1))
    if len(a) < 4 or 1 - abs(r) < 1e-12:
        return Correlation(r, None, None)
    half = float(stats.norm.ppf(0.5 + _CONFIDENCE / 2)) * math.sqrt((1 + (r * r / 2 if ranks else 0)) / (len(a) - 3))
    return Correlation(r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half))


_RFD: Final = {"rfd_alignment": "RFD_a", "rfd_uniformity": "RFD_u", "rfd": "RFD_a + RFD_u"}


class Association(NamedTuple):
    """How an RFD goes with the final score over some settings; None where fewer than three have both, or one is alike.

    Args:
        measure: ``RFD_a``, ``RFD_u`` or their sum.
        scope: A domain, or ``all``.
        settings: How many settings have both.
        pearson: The correlation.
        spearman: That of ranks.
    """

    measure: str
    scope: str
    settings: int
    pearson: Correlation | None
    spearman: Correlation | None


def correlations(settings: Sequence[Setting]) -> list[Association]:
    """Return how each RFD, and their sum, goes with the final score, over all settings and within a domain.

    A point is a setting, the mean of its runs, since the runs of one setting do not stand for several settings.
    """
    domains = dict.fromkeys(setting.domain for setting in _ordered(settings) if setting.domain)
    found = []
    for scope in ("", *domains):
        for measure, heading in _RFD.items():
            x, y = _columns([s for s in settings if scope in {"", s.domain}], measure, "final_score")
            both: list[Correlation | None] = [None, None]
            if len(x) >= 3 and len(set(x)) > 1 and len(set(y)) > 1:
                both = [correlation_with_interval(x, y, ranks=ranks) for ranks in (False, True)]
            found.append(Association(heading, scope or "all", len(x), *both))
    return found


def correlation_table(settings: Sequence[Setting]) -> str:
    """Return what `correlations` does as a Markdown table; a cell stays empty where there is no correlation."""
    lines = ["| correlation with the final score | settings | Pearson | Spearman |", "|---|---:|---:|---:|"]
    for each in correlations(settings):
        told = ["" if found is None else str(found) for found in (each.pearson, each.spearman)]
        lines.append(f"| {each.measure}, {each.scope} | {each.settings} | {' | '.join(told)} |")
    return "\n".join(lines)


def settings_table(settings: Sequence[Setting], published: Mapping[str, Setting]) -> str:
    """Return a Markdown table of RFD and final score by setting, beside the authors' values; mean ± s.d. over runs."""
    columns = {**_RFD, "final_score": "final score"}
    heads = [*columns.values(), *(f"{heading}, authors" for heading in columns.values())]
    lines = [f"| setting | runs | {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) + 1)}"]
    for setting in settings:
        theirs = published.get(setting.name, Setting(setting.name, ()))
        cells = [_cell(one, measure) for one in (setting, theirs) for measure in columns]
        lines.append(f"| {setting.name} | {len(setting.summaries)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(setting: Setting, measure: str) -> str:
    values = setting.values(measure)
    if not values:
        return ""
    scale, form = (100, ".2f") if measure == "final_score" else (1, "+.4f")
    mean = f"{scale * statistics.fmean(values):{form}}"
    return mean if len(values) == 1 else f"{mean} ± {scale * statistics.stdev(values):{form.lstrip('+')}}"


def _columns(settings: Iterable[Setting], *measures: str) -> list[list[float]]:
    """Return the means of some measures, a list each, of the settings that have them all."""
    found = [[setting.mean(measure) for measure in measures] for setting in settings]
    return [[row[k] for row in found if None not in row] for k in range(len(measures))]  # type: ignore[misc]


# ----------------------------------------------------------------------------------------------------------- figures


def draw_settings(settings: Sequence[Setting], folder: Path, pretrained_score: float | None = None) -> list[Path]:
    """Draw the paper's Figures 1, 2, 3 and 6 of these settings, each only where there is something to draw.

    ``fitting_difficulty.png`` (RFD of uniformity and of alignment, coloured by the final score), ``best_step.png``
    (uniformity and alignment on the evaluation side at the best step, coloured by the dev score there, and the encoder
    before training), ``process.png`` (the three settings of the paper's Figure 3) and ``process_<domain>.png`` (all).

    Args:
        settings: The settings, as `read_release` or `read_settings` returns them.
        folder: Where the figures go; made if need be.
        pretrained_score: The dev score before training, where the curves do not hold it.

    Returns:
        The files written.

    Raises:
        LightningCSEError: if the disk is full.
    """
    with plot_style():
        drawings = {
            "fitting_difficulty.png": fitting_difficulty_figure(settings),
            "best_step.png": best_step_figure(settings, pretrained_score),
        }
        chosen = {setting.name: setting for setting in settings}
        if chosen.keys() >= set(_FIGURE_3):
            drawings["process.png"] = process_figure([chosen[name] for name in _FIGURE_3])
        drawings |= {f"{name}.png": figure for name, figure in process_figures(settings).items()}
        return save_figures(drawings, folder)


def draw_studies(
    folder: Path,
    *,
    rows: Study | None = None,
    margin_positive: Study | None = None,
    margin_negative: Study | None = None,
) -> list[Path]:
    """Draw the paper's Figure 5, ``llm_rows.png`` and ``margins.png``, each only where its study is given.

    Args:
        folder: Where the figures go; made if need be.
        rows: By the number of LLM rows.
        margin_positive: By the margin between positive and intermediate.
        margin_negative: By the margin between intermediate and negative.

    Returns:
        The files written.

    Raises:
        LightningCSEError: if the disk is full.
    """
    margins = {POSITIVE_STUDIED: margin_positive, NEGATIVE_STUDIED: margin_negative}
    with plot_style():
        drawings = {
            "llm_rows.png": studies_figure({ROWS_STUDIED: rows} if rows else {}),
            "margins.png": studies_figure({label: study for label, study in margins.items() if study}),
        }
        return save_figures(drawings, folder)


# What returns a figure is to be called, and the figure to be saved, in the house style.


def fitting_difficulty_figure(settings: Sequence[Setting]) -> Figure | None:
    """Draw RFD of uniformity and of alignment, coloured by the final score, with a spoke to each of several runs.

    None where no setting has all three; settings that have not are left out.

    Source: NGCSE, figure 1.  Differs: no marker is moved.
    """
    from matplotlib.collections import LineCollection

    measures = ("rfd_uniformity", "rfd_alignment", "final_score")
    shown = [setting for setting in settings if _columns([setting], *measures)[0]]
    if not shown:
        return None
    x, y, score = _columns(shown, *measures)
    figure = blank_figure(6.8, 4.6)
    axes = figure.subplots()
    axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    dots: list[Sequence[float]] = []
    for setting, *mean in zip(shown, x, y, strict=True):
        both = [Setting(setting.name, (summary,)) for summary in setting.summaries]
        runs = list(zip(*_columns(both, *measures[:2]), strict=True))
        if len(runs) > 1:  # a spoke a run, from the setting's mean
            axes.add_collection(LineCollection([[mean, run] for run in runs], color=GREY, linewidth=0.7, zorder=2))
            axes.scatter([run[0] for run in runs], [run[1] for run in runs], s=7, color=GREY, zorder=2)
            dots += runs
    _scatter(
        figure,
        axes,
        [s.domain for s in shown],
        (x, y),
        [100 * s for s in score],
        "final score (mean of five best, dev)",
    )
    axes.set_xlabel("RFD of uniformity")
    axes.set_ylabel("RFD of alignment")
    _label(
        figure,
        axes,
        list(zip(x, y, strict=True)),
        [f"{s.name} ({100 * v:.1f})" for s, v in zip(shown, score, strict=True)],
        dots,
    )
    return figure


def best_step_figure(settings: Sequence[Setting], pretrained_score: float | None = None) -> Figure | None:
    """Draw uniformity and alignment of the evaluation side at the best step, coloured by the dev score there.

    The encoder before training is the diamond, where the curves hold a step 0. None where no setting has all three.

    Source: NGCSE, figure 2.  Differs: no marker is moved, and the score is that of the same step.

    Args:
        settings: The settings.
        pretrained_score: The dev score before training, where the curves do not hold it.
    """
    measures = ("eval_uniformity_at_best", "eval_alignment_at_best", "best_score")
    shown = [setting for setting in settings if _columns([setting], *measures)[0]]
    if not shown:
        return None
    x, y, score = _columns(shown, *measures)
    labels = [f"{setting.name} ({100 * value:.1f})" for setting, value in zip(shown, score, strict=True)]
    figure = blank_figure(6.8, 4.6)
    axes = figure.subplots()
    _scatter(figure, axes, [s.domain for s in shown], (x, y), [100 * v for v in score], "best dev score")
    start = _start(shown, pretrained_score)
    if start:
        # Its score lies so far below the others that a common colour scale would make these all alike.
        axes.scatter(*start[:2], marker="D", s=48, facecolor="white", edgecolor=GREY, linewidth=1.4, zorder=3)
        x, y = [*x, start[0]], [*y, start[1]]
        labels.append(PRETRAINED if start[2] is None else f"{PRETRAINED} ({100 * start[2]:.1f})")
    axes.set_xlabel("uniformity, evaluation side (lower is more even)")
    axes.set_ylabel("alignment, evaluation side (lower is closer)")
    _label(figure, axes, list(zip(x, y, strict=True)), labels)
    return figure


def _start(settings: Sequence[Setting], score: float | None) -> tuple[float, float, float | None] | None:
    """Return uniformity, alignment and score at step 0: of the setting of the authors' choice, else of the first."""
    for setting in sorted(settings, key=lambda setting: setting.name != "NLI.dropout"):
        for curves in setting.curves:
            at = {key: dict(points).get(0) for key, points in curves.items()}
            uniformity, alignment = at.get("diag/eval/uniformity"), at.get("diag/eval/alignment")
            if uniformity is not None and alignment is not None:
                own = at.get(_MONITOR)
                return uniformity, alignment, score if own is None else own
    return None


def _scatter(
    figure: Figure,
    axes: Axes,
    domains: Sequence[str],
    at: tuple[Sequence[float], Sequence[float]],
    scores: Sequence[float],
    title: str,
) -> None:
    """Draw points coloured by score, with a marker a domain, a legend of the markers and a colour bar."""
    from matplotlib.colors import Normalize

    norm = Normalize(min(scores), max(scores) if max(scores) > min(scores) else min(scores) + 1)
    look: dict[str, Any] = {"s": 62, "edgecolor": "black", "linewidth": 0.6}
    several = len(set(domains)) > 1
    for domain in dict.fromkeys(domains):
        marker = _MARKERS.get(domain, "^")
        of = [k for k, name in enumerate(domains) if name == domain]
        x, y, c = ([column[k] for k in of] for column in (*at, scores))
        drawn = axes.scatter(x, y, c=c, norm=norm, cmap="viridis", marker=marker, zorder=3, **look)
        if several:  # the legend's marker stands for a domain, and has no score's colour
            axes.scatter([], [], facecolor="white", marker=marker, label=domain or "other", **look)
    if several:
        axes.legend(loc="best")
    figure.colorbar(drawn, ax=axes, label=f"{title}, ×100").outline.set_visible(False)
    axes.margins(0.14)


def _label(
    figure: Figure,
    axes: Axes,
    points: Sequence[tuple[float, float]],
    labels: Sequence[str],
    dots: Sequence[Sequence[float]] = (),
) -> None:
    """Write a label at each point, where it covers the least of the other labels, markers and dots.

    A label that found its place only farther off is tied to its point by a line.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what was measured must not move any more
    pixels = [axes.transData.transform(point) for point in points]
    unit = figure.dpi / 72  # pixels a point
    taken = [Bbox.from_extents(x - 5 * unit, y - 5 * unit, x + 5 * unit, y + 5 * unit) for x, y in pixels]
    small = [axes.transData.transform(dot) for dot in dots]
    taken += [Bbox.from_extents(x - 2 * unit, y - 2 * unit, x + 2 * unit, y + 2 * unit) for x, y in small]
    thin = [line.get_window_extent().padded(unit) for line in axes.lines]
    legend = axes.get_legend()
    if legend:
        taken.append(legend.get_window_extent())
    frame = axes.get_window_extent()
    look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "zorder": 5}
    texts = [axes.annotate(label, point, (0, 0), **look) for label, point in zip(labels, points, strict=True)]
    boxes: dict[int, tuple[Bbox, float]] = {}
    for _ in range(_ROUNDS):  # from the second on, with regard to those that came later
        for k, (text, (x, y)) in enumerate(zip(texts, pixels, strict=True)):
            width, height = text.get_window_extent().size
            others = [*taken, *(box for other, (box, _) in boxes.items() if other != k)]
            costs: dict[float, tuple[Bbox, float]] = {}
            for across, up, distance in _PLACES:
                left = x + across * distance * unit - width * (1 - across) / 2
                low = y + up * distance * unit - height * (1 - up) / 2
                box = Bbox.from_bounds(left, low, width, height)
                outside = width * height - _overlap(box, frame)
                over = sum(_overlap(box, other) for other in others) + _CROSSED * sum(_overlap(box, t) for t in thin)
                costs.setdefault(over + 5 * outside + distance, (box, distance))
            boxes[k] = costs[min(costs)]
    ties = []
    for k, (text, (x, y)) in enumerate(zip(texts, pixels, strict=True)):
        box, distance = boxes[k]
        text.set_position(((box.x0 - x) / unit, (box.y0 - y) / unit))
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
        if distance >= _FAR:
            ties.append([(x, y), (min(max(x, box.x0), box.x1), min(max(y, box.y0), box.y1))])
    if ties:  # in data coordinates, since pixels are others where the figure is saved
        segments = [axes.transData.inverted().transform(tie) for tie in ties]
        axes.add_collection(LineCollection(segments, color=GREY, linewidth=0.6, zorder=2), autolim=False)


def _overlap(a: Bbox, b: Bbox) -> float:
    """Return the area that two boxes share, in square pixels."""
    width, height = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
    return max(float(width), 0.0) * max(float(height), 0.0)


def process_figures(settings: Sequence[Setting]) -> dict[str, Figure]:
    """Draw the process of all settings, a figure a domain: ``process_wiki``, ``process_nli``, ``process_other``."""
    drawn = {}
    for domain in dict.fromkeys(setting.domain for setting in settings):
        figure = process_figure([setting for setting in settings if setting.domain == domain])
        if figure is not None:
            drawn[f"process_{domain.lower() or 'other'}"] = figure
    return drawn


def process_figure(settings: Sequence[Setting]) -> Figure | None:
    """Draw alignment above uniformity by step, one column a setting, one line a run and side; None without curves.

    Source: NGCSE, figures 3 and 6.  Differs: the axes span what was measured.
    """
    keys = [f"diag/{side}/{measure}" for side, *_ in _SIDES for measure in ("alignment", "uniformity")]
    shown = [s for s in settings if any(curves.get(key) for curves in s.curves for key in keys)]
    if not shown:
        return None
    figure = blank_figure(1.3 + 2.1 * len(shown), 4.6)
    grid = figure.subplots(2, len(shown), squeeze=False, sharex=True, sharey="row")
    for column, setting in enumerate(shown):
        grid[0][column].set_title(setting.name)
        for axes, measure in zip(grid[:, column], ("alignment", "uniformity"), strict=True):
            for side, label, color, style in _SIDES:
                for number, curves in enumerate(setting.curves):
                    steps, values = zip(*sorted(curves.get(f"diag/{side}/{measure}", [(0, math.nan)])), strict=True)
                    named = {"label": label} if number == 0 else {}
                    axes.plot(steps, values, color=color, linestyle=style, linewidth=1.4, **named)
        grid[1][column].set_xlabel("optimizer step")
        grid[1][column].margins(x=0.03)
    for axes, name in zip(grid[:, 0], ("alignment", "uniformity"), strict=True):
        axes.set_ylabel(name)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, handlelength=3)
    return figure


def studies_figure(
    studies: Mapping[str, Study], printed: Mapping[str, Mapping[float, float]] | None = None
) -> Figure | None:
    """Draw studies side by side, the mean as a line, every run as a dot, the best mean as a star.

    The band is the 95 % interval of each mean, by Student's t with one standard deviation pooled over all numbers (two
    or three runs a number say little about their spread); without repeated runs there is none.

    Source: NGCSE, figure 5.  Differs: the paper does not say what its band is.

    Args:
        studies: By what they vary, as the axis is to say it.
        printed: The paper's scores of the same studies, by number; drawn beside, where there are some.
    """
    if not studies:
        return None
    figure = blank_figure(1.0 + 4.2 * len(studies), 3.8)
    row = figure.subplots(1, len(studies), squeeze=False, sharey=True)[0]
    for axes, (varied, study) in zip(row, studies.items(), strict=True):
        ordered = dict(sorted(study.items()))
        numbers = list(ordered)
        means = [statistics.fmean(scores) for scores in ordered.values()]
        halves = _pooled_intervals(list(ordered.values()))
        label = "mean of the runs" if halves else "one run each"
        axes.plot(numbers, means, color=BLUE, marker="o", markersize=4, zorder=3, label=label)
        if halves:
            low, high = (np.add(means, np.multiply(sign, halves)) for sign in (-1, 1))
            axes.fill_between(numbers, low, high, color=BLUE, alpha=0.15, linewidth=0, label="95 % interval")
            runs = [(number, score) for number, scores in ordered.items() for score in scores]
            axes.scatter(*zip(*runs, strict=True), s=9, color=GREY, linewidth=0, zorder=2, label="one run")
        paper = sorted((printed or {}).get(varied, {}).items())
        if paper:
            look: dict[str, Any] = {
                "color": ORANGE,
                "linestyle": "--",
                "linewidth": 1.2,
                "marker": "s",
                "markersize": 3,
            }
            axes.plot(*zip(*paper, strict=True), **look, zorder=2, label="the paper")
        best = max(range(len(means)), key=means.__getitem__)
        axes.plot(
            numbers[best : best + 1],
            means[best : best + 1],
            color=VERMILION,
            marker="*",
            markersize=13,
            markeredgecolor="white",
            markeredgewidth=0.8,
            linestyle="none",
            zorder=4,
            label=f"best: {means[best]:.2f} at {numbers[best]:g}",
        )
        axes.set_xlabel(varied)
        axes.margins(x=0.04, y=0.1)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)  # above the axes, where it covers no run
    row[0].set_ylabel("score, ×100")
    return figure


def _pooled_intervals(groups: Sequence[Sequence[float]]) -> list[float] | None:
    """Return half the 95 % interval of each group's mean, with one variance for all; None where no group has two."""
    freedom = sum(len(group) - 1 for group in groups)
    if freedom == 0:
        return None
    squares = math.fsum((value - statistics.fmean(group)) ** 2 for group in groups for value in group)
    quantile = float(stats.t.ppf(0.5 + _CONFIDENCE / 2, freedom))
    return [quantile * math.sqrt(squares / freedom / len(group)) for group in groups]
