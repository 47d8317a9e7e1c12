"""The report: tables and figures as one HTML file, which opens from disk without a network."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from string import Template
from typing import TYPE_CHECKING

import pandas as pd

from lightning_cse.plots import plot_style
from lightning_cse.tables.render import about, legend, text_frame, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lightning_cse.tables.figures import Result
    from lightning_cse.tables.spec import Spec
    from lightning_cse.tables.table import Table

_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
:root { color-scheme: light dark; }
body { max-width: 84rem; margin: 0 auto; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
section { margin: 2.5rem 0; }
section > div { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; vertical-align: top; white-space: nowrap; border-top: 1px solid #8884; }
tbody th { text-align: left; }
pre { overflow-x: auto; }
figure { display: inline-block; margin: .5rem; max-width: 100%; vertical-align: top; }
img { max-width: 100%; background: white; }
.note { font-size: .875rem; max-width: 52rem; margin: .3rem 0; }
@media print { nav { display: none; } figure, tr { break-inside: avoid; } }
</style>
</head>
<body>
<h1>$title</h1>
$facts
<nav><ol>
$contents
</ol></nav>
<main>
$sections
</main>
</body>
</html>
""")


@dataclass(frozen=True)
class Section:
    """A part of the page: a table whose cells may have several lines, notes, figures by title, and
    a text that is shown as it is.
    """

    title: str
    frame: pd.DataFrame | None = None
    notes: Sequence[str] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    text: str = ""


def page(title: str, facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """Return a self-contained page; all texts are escaped, and the same input gives the same
    page.
    """
    parts = [_section(section, f"section-{n}") for n, section in enumerate(sections, start=1)]
    contents = [
        f'<li><a href="#section-{number}">{escape(section.title)}</a></li>'
        for number, section in enumerate(sections, start=1)
    ]

    return _PAGE.substitute(
        title=escape(title),
        facts="\n".join(_note(f"{name}: {text}") for name, text in facts.items() if text),
        contents="\n".join(contents),
        sections="\n".join(parts),
    )


def _section(section: Section, anchor: str) -> str:
    parts = [f'<section id="{anchor}">', f"<h2>{escape(section.title)}</h2>"]
    if section.frame is not None:
        with pd.option_context("display.max_colwidth", None):
            # Escaped here, since `to_html` would write "\\n" for the end of a line.
            frame = section.frame.map(_html).rename(index=_html, columns=_html)
            parts.append(f"<div>{frame.to_html(border=0, escape=False)}</div>")

    parts += map(_note, section.notes)
    parts += [_figure(figure, name) for name, figure in section.figures.items()]
    if section.text:
        parts.append(f"<pre>{escape(section.text)}</pre>")

    return "\n".join([*parts, "</section>"])


def _html(text: object) -> str:
    return escape(str(text)).replace("\n", "<br>")


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _figure(figure: Figure, title: str) -> str:
    import matplotlib as mpl

    buffer = io.BytesIO()
    with plot_style(), mpl.rc_context({"svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})

    image = base64.b64encode(buffer.getvalue()).decode()
    source = f"data:image/svg+xml;base64,{image}"
    name = escape(title)

    return f'<figure><figcaption>{name}</figcaption><img alt="{name}" src="{source}"></figure>'


def table_section(spec: Spec, table: Table | None, result: Result) -> Section:
    """Return the section of a table or figure of a paper."""
    figures = {name.replace("_", " "): figure for name, figure in result.figures.items()}
    if table is None:
        title = f"{spec.source}: {spec.title}"
        return Section(title, None, list(filter(None, [spec.note])), figures, result.text)

    frame = text_frame(table).set_index("").rename_axis(None)
    notes = [*about(table), *legend(table)]

    return Section(title_of(table), frame, notes, figures, result.text)
