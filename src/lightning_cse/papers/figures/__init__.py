"""The figures and texts of the papers, made of the finished runs of an artefact or of data alone; one module a paper.

Tables hold names and numbers only, so they may be kept beside the code; a text that quotes a corpus may not.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omegaconf import OmegaConf

from lightning_cse.config.compose import CompositionError, compose, options, plain_line
from lightning_cse.errors import ConfigError
from lightning_cse.papers.artefacts import Artefact, Line, Request, Train

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike
    from omegaconf import DictConfig

    from lightning_cse.papers.points import Found

__all__ = ["MAKERS", "Made", "Maker", "Material", "data_config", "made", "markdown_table", "missing", "spread"]

_READ: Final = ("corpora", "data", "encoder", "paths")  # the settings that decide which sentences are read
_SAMPLE: Final = {"encoder": "tiny", "corpora": "sample", "paths": "sample"}


@dataclass(frozen=True)
class Material:
    """What a figure or a text is made of.

    Attributes:
        artefact: what is made.
        lines: its rows by encoder.
        found: the finished runs of every line; a line without any may be left out.
        data_dir: the folder of the corpora; None for that of the config.
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
        figures: by name, without a suffix.
        text: Markdown.
        tables: rows by name.
        quotes: whether the text quotes a corpus, and so must not be kept with the code.
    """

    figures: Mapping[str, Figure] = field(default_factory=dict)
    text: str = ""
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    quotes: bool = False


Maker = Callable[[Material], Made]


def _maker(module: str, name: str) -> Maker:
    """Return a maker whose module, and matplotlib, pandas and torch with it, is imported when it is called."""
    return lambda material: getattr(importlib.import_module(f"{__name__}.{module}"), name)(material)


MAKERS: Final[Mapping[str, Maker]] = {
    name: _maker(module, name)
    for module, names in {
        "dualcse": ("data_statistics", "retrieval"),
        "gausscse": ("length_ratios",),
        "ngcse": ("best_step", "fitting_difficulty", "pattern_complexity", "process", "studies"),
    }.items()
    for name in names
}
"""The makers by the name that an artefact's ``make`` gives."""


def made(
    figures: Mapping[str, Figure | None],
    parts: Sequence[str],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    quotes: bool = False,
) -> Made:
    """Return the figures that could be drawn, the paragraphs as one text, and the tables that have rows."""
    drawn = {name: figure for name, figure in figures.items() if figure is not None}
    text = "\n\n".join(parts) + "\n" if parts else ""
    return Made(drawn, text, {name: rows for name, rows in tables.items() if rows}, quotes)


def missing(material: Material) -> list[str]:
    """Return a paragraph on lines without a finished run, and one on lines with fewer than were asked for."""
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
    parts = {"Left out, since no run of them is finished": none, "Made of fewer runs than were asked for": fewer}
    return [f"{what}: {', '.join(labels)}." for what, labels in parts.items() if labels]


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[object]], align: str) -> str:
    """Return a Markdown table; ``align`` is the alignment row without its outer bars, such as ``---|---:``."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in (heads, *rows)]
    return "\n".join([lines[0], f"|{align}|", *lines[1:]])


def spread(name: str, values: ArrayLike) -> dict[str, float]:
    """Return mean and quartiles under ``<name>_mean`` and the like; NaN where there is no value."""
    import pandas as pd

    column = pd.Series(values, dtype=float)
    quartiles = {f"{name}_{key}": column.quantile(q) for key, q in _QUARTILES.items()}
    return {f"{name}_mean": float(column.mean()), **quartiles}


_QUARTILES: Final = {"lower_quartile": 0.25, "median": 0.5, "upper_quartile": 0.75}


def data_config(
    material: Material, row: str | None = None, own: Iterable[str] = (), **choices: str | None
) -> DictConfig:
    """Compose the config of ``describe`` with what the profile, the artefact and the request say of the data.

    Args:
        material: what was asked for.
        row: the label whose settings count; without one, settings of ``data`` do not.
        own: the overrides of the row's runs.
        choices: options of groups; None leaves the group as it is.
    """
    from lightning_cse.data import sample_dir

    request, profile = material.request, material.artefact.profiles.get(material.request.profile or "")
    values = [*own, *request.settings]
    if profile is not None:
        values = [*own, *profile.overrides, *profile.rows.get(row or "", ()), *request.settings]
    debug = request.profile in options("debug")  # it sets what only a training has
    groups = {**(_SAMPLE if debug else {}), **{group: name for group, name in choices.items() if name}}
    overrides = [f"+profile={request.profile}"] if request.profile and not debug else []
    overrides += [f"{group}={name}" for group, name in groups.items()]
    for value in values:
        key = value.lstrip("+~").partition("=")[0]
        root = key.partition(".")[0]
        if root in _READ and key != "data" and (row is not None or root != "data"):
            overrides.append(value)
    try:
        cfg = compose("describe", *overrides)
    except CompositionError as error:
        raise ConfigError([f"{material.artefact.path}: {' '.join(overrides)}: {plain_line(error)}"]) from error
    cfg = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])
    if material.data_dir is not None and Path(cfg.paths.data_dir) != sample_dir():
        cfg.paths.data_dir = str(material.data_dir)
    return cfg
