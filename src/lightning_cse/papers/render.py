"""Renders tables for the terminal and as CSV, and, from templates, as Markdown and LaTeX."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from lightning_cse.papers.artefacts import Baseline, Column, Line, Request
from lightning_cse.papers.tables import Table
from lightning_cse.runs import write_atomic

if TYPE_CHECKING:
    from jinja2 import Environment
    from rich.console import RenderableType

Form = Literal["terminal", "markdown", "csv", "latex"]

_TEMPLATES: Final = {"markdown": "table.md.jinja", "latex": "table.tex.jinja"}
_LEAST_P: Final = 1e-99  # a smaller p-value is shown as smaller than this
_QUANTILE: Final = 1.96  # the ends of a 95 % interval, in standard errors
_ROWS: Final = {  # of a line in the terminal, and the part of a cell that each shows
    "±": "sd",
    "from": "from",
    "to": "to",
    "n": "n",
    "paper": "paper",
    "  ±": "paper_sd",
    "diff": "difference",
}
_DIM: Final = (
    "from",
    "to",
    "paper",
    "  ±",
    "diff",
)
_MATH: Final = {
    "±": r"\pm",
    "×": r"\times",
    "−": "-",
    "≤": r"\leq",
    "≥": r"\geq",
    "→": r"\rightarrow",
    "β": r"\beta",
    "‖": r"\Vert",
}
_TEXT: Final = {
    "\\": "textbackslash",
    "†": "dag",
    "‡": "ddag",
    "§": "S",
    "¶": "P",
    "~": "textasciitilde",
}
_LATEX: Final = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {character: f"${character}$" for character in "<>|"}
    | {character: f"${name}$" for character, name in _MATH.items()}
    | {character: f"\\{name}{{}}" for character, name in (_TEXT | {"^": "textasciicircum"}).items()}
    | {"–": "--", "’": "'"}
)
_MARKDOWN: Final = str.maketrans(
    {character: f"\\{character}" for character in "\\|*_`[]"} | {"<": "&lt;", ">": "&gt;"}
)


def render(table: Table, form: Form) -> Any:
    """Return a table for `rich.console.Console.print` or as text; a CSV has one row per cell,
    unrounded.
    """
    if form == "terminal":
        return _terminal(view(table))
    if form == "csv":
        return _csv(table)
    return environment().get_template(_TEMPLATES[form]).render(view(table))


def write(
    table: Table,
    folder: Path,
    stem: str,
) -> list[Path]:
    """Write ``<stem>.md``, ``.csv``, ``.tex`` and, where comparisons were made, ``.tests.csv``;
    return the files.
    """
    texts = {
        "md": render(table, "markdown"),
        "csv": render(table, "csv"),
        "tex": render(table, "latex"),
    }
    if len(table.tests):
        texts["tests.csv"] = table.tests.to_csv(index=False)
    for suffix, text in texts.items():
        write_atomic(folder / f"{stem}.{suffix}", text)
    return [folder / f"{stem}.{suffix}" for suffix in texts]


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
    measured = [line for line, quoted in zip(table.lines, table.quoted, strict=True) if not quoted]
    encoders = list(dict.fromkeys(line.encoder for line in measured if line.encoder))
    of_paper = {line.paper_encoder for line in table.lines if line.paper_encoder}
    several = len(encoders) > 1 or len(of_paper) > 1
    about = [_about_request(table.request, encoders), _about_runs(table)]
    note = " ".join(artefact.note.split())
    return {
        "title": f"{artefact.source}: {artefact.title}",
        "label": f"tab:{artefact.paper}-{artefact.name}",
        "about": [text for text in about if text],
        "headings": [column.title for column in artefact.columns],
        "encoders": several,
        "lines": [
            _line(
                table,
                line,
                cells,
                several,
            )
            for line, cells in table.rows()
        ],
        "legend": [*table.legend, *([note] if note else [])],
    }


def _about_request(request: Request, encoders: Sequence[str]) -> str:
    """Return the choices that hold for the whole table."""
    parts = []
    if request.profile:
        parts.append(f"profile {request.profile}")
    if request.encoder or len(encoders) == 1:
        parts.append(f"encoder {request.encoder or encoders[0]}")
    if request.seeds is not None:
        parts.append(f"seeds {' '.join(map(str, request.seeds))}")
    if request.settings:
        parts.append(" ".join(request.settings))
    if request.only:
        parts.append(f"only {', '.join(request.only)}")
    return "; ".join(parts)


def _about_runs(table: Table) -> str:
    parts = []
    if table.commits:
        parts.append(f"code {', '.join(table.commits)}")
    if table.machines:
        parts.append(f"measured on {', '.join(table.machines)}")
    return "; ".join(parts)


def _line(
    table: Table,
    line: Line,
    cells: list[tuple[Any, Column]],
    several: bool,
) -> Any:
    counts = [(cell.n, cell.asked) for cell, column in cells if _is_measured(cell, column)]
    return {
        "label": line.label,
        "encoder": line.encoder if line.encoder and several else "",
        "seeds": _seeds(counts, is_baseline=isinstance(line.way, Baseline)),
        "uneven": len({n for n, _ in counts}) > 1,
        "cells": [_cell(table, cell, column) for cell, column in cells],
    }


def _is_measured(cell: Any, column: Column) -> bool:
    return bool(cell.asked) and column.source != "config"


def _cell(
    table: Table,
    cell: Any,
    column: Column,
) -> dict[str, Any]:
    digits = "g" if column.source == "config" else f".{column.decimals}f"

    def number(value: float, sign: str = "") -> str:
        return "" if math.isnan(value) else f"{value:{sign}{digits}}"

    def end(far: float) -> str:
        return number(min(max(cell.mean + far * cell.error, 0), column.scale))

    return {
        "mean": cell.text or number(cell.mean),
        "sd": number(cell.sd),
        "from": end(-_QUANTILE),
        "to": end(_QUANTILE),
        "signs": table.signs(cell),
        "n": cell.n if _is_measured(cell, column) else "",
        "paper": number(cell.published),
        "paper_sd": number(cell.published_deviation),
        "difference": number(cell.difference, "+"),
        "low": number(cell.low),
        "high": number(cell.high),
        "seeds": ", ".join(f"{seed}: {number(value)}" for seed, value in cell.values.items()),
        "p": _p(cell.p),
        "p_holm": _p(cell.p_holm),
    }


def _seeds(counts: Sequence[tuple[int, int]], *, is_baseline: bool) -> str:
    """Return the number of seeds of a line, ``n/asked`` if some are missing; a range if its cells
    differ.
    """
    if not counts:
        return ""
    if is_baseline and all(n == asked for n, asked in counts):
        return "-"
    numbers = sorted({n for n, _ in counts})
    asked = max(asked for _, asked in counts)
    text = "-".join(str(number) for number in dict.fromkeys((numbers[0], numbers[-1])))
    return text if numbers == [asked] else f"{text}/{asked}"


def _p(value: float) -> str:
    if math.isnan(value):
        return ""
    if value < _LEAST_P:
        return f"<{_LEAST_P:.0e}"
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.0e}"


def _terminal(shown: Mapping[str, Any]) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    rows = []
    words: list[str] = []
    for line in shown["lines"]:
        rows += [(line, *row) for row in _rows(line["cells"], uneven=line["uneven"])]
        words += [*line["label"].split(), line["encoder"]]
    grid = Grid(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    longest = max(map(len, words), default=1)
    grid.add_column(
        "",
        overflow="fold",
        min_width=min(32, longest),
        max_width=32,
    )
    grid.add_column(
        "n",
        justify="right",
        no_wrap=True,
    )
    grid.add_column("", no_wrap=True)
    for number, heading in enumerate(shown["headings"]):
        width = max((len(texts[number]) for _, _, texts in rows), default=1)
        most = max(width, *map(len, heading.split()))
        grid.add_column(
            heading,
            justify="right",
            min_width=width,
            max_width=most,
        )
    for line, what, texts in rows:
        first = ["", ""] if what else [Text(_terminal_label(line)), line["seeds"]]
        style = "dim" if what in _DIM else ""
        grid.add_row(*first, *(Text(text, style) for text in (what, *texts)))
    head = [Text(shown["title"], style="bold"), *map(Text, (*shown["about"], ""))]
    return Group(
        *head,
        grid,
        *map(Text, ("", *shown["legend"])),
    )


def _terminal_label(line: Mapping[str, Any]) -> str:
    return f"{line['label']}\n{line['encoder']}" if line["encoder"] else line["label"]


def _rows(cells: Sequence[Mapping[str, Any]], *, uneven: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield the non-empty rows of a line: measured values, their spread, the paper's values, the
    difference.
    """
    yield "", [(cell["mean"] or "-") + cell["signs"] for cell in cells]
    for what, key in _ROWS.items():
        if any(cell[key] for cell in cells) and (uneven or key != "n"):
            yield what, [str(cell[key]) for cell in cells]


def _csv(table: Table) -> str:
    frame = table.cells.reset_index(names=["line", "column"])
    frame["mean"] = frame["mean"].astype(object).mask(frame["text"] != "", frame["text"])
    frame["marks"] = frame["marks"].map(";".join)
    frame["seeds"] = frame["values"].map(lambda values: " ".join(map(str, values)))
    frame.insert(
        1,
        "row",
        [table.lines[number].label for number in frame["line"]],
    )
    frame.insert(
        2,
        "encoder",
        [table.lines[number].encoder for number in frame["line"]],
    )
    hidden = ["line", "asked", "values", "text"]
    if frame["error"].isna().all():
        hidden.append("error")
    return str(frame.drop(columns=hidden).to_csv(index=False))
