"""What makes the figures and the texts of the papers: each of the runs that its artefact names, or of data alone.

A maker draws what can be drawn of the runs that are there, and its text begins with what is missing. Its tables hold
numbers only, never a corpus's sentence, so that they may be kept beside the code; the text of `retrieval` quotes the
corpus, whose licence is not this project's, and belongs into the user's runs folder and nowhere else. Figures are to be
saved in the house style (`lightning_cse.papers.figures.plot_style`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lightning_cse.config import compose as configs
from lightning_cse.config.compose import CompositionError, compose, plain_line
from lightning_cse.config.launch import ordered
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.papers.artefacts import Artefact, Line, Request, Train, profile_override

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike
    from omegaconf import DictConfig

    from lightning_cse.analysis.histograms import PairSet
    from lightning_cse.analysis.retrieval import Hit, Retrieved
    from lightning_cse.papers.ngcse import Setting
    from lightning_cse.papers.records import Found

__all__ = ["MAKERS", "Made", "Maker", "Material"]

_SIDE_BY_SIDE: Final = 4  # settings that one figure of the process has room for; more are drawn a figure a domain
_QUERIES: Final = 5  # our choice: the paper shows a few
_QUERY_SEED: Final = 0
_STS: Final = "test/sts_avg/spearman_all"
_LLM_ROWS: Final = "data.llm_rows"
_MARGINS: Final = "method.hierarchical_triplet"
_CORPORA: Final = {"SNLI": "snli_test", "MNLI": "mnli_test", "SICK": "sick_test"}
_PAIRS: Final = {"INLI": "inli", "Wang et al.": "impscore"}
_SPLITS: Final = {"dev": ("dev", "val")}  # what corpora call the split of a column
_READ: Final = ("corpora", "data", "encoder", "paths")  # what of a run's settings decides which sentences are read
_SAMPLE: Final = ("encoder=tiny", "corpora=sample", "paths=sample")


@dataclass(frozen=True)
class Material:
    """What there is to make a figure or a text of.

    Attributes:
        artefact: what is made.
        lines: its rows by encoder, as they were asked for.
        found: the finished runs of every line; a line that has none may be left out.
        data_dir: where the corpora are; None for `lightning_cse.data.default_data_dir`. Profiles that read the sample
            corpus read it wherever this is.
        request: what was asked for.
    """

    artefact: Artefact
    lines: Sequence[Line]
    found: Mapping[Line, Sequence[Found]]
    data_dir: Path | None
    request: Request

    def runs(self, line: Line) -> Sequence[Found]:
        """Return the finished runs of a line."""
        return self.found.get(line, ())

    def title(self, line: Line) -> str:
        """Return the label of a line, with its encoder where lines with several encoders have runs."""
        encoders = {each.encoder for each in self.lines if self.runs(each)}
        return f"{line.label} ({line.encoder})" if len(encoders) > 1 and line.encoder else line.label


@dataclass(frozen=True)
class Made:
    """What was made.

    Attributes:
        figures: by name, without the ending of a file.
        text: Markdown.
        tables: rows by name, without the ending of a file; numbers and names only.
        quotes: whether the text quotes a corpus; then it is for the user's own folder and not to be kept with the code.
    """

    figures: Mapping[str, Figure] = field(default_factory=dict)
    text: str = ""
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    quotes: bool = False


Maker = Callable[[Material], Made]


# ------------------------------------------------------------------------------------------------- NGCSE's settings


def fitting_difficulty(material: Material) -> Made:
    """Make NGCSE's Figure 1, and how RFD goes with the final score: here, and in the paper's own numbers."""
    from lightning_cse.papers.ngcse import correlation_table, correlations, fitting_difficulty_figure
    from lightning_cse.plots import plot_style

    settings = _settings(material)
    theirs = _published_settings(material.artefact)
    with plot_style():
        figure = fitting_difficulty_figure(settings)
    parts, associations = _missing(material), []
    for of, heading, some in (
        ("here", "Here:", settings),
        ("authors", "The same of the settings that the authors released:", theirs),
    ):
        found = correlations(some)
        if any(each.pearson is not None for each in found):
            parts += [heading, correlation_table(some)]
        associations += [{"of": of, **_association(each)} for each in found if some]
    tables = {"settings": list(_summaries(material, settings)), "correlations": associations}
    return _made({"fitting_difficulty": figure}, parts, tables)


def best_step(material: Material) -> Made:
    """Make NGCSE's Figure 2; the encoder before training is step 0 of the runs themselves."""
    from lightning_cse.papers.ngcse import best_step_figure
    from lightning_cse.plots import plot_style

    settings = _settings(material)
    with plot_style():
        figure = best_step_figure(settings)
    return _made({"best_step": figure}, _missing(material), {"settings": list(_summaries(material, settings))})


