"""Alignment, uniformity, RFD and the mean of the best: loops, closed forms, published values."""

import csv
import math
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import normal

from lightning_cse.metrics import (
    alignment,
    mean_of_best,
    relative_fitting_difficulty,
    representation,
    uniformity,
)

# By setting: RFD of alignment, RFD of uniformity, mean of the five best correlations on STS-B dev.
PUBLISHED = {
    "wiki/dropout": (-0.148791, -0.265078, 0.810973),
    "wiki/token_shuffle": (-0.150765, -0.235895, 0.796812),
    "wiki/sts": (-0.046055, -0.472976, 0.813576),
    "wiki/sts_ht": (+0.026631, -0.389918, 0.833379),
    "nli/dropout": (-0.226906, -0.066784, 0.781204),
    "nli/token_cutoff": (-0.197223, +0.007768, 0.795964),
    "nli/nli": (+0.115632, -0.080597, 0.829650),
    "nli/sts": (+0.003588, -0.017041, 0.840972),
    "nli/sup": (+0.074491, +0.209383, 0.855047),
}


def unit_rows(x):
    rows = x.double().tolist()
    return [[value / math.hypot(*row) for value in row] for row in rows]


def alignment_loop(x, y, alpha=2):
    pairs = zip(unit_rows(x), unit_rows(y), strict=True)
    return math.fsum(math.dist(a, b) ** alpha for a, b in pairs) / len(x)


def uniformity_loop(x, t=2):
    rows = unit_rows(x)
    terms = []
    for i, row in enumerate(rows):
        terms += [math.exp(-t * math.dist(row, second) ** 2) for second in rows[:i]]

    return math.log(math.fsum(terms) / len(terms))


@given(
    n=st.integers(2, 7),
    d=st.integers(1, 6),
    alpha=st.sampled_from([1, 2, 3.5]),
    t=st.sampled_from([0.5, 2, 5]),
    seed=st.integers(0, 10_000),
)
def test_alignment_and_uniformity_match_loops(n, d, alpha, t, seed):
    x, y = normal(2, n, d, seed=seed)
    assert alignment(x, y, alpha) == pytest.approx(alignment_loop(x, y, alpha), abs=1e-9)
    assert uniformity(x, t) == pytest.approx(uniformity_loop(x, t), abs=1e-9)


@pytest.mark.parametrize("elements", [1, 57, 10_000])
def test_block_size_does_not_matter(monkeypatch, elements):
    x = normal(29, 4)
    monkeypatch.setattr(representation, "_BLOCK_ELEMENTS", elements)
    assert uniformity(x) == pytest.approx(uniformity_loop(x), abs=1e-12)


def test_closed_forms():
    opposite = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    assert uniformity(opposite, t=2) == uniformity(3 * opposite, t=2) == -8
    assert uniformity(opposite, t=1000) == -4000, "nothing underflows"
    assert alignment(opposite[:1], opposite[1:]) == 4
    assert uniformity(torch.ones(5, 3)) == pytest.approx(0, abs=1e-12)
    assert uniformity(torch.eye(5), t=3) == pytest.approx(-6)
    assert alignment(torch.eye(4), -torch.eye(4), alpha=3) == pytest.approx(8)
    with_zero = torch.tensor([[0.0, 0.0], [5.0, 0.0]])  # a zero vector counts as the origin
    assert uniformity(with_zero) == pytest.approx(-2)
    assert alignment(with_zero[:1], with_zero[1:]) == pytest.approx(1)


@pytest.fixture(scope="module")
def curves():
    data_dir = os.environ.get("LIGHTNING_CSE_DATA")
    folder = Path(data_dir or "/nowhere").parent / "paper/ngcse_curves"
    if not folder.is_dir():
        pytest.skip("no paper/ngcse_curves beside LIGHTNING_CSE_DATA: the released NGCSE curves")

    return folder


def read_columns(path, *columns):
    """The columns of a released file, without the row of step 0."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("step") not in ("0", "0.0")]

    return [[float(row[column]) for row in rows] for column in columns]


@pytest.mark.parametrize("setting", PUBLISHED)
def test_released_curves_give_published_values(curves, setting):
    measures = ("step", "alignment", "uniformity")
    folder = curves / setting
    steps, *held_out = read_columns(folder / "train_alignment_and_uniformity", *measures)
    other_steps, *evaluation = read_columns(folder / "eval_alignment_and_uniformity", *measures)
    (scores,) = read_columns(folder / "metrics", "stsb")
    assert steps == other_steps
    assert len(steps) == len(scores) == (28 if setting.startswith("wiki/") else 23)
    got = [relative_fitting_difficulty(*pair) for pair in zip(held_out, evaluation, strict=True)]
    assert got == pytest.approx(PUBLISHED[setting][:2], abs=1e-6)
    assert mean_of_best(scores) == pytest.approx(PUBLISHED[setting][2], abs=5e-7)


def test_fitting_difficulty_and_mean_of_best_by_hand():
    assert relative_fitting_difficulty([0.5, 0.25], [0.25, 0.5]) == 0
    assert relative_fitting_difficulty(iter([3.0, 1.0]), [1.0, 2.0]) == 0.5
    assert mean_of_best([0.25, 1.0, 0.5], 2) == 0.75
    assert mean_of_best([0.25, 0.75]) == 0.5
