"""Tables for the terminal, as Markdown, CSV and LaTeX: one view of the cells, and a template for each form."""

from __future__ import annotations

import functools
import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, overload

import pandas as pd

from lightning_cse.papers.artefacts import Baseline
from lightning_cse.papers.tables import Table, few
from lightning_cse.runs import write_atomic

if TYPE_CHECKING:
    from jinja2 import Environment
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

Form = Literal["terminal", "markdown", "csv", "latex"]

_TEMPLATES: Final = {"markdown": "table.md.jinja", "latex": "table.tex.jinja"}
_LEAST_P: Final = 1e-99  # a smaller p-value is shown as smaller than this
_CSV: Final = (
    "n",
    "mean",
    "sd",
    "low",
    "high",
    "published",
    "published_deviation",
    "difference",
    "marks",
    "p",
    "p_holm",
)
_LATEX: Final = {
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "’": "'"},
    **{"†": r"\dag{}", "‡": r"\ddag{}", "§": r"\S{}", "¶": r"\P{}", "‖": r"$\Vert$", "±": r"$\pm$", "×": r"$\times$"},
    **{"−": "$-$", "≤": r"$\leq$", "≥": r"$\geq$", "→": r"$\rightarrow$"},
    **{character: f"${character}$" for character in "<>|"},
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


@overload
def render(table: Table, form: Literal["terminal"]) -> RenderableType: ...
@overload
def render(table: Table, form: Literal["markdown", "csv", "latex"]) -> str: ...
def render(table: Table, form: Form) -> str | RenderableType:
    """Return a table: for `rich.console.Console.print`, or as text; a CSV has a row a cell, unrounded."""
    if form == "terminal":
        return _Terminal(view(table))
    return _csv(table) if form == "csv" else environment().get_template(_TEMPLATES[form]).render(view(table))


def write(table: Table, folder: Path, stem: str) -> list[Path]:
    """Write ``<stem>.md``, ``.csv``, ``.tex`` and, where comparisons were made, ``.tests.csv``; return the files."""
    texts = {"md": render(table, "markdown"), "csv": render(table, "csv"), "tex": render(table, "latex")}
    if len(table.tests):
        texts["tests.csv"] = table.tests.to_csv(index=False)
    for suffix, text in texts.items():
        write_atomic(folder / f"{stem}.{suffix}", text)
    return [folder / f"{stem}.{suffix}" for suffix in texts]