def process(material: Material) -> Made:
    """Make NGCSE's Figures 3 and 6: the lines side by side, in their order; more than four, a figure a domain."""
    from lightning_cse.papers.ngcse import process_figure, process_figures
    from lightning_cse.plots import plot_style

    settings = _settings(material)
    few = len(settings) <= _SIDE_BY_SIDE
    with plot_style():
        figures = {"process": process_figure(settings)} if few else dict(process_figures(settings))
    bare = [each.name for each in settings if len(each.curves) < len(each.summaries)]
    told = [f"Not drawn where a run's curves were not kept: {', '.join(bare)}."] if bare else []
    return _made(figures, [*_missing(material), *told], {})


def studies(material: Material) -> Made:
    """Make NGCSE's Figure 5 of the score in the first column: the number of LLM rows, and one margin at a time.

    Each study is of the runs that differ in its option alone; where there are several encoders, each has its own.
    """
    from lightning_cse.papers.ngcse import (
        NEGATIVE_STUDIED,
        POSITIVE_STUDIED,
        ROWS_STUDIED,
        studies_figure,
        study_among,
    )
    from lightning_cse.plots import plot_style

    panels = {
        "llm_rows": {_LLM_ROWS: ROWS_STUDIED},
        "margins": {f"{_MARGINS}.margin_positive": POSITIVE_STUDIED, f"{_MARGINS}.margin_negative": NEGATIVE_STUDIED},
    }
    metric = next((column.keys[0] for column in material.artefact.columns if column.source == "metric"), _STS)
    encoders = dict.fromkeys(line.encoder for line in material.lines if material.runs(line))
    figures: dict[str, Figure | None] = {}
    parts, scores = _missing(material), []
    for encoder in encoders:
        records = _records(run for line in material.lines if line.encoder == encoder for run in material.runs(line))
        of = f" ({encoder})" if len(encoders) > 1 else ""
        for name, options in panels.items():
            found = {option: study_among(records, option, metric) for option in options}
            parts += [
                f"Not drawn{of}: {option}, since no two finished runs with {metric} differ in it alone."
                for option, study in found.items()
                if not study
            ]
            scores += [
                {"study": option, "encoder": encoder, "value": value, "run": number, "score": score}
                for option, study in found.items()
                for value, runs in study.items()
                for number, score in enumerate(runs)
            ]
            drawn = {options[option]: study for option, study in found.items() if study}
            printed = {title: _printed(material, option, encoder) for option, title in options.items()}
            with plot_style():
                figure = studies_figure(drawn, printed)
            figures[f"{name}_{encoder}" if len(encoders) > 1 else name] = figure
    return _made(figures, parts, {"studies": scores})


def _printed(material: Material, option: str, encoder: str | None) -> dict[float, float]:
    """Return the paper's scores by the value of an option that rows set: those of the encoder they stand for."""
    values = {(each.row, each.encoder): each.value for each in material.artefact.published}
    found = {}
    for line in material.lines:
        score = values.get((line.name, line.paper_encoder))
        if line.encoder != encoder or score is None or not isinstance(line.way, Train):
            continue
        for override in line.way.overrides:
            key, _, value = override.partition("=")
            if key == option:
                with contextlib.suppress(ValueError):  # "null", say: the value is the data's own
                    found[float(value)] = score
    return found


def _settings(material: Material) -> list[Setting]:
    """Return the lines that have runs, in their order, each as a setting of its runs."""
    from lightning_cse.papers.ngcse import setting_of_runs

    return [
        setting_of_runs(material.title(line), [(run.record, run.curves) for run in material.runs(line)])
        for line in material.lines
        if material.runs(line)
    ]


def _published_settings(artefact: Artefact) -> list[Setting]:
    """Return the settings as the paper printed them: the columns that stand for a part of a record's summary."""
    from lightning_cse.papers.ngcse import Setting
    from lightning_cse.runs import CurveSummary

    known = {f"summary.{each.name}": each.name for each in fields(CurveSummary)}
    columns = {column.title: column for column in artefact.columns if column.keys and column.keys[0] in known}
    values: dict[str, dict[str, Any]] = {}
    for each in artefact.published:
        if each.column in columns:
            column = columns[each.column]
            values.setdefault(each.row, {})[known[column.keys[0]]] = each.value / column.scale
    return [Setting(row, (CurveSummary(**found),)) for row, found in values.items()]


