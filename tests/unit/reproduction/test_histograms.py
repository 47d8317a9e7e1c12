"""The histograms of pairs: what the bars stand for, and where the axes end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from lightning_cse.reproduction.histograms import Pairs, PairSet, draw_histograms


def drawn(monkeypatch: pytest.MonkeyPatch, folder: Path, *sets: PairSet) -> list[list[Any]]:
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
    return [list(axes[start : start + 4]) for start in range(0, len(axes), 4)]


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


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine: 2 match error rates and 1 cosines"):
        Pairs("mine", [0.0, 0.1], [0.5])
    with pytest.raises(ValueError, match="mine: some values are not finite"):
        Pairs("mine", [0.0], [math.nan])
    with pytest.raises(ValueError, match="at least one data set"):
        draw_histograms([], tmp_path / "histograms.png")
