"""Figures and texts of the papers, made from an artefact's finished runs or from data alone; one
module per paper.

Tables hold names and numbers only, so they may be kept beside the code; a text that quotes a corpus
may not.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from omegaconf import DictConfig

from lightning_cse.config.compose import compose_run, options
from lightning_cse.papers.artefacts import Artefact, Line, Request, Train
from lightning_cse.papers.points import explained

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from lightning_cse.papers.records import Found

__all__ = ["MAKERS", "Inputs", "Result", "make"]

# The settings that decide which sentences are read.
_READ: Final = ("corpora", "data", "encoder", "paths")
_SAMPLE: Final = {
    "encoder": "tiny",
    "corpora": "sample",
    "paths": "sample",
}


@dataclass(frozen=True)
class Inputs:
    """The input of a figure or a text; a line without finished runs may be left out of
    ``found``.
    """

    artefact: Artefact
    lines: Sequence[Line]
    found: Mapping[Line, Sequence[Found]]
    request: Request

    def runs(self, line: Line) -> Sequence[Found]:
        """Return the finished runs of a line."""
        return self.found.get(line, ())

    def title(self, line: Line) -> str:
        """Return the label of a line, with its encoder where there are several."""
        several = len({each.encoder for each in self.lines if each.encoder}) > 1
        return f"{line.label} ({line.encoder})" if several and line.encoder else line.label

    def missing(self) -> list[str]:
        """Return a paragraph on lines without a finished run, and one on lines with fewer than were
        asked for.
        """
        none = []
        fewer = []
        for line in self.lines:
            if not isinstance(line.way, Train):
                continue
            count = len(self.runs(line))
            if count == 0:
                none.append(self.title(line))
            elif count < len(line.seeds):
                fewer.append(f"{self.title(line)} ({count} of {len(line.seeds)})")
        parts = []
        if none:
            parts.append(f"Left out, since no run of them is finished: {', '.join(none)}.")
        if fewer:
            parts.append(f"Result of fewer runs than were asked for: {', '.join(fewer)}.")
        return parts


@dataclass(frozen=True)
class Result:
    """Figures and tables by name, and a text in Markdown; a text that quotes a corpus is not kept
    with the code.
    """

    figures: Mapping[str, Figure] = field(default_factory=dict)
    text: str = ""
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    quotes: bool = False


MAKERS: Final = {
    "data_statistics": "dualcse",
    "retrieval": "dualcse",
    "length_ratios": "gausscse",
    "best_step": "ngcse",
    "fitting_difficulty": "ngcse",
    "pattern_complexity": "ngcse_studies",
    "process": "ngcse",
    "studies": "ngcse_studies",
}
"""The module of each function that an artefact's `make` may name."""


def make(material: Inputs) -> Result:
    """Call the function that makes an artefact; its module loads only then, with matplotlib, pandas
    and torch.
    """
    name = str(material.artefact.make)
    found: Result = pkgutil.resolve_name(f"{__name__}.{MAKERS[name]}:{name}")(material)
    return found


def made(
    figures: Mapping[str, Figure | None],
    parts: Sequence[str],
    **tables: Sequence[Mapping[str, Any]],
) -> Result:
    """Return the figures that could be drawn, the paragraphs as one text, and the tables that have
    rows.
    """
    drawn = {name: figure for name, figure in figures.items() if figure is not None}
    text = "\n\n".join(parts) + "\n" if parts else ""
    return Result(
        drawn,
        text,
        {name: rows for name, rows in tables.items() if rows},
    )


def markdown_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    left: int = 1,
) -> str:
    """Return a Markdown table; the first ``left`` columns are left-aligned, the others
    right-aligned.
    """
    head, *lines = (f"| {' | '.join(map(str, row))} |" for row in (heads, *rows))
    rule = "|" + "---|" * left + "---:|" * (len(heads) - left)
    return "\n".join(
        [
            head,
            rule,
            *lines,
        ]
    )


def spread(name: str, values: ArrayLike) -> dict[str, float]:
    """Return the mean and the quartiles as ``<name>_mean``, ``<name>_median`` and so on; NaN
    without values.
    """
    import pandas as pd

    described = pd.Series(values, dtype=float).describe()
    return {
        f"{name}_mean": float(described["mean"]),
        f"{name}_lower_quartile": float(described["25%"]),
        f"{name}_median": float(described["50%"]),
        f"{name}_upper_quartile": float(described["75%"]),
    }


def data_config(
    material: Inputs,
    row: str = "",
    **choices: str | None,
) -> DictConfig:
    """Compose the config of ``describe`` as profile, artefact and request set it, ``data`` only if
    a row is given.
    """
    request = material.request
    profile = material.artefact.profile(request)
    # A debug profile sets keys that only a training has.
    groups = _SAMPLE if request.profile in options("debug") else {"+profile": request.profile}
    groups = groups | {group: name for group, name in choices.items() if name}
    overrides = [f"{group}={name}" for group, name in groups.items() if name]
    for value in (*profile.overrides, *profile.rows.get(row, ()), *request.settings):
        root, *below = value.lstrip("+~").partition("=")[0].split(".")
        is_data_key = root == "data"
        if root in _READ and (not is_data_key or (row and below)):
            overrides.append(value)
    with explained("describe", tuple(overrides)):
        return compose_run("describe", overrides)