def _summaries(material: Material, settings: Iterable[Setting]) -> Iterator[dict[str, Any]]:
    """Yield what the curves of every run came to, a row a run."""
    drawn = [line for line in material.lines if material.runs(line)]
    for line, setting in zip(drawn, settings, strict=True):
        for run, summary in zip(material.runs(line), setting.summaries, strict=True):
            told = {"setting": line.label, "encoder": line.encoder, "seed": run.record.get("seed")}
            yield {**told, **asdict(summary)}


def _association(each: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"measure": each.measure, "scope": each.scope, "settings": each.settings}
    for name, found in (("pearson", each.pearson), ("spearman", each.spearman)):
        row |= {name: found and found.r, f"{name}_low": found and found.low, f"{name}_high": found and found.high}
    return row


def _records(runs: Iterable[Found]) -> list[Mapping[str, Any]]:
    """Return the records, each once: a run may be part of several lines."""
    return list({run.source: run.record for run in runs}.values())


# ------------------------------------------------------------------------------------------------------ data alone


def pattern_complexity(material: Material) -> Made:
    """Make NGCSE's Figure 7 of the training sets of its lines: match error rates and cosines of their pairs.

    No run is needed: a line that trains stands for the data of its experiment, another one for that of the experiment
    that is called like it. STS-B stands below the data sets of each domain.
    """
    from lightning_cse.analysis.describing import pair_sets
    from lightning_cse.analysis.histograms import histograms_figure
    from lightning_cse.plots import plot_style

    lines = {line.label: line for line in reversed(material.lines)}  # of several encoders the first
    called = list(dict.fromkeys(line.label for line in material.lines))
    experiments = {label: name for label in called if (name := _experiment(label, lines.get(label))) is not None}
    left_out = [label for label in called if label not in experiments]
    parts = [f"Not drawn, since no experiment is called so: {', '.join(left_out)}."] if left_out else []
    if not experiments:
        return _made({}, parts, {})
    encoder = next((line.encoder for line in material.lines if line.encoder), material.request.encoder)
    read_with = [] if encoder is None else [f"encoder={encoder}"]
    configs = {}
    for label, name in experiments.items():
        chosen = compose("train", f"+experiment={name}").hydra.runtime.choices
        way = lines[label].way if label in lines else None
        own = way.overrides if isinstance(way, Train) else ()
        configs[label] = _describing(material, f"data={chosen['data']}", *read_with, of=label, own=own)
    *sets, stsb = pair_sets(configs)
    figures = {}
    for domain in dict.fromkeys(each.name.partition(".")[0].lower() for each in sets):
        some = [each for each in sets if each.name.partition(".")[0].lower() == domain]
        with plot_style():
            figures[f"pattern_complexity_{domain}"] = histograms_figure([*some, stsb])
    rows = [row for each in (*sets, stsb) for row in _pair_rows(each)]
    return _made(figures, parts, {"pairs": rows})


def length_ratios(material: Material) -> Made:
    """Make GaussCSE's Figure 2 of the test sets that the direction of entailment is told on; no run is needed."""
    import numpy as np

    from lightning_cse.evaluation import Direction
    from lightning_cse.papers.lengths import LengthRatios, length_figure, log_length_ratios
    from lightning_cse.plots import plot_style

    cfg = _describing(material)
    sets = []
    for name, key in _CORPORA.items():
        source = str(cfg.corpora[key])
        rows = Direction(data_dir=str(cfg.paths.data_dir), test=source).rows("test")
        sets.append(LengthRatios(name, source, log_length_ratios(rows.column("premise"), rows.column("hypothesis"))))
    with plot_style():
        figure = length_figure(sets)
    rows_told = []
    lines = ["| corpus | read from | entailed pairs | premise longer | median ratio |", "|---|---|---:|---:|---:|"]
    for each in sets:
        count, share, spread = len(each.log_ratios), 100 * each.premise_longer, _spread("log_ratio", each.log_ratios)
        told = {"corpus": each.name, "source": each.source, "pairs": count, "premise_longer": share}
        rows_told.append({**told, **spread})
        ratio = float(np.exp(spread["log_ratio_median"]))
        lines.append(f"| {each.name} | {each.source} | {count:,} | {share:.2f} % | {ratio:.2f} |")
    why = (
        "The share of pairs whose premise is longer, in characters, is the accuracy of LENGTH at telling the direction."
    )
    return _made({"length_ratios": figure}, ["\n".join(lines), why], {"lengths": rows_told})


