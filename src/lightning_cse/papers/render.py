"""Tables for the eye, for Markdown, for LaTeX and as CSV: the same numbers in the same format everywhere."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, overload

from lightning_cse.papers.artefacts import Baseline, Column
from lightning_cse.papers.cells import LEVELS, TEST_FIELDS, Cell, Table, TableLine, few, rows_of_tests
from lightning_cse.runs import write_atomic

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

__all__ = ["render", "write"]

Form = Literal["terminal", "markdown", "csv", "latex"]

_MISSING: Final = "-"
_BASELINES: Final = "-"
_LABEL: Final = 32  # a longer label goes on in a second line
_NARROW_LABEL: Final = 18  # the same where columns would not fit otherwise
_SYLLABLE: Final = 6  # no word of a heading is broken into less
_UNBOUNDED: Final = 10_000
_TOLD_P: Final = 1e-99  # a smaller p-value is told as smaller than this
_QUIET: Final = ("paper", "diff", "  ")
_CSV: Final = (
    "row",
    "encoder",
    "column",
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
    "seeds",
)
_LATEX_SYMBOLS: Final = {"†": r"\dagger", "‡": r"\ddagger", "§": r"\S", "¶": r"\P", "‖": r"\|"}
_LATEX_CHARACTERS: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
    "–": "--",
    "—": "---",
    "“": "``",
    "”": "''",
    "’": "'",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{symbol: f"${command}$" for symbol, command in _LATEX_SYMBOLS.items()},
}


@overload
def render(table: Table, form: Literal["terminal"]) -> RenderableType: ...
@overload
def render(table: Table, form: Literal["markdown", "csv", "latex"]) -> str: ...
def render(table: Table, form: Form) -> str | RenderableType:
    """Return a table in one of its forms.

    Args:
        table: what `cells.assemble` returned.
        form: ``terminal`` for `rich.console.Console.print`, which fits it to the console's width; ``markdown`` with
            the range and the seeds folded below; ``csv`` with a line a cell, unrounded; ``latex`` with booktabs.
    """
    if form == "terminal":
        return _Terminal(table)
    return _FORMS[form](table)


def write(table: Table, folder: Path, stem: str) -> list[Path]:
    """Write ``<stem>.md``, ``<stem>.csv`` and ``<stem>.tex``, and ``<stem>.tests.csv`` where comparisons were made.

    Each file is written whole or not at all. Comparisons that an earlier file holds stay if none was made now.

    Returns:
        The files.

    Raises:
        LightningCSEError: if the disk is full.
    """
    texts = {"md": render(table, "markdown"), "csv": render(table, "csv"), "tex": render(table, "latex")}
    if table.tests:
        texts["tests.csv"] = _csv_text(TEST_FIELDS, (list(row.values()) for row in rows_of_tests(table.tests)))
    paths = []
    for suffix, text in texts.items():
        path = folder / f"{stem}.{suffix}"
        write_atomic(path, text)
        paths.append(path)
    return paths


# ---------------------------------------------------------------------------------------------------------- numbers


def _value(number: float | None, column: Column) -> str:
    """Return a number with the column's decimals; a setting's as short as it is."""
    if number is None:
        return _MISSING
    return f"{number:g}" if column.source == "config" else f"{number:.{column.decimals}f}"


def _mean(cell: Cell, column: Column) -> str:
    return cell.text if cell.text is not None else _value(cell.mean, column)


def _difference(cell: Cell, column: Column) -> str:
    if cell.difference is None:
        return ""
    return f"{cell.difference:+g}" if column.source == "config" else f"{cell.difference:+.{column.decimals}f}"


def _seeds(line: TableLine, columns: Sequence[Column]) -> str:
    """Return how many seeds a line has, of how many where some are missing; a range where its cells differ."""
    cells = [cell for cell, column in zip(line.cells, columns, strict=True) if column.source != "config" and cell.asked]
    if not cells:
        return ""
    if isinstance(line.line.way, Baseline) and all(cell.n == cell.asked for cell in cells):
        return _BASELINES
    numbers = sorted({cell.n for cell in cells})
    asked = max(cell.asked for cell in cells)
    have = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
    return have if numbers == [asked] else f"{have}/{asked}"


def _uneven(line: TableLine, columns: Sequence[Column]) -> bool:
    """Whether the cells of a line have different numbers of seeds, so that each must tell its own."""
    pairs = zip(line.cells, columns, strict=True)
    return len({cell.n for cell, column in pairs if cell.asked and column.source != "config"}) > 1


def _heads(table: Table) -> tuple[str, list[str]]:
    """Return the title, and the lines below it: what was asked for, and by what it was measured."""
    request = table.request
    asked = [f"profile {request.profile}"] if request.profile else []
    asked += [f"encoder {request.encoder}"] if request.encoder else []
    asked += [f"seeds {' '.join(map(str, request.seeds))}"] if request.seeds is not None else []
    asked += [" ".join(request.settings)] if request.settings else []
    asked += [f"only {', '.join(request.only)}"] if request.only else []
    shared = _shared_encoder(table)
    asked += [f"encoder {shared}"] if shared and not request.encoder else []
    measured = [f"code {few(table.commits)}"] if table.commits else []
    measured += [f"measured on {few(table.machines)}"] if table.machines else []
    below = ["; ".join(part) for part in (asked, measured) if part]
    return f"{table.artefact.source}: {table.artefact.title}", below


def _shared_encoder(table: Table) -> str | None:
    """Return the only encoder that lines are measured with, None where there are several."""
    encoders = {one.line.encoder for one in table.lines if one.line.encoder and not one.quoted}
    return encoders.pop() if len(encoders) == 1 else None


def _with_encoders(table: Table) -> bool:
    """Whether lines must tell their encoder: the paper has several, or what was measured has."""
    measured = {one.line.encoder for one in table.lines if one.line.encoder and not one.quoted}
    return len(measured) > 1 or len({one.line.paper_encoder for one in table.lines if one.line.paper_encoder}) > 1


def _legend(table: Table) -> list[str]:
    note = table.artefact.note.strip()
    return [*table.legend, *([" ".join(note.split())] if note else [])]


# --------------------------------------------------------------------------------------------------------- terminal


@dataclass(frozen=True)
class _Terminal:
    """A table as wide as its console: deviations go below the means, then columns below each other, if need be."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        title, below = _heads(self.table)
        yield Text(title, style="bold")
        yield from map(Text, below)
        places = range(len(self.table.columns))
        grid = self._grid({place: self._widest(place, stacked=False) for place in places}, stacked=False)
        if console.measure(grid, options=options.update(max_width=_UNBOUNDED)).maximum <= options.max_width:
            yield Text("")
            yield grid
        else:
            for block in self._blocks(options.max_width):
                yield Text("")
                yield self._grid(block, stacked=True)
        legend = _legend(self.table)
        if legend:
            yield Text("")
        yield from map(Text, legend)

    def _blocks(self, width: int) -> Iterator[Mapping[int, int]]:
        """Yield the columns that fit beside each other, as many as fit: their places and widths."""
        names = [line.line.label for line in self.table.lines]
        names += [line.line.encoder or "" for line in self.table.lines] if _with_encoders(self.table) else []
        longest = max((len(name) for name in names), default=0)
        seeds = max((len(_seeds(line, self.table.columns)) for line in self.table.lines), default=0)
        free = width - min(longest, _NARROW_LABEL) - max(seeds, 1) - len("paper") - 3
        numbers = [self._widest(place, stacked=True) for place in range(len(self.table.columns))]
        words = [max(map(len, column.title.split()), default=0) for column in self.table.columns]
        # Headings break inside their words only where all columns would not fit beside each other otherwise.
        widths = [max(pair) for pair in zip(numbers, words, strict=True)]
        if sum(widths) + len(widths) > free:
            widths = [max(number, min(word, _SYLLABLE)) for number, word in zip(numbers, words, strict=True)]
        block: dict[int, int] = {}
        for place, needed in enumerate(widths):
            if block and sum(block.values()) + len(block) + needed + 1 > free:
                yield block
                block = {}
            block[place] = needed
        yield block

    def _grid(self, widths: Mapping[int, int], *, stacked: bool) -> RenderableType:
        from rich import box
        from rich.table import Table as Grid
        from rich.text import Text

        table = self.table
        grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0) if stacked else (0, 1), pad_edge=False, show_edge=False)
        grid.add_column("", overflow="fold", max_width=_LABEL)
        grid.add_column("n", justify="right", no_wrap=True)
        grid.add_column("", no_wrap=True)
        for place, width in widths.items():
            heading = Text(table.columns[place].title, overflow="fold")
            grid.add_column(heading, justify="right", min_width=width, max_width=width if stacked else None)
        for line in table.lines:
            label = Text(line.line.label)
            if _with_encoders(table) and line.line.encoder:
                label.append(f"\n{line.line.encoder}", style="dim")
            whats, *stacks = zip(*((what, *cells) for what, cells in self._rows(line, stacked=stacked)), strict=True)
            styles = ["dim" if what.startswith(_QUIET) else "" for what in whats]
            cells = [self._stack(parts, styles) for parts in (whats, *(stacks[place] for place in widths))]
            grid.add_row(label, _seeds(line, table.columns), *cells)
        return grid

    @staticmethod
    def _stack(parts: Sequence[str], styles: Sequence[str]) -> RenderableType:
        from rich.text import Text

        stack = Text(no_wrap=True)
        for number, (part, style) in enumerate(zip(parts, styles, strict=True)):
            stack.append(("\n" if number else "") + part, style=style)
        return stack

    def _widest(self, place: int, *, stacked: bool) -> int:
        rows = (cells[place] for line in self.table.lines for _, cells in self._rows(line, stacked=stacked))
        return max((len(part) for part in rows), default=1)

    def _rows(self, line: TableLine, *, stacked: bool) -> Iterator[tuple[str, list[str]]]:
        """Yield the rows of a line that hold anything: measured, deviation, the paper's value and the difference."""
        table = self.table
        triples = [
            (cell, column, "" if stacked or cell.sd is None else f" ± {_value(cell.sd, column)}")
            for cell, column in zip(line.cells, table.columns, strict=True)
        ]
        room = [
            max((len(self._signs(other.cells[k])) for other in table.lines), default=0) for k in range(len(triples))
        ]

        def aligned(parts: Iterable[str]) -> list[str]:
            return [part + " " * size if part else "" for part, size in zip(parts, room, strict=True)]

        means = ((_mean(cell, column) + spread, self._signs(cell)) for cell, column, spread in triples)
        yield "", [mean + signs.ljust(size) for (mean, signs), size in zip(means, room, strict=True)]
        if stacked and any(cell.sd is not None for cell in line.cells):
            yield "±", aligned("" if cell.sd is None else _value(cell.sd, column) for cell, column, _ in triples)
        if _uneven(line, table.columns):
            yield "n", aligned(str(cell.n) if cell.asked else "" for cell in line.cells)
        if any(cell.published is not None for cell in line.cells):
            yield "paper", aligned(_paper(cell, column, alone=stacked) for cell, column, _ in triples)
        if stacked and any(cell.published_deviation is not None for cell in line.cells):
            deviations = ((cell.published_deviation, column) for cell, column, _ in triples)
            yield "    ±", aligned("" if number is None else _value(number, column) for number, column in deviations)
        if any(cell.difference is not None for cell in line.cells):
            yield "diff", aligned(_difference(cell, column) for cell, column, _ in triples)

    def _signs(self, cell: Cell) -> str:
        return "".join(self.table.symbols(cell))


