"""MkDocs hooks of the documentation site: formulas, results, and files outside docs/.

- ``$...$`` and ``$$...$$`` (and in docstrings ``:math:`...``` and ``.. math::``) become SVG when
  the site is built, so a page needs neither scripts nor fonts to show them.
- A link to a file of the repository outside ``docs/`` becomes a link to a copy of it in the site.
- A paragraph that consists of one link to a committed result is replaced by its content: the text
  of Markdown, the figures of a run's curves, or a figure itself. The link's title ``"rows: a, b"``
  keeps only these rows of the tables; ``"section: S"`` shows the part of any file below this
  heading. Other links stay. No result is typed into a page.
"""

from __future__ import annotations

import functools
import html
import posixpath
import re
import tempfile
from pathlib import Path

import ziamath
from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from ziamath.tex import tex2mml

ROOT = Path(__file__).resolve().parent.parent
FRONT = "README.md"  # pages show parts of it, and the first page replaces it
LINK = re.compile(
    r"(?<!`)\[(?P<text>(?:[^][]|\[[^][]*\])*)\]"
    r"\((?P<target>[^()\s:]+?)(?P<anchor>#[^()\s]*)?(?P<title> \"[^\"]*\")?\)"
)
SEARCH = {  # by folder or file; other pages, which explain, come first
    "/results/": {"exclude": True},
    "docs/reference/": {"boost": 0.2},
    "docs/decisions.md": {"boost": 0.1},
    "CHANGELOG.md": {"boost": 0.1},
    "experiments/": {"boost": 0.1},
    "examples/": {"boost": 0.3},
}
FORMULA = re.compile(
    r"(?P<code>(?P<ticks>`+).*?(?P=ticks))"
    r"|(?m:^(?P<indent> *)\.\. math::(?P<directive>[^\n]*(?:\n(?P=indent) +\S[^\n]*)*))"
    r"|\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^\s$](?:[^$\n]*[^\s$\\])?)\$(?!\d)(?P<next>\S?)",
    re.DOTALL,
)
SIZE = 20  # of a drawn formula; its lengths become multiples of the text's size

ziamath.config.svg2 = False  # symbols with ids would clash on a page with several formulas
ziamath.config.math.color = "currentColor"


class Formulas(Extension):
    """Formulas as SVG."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - Markdown's name
        """Register the conversion after fenced code is set aside and before HTML is."""
        md.preprocessors.register(_Formulas(md), "formulas", 22)


class _Formulas(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        text = re.sub(r":math:`([^`]+)`", r"$\1$", "\n".join(lines))
        return FORMULA.sub(self._drawn, text).split("\n")

    def _drawn(self, match: re.Match[str]) -> str:
        if match["code"]:
            return match["code"]

        if match["inline"]:  # a joiner prevents a line break between a formula and a comma
            joiner = f"\N{WORD JOINER}{match['next']}" if match["next"] else ""
            return f"{self.md.htmlStash.store(svg(match['inline'], inline=True))}{joiner}"

        formula = svg(match["display"] or match["directive"], inline=False)

        return f"\n{match['indent'] or ''}{self.md.htmlStash.store(formula)}\n\n"


@functools.cache
def svg(latex: str, *, inline: bool) -> str:
    """Return a formula as SVG, aligned with the text and in its colour and size."""
    latex = re.sub(
        r"\\Vert\b", r"\\parallel", " ".join(latex.split())
    )  # a fence would grow with the symbols beside it
    lines = rf"\begin{{align*}}{latex}\end{{align*}}" if r"\\" in latex else latex
    mathml = tex2mml(lines, inline=inline).replace('rowspacing="3pt"', 'rowspacing="10pt"')
    formula = ziamath.Math(mathml, size=SIZE)
    # The first width and height are those of the image; the line of a fraction has its own.
    sides = re.compile(r'(width|height)="([\d.]+)"')
    image = sides.sub(
        lambda side: f'{side[1]}="{float(side[2]) / SIZE:.3f}em"', formula.svg(), count=2
    )
    image = image.replace("<svg ", f'<svg role="img" aria-label="{html.escape(latex)}" ', 1)
    below = f' style="vertical-align: {formula.getyofst() / SIZE:.3f}em"'

    return (
        f'<span class="formula"{below}>{image}</span>'
        if inline
        else f'<div class="formula">{image}</div>'
    )


def on_config(config: MkDocsConfig) -> None:
    """Add the extension for formulas, which also applies to docstrings."""
    config.markdown_extensions.append(Formulas())


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add all files of the repository that pages link to, the files that these link to, and the
    figures of curves.
    """
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    waiting += ["experiments/README.md", "CHANGELOG.md"]  # in the navigation
    for name in waiting:
        if not name.startswith("docs/") and name != FRONT:
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))

        if name.endswith(".md"):
            links = list(LINK.finditer((ROOT / name).read_text(encoding="utf-8")))
            targets = dict.fromkeys(resolved(name, link["target"]) for link in links)
            waiting += [
                target for target in targets if target not in waiting and (ROOT / target).is_file()
            ]
            for link in filter(is_curves, links):
                curves = resolved(name, link["target"])
                for figure, content in run_figures(curves, link["anchor"][1:]).items():
                    files.append(File.generated(config, figure, content=content))