def data_statistics(material: Material) -> Made:
    """Make DualCSE's Table 6: the pairs of every corpus whose files are to be had, beside the paper's numbers."""
    from lightning_cse.data import sample_dir
    from lightning_cse.papers.corpus_statistics import pair_counts

    cfg = _describing(material)
    titles = [column.title for column in material.artefact.columns]
    printed = {(each.row, each.column): each.value for each in material.artefact.published}
    rows, lines = [], [f"| | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    lacking = []
    for line in material.lines:
        counts = {}
        try:
            counts = pair_counts(_PAIRS[line.name], Path(cfg.paths.data_dir))
        except DataError as error:
            lacking.append(f"{line.label} is not counted: {str(error).splitlines()[0]}.")
        cells = []
        for title in titles:
            number = next((counts[split] for split in _SPLITS.get(title, (title,)) if split in counts), None)
            paper = printed.get((line.name, title))
            rows.append({"row": line.label, "column": title, "pairs": number, "published": paper})
            cells.append(f"{_count(number)} (paper {_count(paper)})")
        lines.append(f"| {line.label} | {' | '.join(cells)} |")
    sampled = Path(cfg.paths.data_dir) == sample_dir()
    where = "Counted in the sample corpus, which is a small part." if sampled else "Counted in the official files."
    return _made({}, ["\n".join(lines), " ".join([where, *lacking])], {"pairs": rows})


def _count(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def _experiment(label: str, line: Line | None) -> str | None:
    """Return the experiment that a line trains, or the one whose setting is called like it."""
    from lightning_cse.papers.ngcse import setting_name

    if line is not None and isinstance(line.way, Train):
        return line.way.experiment
    known = {setting_name(name): name for name in configs.options("experiment")}
    return known.get(label)


def _describing(material: Material, *choices: str, of: str | None = None, own: Iterable[str] = ()) -> DictConfig:
    """Compose the config of ``describe`` as the profile, the artefact and the settings have the data read.

    Args:
        material: what was asked for.
        choices: groups chosen.
        of: the label of the row.
        own: the overrides of the row's runs.

    Raises:
        ConfigError: if they do not compose.
    """
    from omegaconf import OmegaConf

    from lightning_cse.data import sample_dir

    request, profile = material.request, material.artefact.profile(material.request)
    if request.profile is None:
        given = []
    elif (override := profile_override(request.profile)).startswith("+profile="):
        given = [override]
    else:  # what is for debugging sets what only a training has
        given = [each for each in _SAMPLE if each.partition("=")[0] not in {c.partition("=")[0] for c in choices}]
    values = [*own, *profile.overrides, *profile.rows.get(of or "", ()), *request.settings]
    overrides = [*given, *choices, *(each for each in values if _is_of_reading(each))]
    if of is None:
        overrides = [each for each in overrides if not each.startswith("data.")]
    try:
        cfg = compose("describe", *ordered(overrides))
    except CompositionError as error:
        raise ConfigError([f"{material.artefact.path}: {' '.join(overrides)}: {plain_line(error)}"]) from error
    cfg = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])
    if material.data_dir is not None and Path(cfg.paths.data_dir) != sample_dir():
        cfg.paths.data_dir = str(material.data_dir)
    return cfg


def _is_of_reading(override: str) -> bool:
    key = override.lstrip("+~").partition("=")[0]
    return key != "data" and key.partition(".")[0] in _READ


def _pair_rows(each: PairSet) -> Iterator[dict[str, Any]]:
    for kind, some in (("positive", each.positive), ("negative", each.negative)):
        for pairs in some:
            measured = {**_spread("mer", pairs.mer), **_spread("cosine", pairs.cosine)}
            yield {"set": each.name, "kind": kind, "pairs": pairs.label, "number": len(pairs.mer), **measured}


def _spread(name: str, values: ArrayLike) -> dict[str, float]:
    """Return mean, median and quartiles; NaN where there is no value."""
    import numpy as np

    column = np.asarray(values, dtype=np.float64)
    found = [float(column.mean()), *np.quantile(column, (0.25, 0.5, 0.75)).tolist()] if column.size else [math.nan] * 4
    keys = ("mean", "lower_quartile", "median", "upper_quartile")
    return {f"{name}_{key}": value for key, value in zip(keys, found, strict=True)}


# ------------------------------------------------------------------------------------------------------- retrieval


