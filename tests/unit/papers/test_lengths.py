"""Lengths of premises and hypotheses: against LENGTH itself, and what the bars of the figure stand for."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from lightning_cse.baselines import Length
from lightning_cse.data import sample_dir
from lightning_cse.evaluation import Direction, run_tasks
from lightning_cse.papers.lengths import LengthRatios, length_figure, log_length_ratios
from lightning_cse.plots import plot_style


def ratios(source: str, data_dir: Path) -> LengthRatios:
    rows = Direction(data_dir=str(data_dir), test=source).rows("test")
    return LengthRatios(source, source, log_length_ratios(rows.column("premise"), rows.column("hypothesis")))


def length_accuracy(source: str, data_dir: Path) -> float:
    task = Direction(data_dir=str(data_dir), dev=source, test=source)
    return run_tasks({"direction": task}, Length(), "test")["direction"].metrics["accuracy"]


def test_ratios_by_hand() -> None:
    got = log_length_ratios(["abcd", "ab", "äöü "], ["ab", "abcd", "abcd"])
    assert got.tolist() == pytest.approx([math.log(2), -math.log(2), 0.0])
    assert LengthRatios("x", "x/test", got).premise_longer == pytest.approx(1 / 3), "equal lengths are not longer"


@pytest.mark.parametrize("source", ["snli/test", "mnli/dev_mismatched", "sick/test"])
def test_the_share_of_longer_premises_is_lengths_accuracy(source: str) -> None:
    share = ratios(source, sample_dir()).premise_longer
    assert share == pytest.approx(length_accuracy(source, sample_dir()), abs=1e-12)
    assert 0 < share <= 1


def test_on_sick_it_is_the_papers(real_data: Path) -> None:
    sick = ratios("sick/test", real_data)
    assert len(sick.log_ratios) == 794
    assert round(100 * sick.premise_longer, 2) == 69.14
    assert sick.premise_longer == pytest.approx(length_accuracy("sick/test", real_data), abs=1e-12)


def test_what_has_no_ratio_is_refused() -> None:
    with pytest.raises(ValueError, match="as many premises as hypotheses, got 1 and 2"):
        log_length_ratios(["a"], ["b", "c"])
    with pytest.raises(ValueError, match="pair 1: a sentence is empty"):
        log_length_ratios(["a", "b"], ["a", ""])
    with pytest.raises(ValueError, match="SNLI: no pair"):
        LengthRatios("SNLI", "snli/test", np.array([]))
    with pytest.raises(ValueError, match="at least one corpus"):
        length_figure([])


def bars(figure: Figure, panel: int) -> list[tuple[float, float, str]]:
    """Return left edge, height and colour of every bar that is not empty."""
    return [
        (round(bar.get_x(), 6), round(bar.get_height(), 6), str(bar.get_facecolor()))
        for bar in figure.axes[panel].patches
        if bar.get_height() > 0
    ]


def test_bars_are_shares_of_right_and_wrong_pairs() -> None:
    one = LengthRatios("one", "one/test", np.array([0.5, 0.5, 0.1, 0.0, -0.3]))
    two = LengthRatios("two", "two/test", np.array([0.7, 0.9]))
    with plot_style():
        figure = length_figure([one, two])
    shown = bars(figure, 0)
    assert [(edge, height) for edge, height, _ in shown] == [(0.0, 0.2), (0.4, 0.4), (-0.4, 0.2), (0.0, 0.2)]
    right, wrong = shown[0][2], shown[-1][2]
    assert right != wrong
    assert [color for *_, color in shown] == [right, right, wrong, wrong]
    stacked = figure.axes[0].patches
    assert max(bar.get_y() + bar.get_height() for bar in stacked) == pytest.approx(0.4)
    assert sum(height for _, height, _ in bars(figure, 1)) == pytest.approx(1)
    assert [axes.get_title() for axes in figure.axes] == ["one (5 pairs)", "two (2 pairs)"]
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["premise longer: 60.00 %", "not longer: 40.00 %"]


def test_the_farthest_pairs_do_not_stretch_the_axis() -> None:
    values = np.concatenate([np.linspace(0.01, 0.99, 4000), [7.0]])
    with plot_style():
        figure = length_figure([LengthRatios("x", "x/test", values)])
    assert figure.axes[0].get_xlim()[1] < 1.5
    assert sum(height for _, height, _ in bars(figure, 0)) == pytest.approx(1, abs=1e-4), "it is counted all the same"
