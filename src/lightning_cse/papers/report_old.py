"""The report: tables, charts and text as one HTML file, which opens from disk and asks no network for anything."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lightning_cse.papers.cells import is_number
from lightning_cse.papers.figures import theme_variable, themed_svg

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from lightning_cse.papers.artefacts import Artefact, Column
    from lightning_cse.papers.cells import Cell, Table, TableLine
    from lightning_cse.papers.figures import Series

__all__ = [
    "CellView",
    "Chart",
    "Heading",
    "LineView",
    "Section",
    "TableView",
    "artefact_section",
    "build_report",
    "draw_chart",
    "rounded",
    "rows_view",
    "slug",
    "table_view",
]

_TEMPLATE: Final = "report.html.jinja"
_WIDE: Final = 380  # points; a wider figure has a row of its own, since its text would be too small in a card
_SCRIPT: Final = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_DIGEST: Final = "@script-digest@"
_DASHES: Final = {"-": "", "--": "6 3", ":": "2 3", "-.": "7 3 2 3"}


@dataclass(frozen=True)
class CellView:
    """A cell of a table.

    Attributes:
        text: the value, rounded; empty where there is none, which is shown as such.
        below: what stands small under it, such as the paper's value.
        marks: footnote marks.
        hint: shown when the pointer rests on it, such as the values by seed.
        order: what the column is sorted by; None: the text.
        stands_out: whether it is unlike most of its line.
    """

    text: str = ""
    below: str = ""
    marks: str = ""
    hint: str = ""
    order: float | None = None
    stands_out: bool = False


@dataclass(frozen=True)
class Heading:
    """The heading of a column.

    Attributes:
        title: its name.
        below: what stands small under it.
        number: whether its cells are numbers, which stand at the right.
    """

    title: str
    below: str = ""
    number: bool = True


@dataclass(frozen=True)
class LineView:
    """A line of a table.

    Attributes:
        name: what stands in the first column, which stays in sight when the others are scrolled.
        cells: the other columns.
        below: what stands small under the name.
        series: the series of the charts that the line is the legend of.
        apart: whether a rule stands above it.
    """

    name: str
    cells: tuple[CellView, ...]
    below: str = ""
    series: Series | None = None
    apart: bool = False


@dataclass(frozen=True)
class TableView:
    """A table as it is shown.

    Attributes:
        title: its caption; empty where the section's heading is enough.
        headings: the columns, that of the lines' names first.
        lines: the lines, each with a cell for every heading but the first.
        notes: the legend, a paragraph each.
        folded: whether it is opened by a click.
    """

    title: str
    headings: tuple[Heading, ...]
    lines: tuple[LineView, ...]
    notes: tuple[str, ...] = ()
    folded: bool = False

    def __post_init__(self) -> None:
        for line in self.lines:
            if len(line.cells) + 1 != len(self.headings):
                raise ValueError(
                    f"table {self.title!r}, line {line.name!r}: {len(line.cells)} cells and a name under "
                    f"{len(self.headings)} headings"
                )


@dataclass(frozen=True)
class Chart:
    """A chart, as `draw_chart` gives it.

    Attributes:
        title: its heading.
        svg: the element.
        caption: what stands below it.
        wide: whether it has a row of its own.
    """

    title: str
    svg: str
    caption: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the report with a heading, which the contents list.

    Attributes:
        title: its heading.
        anchor: what links to it call it; no two sections of a report have the same.
        intro: Markdown, above the tables.
        tables: its tables.
        charts: its charts, below the tables.
        text: Markdown, below the charts.
        kicker: what stands small above the heading, such as the paper's name for the artefact.
        legend: the series of the charts, where no table of the section has them.
        part: what the contents put it under.
    """

    title: str
    anchor: str
    intro: str = ""
    tables: tuple[TableView, ...] = ()
    charts: tuple[Chart, ...] = ()
    text: str = ""
    kicker: str = ""
    legend: tuple[Series, ...] = ()
    part: str = ""


