"""The curves of several runs in one chart, and charts as parts of a page."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET  # only reads what matplotlib wrote a moment before

from lightning_cse.plots import GREY, PALETTE, Curves, blank_figure, by_step, line, moving_average, plot_style, xy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Series", "overlay", "theme_variable", "themed_svg"]

# What a page calls the colours of the house style, so that they can follow its theme: report.html.jinja defines them.
_VARIABLES: Final = {
    **{color.lower(): f"var(--series-{number})" for number, color in enumerate(PALETTE)},
    "#000000": "var(--ink)",
    "#e6e6e6": "var(--grid)",
    "#ffffff": "var(--card)",
}
_COLOR: Final = re.compile(r"#[0-9a-fA-F]{6}\b")
# The page's font in place of matplotlib's, which writes it in one property or, since 3.10, in several.
_FONT_FAMILY: Final = re.compile(r"font-family: [^;]+;? ?")
_FONT: Final = re.compile(r"(font: [^;]*?\d[\d.]*px) [^;]+")
_NOT_TURNED: Final = re.compile(r"rotate\(-?0 [^)]*\)")
_SVG: Final = "{http://www.w3.org/2000/svg}"
_LINK: Final = "{http://www.w3.org/1999/xlink}href"
_SERIES: Final = "series."
_HALO: Final = "halo."
_DRAWN: Final = 400  # points of a line, more than a card has pixels for


# ----------------------------------------------------------------------------------------------------- several runs


@dataclass(frozen=True)
class Series:
    """The runs of one point, which are drawn alike: a line a run.

    Attributes:
        key: what a page calls it, to show and hide it: letters, digits and hyphens.
        label: what a reader calls it.
        color: a colour of the house style.
        style: a line style of matplotlib.
        curves: the curves of its runs.
    """

    key: str
    label: str
    color: str
    style: str
    curves: tuple[Curves, ...]


def overlay(series: Sequence[Series], key: str, *, smooth: bool = False, zero: bool = False) -> Figure | None:
    """Draw one key of all runs in one chart; title and legend are those of the page. None where no run has the key.

    Args:
        series: The runs.
        key: The key of the curves.
        smooth: Draw the moving average, of what is logged every step.
        zero: Draw a line at zero.
    """
    found = [(one, sorted(curves[key])) for one in series for curves in one.curves if curves.get(key)]
    if not found:
        return None
    figure = blank_figure(4.2, 2.7)
    axes = figure.subplots()
    if zero:
        axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    for one, points in found:
        steps, values = xy(points)
        if smooth and len(points) >= 20:
            values = moving_average(values, 2 * max(2, len(points) // 40) + 1)
        every = -(-len(points) // _DRAWN)
        thinned = list(zip(steps, values, strict=True))[::every]
        line(axes, thinned, color=one.color, linestyle=one.style, linewidth=1.4, gid=f"{_SERIES}{one.key}")
    by_step(axes)
    return figure


# -------------------------------------------------------------------------------------------------------- on a page


def themed_svg(figure: Figure, name: str, label: str, series: Sequence[Series] = ()) -> str:
    """Return a figure as an SVG element that can stand in a page: text as text, colours that follow the page's theme.

    The colours of the house style become CSS variables, and the font the page's; what belongs to a series has its key
    in ``data-series`` and its label as a tooltip. The same figure gives the same text, byte for byte.

    Args:
        figure: The figure, which is left as it was.
        name: What no other figure of the page is called; identifiers begin with it.
        label: What is read out in place of the figure.
        series: The series that are drawn in it.
    """
    import matplotlib as mpl

    sink = io.BytesIO()
    with plot_style(), _plain_text(figure):
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": name})
        figure.savefig(sink, format="svg", facecolor="none", metadata={"Date": None})
    root = ET.fromstring(sink.getvalue())  # noqa: S314 - matplotlib's own, see above
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    labels = {one.key: one.label for one in series}
    linked = {match for element in root.iter() for match in _references(element)}
    for element in root.iter():
        _theme(element, name, linked, labels)
    _, _, width, height = root.attrib["viewBox"].split()
    root.attrib.clear()
    root.attrib.update({"viewBox": f"0 0 {width} {height}", "role": "img", "aria-label": label, "class": "figure"})
    root.attrib["style"] = f"--width: {float(width):.0f}px"
    for element in root.iter():  # in a page, SVG has no prefix
        element.tag = element.tag.removeprefix(_SVG)
        element.text, element.tail = ((part or "").strip("\n ") for part in (element.text, element.tail))
        element.attrib = {key.replace(_LINK, "href"): value for key, value in element.attrib.items()}
    return ET.tostring(root, encoding="unicode")


def theme_variable(color: str) -> str:
    """Return what a page calls a colour of the house style; another colour is itself in both themes."""
    return _VARIABLES.get(color.lower(), color)


@contextlib.contextmanager
def _plain_text(figure: Figure) -> Iterator[None]:
    """Take the halos off the labels, which would else be drawn as outlines; the page draws them by their names."""
    from matplotlib.text import Text

    undo: list[Callable[[], None]] = []
    for number, text in enumerate(figure.findobj(Text)):
        effects = text.get_path_effects()
        if effects:
            undo += [_setting(text.set_path_effects, effects), _setting(text.set_gid, text.get_gid())]
            text.set_path_effects([])
            text.set_gid(f"{_HALO}{number}")
    try:
        yield
    finally:
        for back in undo:
            back()


def _setting(setter: Callable[[Any], None], value: Any) -> Callable[[], None]:
    return lambda: setter(value)


def _references(element: ET.Element) -> list[str]:
    """Return the identifiers that an element refers to."""
    link = element.get(_LINK, "")
    inner = itertools.chain.from_iterable(re.findall(r"url\(#([^)]+)\)", value) for value in element.attrib.values())
    return [*inner, *([link[1:]] if link.startswith("#") else [])]


def _theme(element: ET.Element, name: str, linked: set[str], labels: Mapping[str, str]) -> None:
    identifier = element.attrib.pop("id", "")
    if identifier.startswith(_SERIES):
        key = identifier.removeprefix(_SERIES)
        element.set("data-series", key)
        title = ET.Element(f"{_SVG}title")
        title.text = labels.get(key, key)
        element.insert(0, title)
    elif identifier.startswith(_HALO):
        element.set("class", "halo")
    elif identifier in linked:
        element.set("id", f"{name}-{identifier}")
    for key, value in element.attrib.items():
        if key == _LINK and value.startswith("#"):
            value = f"#{name}-{value[1:]}"
        elif key in {"style", "fill", "stroke", "clip-path"}:
            value = re.sub(r"url\(#", f"url(#{name}-", value)
            value = _COLOR.sub(lambda match: theme_variable(match[0]), value)
            if element.tag in {f"{_SVG}text", f"{_SVG}tspan"}:
                value = _FONT.sub(r"\1 var(--sans)", _FONT_FAMILY.sub("", value))
        element.attrib[key] = value
    if _NOT_TURNED.fullmatch(element.get("transform", "")):
        del element.attrib["transform"]


# ------------------------------------------------------------------------------------------------------- one run


# -------------------------------------------------------------------------------------------------------------- loss


# --------------------------------------------------------------------------------------------------------- dev score


# ------------------------------------------------------------------------------------------------------- diagnostics
