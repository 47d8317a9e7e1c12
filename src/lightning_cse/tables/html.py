"""The report: tables and figures as one HTML file, which opens from disk without a network."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from string import Template
from typing import TYPE_CHECKING

import pandas as pd

from lightning_cse.plots import plot_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def page(title: str, facts: Mapping[str, str], sections: Sequence[tuple[str, str]]) -> str:
    """Return a self-contained page of sections, each a title and its HTML (`section`); the same
    input gives the same page.
    """
    contents = []
    parts = []
    for number, (heading, body) in enumerate(sections, start=1):
        anchor = f"section-{number}"
        contents.append(f'<li><a href="#{anchor}">{escape(heading)}</a></li>')
        parts.append(f'<section id="{anchor}">\n<h2>{escape(heading)}</h2>\n{body}\n</section>')

    return _PAGE.substitute(
        title=escape(title),
        facts=_notes(f"{name}: {text}" for name, text in facts.items() if text),
        contents="\n".join(contents),
        sections="\n".join(parts),
    )


def section(
    frame: pd.DataFrame | None = None,
    notes: Iterable[str] = (),
    figures: Mapping[str, Figure] | None = None,
    text: str = "",
) -> str:
    """Return a table whose cells may have several lines, notes, figures by title, and a text that
    is shown as it is; all texts are escaped.
    """
    parts = []
    if frame is not None:
        with pd.option_context("display.max_colwidth", None):
            # Escaped here, since `to_html` would write "\\n" for the end of a line.
            escaped = frame.map(_html).rename(index=_html, columns=_html)
            parts.append(f"<div>{escaped.to_html(border=0, escape=False)}</div>")

    parts.append(_notes(notes))
    parts += [_figure(figure, escape(title)) for title, figure in (figures or {}).items()]
    if text:
        parts.append(f"<pre>{escape(text)}</pre>")

    return "\n".join(filter(None, parts))


def _html(text: object) -> str:
    return escape(str(text)).replace("\n", "<br>")


def _notes(texts: Iterable[str]) -> str:
    return "\n".join(f'<p class="note">{escape(text)}</p>' for text in texts)


def _figure(figure: Figure, title: str) -> str:
    import matplotlib as mpl

    buffer = io.BytesIO()
    with plot_style(), mpl.rc_context({"svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})

    image = base64.b64encode(buffer.getvalue()).decode()
    source = f"data:image/svg+xml;base64,{image}"

    return f'<figure><figcaption>{title}</figcaption><img alt="{title}" src="{source}"></figure>'
