"""The histograms of pairs: what the bars stand for, and where the axes end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from lightning_cse.analysis.histograms import Pairs, PairSet, bins_of, draw_histograms, overlap, shares


def drawn(monkeypatch: pytest.MonkeyPatch, folder: Path, *sets: PairSet, columns: int = 4) -> list[list[Any]]:
    """Draw, and return the axes, a list a data set."""
    kept: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: Any, **options: Any) -> None:
        kept.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    path = draw_histograms(sets, folder / "histograms.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    (figure,) = kept
    axes = figure.axes
    return [list(axes[start : start + columns]) for start in range(0, len(axes), columns)]


def heights(axes: Any) -> dict[float, float]:
    """Return the height of every bar that is not empty, by its left edge."""
    return {round(bar.get_x(), 6): bar.get_height() for bar in axes.patches if bar.get_height() > 0}


NEAR = Pairs("anchor - positive", [0.0, 0.1, 0.1, 1.0], [1.0000002, 0.9, 0.91, 0.51])
FAR = Pairs("anchor - negative", [0.95, 1.0], [0.55, 0.6])


def test_bars_are_shares_and_no_pair_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ((mer, mer_far, cosine, cosine_far),) = drawn(monkeypatch, tmp_path, PairSet("mine", [NEAR], [FAR]))
    assert heights(mer) == {0.0: 0.25, 0.08: 0.5, 0.96: 0.25}
    assert heights(cosine)[0.98] == 0.25  # what rounding put above 1
    for axes in (mer, mer_far, cosine, cosine_far):
        assert sum(heights(axes).values()) == pytest.approx(1)
    assert [axes.get_xlim() for axes in (mer, cosine)] == [(0.0, 1.0), (0.5, 1.0)]
    assert mer.lines[0].get_xdata()[0] == pytest.approx(0.3)  # the mean
    assert "mine" in mer.get_ylabel()


def test_the_cosine_s_axis_grows_with_the_values_for_all_data_sets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apart = PairSet("apart", [], [Pairs("score < 1", [1.0, 0.9], [-0.24, 0.3])])
    first, second = drawn(monkeypatch, tmp_path, PairSet("mine", [NEAR], [FAR]), apart)
    for row in (first, second):
        for axes in row[2:]:
            assert axes.get_xlim() == pytest.approx((-0.3, 1.0))
    assert sum(heights(second[3]).values()) == pytest.approx(1)
    assert [text.get_text() for text in second[0].texts] == ["no such pairs"]
    assert not heights(second[0])


def test_two_kinds_of_positives_share_a_panel_and_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    between = Pairs("anchor - intermediate", [0.5, 0.6], [0.7, 0.8])
    ((mer, *_),) = drawn(monkeypatch, tmp_path, PairSet("mine", [NEAR, between], [FAR]))
    names = [text.get_text() for text in mer.get_legend().get_texts()]
    assert names == ["anchor - positive\nmean 0.30, n = 4", "anchor - intermediate\nmean 0.55, n = 2"]
    assert mer.get_ylim()[1] > 0.5 * 1.5  # room above the highest bar


def test_without_cosines_there_are_two_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = PairSet("mine", [Pairs("near", NEAR.mer)], [Pairs("far", FAR.mer)])
    first, second = drawn(monkeypatch, tmp_path, mine, PairSet("none", [], []), columns=2)
    assert [axes.get_title() for axes in first] == ["MER, positive pairs", "MER, negative pairs"]
    assert heights(first[0]) == {0.0: 0.25, 0.08: 0.5, 0.96: 0.25}
    assert [axes.get_xlabel() for axes in second] == ["match error rate"] * 2


def test_a_long_label_is_broken_and_has_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = Pairs(f"intermediate: {'/'.join(['a-long-name'] * 9)}, score above 1 and below 4", NEAR.mer, NEAR.cosine)
    ((short, *_),) = drawn(monkeypatch, tmp_path, PairSet("mine", [NEAR], []))
    monkeypatch.undo()
    ((mer, *_),) = drawn(monkeypatch, tmp_path, PairSet("mine", [long], []))
    (label,) = mer.get_legend().get_texts()
    lines = label.get_text().split("\n")
    assert len(lines) == 3
    assert max(map(len, lines)) <= 36
    assert lines[0].startswith("intermediate: ")
    assert lines[1].endswith(" ...")
    assert mer.get_ylim()[1] > short.get_ylim()[1]


def levels(count: int) -> list[Pairs]:
    """Return so many kinds of pairs, one a level."""
    return [Pairs(f"level{n}", [n / 10] * 3, [1 - n / 20] * 3) for n in range(count)]


def colors(axes: Any) -> dict[str, tuple[Any, str]]:
    """Return the colour and the style of the line of each kind in a panel, by label."""
    found = {}
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        bar = handle[0] if isinstance(handle, tuple) else handle
        edge = bar.get_facecolor() if bar.get_fill() else bar.get_edgecolor()
        found[label.split("\n")[0]] = (tuple(edge[:3]), bar.get_linestyle())
    return found


@pytest.mark.parametrize(
    ("kind", "count"), [("positive", 3), ("positive", 6), ("negative", 6), ("neither", 5), ("neither", 8)]
)
def test_many_kinds_are_told_apart_and_their_legend_is_below(
    kind: str, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    some: dict[str, Any] = {"positive": [], "negative": []} | {kind: levels(count)}
    each = PairSet("mine", **some)
    columns = 2 if kind == "neither" else 4
    upper, lower = drawn(monkeypatch, tmp_path, each, each, columns=columns)
    figure = lower[0].get_figure()
    figure.canvas.draw()
    filled = slice(1, None, 2) if kind == "negative" else slice(0, None, columns // 2)
    for above, axes in zip(upper[filled], lower[filled], strict=True):
        legends = [one.get_legend().get_window_extent() for one in (above, axes)]
        for one, legend in zip((above, axes), legends, strict=True):
            assert len(set(colors(one).values())) == len(colors(one)) == count
            assert len({color for color, _ in colors(one).values()}) == min(count, 6)
            assert one.get_ylim() == (0, 1)
            assert legend.y1 < one.get_window_extent().y0
            assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1
            assert one.get_window_extent().height > 1.4 * figure.dpi  # the legend takes no room of the panel
        assert legends[0].y0 > axes.get_window_extent().y1
        assert axes.xaxis.label.get_window_extent().y0 > legends[1].y1 > legends[1].y0 >= figure.bbox.y0


def test_no_share_is_above_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ((mer, *_),) = drawn(monkeypatch, tmp_path, PairSet("mine", levels(2), []))
    assert mer.get_ylim()[1] > 1.5  # room for the legend, which is inside
    assert max(mer.get_yticks()) <= 1
    mer.get_figure().canvas.draw()
    bars = max(mer.transData.transform((0, bar.get_height()))[1] for bar in mer.patches if hasattr(bar, "get_height"))
    assert mer.get_legend().get_window_extent().y0 > bars


def test_pairs_that_are_neither_share_one_panel_with_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    near, between, joke, far = levels(4)
    mine = PairSet("mine", [near, between], [far], [joke])
    less = PairSet("less", [near, Pairs("level1", ())], [far], [joke])
    first, second = drawn(monkeypatch, tmp_path, mine, less, columns=2)
    assert [axes.get_title() for axes in first] == ["MER, all pairs", "cosine, all pairs"]
    assert list(colors(first[0])) == ["level0", "level1", "level2", "level3"]
    assert colors(second[0]) == {key: color for key, color in colors(first[0]).items() if key != "level1"}


def test_what_histograms_share() -> None:
    bins = np.linspace(0.0, 1.0, 5)

    def shared(first: list[float], second: list[float]) -> float:
        return overlap(shares(first, bins), shares(second, bins))

    low, high = [0.1, 0.2], [0.6, 0.9, 1.0]
    assert shared(low, low) == shared(high, high * 7) == pytest.approx(1)
    assert shared(low, high) == 0
    assert shared(low, [0.05, 0.8]) == shared([0.05, 0.8], low) == 0.5
    assert shared([0.1, 0.3, 0.6, 0.9], [0.1, 0.1, 0.3, 0.4]) == pytest.approx(0.25 + 0.25)
    assert shared([1.0000002], [0.8]) == 1  # what rounding put above the last edge
    with pytest.raises(ValueError, match="at least one value"):
        shares([], bins)
    with pytest.raises(ValueError, match=r"same bins, got \(4,\) and \(3,\)"):
        overlap(shares(low, bins), shares(low, bins[:-1]))


def test_bins_are_those_of_the_bars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    apart = PairSet("apart", [], [Pairs("score < 1", [1.0, 0.9], [-0.24, 0.3])])
    sets = (PairSet("mine", [NEAR], [FAR]), apart)
    first, _ = drawn(monkeypatch, tmp_path, *sets)
    bins = bins_of(sets)
    for axes, values, measure in ((first[0], NEAR.mer, "mer"), (first[2], NEAR.cosine, "cosine")):
        found = shares(values, bins[measure])
        filled = {round(float(edge), 6): share for edge, share in zip(bins[measure], found, strict=False) if share}
        assert filled == pytest.approx(heights(axes))


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine: 2 match error rates and 1 cosines"):
        Pairs("mine", [0.0, 0.1], [0.5])
    with pytest.raises(ValueError, match="mine: some values are not finite"):
        Pairs("mine", [0.0], [math.nan])
    with pytest.raises(ValueError, match="near: no cosines, and other pairs have them"):
        draw_histograms([PairSet("mine", [Pairs("near", [0.0])], [FAR])], tmp_path / "histograms.png")
    with pytest.raises(ValueError, match="at least one data set"):
        draw_histograms([], tmp_path / "histograms.png")