def _paper(cell: Cell, column: Column, *, alone: bool = False) -> str:
    if cell.published is None:
        return ""
    deviation = None if alone else cell.published_deviation
    return _value(cell.published, column) + ("" if deviation is None else f" ± {_value(deviation, column)}")


# --------------------------------------------------------------------------------------------------------- Markdown


def _markdown(table: Table) -> str:
    title, below = _heads(table)
    escape = _escaped_for_markdown
    with_encoders = _with_encoders(table)
    headings = ["", *(["encoder"] if with_encoders else []), "n", *(column.title for column in table.columns)]
    lines = [f"**{escape(title)}**", ""]
    lines += [part for told in below for part in (escape(told), "")]
    lines.append(_markdown_row(escape(heading) for heading in headings))
    lines.append("|---|" + "---|" * with_encoders + "---:|" * (len(table.columns) + 1))
    for line in table.lines:
        names = [line.line.label, *([line.line.encoder or ""] if with_encoders else []), _seeds(line, table.columns)]
        uneven = _uneven(line, table.columns)
        pairs = zip(line.cells, table.columns, strict=True)
        cells = (_markdown_cell(table, cell, column, uneven=uneven) for cell, column in pairs)
        lines.append(_markdown_row([*map(escape, names), *cells]))
    for told in _legend(table):
        lines += ["", escape(told)]
    details = list(_details(table))
    if details:
        lines += ["", "<details><summary>Range and seeds</summary>", ""]
        lines += [_markdown_row(("", "column", "n", "lowest", "highest", "by seed", "p", "p, Holm"))]
        lines += ["|---|---|---:|---:|---:|---|---:|---:|", *details, "", "</details>"]
    return "\n".join([*lines, ""])


