"""The figures of one run and of several, drawn from their curves; and the look that all figures share."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET  # only reads what matplotlib wrote a moment before

from lightning_cse.records import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BLUE",
    "GREY",
    "ORANGE",
    "VERMILION",
    "Series",
    "blank_figure",
    "house_style",
    "overlay",
    "run_figures",
    "save_figures",
    "series_look",
    "theme_variable",
    "themed_svg",
]

Points = Sequence[tuple[int, float]]
Curves = Mapping[str, Points]

# Okabe and Ito's palette, told apart by the colour-blind; line styles carry the same difference in print.
BLUE, ORANGE, _GREEN, _PURPLE, _SKY, VERMILION = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
GREY: Final = "#777777"
_OTHERS: Final = (ORANGE, _GREEN, _PURPLE, _SKY, VERMILION, GREY)
_STYLES: Final = ("-", "--", ":", "-.")
_PALETTE: Final = (BLUE, *_OTHERS)

# What a page calls the colours of the house style, so that they can follow its theme: report.html.jinja defines them.
_VARIABLES: Final = {
    **{color.lower(): f"var(--series-{number})" for number, color in enumerate(_PALETTE)},
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

_STYLE: Final[dict[Any, Any]] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.facecolor": "white",
    "font.size": 9,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "savefig.dpi": 150,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}

_LOSS: Final = "train/loss"
_STEP: Final = "optimizer step"
_MEASURES: Final = ("alignment", "uniformity")


def run_figures(curves: dict[str, list[tuple[int, float]]], folder: Path, monitor: str) -> list[Path]:
    """Draw ``loss.png``, ``dev_score.png`` and ``diagnostics.png``, each only where its curves were logged.

    Args:
        curves: Points ``(step, value)`` by key, as `lightning_cse.records.Curves.read` returns them.
        folder: Where the figures go; made if need be.
        monitor: The key whose highest value picks the best checkpoint.

    Returns:
        The files written.

    Raises:
        LightningCSEError: if the disk is full.
    """
    ordered = {key: sorted(points, key=lambda point: point[0]) for key, points in curves.items() if points}
    with house_style():
        drawings = {
            "loss.png": _loss(ordered),
            "dev_score.png": _dev_score(ordered, monitor),
            "diagnostics.png": _diagnostics(ordered),
        }
        return save_figures(drawings, folder)


@contextlib.contextmanager
def house_style() -> Iterator[None]:
    """Draw and save in the look of this project, whatever the machine's settings of matplotlib."""
    import matplotlib as mpl  # slow to load, and not needed where no figure is drawn

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def save_figures(drawings: Mapping[str, Figure | None], folder: Path) -> list[Path]:
    """Write each figure as a PNG under its name, and return the files; None stands for nothing to draw.

    Raises:
        LightningCSEError: if the disk is full.
    """
    paths = []
    for name, figure in drawings.items():
        if figure is not None:
            sink = io.BytesIO()
            figure.savefig(sink, format="png", metadata={"Software": None})
            write_atomic(folder / name, sink.getvalue())
            paths.append(folder / name)
    return paths