def resolved(page: str, target: str) -> str:
    """Return the file of the repository that a link names; for a folder, its README if it has
    one.
    """
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    return f"{path}/README.md" if (ROOT / path / "README.md").is_file() else path


def is_curves(link: re.Match[str]) -> bool:
    """Whether a link is to the curves of a run, ``curves.parquet#<run>``."""
    return link["target"].endswith("/curves.parquet") and link["anchor"] is not None


def run_figures(curves: str, run: str) -> dict[str, bytes]:
    """Return the figures of a run, by their names in the site, from the curves of its paper."""
    from lightning_cse.loggers import plots
    from lightning_cse.tables.records import read_runs

    folder = posixpath.dirname(curves)
    (finished,) = read_runs([ROOT / folder / run])
    curves_by_key = {key: list(points) for key, points in finished.curves.items()}
    monitor = finished.record["best"]["monitor"]
    with tempfile.TemporaryDirectory() as figures:
        paths = plots.run_figures(curves_by_key, Path(figures), monitor)
        return {f"{folder}/{run}.{path.name}": path.read_bytes() for path in paths}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links that stand alone by their content, and turn links to repository files into
    links of the site. Rank the page in the search.
    """
    name = page.file.src_uri if page.file.generated_by else f"docs/{page.file.src_uri}"
    page.meta["search"] = next(
        (search for folder, search in SEARCH.items() if folder in name), {"boost": 1}
    )
    figures = [file.src_uri for file in files if file.src_uri.endswith(".png")]
    alone = re.compile(rf"(?m)^{LINK.pattern}$")

    return linked(alone.sub(lambda link: shown(link, name, figures), markdown), name, name)


def linked(markdown: str, name: str, page: str) -> str:
    """Return the text of a file with links relative to a page of the site; links to folders become
    plain text.
    """
    folder = posixpath.dirname(page.removeprefix("docs/")) or "."

    def link(match: re.Match[str]) -> str:
        target = resolved(name, match["target"])
        if (ROOT / target).is_dir():
            return match["text"]

        to = posixpath.relpath(
            "index.md" if target == FRONT else target.removeprefix("docs/"), folder
        )

        return f"[{match['text']}]({to}{match['anchor'] or ''})"

    return LINK.sub(link, markdown)


def shown(link: re.Match[str], page: str, figures: list[str]) -> str:
    """Return the content that replaces a link that stands alone on a page, or the link itself."""
    target = resolved(page, link["target"])
    part, _, of = (link["title"] or "").strip(' "').partition(": ")
    if not (part or "/results/" in target) or not (ROOT / target).is_file():
        return link[0]

    if not target.endswith(".md"):
        images = [target]
        if is_curves(link):
            start = f"{posixpath.dirname(target)}/{link['anchor'][1:]}."
            images = [figure for figure in figures if figure.startswith(start)]

        folder = posixpath.dirname(page) or "."
        return "\n\n".join(
            f"![{link['text']}]({posixpath.relpath(image, folder)})" for image in images
        )

    text = (
        (ROOT / target).read_text(encoding="utf-8").replace("<details>", '<details markdown="1">')
    )
    if part == "section":
        text = re.split(rf"(?m)^#+ {re.escape(of)}\n", text)[1]
        text = re.split(r"(?m)^#+ ", text)[0]
    elif part == "rows":
        row = re.compile(
            r"(?m)^\| (?! *\|)(?P<name>.+?) \|.*\n"
        )  # the first cell of a header is empty
        text = row.sub(
            lambda match: match[0] if match["name"].replace("\\", "") in of.split(", ") else "",
            text,
        )

    return linked(text, target, page)