def _markdown_cell(table: Table, cell: Cell, column: Column, *, uneven: bool) -> str:
    shown = _escaped_for_markdown(_mean(cell, column))
    shown += f" ± {_value(cell.sd, column)}" if cell.sd is not None else ""
    shown += _escaped_for_markdown("".join(table.symbols(cell)))
    if uneven and cell.asked and column.source != "config":
        shown += f" (n = {cell.n})"
    if cell.published is None:
        return shown
    difference = _difference(cell, column)
    return f"{shown}<br>paper {_paper(cell, column)}" + (f" ({difference})" if difference else "")


def _details(table: Table) -> Iterator[str]:
    """Yield a row for each measured cell: what the table itself has no room for."""
    for line in table.lines:
        name = line.line.label + (f" ({line.line.encoder})" if line.line.encoder and _with_encoders(table) else "")
        for cell, column in zip(line.cells, table.columns, strict=True):
            if not cell.values:
                continue
            by_seed = ", ".join(f"{seed}: {_value(value, column)}" for seed, value in cell.values.items())
            numbers = (str(cell.n), _value(cell.low, column), _value(cell.high, column), by_seed)
            tests = (_p(cell.p), _p(cell.p_holm))
            yield _markdown_row(map(_escaped_for_markdown, (name, column.title, *numbers, *tests)))


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped_for_markdown(text: str) -> str:
    for character in "\\|*_`[]":
        text = text.replace(character, f"\\{character}")
    return text.replace("<", "&lt;").replace(">", "&gt;")