def build_report(title: str, sections: Sequence[Section], *, facts: Mapping[str, str] | None = None) -> str:
    """Return the page: whole, self-contained, and the same text for the same input.

    Everything but the charts is escaped, also in Markdown, which makes no links and no images.

    Args:
        title: The heading of the page.
        sections: What it shows.
        facts: What stands under the heading, by name.

    Raises:
        ValueError: if two sections have the same anchor.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    anchors = [section.anchor for section in sections]
    if len(set(anchors)) < len(anchors):
        raise ValueError(f"two sections have the same anchor: {anchors}")
    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(Path(__file__).parent),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    markdown = _markdown()
    environment.filters["markdown"] = lambda text: Markup(markdown.render(text))  # noqa: S704 - escapes, see _markdown
    environment.filters["breakable"] = _breakable
    environment.filters["drawing"] = Markup
    environment.filters["dashes"] = _DASHES.__getitem__
    environment.filters["colour"] = theme_variable
    parts: dict[str, list[Section]] = {}
    for section in sections:
        parts.setdefault(section.part, []).append(section)
    page = environment.get_template(_TEMPLATE).render(
        title=title, parts=parts, sections=sections, facts=facts or {}, digest=_DIGEST
    )
    # Only the page's own script may run: one that came with a name would have another digest.
    (script,) = _SCRIPT.findall(page)
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return page.replace(_DIGEST, f"sha256-{digest}", 1)


def draw_chart(figure: Figure, title: str, name: str, *, caption: str = "", series: Sequence[Series] = ()) -> Chart:
    """Return a figure as a chart of the report.

    Args:
        figure: The figure.
        title: Its heading, which is also read out in place of it.
        name: What no other chart of the report is called.
        caption: What stands below it.
        series: The series that are drawn in it.
    """
    svg = themed_svg(figure, name, f"{title}. {caption}".rstrip(". ") if caption else title, series)
    return Chart(title, svg, caption, wide=figure.get_figwidth() * 72 > _WIDE)


def artefact_section(
    artefact: Artefact,
    table: Table | None,
    *,
    figures: Mapping[str, Figure] | None = None,
    text: str = "",
    rows: Mapping[str, Sequence[Mapping[str, object]]] | None = None,
    part: str = "",
) -> Section:
    """Return a table or figure of a paper as a section of the report.

    Args:
        artefact: What it is.
        table: Its table, where it has one.
        figures: Its figures, by name.
        text: Its text, as Markdown; it may quote a corpus, and then so does the report.
        rows: Rows of further tables by name, which are folded.
        part: What the contents put it under.
    """
    anchor = slug(artefact.key)
    charts = tuple(
        draw_chart(figure, _words(name), f"{anchor}-{slug(name)}") for name, figure in (figures or {}).items()
    )
    tables = [] if table is None else [table_view(table)]
    tables += [rows_view(_words(name), some) for name, some in (rows or {}).items() if some]
    note = "" if table is not None else artefact.note  # a table has it among its own
    return Section(
        artefact.title,
        anchor,
        intro=note,
        tables=tuple(tables),
        charts=charts,
        text=text,
        kicker=artefact.source,
        part=part,
    )


def table_view(table: Table) -> TableView:
    """Return a paper's table as it is shown: the measured mean, and small under it the paper's value."""
    encoders = {line.line.encoder for line in table.lines if line.line.encoder}
    lines: list[LineView] = []
    before: str | None = None
    for line in table.lines:
        encoder = line.line.encoder
        cells = tuple(_cell_view(table, cell, column) for cell, column in zip(line.cells, table.columns, strict=True))
        below = encoder if encoder and len(encoders) > 1 else ""
        lines.append(LineView(line.line.label, (_seeds_view(line), *cells), below, apart=encoder != before))
        before = encoder
    only = next(iter(encoders)) if len(encoders) == 1 else ""
    headings = (Heading("", only, number=False), Heading("n"), *(Heading(column.title) for column in table.columns))
    notes = [
        "Mean ± standard deviation over n seeds; below it the paper's value, and the difference in parentheses.",
        *table.legend,
        *([" ".join(table.artefact.note.split())] if table.artefact.note.strip() else []),
        *([f"Measured on {', '.join(table.machines)}; code {', '.join(table.commits)}."] if table.machines else []),
    ]
    return TableView("", headings, tuple(lines), tuple(notes))


def rows_view(title: str, rows: Sequence[Mapping[str, object]]) -> TableView:
    """Return the rows of a CSV file as a folded table, numbers shortened; the first column names the lines."""
    first, *rest = dict.fromkeys(key for row in rows for key in row)
    numbers = {key for key in rest if all(is_number(row.get(key)) or row.get(key) in (None, "") for row in rows)}
    headings = (Heading(first, number=False), *(Heading(key, number=key in numbers) for key in rest))
    lines = [
        LineView(str(row.get(first, "")), tuple(_plain_view(row.get(key), number=key in numbers) for key in rest))
        for row in rows
    ]
    return TableView(title, headings, tuple(lines), folded=True)


def _plain_view(value: object, *, number: bool) -> CellView:
    if value is None or value == "":
        return CellView()
    if number and isinstance(value, float):
        return CellView(rounded(value), order=value)
    return CellView(str(value), order=float(value) if isinstance(value, int) else None)


def _words(name: str) -> str:
    """Return a name as a title."""
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


def _seeds_view(line: TableLine) -> CellView:
    """Return how many seeds a line has, and of how many where some are missing."""
    counts = [cell.n for cell in line.cells if cell.asked]
    if not counts:
        return CellView()
    least, most, asked = min(counts), max(counts), max(cell.asked for cell in line.cells)
    have = str(most) if least == most else f"{least}–{most}"
    return CellView(have if least == asked else f"{have}/{asked}", order=float(most))


def _cell_view(table: Table, cell: Cell, column: Column) -> CellView:
    def told(number: float | None, sign: str = "") -> str:
        if number is None:
            return ""
        return f"{number:{sign}g}" if column.source == "config" else rounded(number, column.decimals, sign)

    text = cell.text if cell.text is not None else told(cell.mean)
    if cell.sd is not None:
        text = f"{text} ± {told(cell.sd)}"
    below = told(cell.published)
    if cell.published_deviation is not None:
        below = f"{below} ± {told(cell.published_deviation)}"
    if cell.difference is not None:
        below = f"{below} ({told(cell.difference, '+')})"
    hints = [f"seed {seed}: {told(value)}" for seed, value in cell.values.items()]
    if cell.p_holm is not None:
        hints.append(f"p = {cell.p:.3g}, {cell.p_holm:.3g} after Holm")
    order = cell.mean if cell.mean is not None else cell.published
    return CellView(text, below, " ".join(table.symbols(cell)), "\n".join(hints), order)


def rounded(number: float, decimals: int = 4, sign: str = "") -> str:
    """Return a number with so many decimals and a true minus sign.

    Example:
        >>> rounded(-0.25, 1), rounded(2, 2, "+")
        ('−0.2', '+2.00')
    """
    return f"{number:{sign}.{decimals}f}".replace("-", "−")


def slug(text: str) -> str:
    """Return a text as an anchor: letters, digits and hyphens.

    Example:
        >>> slug("DualCSE, Table 5")
        'dualcse-table-5'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "section"


def _breakable(text: str) -> Markup:
    """Escape a text, and let it break where names are made of parts."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"(?<=\w)([_./=,]+)(?=\w)", r"\1<wbr>", str(escape(text))))  # noqa: S704 - escaped


def _markdown() -> MarkdownIt:
    """Return a renderer of Markdown that escapes HTML, and makes nothing that leads or loads from elsewhere."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink", "reference"])
