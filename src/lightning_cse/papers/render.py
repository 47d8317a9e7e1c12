"""Renders tables for the terminal and as CSV, and, from templates, as Markdown and LaTeX."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from lightning_cse.papers.cells import Cell, reason
from lightning_cse.papers.tables import Table, machine_of, short_commit

if TYPE_CHECKING:
    from jinja2 import Environment

    from lightning_cse.papers.artefacts import Column, Line

Form = Literal["terminal", "markdown", "csv", "latex"]

_TEMPLATES = {"markdown": "table.md.jinja", "latex": "table.tex.jinja"}
_LEAST_P = 1e-99  # a smaller p-value is shown as smaller than this
_QUANTILE = 1.96  # the ends of a 95 % interval, in standard errors
_NUMBERS = (
    *("n", "mean", "sd", "low", "high", "error", "published", "published_deviation"),
    *("difference", "marks", "p", "p_holm"),
)
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {character: f"${character}$" for character in "<>|"}
    | {
        "±": r"$\pm$",
        "×": r"$\times$",
        "−": "$-$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "→": r"$\rightarrow$",
        "β": r"$\beta$",
        "‖": r"$\Vert$",
        "\\": r"\textbackslash{}",
        "†": r"\dag{}",
        "‡": r"\ddag{}",
        "§": r"\S{}",
        "¶": r"\P{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "–": "--",
        "’": "'",
    }
)
_MARKDOWN = str.maketrans(
    {character: f"\\{character}" for character in "\\|*_`[]"} | {"<": "&lt;", ">": "&gt;"}
)


def render(table: Table, form: Form) -> str:
    """Return a table as text; a CSV has one row per cell, unrounded."""
    if form == "csv":
        return _csv(table)
    if form == "terminal":
        return _terminal(view(table))

    return environment().get_template(_TEMPLATES[form]).render(view(table))


def texts_of(table: Table) -> dict[str, str]:
    """Return the files of a table by their endings: ``md``, ``csv``, ``tex``, ``effects.csv``, and,
    where comparisons were made, ``tests.csv``.
    """
    texts = {
        "md": render(table, "markdown"),
        "csv": render(table, "csv"),
        "tex": render(table, "latex"),
    }
    if len(table.effects):
        texts["effects.csv"] = table.effects.to_csv(index=False, float_format="%.8g")
    if len(table.tests):
        texts["tests.csv"] = table.tests.to_csv(index=False)

    return texts


@functools.cache
def environment() -> Environment:
    """Return the Jinja environment of this package, with the filters that its templates use."""
    from jinja2 import Environment, FileSystemLoader, select_autoescape

    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=select_autoescape(("html.jinja",)),
        lstrip_blocks=True,
        trim_blocks=True,
    )
    templates.filters["md"] = lambda text: text.translate(_MARKDOWN)
    templates.filters["tex"] = lambda text: text.translate(_LATEX)

    return templates


def view(table: Table) -> dict[str, Any]:
    """Return the contents of a table as text: title, lines above, headings, lines with their cells,
    legend.
    """
    artefact = table.artefact
    measured = [line for line in table.lines if not reason(line, table.cells_of(line))]
    encoders = list(dict.fromkeys(line.encoder for line in measured if line.encoder))
    of_paper = {line.paper_encoder for line in table.lines if line.paper_encoder}
    several = len(encoders) > 1 or len(of_paper) > 1
    lines = [_line(table, line, several=several) for line in table.lines]

    return {
        "title": f"{artefact.source}: {artefact.title}",
        "label": f"tab:{artefact.paper}-{artefact.name}",
        "about": _about(table, encoders),
        "headings": [column.title for column in artefact.columns],
        "encoders": several,
        "lines": lines,
        "differences": any(cell["against"] for line in lines for cell in line["cells"]),
        "legend": [*table.legend, *filter(None, [" ".join(artefact.note.split())])],
    }


def _about(table: Table, encoders: Sequence[str]) -> list[str]:
    """Return a line on the choices that hold for the whole table, and one on its records."""
    request = table.request
    choices = {
        "profile ": request.profile,
        "encoder ": request.encoder or ("" if len(encoders) != 1 else encoders[0]),
        "seeds ": " ".join(map(str, request.seeds or ())),
        "": " ".join(request.settings),
        "only ": ", ".join(request.only),
    }
    facts = {
        "code ": table.facts(short_commit),
        "measured on ": table.facts(machine_of, " and "),
        "": table.time(),
    }
    lines = [
        "; ".join(name + text for name, text in part.items() if text) for part in (choices, facts)
    ]

    return [line for line in lines if line]


def _line(table: Table, line: Line, *, several: bool) -> dict[str, Any]:
    cells = list(zip(table.cells_of(line), table.artefact.columns, strict=True))
    counted = [cell for cell, _ in cells if cell.asked]
    n = min((cell.n for cell in counted), default=0)
    asked = max((cell.asked for cell in counted), default=0)
    seeds = f"{n}/{asked}" if n != asked else str(asked or "")
    if line.row.baseline and n:
        seeds = "-"  # it needs no seed

    return {
        "label": line.label,
        "encoder": line.encoder if line.encoder and several else "",
        "seeds": seeds,
        "cells": [_cell(table, cell, column) for cell, column in cells],
    }


def _cell(table: Table, cell: Cell, column: Column) -> dict[str, Any]:
    def number(value: float, sign: str = "") -> str:
        return "" if math.isnan(value) else f"{value:{sign}.{column.decimals}f}"

    def spread(value: float, deviation: float) -> str:
        return " ± ".join(filter(None, [number(value), number(deviation)]))

    half = _QUANTILE * cell.error
    ends = np.clip([cell.mean - half, cell.mean + half], 0, column.scale)
    difference = number(cell.difference, "+")

    return {
        "heading": column.title,
        "mean": number(cell.mean),
        "sd": number(cell.sd),
        "interval": _between([number(end) for end in ends]),
        "signs": table.signs(cell),
        "n": cell.n,
        "measured": spread(cell.mean, cell.sd) + table.signs(cell),
        "paper": number(cell.published),
        "paper_sd": number(cell.published_deviation),
        "difference": difference,
        "beside": spread(cell.published, cell.published_deviation)
        + (f" ({difference})" if difference else ""),
        "low": number(cell.low),
        "high": number(cell.high),
        "seeds": ", ".join(f"{seed}: {number(value)}" for seed, value in cell.values.items()),
        "against": _between([number(end, "+") for end in cell.ends]),
        "p": _p(cell.p),
        "p_holm": _p(cell.p_holm),
    }


def _between(ends: Sequence[str]) -> str:
    return f"[{', '.join(ends)}]" if all(ends) else ""


def _p(value: float) -> str:
    if math.isnan(value):
        return ""
    if value < _LEAST_P:
        return f"<{_LEAST_P:.0e}"

    return f"{value:.4f}" if value >= 0.0001 else f"{value:.0e}"


def _terminal(shown: Mapping[str, Any]) -> str:
    """Return a table as plain text: measured values, their spread, the paper's values, the
    difference.
    """
    rows = []
    for line in shown["lines"]:
        label = f"{line['label']} ({line['encoder']})" if line["encoder"] else line["label"]
        cells = line["cells"]
        rows.append([label, line["seeds"], *(cell["measured"] or "-" for cell in cells)])
        for key in ("interval", "beside"):
            texts = [cell[key] for cell in cells]
            if any(texts):
                rows.append(["", "paper" if key == "beside" else "", *texts])

    frame = pd.DataFrame(rows, columns=["", "n", *shown["headings"]]).set_index("")

    return "\n".join([shown["title"], *shown["about"], "", frame.to_string(), "", *shown["legend"]])


def _csv(table: Table) -> str:
    rows = []
    for line in table.lines:
        for cell, column in zip(table.cells_of(line), table.artefact.columns, strict=True):
            row = {"row": line.label, "encoder": line.encoder, "column": column.title}
            row |= {name: getattr(cell, name) for name in _NUMBERS}
            row["marks"] = ";".join(cell.marks)
            row["seeds"] = " ".join(map(str, cell.values.index))
            rows.append(row)

    frame = pd.DataFrame(rows, dtype=object)
    if frame["error"].isna().all():
        del frame["error"]

    return str(frame.to_csv(index=False))