def _p(value: float | None) -> str:
    if value is None:
        return ""
    if value < _TOLD_P:
        return f"<{_TOLD_P:.0e}"
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.0e}"


# -------------------------------------------------------------------------------------------------------------- CSV


def _csv(table: Table) -> str:
    """Return a line a cell, unrounded, with marks by name."""
    rows = []
    for line in table.lines:
        for cell, column in zip(line.cells, table.columns, strict=True):
            mean = cell.text if cell.text is not None else cell.mean
            numbers = (mean, cell.sd, cell.low, cell.high, cell.published, cell.published_deviation, cell.difference)
            seeds = " ".join(map(str, cell.values))
            names = (line.line.label, line.line.encoder, column.title, cell.n)
            rows.append([*names, *numbers, ";".join(cell.marks), cell.p, cell.p_holm, seeds])
    return _csv_text(_CSV, rows)


def _csv_text(fields: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(fields)
    writer.writerows(rows)
    return sink.getvalue()


# ------------------------------------------------------------------------------------------------------------ LaTeX


def _latex(table: Table) -> str:
    """Return a floating table for ``booktabs``, whose legend is a part of the caption."""
    title, below = _heads(table)
    with_encoders = _with_encoders(table)
    names = 2 if with_encoders else 1
    headings = ["", *(["encoder"] if with_encoders else []), "n", *(column.title for column in table.columns)]
    lines = [
        r"% Needs \usepackage{booktabs}.",
        r"\begin{table}",
        r"\centering",
        r"\small",
        rf"\begin{{tabular}}{{{'l' * names}{'r' * (len(table.columns) + 1)}}}",
        r"\toprule",
        _latex_row(map(_escaped_for_latex, headings)),
        r"\midrule",
    ]
    for line in table.lines:
        first = [line.line.label, *([line.line.encoder or ""] if with_encoders else []), _seeds(line, table.columns)]
        pairs = list(zip(line.cells, table.columns, strict=True))
        lines.append(
            _latex_row([*map(_escaped_for_latex, first), *(_latex_cell(table, cell, column) for cell, column in pairs)])
        )
        if any(cell.published is not None for cell in line.cells):
            papers = (_latex_paper(cell, column) for cell, column in pairs)
            lines.append(_latex_row([r"\quad paper", *[""] * names, *papers]))
    measured = f" ({'; '.join(below)})" if below else ""
    told = [title + measured, *_legend(table)]
    told = [part if part.endswith(".") else f"{part}." for part in told]
    caption = " ".join(_escaped_for_latex(part) for part in told)
    label = f"tab:{table.artefact.paper}-{table.artefact.name}"
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{caption}}}", rf"\label{{{label}}}", r"\end{table}", ""]
    return "\n".join(lines)


