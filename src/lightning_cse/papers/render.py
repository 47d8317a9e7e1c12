"""Renders tables for the terminal and as CSV, and, from templates, as Markdown and LaTeX."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from lightning_cse.papers.artefacts import Baseline
from lightning_cse.papers.tables import Table
from lightning_cse.runs import write_atomic

if TYPE_CHECKING:
    from jinja2 import Environment
    from rich.console import RenderableType

Form = Literal["terminal", "markdown", "csv", "latex"]

_TEMPLATES: Final = {"markdown": "table.md.jinja", "latex": "table.tex.jinja"}
_LEAST_P: Final = 1e-99  # a smaller p-value is shown as smaller than this
_ENDS: Final = {"from": -1.96, "to": 1.96}  # of a 95 % interval, in standard errors
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
    """Return a table for `rich.console.Console.print` or as text; a CSV has one row per cell, unrounded."""
    if form == "terminal":
        return _terminal(view(table))
    return (
        _csv(table)
        if form == "csv"
        else environment().get_template(_TEMPLATES[form]).render(view(table))
    )


def write(table: Table, folder: Path, stem: str) -> list[Path]:
    """Write ``<stem>.md``, ``.csv``, ``.tex`` and, where comparisons were made, ``.tests.csv``; return the files."""
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

    loader = FileSystemLoader(Path(__file__).parent / "templates")
    found = Environment(
        loader=loader,
        autoescape=select_autoescape(("html.jinja",)),
        lstrip_blocks=True,
        trim_blocks=True,
    )
    found.filters |= {
        "md": lambda text: text.translate(_MARKDOWN),
        "tex": lambda text: text.translate(_LATEX),
    }
    return found


def view(table: Table) -> dict[str, Any]:
    """Return the contents of a table as text: title, lines above, headings, lines with their cells, legend."""
    lines = [line for line, quoted in zip(table.lines, table.quoted, strict=True) if not quoted]
    encoders = {line.encoder for line in lines if line.encoder}
    several = (
        len(encoders) > 1
        or len({line.paper_encoder for line in table.lines if line.paper_encoder}) > 1
    )
    asked = table.request
    above = {
        f"profile {asked.profile}": asked.profile,
        f"encoder {asked.encoder or next(iter(encoders), None)}": asked.encoder
        or len(encoders) == 1,
        f"seeds {' '.join(map(str, asked.seeds or ()))}": asked.seeds is not None,
        " ".join(asked.settings): asked.settings,
        f"only {', '.join(asked.only)}": asked.only,
    }
    measured = {"code": table.commits, "measured on": table.machines}
    made = {f"{what} {', '.join(of)}": of for what, of in measured.items()}
    about = ["; ".join(text for text, shown in part.items() if shown) for part in (above, made)]
    return {
        "title": f"{table.artefact.source}: {table.artefact.title}",
        "label": f"tab:{table.artefact.paper}-{table.artefact.name}",
        "about": [text for text in about if text],
        "headings": [column.title for column in table.artefact.columns],
        "encoders": several,
        "lines": [
            {
                "label": line.label,
                "encoder": line.encoder or "" if several else "",
                "seeds": _seeds(isinstance(line.way, Baseline), cells),
                "uneven": len(
                    {cell.n for cell, column in cells if cell.asked and column.source != "config"}
                )
                > 1,
                "cells": [_cell(table, cell, column) for cell, column in cells],
            }
            for line, cells in table.rows()
        ],
        "legend": [
            *table.legend,
            *([" ".join(table.artefact.note.split())] if table.artefact.note.strip() else []),
        ],
    }


def _cell(table: Table, cell: Any, column: Any) -> dict[str, Any]:
    def number(value: float, sign: str = "") -> str:
        digits = "g" if column.source == "config" else f".{column.decimals}f"
        return "" if math.isnan(value) else f"{value:{sign}{digits}}"

    return {
        "mean": cell.text or number(cell.mean),
        "sd": number(cell.sd),
        **{
            end: number(min(max(cell.mean + far * cell.error, 0), column.scale))
            for end, far in _ENDS.items()
        },
        "signs": table.signs(cell),
        "n": cell.n if cell.asked and column.source != "config" else "",
        "paper": number(cell.published),
        "paper_sd": number(cell.published_deviation),
        "difference": number(cell.difference, "+"),
        "low": number(cell.low),
        "high": number(cell.high),
        "seeds": ", ".join(f"{seed}: {number(value)}" for seed, value in cell.values.items()),
        "p": _p(cell.p),
        "p_holm": _p(cell.p_holm),
    }


def _seeds(baseline: bool, cells: list[tuple[Any, Any]]) -> str:
    """Return the number of seeds of a line, ``n/asked`` if some are missing; a range if its cells differ."""
    counts = [
        (cell.n, cell.asked) for cell, column in cells if column.source != "config" and cell.asked
    ]
    if not counts or (baseline and all(n == asked for n, asked in counts)):
        return "-" if counts else ""
    numbers, asked = sorted({n for n, _ in counts}), max(asked for _, asked in counts)
    have = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
    return have if numbers == [asked] else f"{have}/{asked}"


def _p(value: float) -> str:
    if math.isnan(value):
        return ""
    return (
        f"<{_LEAST_P:.0e}"
        if value < _LEAST_P
        else f"{value:.4f}"
        if value >= 0.0001
        else f"{value:.0e}"
    )


def _terminal(shown: Mapping[str, Any]) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    rows = [
        (line, *row)
        for line in shown["lines"]
        for row in _rows(line["cells"], uneven=line["uneven"])
    ]
    words = [word for line in shown["lines"] for word in (*line["label"].split(), line["encoder"])]
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    grid.add_column(
        "", overflow="fold", min_width=min(32, max(map(len, words), default=1)), max_width=32
    )
    grid.add_column("n", justify="right", no_wrap=True)
    grid.add_column("", no_wrap=True)
    for number, heading in enumerate(shown["headings"]):
        width = max((len(texts[number]) for _, _, texts in rows), default=1)
        grid.add_column(
            heading,
            justify="right",
            min_width=width,
            max_width=max(width, *map(len, heading.split())),
        )
    for line, what, texts in rows:
        label = line["label"] + f"\n{line['encoder']}" * bool(line["encoder"])
        style = "dim" if what in ("from", "to", "paper", "  ±", "diff") else ""
        first = ["", ""] if what else [Text(label), line["seeds"]]
        grid.add_row(*first, *(Text(text, style) for text in (what, *texts)))
    head = [Text(shown["title"], style="bold"), *map(Text, (*shown["about"], ""))]
    return Group(*head, grid, *map(Text, ("", *shown["legend"])))


def _rows(cells: Sequence[Mapping[str, Any]], *, uneven: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield the non-empty rows of a line: measured values, their spread, the paper's values, the difference."""
    yield "", [(cell["mean"] or "-") + cell["signs"] for cell in cells]
    names = {
        "±": "sd",
        "from": "from",
        "to": "to",
        "n": "n",
        "paper": "paper",
        "  ±": "paper_sd",
        "diff": "difference",
    }
    for what, key in names.items():
        if any(cell[key] for cell in cells) and (uneven or key != "n"):
            yield what, [str(cell[key]) for cell in cells]


def _csv(table: Table) -> str:
    frame = table.cells.reset_index(names=["line", "column"])
    frame["mean"] = frame["mean"].astype(object).mask(frame["text"] != "", frame["text"])
    frame["marks"] = frame["marks"].map(";".join)
    frame["seeds"] = frame["values"].map(lambda values: " ".join(map(str, values)))
    frame.insert(1, "row", [table.lines[number].label for number in frame["line"]])
    frame.insert(2, "encoder", [table.lines[number].encoder for number in frame["line"]])
    unknown = [name for name in ("error",) if frame[name].isna().all()]
    return str(
        frame.drop(columns=["line", "asked", "values", "text", *unknown]).to_csv(index=False)
    )