def retrieval(material: Material) -> Made:
    """Make DualCSE's Table 3: what lies nearest to some premises, by each of their vectors, in the best run of a line.

    The text quotes INLI, so it is for the user's own folder. The table names sentences by their file and line.
    """
    from lightning_cse.analysis.retrieval import hypotheses, retrieve
    from lightning_cse.data import read_corpus
    from lightning_cse.data.drawing import seeded_order
    from lightning_cse.engine.load import load_model
    from lightning_cse.runs.machine import device_of

    parts, rows = _missing(material), []
    for line in material.lines:
        best = _best_loadable(material.runs(line))
        if best is None:
            if material.runs(line):
                parts.append(
                    f"{material.title(line)}: the checkpoints of its runs were not kept, so none can be asked."
                )
            continue
        data_dir = Path(_describing(material).paths.data_dir)
        dev, train = (read_corpus("inli", split, data_dir) for split in ("val", "train"))
        model = load_model(str(best.folder))
        model.answers.to(device_of())
        queries = dev.select(sorted(seeded_order(len(dev), _QUERY_SEED)[:_QUERIES]))
        found = retrieve(model.answers, queries, hypotheses(train))
        parts += _quoted(material.title(line), best, found)
        rows += [row for each in found for row in _hit_rows(line, each)]
    return replace(_made({}, parts, {"nearest": rows}), quotes=True)


def _best_loadable(runs: Iterable[Found]) -> Found | None:
    """Return the run with the highest dev score whose checkpoint is there; of several the first."""
    there = [run for run in runs if run.folder is not None and (run.folder / "checkpoints" / "best.ckpt").is_file()]
    return max(there, key=lambda run: float((run.record.get("best") or {}).get("score") or 0), default=None)


def _quoted(title: str, run: Found, found: Sequence[Retrieved]) -> Iterator[str]:
    """Yield the Markdown of what was found: a heading, and a table a query with a column a view."""
    best = run.record.get("best") or {}
    score = f", {best['monitor']} {100 * float(best['score']):.2f}" if best.get("score") is not None else ""
    yield f"## {title}: seed {run.record.get('seed')}{score}"
    for each in found:
        views = list(each.by_view)
        lines = [f"| | {' | '.join(f'by its {view} vector' for view in views)} |", f"|---|{'---|' * len(views)}"]
        for rank, hits in enumerate(zip(*each.by_view.values(), strict=True), start=1):
            lines.append(f"| {rank} | {' | '.join(_cell(hit) for hit in hits)} |")
        yield f"**{_markdown(each.query.sentence)}** ({each.query.where})"
        yield "\n".join(lines)


def _cell(hit: Hit) -> str:
    kind = hit.passage.kind.replace("_", " ")
    return f"{_markdown(hit.passage.sentence)} ({kind}, {hit.cosine:.3f})"


def _markdown(sentence: str) -> str:
    """Return a sentence that a table's cell shows as it is."""
    for sign in "\\|*_`<[":
        sentence = sentence.replace(sign, f"\\{sign}")
    return " ".join(sentence.split())


def _hit_rows(line: Line, each: Retrieved) -> Iterator[dict[str, Any]]:
    for view, hits in each.by_view.items():
        for rank, hit in enumerate(hits, start=1):
            told = {"row": line.label, "encoder": line.encoder, "query": each.query.where, "view": view, "rank": rank}
            yield {**told, "found": hit.passage.where, "kind": hit.passage.kind, "cosine": hit.cosine}


# ------------------------------------------------------------------------------------------------------------ shared


def _missing(material: Material) -> list[str]:
    """Return what is to be said of lines that train and have no run, or fewer runs than were asked for."""
    lines = [line for line in material.lines if isinstance(line.way, Train)]
    several = len({line.encoder for line in lines}) > 1
    none, fewer = [], []
    for line in lines:
        label = f"{line.label} ({line.encoder})" if several and line.encoder else line.label
        there = len(material.runs(line))
        if not there:
            none.append(label)
        elif there < len(line.seeds):
            fewer.append(f"{label} ({there} of {len(line.seeds)})")
    parts = []
    if none:
        parts.append(f"Left out, since no run of them is finished: {', '.join(none)}.")
    if fewer:
        parts.append(f"Made of fewer runs than were asked for: {', '.join(fewer)}.")
    return parts


def _made(
    figures: Mapping[str, Figure | None], parts: Sequence[str], tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Made:
    """Return what is there: figures that could be drawn, tables that have rows."""
    return Made(
        {name: figure for name, figure in figures.items() if figure is not None},
        "\n\n".join(parts) + "\n" if parts else "",
        {name: rows for name, rows in tables.items() if rows},
    )


MAKERS: Final[Mapping[str, Maker]] = {
    "best_step": best_step,
    "data_statistics": data_statistics,
    "fitting_difficulty": fitting_difficulty,
    "length_ratios": length_ratios,
    "pattern_complexity": pattern_complexity,
    "process": process,
    "retrieval": retrieval,
    "studies": studies,
}
"""The makers by the name that an artefact's ``make`` gives."""
