"""Relative fitting difficulty and final score: hand-made cases, and the curves the authors of NGCSE released."""

import csv
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.metrics import mean_of_best, relative_fitting_difficulty

PUBLISHED = {  # setting: RFD of alignment, RFD of uniformity, mean of the five best correlations on STS-B dev
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
values = st.floats(-100, 100)


@pytest.fixture(scope="module")
def curves() -> Path:
    data_dir = os.environ.get("LIGHTNING_CSE_DATA")
    if not data_dir:
        pytest.skip(
            "LIGHTNING_CSE_DATA is not set; the released NGCSE curves lie beside the data it names"
        )
    folder = Path(data_dir).parent / "paper/ngcse_curves"
    if not folder.is_dir():
        pytest.skip(
            f"{folder} does not exist; the released NGCSE curves are not part of this repository"
        )
    return folder


def read_columns(path: Path, *columns: str) -> list[list[float]]:
    """The columns of a released file, without the row of step 0."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("step") not in ("0", "0.0")]
    return [[float(row[column]) for row in rows] for column in columns]


@pytest.mark.parametrize("setting", PUBLISHED)
def test_released_curves_give_the_published_values(curves: Path, setting: str) -> None:
    measures = ("step", "alignment", "uniformity")
    steps, *held_out = read_columns(curves / setting / "train_alignment_and_uniformity", *measures)
    other_steps, *evaluation = read_columns(
        curves / setting / "eval_alignment_and_uniformity", *measures
    )
    (scores,) = read_columns(curves / setting / "metrics", "stsb")
    assert steps == other_steps
    assert len(steps) == len(scores) == (28 if setting.startswith("wiki/") else 23)
    got = [relative_fitting_difficulty(a, b) for a, b in zip(held_out, evaluation, strict=True)]
    assert got == pytest.approx(PUBLISHED[setting][:2], abs=1e-6)
    assert mean_of_best(scores) == pytest.approx(PUBLISHED[setting][2], abs=5e-7)


@given(st.lists(st.tuples(values, values), min_size=1, max_size=20))
def test_the_difficulty_against_loop(pairs):
    held_out, evaluation = zip(*pairs, strict=True)
    want = sum(h - e for h, e in pairs) / len(pairs)
    assert relative_fitting_difficulty(held_out, evaluation) == pytest.approx(want, abs=1e-9)
    assert relative_fitting_difficulty(evaluation, held_out) == pytest.approx(-want, abs=1e-9)


@given(st.lists(values, min_size=1, max_size=12), st.integers(1, 8))
def test_the_mean_of_the_best_against_loop(scores, count):
    left, chosen = list(scores), []
    while left and len(chosen) < count:
        chosen.append(max(left))
        left.remove(chosen[-1])
    assert mean_of_best(scores, count) == pytest.approx(sum(chosen) / len(chosen), abs=1e-9)
    assert mean_of_best(scores[::-1], count) == mean_of_best(scores, count)


def test_by_hand():
    assert relative_fitting_difficulty([100.0, 0.5, 0.25], [1.0, 0.25, 0.5]) == pytest.approx(33)
    assert relative_fitting_difficulty(torch.tensor([1.0, 2.0]), (x for x in (0.5, 0.5))) == 1.0
    assert mean_of_best([1, 2, 3, 4, 5, 6, 7]) == 5
    assert mean_of_best([2.0, 4.0]) == 3  # fewer than five
    assert (
        mean_of_best(torch.tensor([1.0, 2.0, 3.0]), count=2)
        == mean_of_best(iter([1.0, 2.0, 3.0]), count=2)
        == 2.5
    )


@pytest.mark.parametrize(
    ("function", "given_values", "message"),
    [
        (relative_fitting_difficulty, ([], []), "got 0 and 0 values"),
        (relative_fitting_difficulty, ([1.0, 2.0], [1.0]), "got 2 and 1 values"),
        (mean_of_best, ([], 5), r"need finite values and count >= 1, got \[\] and 5"),
        (mean_of_best, ([0.5, float("nan")], 5), r"need finite values .* got \[0.5, nan\]"),
        (mean_of_best, ([0.5], 0), "and 0"),
    ],
)
def test_nothing_and_what_is_no_number_are_refused(function, given_values, message):
    with pytest.raises(ValueError, match=message):
        function(*given_values)