def blank_figure(width: float, height: float) -> Figure:
    """Return a figure outside of pyplot, which would keep it, and a display's backend, for the whole process."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.07)
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


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


def series_look(color: int, style: int | None = None) -> tuple[str, str]:
    """Return a colour and a line style by their numbers; without the second, the first counts through all pairs."""
    if style is None:
        color, style = color % len(_PALETTE), color // len(_PALETTE)
    return _PALETTE[color % len(_PALETTE)], _STYLES[style % len(_STYLES)]


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
        steps, values = _xy(points)
        if smooth and len(points) >= 20:
            values = _smooth(values, 2 * max(2, len(points) // 40) + 1)
        every = -(-len(points) // _DRAWN)
        thinned = list(zip(steps, values, strict=True))[::every]
        _line(axes, thinned, color=one.color, linestyle=one.style, linewidth=1.4, gid=f"{_SERIES}{one.key}")
    _by_step(axes)
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
    with house_style(), _plain_text(figure):
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


def _xy(points: Points) -> tuple[list[int], list[float]]:
    return [step for step, _ in points], [value if math.isfinite(value) else math.nan for _, value in points]


def _line(axes: Axes, points: Points, **options: Any) -> None:
    """Draw a curve, with markers where it has few points (a line through one point is not to be seen)."""
    steps, values = _xy(points)
    marker = "o" if len(points) <= 30 else ""
    axes.plot(steps, values, **{"marker": marker, "markersize": 3.2, **options})


def _by_step(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(_STEP)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.margins(x=0.03, y=0.08)


# -------------------------------------------------------------------------------------------------------------- loss


def _loss(curves: Curves) -> Figure | None:
    points = curves.get(_LOSS)
    if not points:
        return None
    figure = blank_figure(6.4, 3.6)
    axes = figure.subplots()
    steps, values = _xy(points)
    if len(points) < 20:
        _line(axes, points, color=BLUE)
    else:
        span = 2 * max(2, len(points) // 80) + 1
        axes.plot(steps, values, color=BLUE, alpha=0.28, linewidth=0.8, label="every logged step")
        axes.plot(steps, _smooth(values, span), color=BLUE, label=f"moving average of {span} points")
        axes.legend(loc="upper right")
    axes.set_ylabel("training loss")
    _by_step(axes)
    return figure


def _smooth(values: Sequence[float], span: int) -> list[float]:
    """Return the centred moving average, its window cut off at both ends; what is not finite counts for nothing."""
    sums, counts = [0.0], [0]
    for value in values:
        finite = math.isfinite(value)
        sums.append(sums[-1] + (value if finite else 0.0))
        counts.append(counts[-1] + finite)
    smooth = []
    for index in range(len(values)):
        low, high = max(0, index - span // 2), min(len(values), index + span // 2 + 1)
        count = counts[high] - counts[low]
        smooth.append((sums[high] - sums[low]) / count if count else math.nan)
    return smooth


# --------------------------------------------------------------------------------------------------------- dev score


def _dev_score(curves: Curves, monitor: str) -> Figure | None:
    found = {key: points for key, points in curves.items() if key.startswith("val/") and not key.endswith("/threshold")}
    if not found:
        return None
    others = sorted(key for key in found if key != monitor)
    # Scores are at most one; what is not (a loss, say) would press them flat, and gets axes of its own.
    scores = [key for key in others if all(abs(v) <= 1 for _, v in found[key] if math.isfinite(v))]
    rest = [key for key in others if key not in scores]
    panels = [panel for panel in ([monitor, *scores] if monitor in found else scores, rest) if panel]
    figure = blank_figure(7.6, 3.8 * len(panels))
    for axes, keys in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        for index, key in enumerate(key for key in keys if key != monitor):
            style = _STYLES[(index // len(_OTHERS) + index) % len(_STYLES)]
            color = _OTHERS[index % len(_OTHERS)]
            _line(axes, found[key], color=color, linestyle=style, linewidth=1.1, markersize=2.4, label=_short(key))
        if monitor in keys:
            _monitored(axes, found[monitor], _short(monitor))
        axes.set_ylabel("dev score" if keys is panels[0] else "other dev values")
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        _by_step(axes)
    return figure


def _monitored(axes: Axes, points: Points, name: str) -> None:
    _line(axes, points, color=BLUE, linewidth=2.4, markersize=4.5, zorder=3, label=f"{name} (monitor)")
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if not finite:
        return
    step, value = max(finite, key=lambda point: point[1])
    axes.axvline(step, color=BLUE, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    look: dict[str, Any] = {
        "marker": "*",
        "markersize": 13,
        "markeredgecolor": "white",
        "markeredgewidth": 0.8,
        "linestyle": "none",
    }
    axes.plot([step], [value], color=VERMILION, zorder=4, label=f"best: {value:.4f} at step {step}", **look)


def _short(key: str) -> str:
    return key.removeprefix("val/")


# ------------------------------------------------------------------------------------------------------- diagnostics


def _diagnostics(curves: Curves) -> Figure | None:
    views = _views(curves)
    if not views:
        return None
    figure = blank_figure(10.5, 2.9 * len(views) + 0.5)
    grid = figure.subplots(len(views), 3, squeeze=False, sharex=True)
    for row, (view, prefix) in enumerate(views.items()):
        for axes, measure in zip(grid[row], _MEASURES, strict=False):
            _two_sides(axes, curves, prefix, measure)
        _fitting_difficulty(grid[row][2], curves, prefix)
        if len(views) > 1:
            grid[row][0].annotate(
                view,
                xy=(0, 0.5),
                xycoords=grid[row][0].yaxis.label,
                xytext=(-10, 0),
                textcoords="offset points",
                rotation=90,
                ha="right",
                va="center",
                fontsize=10,
                fontweight="bold",
            )
        for axes in grid[row]:
            _by_step(axes)
            if row + 1 < len(views):
                axes.set_xlabel("")
    titles = ("Alignment (lower is closer)", "Uniformity (lower is more even)", "Relative fitting difficulty")
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title)
    _legend_below(figure, grid)
    return figure


def _views(curves: Curves) -> dict[str, str]:
    """Return the prefix of each view's keys by the view's name, the primary one first."""
    ends = tuple(end for measure in _MEASURES for end in (f"held_out/{measure}", f"eval/{measure}", f"rfd_{measure}"))
    prefixes = {
        key.removesuffix(end) for key in curves for end in ends if key.startswith("diag/") and key.endswith(f"/{end}")
    }
    others = sorted(prefix for prefix in prefixes if prefix != "diag/")
    names = {f"{prefix.removeprefix('diag/').rstrip('/')} view": prefix for prefix in others}
    if "diag/" not in prefixes:
        return names
    return {"explicit view" if "implicit view" in names else "primary view": "diag/", **names}


def _two_sides(axes: Axes, curves: Curves, prefix: str, measure: str) -> None:
    sides = (("held_out", "held-out side", BLUE, "-"), ("eval", "evaluation side", ORANGE, "--"))
    for side, label, color, style in sides:
        points = curves.get(f"{prefix}{side}/{measure}")
        if points:
            _line(axes, points, color=color, linestyle=style, label=label)
    axes.set_ylabel(measure)


def _fitting_difficulty(axes: Axes, curves: Curves, prefix: str) -> None:
    for measure, color, style in (("alignment", _GREEN, "-"), ("uniformity", _PURPLE, "-.")):
        points = curves.get(f"{prefix}rfd_{measure}")
        if points:
            _line(axes, points, color=color, linestyle=style, label=f"RFD of {measure}")
    axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    if not axes.get_legend_handles_labels()[1]:
        axes.text(0.5, 0.56, "not measured", transform=axes.transAxes, ha="center", color=GREY)
    axes.set_ylabel("held-out minus evaluation")


def _legend_below(figure: Figure, grid: Any) -> None:
    """Put one legend for all axes under them, where it covers no curve."""
    handles: dict[str, Any] = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    order = ["held-out side", "evaluation side", "RFD of alignment", "RFD of uniformity"]
    labels = [label for label in order if label in handles]
    shown: list[Any] = [handles[label] for label in labels]
    figure.legend(shown, labels, loc="outside lower center", ncols=4, handlelength=3)
