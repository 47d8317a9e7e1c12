"""Calls the function that makes a figure or a text, and helps it: its result, Markdown, and configs
of data.

Tables hold names and numbers only, so they may be kept beside the code; a text that quotes a corpus
may not.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd
from omegaconf import DictConfig

from lightning_cse.config.compose import compose_run, options
from lightning_cse.errors import ConfigError
from lightning_cse.tables.points import explained
from lightning_cse.tables.spec import Spec
from lightning_cse.tables.table import Table

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_SAMPLE = {"encoder": "tiny", "corpora": "sample", "paths": "sample"}
Rows = Sequence[Mapping[Any, Any]]


@dataclass(frozen=True)
class Result:
    """Figures and tables by name, and a text in Markdown; a text that quotes a corpus is not kept
    with the code.
    """

    figures: Mapping[str, Figure] = field(default_factory=dict)
    text: str = ""
    tables: Mapping[str, Rows] = field(default_factory=dict)
    quotes: bool = False


def make(table: Table) -> Result:
    """Return what the function of a spec makes; nothing without such a function."""
    return maker(table.spec)(table) if table.spec.make else Result()


def maker(spec: Spec) -> Callable[[Table], Result]:
    """Return the function that ``make`` names as ``module:function`` or, in a file beside that of
    the spec, as ``figures.py:function``; it loads only then, with matplotlib, pandas and torch.

    Raises:
        ConfigError: if there is none.
    """
    module, _, name = str(spec.make).rpartition(":")
    try:
        if module.endswith(".py"):
            home = load_file(spec.path.parent / module)
            function: Callable[[Table], Result] = getattr(home, name)
        else:
            function = pkgutil.resolve_name(str(spec.make))
    except (ImportError, AttributeError, ValueError, OSError) as error:
        raise ConfigError([f"{spec.path}: make: {error}"]) from error

    return function


def load_file(path: Path) -> ModuleType:
    """Return the module in a file that is in no package, loaded anew."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")

    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    return module


def result(
    figures: Mapping[str, Figure | None],
    parts: Sequence[str],
    *,
    quotes: bool = False,
    **tables: Rows,
) -> Result:
    """Return the figures that could be drawn, the paragraphs as one text, and the tables that have
    rows.
    """
    by_name = {name: figure for name, figure in figures.items() if figure is not None}
    text = "\n\n".join(parts) + "\n" if parts else ""

    return Result(by_name, text, {name: rows for name, rows in tables.items() if rows}, quotes)


def markdown_table(rows: Rows) -> str:
    """Return rows with the same keys as a Markdown table, with three decimals and right-aligned
    numbers.
    """
    rule = ["---:" if isinstance(value, float) else "---" for value in rows[0].values()]
    lines = [list(rows[0]), rule, *(map(_cell, row.values()) for row in rows)]

    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if pd.isna(value):
        return "-"

    return f"{value:.3f}" if isinstance(value, float) else f"{value}"


def spread(name: str, values: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    """Return the mean and the quartiles as ``<name>_mean``, ``<name>_median`` and so on; nothing
    without values.
    """
    from lightning_cse.analysis.histograms import quartiles

    return {f"{name}_{part}": value for part, value in (quartiles(values) or {}).items()}


def data_config(table: Table, row: str = "", **choices: str | None) -> DictConfig:
    """Compose the config of ``describe`` as profile, spec and request set it, ``data`` only if
    a row is given.
    """
    request = table.request
    profile = table.spec.profile(request)
    # A debug profile sets keys that only a training has.
    groups = _SAMPLE if request.profile in options("debug") else {"+profile": request.profile}
    groups = groups | {group: name for group, name in choices.items() if name}
    overrides = [f"{group}={name}" for group, name in groups.items() if name]
    # The settings that decide which sentences are read.
    read = re.compile(rf"[+~]*(corpora|encoder|paths{'|data[.]' if row else ''})\b")
    settings = (*profile.overrides, *profile.rows.get(row, ()), *request.settings)
    overrides += filter(read.match, settings)
    with explained("describe", tuple(overrides)):
        return compose_run("describe", overrides)