def _latex_cell(table: Table, cell: Cell, column: Column) -> str:
    if cell.text is not None or cell.mean is None:
        return _escaped_for_latex(_mean(cell, column))
    spread = rf" \pm {_value(cell.sd, column)}" if cell.sd is not None else ""
    signs = "".join(map(_latex_symbol, table.symbols(cell)))
    return f"${_value(cell.mean, column)}{spread}{f'^{{{signs}}}' if signs else ''}$"


def _latex_paper(cell: Cell, column: Column) -> str:
    if cell.published is None:
        return ""
    difference = _difference(cell, column)
    if column.source == "config":
        return _escaped_for_latex(_paper(cell, column) + (f" ({difference})" if difference else ""))
    number = f"${_paper(cell, column)}$".replace("±", r"\pm")
    return f"{number} (${difference}$)" if difference else number


def _latex_symbol(symbol: str) -> str:
    if symbol in LEVELS:
        return symbol
    # Braces, so that a letter after the command does not become a part of its name.
    return f"{{{_LATEX_SYMBOLS[symbol]}}}" if symbol in _LATEX_SYMBOLS else rf"\mathrm{{{symbol}}}"


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _escaped_for_latex(text: str) -> str:
    return "".join(_LATEX_CHARACTERS.get(character) or _greek(character) for character in text)


def _greek(character: str) -> str:
    r"""Return the command of a Greek letter, and any other character as it is.

    Example:
        >>> print(_greek("β"), _greek("Δ"), _greek("b"))
        $\beta$ $\Delta$ b
    """
    name = unicodedata.name(character, "").split()
    if len(name) != 4 or name[0] != "GREEK" or name[2] != "LETTER":
        return character
    return f"$\\{name[3].lower() if name[1] == 'SMALL' else name[3].capitalize()}$"


_FORMS: Final[dict[str, Callable[[Table], str]]] = {"markdown": _markdown, "csv": _csv, "latex": _latex}
