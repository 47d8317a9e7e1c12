"""What the documentation site needs beyond MkDocs and its plugins: formulas, committed results, and files outside docs/.

- ``$...$`` and ``$$...$$`` (and in docstrings ``:math:`...``` and ``.. math::``) become SVG while the site is built, so
  that a page needs neither scripts nor fonts to show them.
- A link to a file of the repository outside ``docs/`` is a link to a copy of it in the site.
- A paragraph that is nothing but a link to such a file shows what is in it: of Markdown the text (``"rows: a, b"`` as the
  link's title keeps these rows of its tables, ``"section: S"`` the part below this heading), of the curves of a run their
  figures, and a figure itself. On GitHub it stays a link. No result is typed into a page.
"""

from __future__ import annotations

import csv
import functools
import html
import json
import posixpath
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ziamath
from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!`)\[(?P<text>(?:[^][]|\[[^][]*\])*)\]\((?P<target>[^()\s:]+?)(?P<anchor>#[^()\s]*)?(?P<title> \"[^\"]*\")?\)")
ALONE = re.compile(rf"(?m)^{LINK.pattern}$")
FORMULA = re.compile(
    r"(?P<code>(?P<ticks>`+)(?!\$).*?(?P=ticks))"
    r"|(?m:^(?P<indent> *)\.\. math::(?P<directive>[^\n]*(?:\n(?P=indent) +\S[^\n]*)*))"
    r"|\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^\s$](?:[^$\n]*[^\s$\\])?)\$(?!\d)",
    re.DOTALL,
)
ROLE = re.compile(r":math:`([^`]+)`")

ziamath.config.svg2 = False  # symbols by id would clash on a page with several formulas
ziamath.config.math.color = "currentColor"


class Formulas(Extension):
    """Formulas as SVG."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - Markdown's name
        """Convert them after fenced code is put aside and before HTML is."""
        md.preprocessors.register(_Formulas(md), "formulas", 22)


class _Formulas(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return FORMULA.sub(self._svg, ROLE.sub(r"$\1$", "\n".join(lines))).split("\n")

    def _svg(self, found: re.Match[str]) -> str:
        if found["code"]:
            return found["code"]
        if found["inline"]:
            joined = "\N{WORD JOINER}" if found.string[found.end() :][:1].strip() else ""  # no line ends before a comma
            return self.md.htmlStash.store(svg(found["inline"], "inline")) + joined
        return f"\n{found['indent'] or ''}{self.md.htmlStash.store(svg(found['display'] or found['directive'], 'display'))}\n\n"


@functools.cache
def svg(latex: str, style: str) -> str:
    """Return a formula as SVG that stands on the line of the text, in its colour and size."""
    latex = " ".join(latex.split())
    aligned = rf"\begin{{aligned}}{latex}\end{{aligned}}" if r"\\" in latex and r"\begin" not in latex else latex
    drawn = ziamath.Math.fromlatex(aligned, size=20, mathstyle=style if style == "display" else "text")
    image, below = drawn.svg(), drawn.getyofst()
    image = re.sub(r' (width|height)="([\d.]+)"', lambda size: f' {size[1]}="{float(size[2]) / 20:.3f}em"', image)
    image = image.replace("<svg ", f'<svg role="img" aria-label="{html.escape(latex)}" ', 1)
    if style == "inline":
        return f'<span class="formula" style="vertical-align: {below / 20:.3f}em">{image}</span>'
    return f'<div class="formula">{image}</div>'


# Files of the repository ----------------------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> None:
    """Add the formulas, also for docstrings."""
    config.markdown_extensions.append(Formulas())  # type: ignore[arg-type]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add every file of the repository that a page links to, and those that they link to, and the figures of curves."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()] + ["experiments/README.md", "CHANGELOG.md"]
    seen = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if not name.startswith("docs/"):
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
        if name.endswith(".curves.csv"):
            for figure, content in run_figures(name).items():
                files.append(File.generated(config, figure, content=content))
        if name.endswith(".md"):
            text = (ROOT / name).read_text(encoding="utf-8")
            waiting += [target for link in LINK.finditer(text) if (target := resolved(name, link["target"])) and (ROOT / target).is_file()]


def resolved(page: str, target: str) -> str:
    """Return the file of the repository that a link names: of a folder its README, or else the folder."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    readme = f"{path}/README.md"
    return readme if (ROOT / readme).is_file() else path


def run_figures(curves: str) -> dict[str, bytes]:
    """Return the figures of a run, by their names in the site, from its committed curves."""
    from lightning_cse.loggers import plots

    points: dict[str, list[tuple[int, float]]] = defaultdict(list)
    with (ROOT / curves).open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            points[row["key"]].append((int(row["step"]), float(row["value"])))
    record = json.loads((ROOT / curves.replace(".curves.csv", ".json")).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        drawn = plots.run_figures(points, Path(folder), record["best"]["monitor"])
        return {f"{curves.removesuffix('.csv')}.{path.name}": path.read_bytes() for path in drawn}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show what stands alone, and turn links to files of the repository into links of the site."""
    name = page.file.src_uri if page.file.generated_by else f"docs/{page.file.src_uri}"
    return linked(ALONE.sub(lambda link: shown(name, link, files), markdown), name)


def linked(markdown: str, name: str, seen_from: str = "") -> str:
    """Return the text of a file with the links as the site has them, seen from a page (else from the file itself)."""
    folder = posixpath.dirname((seen_from or name).removeprefix("docs/"))

    def link(found: re.Match[str]) -> str:
        target = resolved(name, found["target"])
        if (ROOT / target).is_dir():
            return found["text"]
        to = posixpath.relpath(target.removeprefix("docs/"), folder or ".")
        return f"[{found['text']}]({to}{found['anchor'] or ''}{found['title'] or ''})"

    return LINK.sub(link, markdown)


def shown(name: str, link: re.Match[str], files: Files) -> str:
    """Return what the file of a link that stands alone holds, or the link."""
    target = resolved(name, link["target"])
    if target.startswith("docs/") or not (ROOT / target).is_file():
        return link[0]
    folder = posixpath.dirname(name.removeprefix("docs/"))
    if target.endswith(".png"):
        return f"!{link[0]}"
    if target.endswith(".curves.csv"):
        figures = [file.src_uri for file in files if file.src_uri.startswith(target.removesuffix(".csv")) and file.src_uri.endswith(".png")]
        return "\n\n".join(f"![{posixpath.basename(one)}]({posixpath.relpath(one, folder)})" for one in figures)
    if not target.endswith(".md"):
        return link[0]
    what, _, of = (link["title"] or "").strip(' "').partition(": ")
    text = (ROOT / target).read_text(encoding="utf-8").replace("<details>", '<details markdown="1">')
    if what == "section":
        text = section(text, of)
    elif what == "rows":
        text = "\n".join(kept_rows(text, of.split(", ")))
    return linked(text, target, seen_from=name)


def section(text: str, heading: str) -> str:
    """Return the part of a Markdown text below a heading."""
    found = re.search(rf"(?ms)^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,6}} |\Z)", text)
    if found is None:
        raise ValueError(f"no heading {heading!r}")
    return found[2]


def kept_rows(text: str, names: list[str]) -> Iterator[str]:
    """Yield a Markdown text with these rows of its tables only."""
    in_body = False
    for line in text.splitlines():
        if not line.startswith("|"):
            in_body = False
        elif not in_body:
            in_body = line.startswith("|---")
        elif line.split("|")[1].strip().replace("\\", "") not in names:
            continue
        yield line