@functools.cache
def environment() -> Environment:
    """Return where the templates of this package are, with what they use."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent / "templates")
    found = Environment(
        autoescape=lambda name: name is not None and ".html" in name,
        loader=loader,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    found.filters |= {"md": _markdown, "tex": _latex}
    return found


def view(table: Table) -> dict[str, Any]:
    """Return what the forms of a table show, as text: title, lines above, headings, lines with their cells, legend."""
    lines = [line for line, quoted in zip(table.lines, table.quoted, strict=True) if not quoted]
    encoders = {line.encoder for line in lines if line.encoder}
    several = len(encoders) > 1 or len({line.paper_encoder for line in table.lines if line.paper_encoder}) > 1
    asked = table.request
    above = {
        f"profile {asked.profile}": asked.profile,
        f"encoder {asked.encoder or next(iter(encoders), None)}": asked.encoder or len(encoders) == 1,
        f"seeds {' '.join(map(str, asked.seeds or ()))}": asked.seeds is not None,
        " ".join(asked.settings): asked.settings,
        f"only {', '.join(asked.only)}": asked.only,
    }
    measured = {f"code {few(table.commits)}": table.commits, f"measured on {few(table.machines)}": table.machines}
    about = ["; ".join(text for text, shown in part.items() if shown) for part in (above, measured)]
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
                "uneven": len({cell.n for cell, column in cells if cell.asked and column.source != "config"}) > 1,
                "cells": [_cell(table, cell, column) for cell, column in cells],
            }
            for line, cells in table.rows()
        ],
        "legend": [*table.legend, *([" ".join(table.artefact.note.split())] if table.artefact.note.strip() else [])],
    }


def _cell(table: Table, cell: Any, column: Any) -> dict[str, Any]:
    def number(value: float, sign: str = "") -> str:
        digits = "g" if column.source == "config" else f".{column.decimals}f"
        return "" if math.isnan(value) else f"{value:{sign}{digits}}"

    return {
        "mean": cell.text or number(cell.mean),
        "order": cell.mean if not math.isnan(cell.mean) else cell.published,
        "sd": number(cell.sd),
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
    """Return how many seeds a line has, of how many where some are missing; a range where its cells differ."""
    counts = [(cell.n, cell.asked) for cell, column in cells if column.source != "config" and cell.asked]
    if not counts or (baseline and all(n == asked for n, asked in counts)):
        return "-" if counts else ""
    numbers, asked = sorted({n for n, _ in counts}), max(asked for _, asked in counts)
    have = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
    return have if numbers == [asked] else f"{have}/{asked}"


def _p(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"<{_LEAST_P:.0e}" if value < _LEAST_P else f"{value:.4f}" if value >= 0.0001 else f"{value:.0e}"


@dataclass(frozen=True)
class _Terminal:
    """A table for the terminal, with the deviations below the means where it would be too wide otherwise."""

    shown: Mapping[str, Any]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text(self.shown["title"], style="bold")
        yield from map(Text, (*self.shown["about"], ""))
        grid = self._grid(below=False)
        fits = console.measure(grid, options=options.update(max_width=1000)).maximum <= options.max_width
        yield grid if fits else self._grid(below=True)
        yield from map(Text, ("", *self.shown["legend"]))

    def _grid(self, *, below: bool) -> RenderableType:
        from rich import box
        from rich.table import Table as Grid
        from rich.text import Text

        rows = [(line, what, texts) for line in self.shown["lines"] for what, texts in _rows(line, below=below)]
        words = [word for line in self.shown["lines"] for word in (*line["label"].split(), line["encoder"])]
        grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0) if below else (0, 1), pad_edge=False, show_edge=False)
        grid.add_column("", overflow="fold", min_width=min(32, max(map(len, words), default=1)), max_width=32)
        grid.add_column("n", justify="right", no_wrap=True)
        grid.add_column("", no_wrap=True)
        for number, heading in enumerate(self.shown["headings"]):
            width = max((len(texts[number]) for _, _, texts in rows), default=1)
            widest = max(width, *map(len, heading.split())) if below else None
            grid.add_column(Text(heading), justify="right", min_width=width, max_width=widest)
        for line, what, texts in rows:
            names = (
                (line["label"] + f"\n{line['encoder']}" * bool(line["encoder"]), line["seeds"])
                if not what
                else ("", "")
            )
            style = "dim" if what in ("paper", "  ±", "diff") else ""
            grid.add_row(Text(names[0]), names[1], *(Text(text, style) for text in (what, *texts)))
        return grid


def _rows(line: Mapping[str, Any], *, below: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of a line that hold anything: measured, deviation, the paper's value and the difference."""
    cells = line["cells"]
    yield "", [(c["mean"] or "-") + (f" ± {c['sd']}" if c["sd"] and not below else "") + c["signs"] for c in cells]
    for what, texts in {
        "±": [c["sd"] if below else "" for c in cells],
        "n": [str(c["n"]) if line["uneven"] else "" for c in cells],
        "paper": [c["paper"] + (f" ± {c['paper_sd']}" if c["paper_sd"] and not below else "") for c in cells],
        "  ±": [c["paper_sd"] if below else "" for c in cells],
        "diff": [c["difference"] for c in cells],
    }.items():
        if any(texts):
            yield what, texts


def _csv(table: Table) -> str:
    frame = table.cells[[*_CSV, "text", "values"]].reset_index(names=["line", "column"])
    frame["mean"] = frame["mean"].astype(object).mask(frame["text"] != "", frame["text"])
    frame["marks"] = frame["marks"].map(";".join)
    frame["seeds"] = frame["values"].map(lambda values: " ".join(map(str, values)))
    frame["row"] = [table.lines[number].label for number in frame["line"]]
    frame["encoder"] = [table.lines[number].encoder for number in frame["line"]]
    return frame[["row", "encoder", "column", *_CSV, "seeds"]].to_csv(index=False)


def _markdown(text: str) -> str:
    for character in "\\|*_`[]":
        text = text.replace(character, f"\\{character}")
    return text.replace("<", "&lt;").replace(">", "&gt;")


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character) or _greek(character) for character in text)


def _greek(character: str) -> str:
    """Return the command of a Greek letter, and any other character as it is."""
    name = unicodedata.name(character, "").split()
    if len(name) != 4 or name[0] != "GREEK" or name[2] != "LETTER":
        return character
    return f"$\\{name[3].lower() if name[1] == 'SMALL' else name[3].capitalize()}$"
