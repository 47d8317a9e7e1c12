"""Relative fitting difficulty and final score: hand-made cases, and the curves the authors of NGCSE released."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.metrics import mean_of_best, relative_fitting_difficulty

PUBLISHED = {  # setting: RFD of alignment, RFD of uniformity
    "wiki/dropout": (-0.148791, -0.265078),
    "wiki/token_shuffle": (-0.150765, -0.235895),
    "wiki/sts": (-0.046055, -0.472976),
    "wiki/sts_ht": (+0.026631, -0.389918),
    "nli/dropout": (-0.226906, -0.066784),
    "nli/token_cutoff": (-0.197223, +0.007768),
    "nli/nli": (+0.115632, -0.080597),
    "nli/sts": (+0.003588, -0.017041),
    "nli/sup": (+0.074491, +0.209383),
}
FINAL_SCORES = {  # setting: mean of the five best correlations on STS-B dev
    "wiki/dropout": 0.810973,
    "wiki/token_shuffle": 0.796812,
    "wiki/sts": 0.813576,
    "wiki/sts_ht": 0.833379,
    "nli/dropout": 0.781204,
    "nli/token_cutoff": 0.795964,
    "nli/nli": 0.829650,
    "nli/sts": 0.840972,
    "nli/sup": 0.855047,
}
values = st.floats(-100, 100)


@pytest.fixture(scope="module")
def curves() -> Path:
    data_dir = os.environ.get("LIGHTNING_CSE_DATA")
    if not data_dir:
        pytest.skip("LIGHTNING_CSE_DATA is not set; the released NGCSE curves lie beside the data it names")
    folder = Path(data_dir).parent / "paper/ngcse_curves"
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist; the released NGCSE curves are not part of this repository")
    return folder


def read_curve(path: Path) -> dict[int, tuple[float, float]]:
    with path.open(newline="") as file:
        return {int(row["step"]): (float(row["alignment"]), float(row["uniformity"])) for row in csv.DictReader(file)}


@pytest.mark.parametrize("setting", PUBLISHED)
def test_released_curves_give_the_published_values(curves, setting):
    held_out = read_curve(curves / setting / "train_alignment_and_uniformity")
    evaluation = read_curve(curves / setting / "eval_alignment_and_uniformity")
    steps = [step for step in held_out if step > 0]
    assert held_out.keys() == evaluation.keys()
    assert len(steps) == len(held_out) - 1 == (28 if setting.startswith("wiki/") else 23)
    got = [
        relative_fitting_difficulty([held_out[s][k] for s in steps], [evaluation[s][k] for s in steps]) for k in (0, 1)
    ]
    assert got == pytest.approx(PUBLISHED[setting], abs=1e-6)


@pytest.mark.parametrize("setting", FINAL_SCORES)
def test_released_evaluations_give_the_published_final_score(curves, setting):
    with (curves / setting / "metrics").open(newline="") as file:
        scores = [float(row["stsb"]) for row in csv.DictReader(file)]
    assert len(scores) == (28 if setting.startswith("wiki/") else 23)
    assert mean_of_best(scores) == pytest.approx(FINAL_SCORES[setting], abs=5e-7)


def test_every_released_setting_is_checked(curves):
    found = {file.parent.relative_to(curves).as_posix() for file in curves.rglob("train_alignment_and_uniformity")}
    assert found == PUBLISHED.keys() == FINAL_SCORES.keys()
    assert len(found) == 9


def test_hand_made_case_keeps_every_step():
    assert relative_fitting_difficulty([100.0, 0.5, 0.25], [1.0, 0.25, 0.5]) == pytest.approx(33)


@given(st.lists(st.tuples(values, values), min_size=1, max_size=20), values)
def test_sign_shift_and_order(pairs, shift):
    held_out, evaluation = zip(*pairs, strict=True)
    got = relative_fitting_difficulty(held_out, evaluation)
    assert relative_fitting_difficulty(evaluation, held_out) == -got
    assert relative_fitting_difficulty(held_out[::-1], evaluation[::-1]) == got
    shifted = relative_fitting_difficulty([h + shift for h in held_out], evaluation)
    assert shifted == pytest.approx(got + shift, abs=1e-9)


def test_tensors_and_generators_are_sequences_too():
    got = relative_fitting_difficulty(torch.tensor([1.0, 2.0]), (x for x in (0.5, 0.5)))
    assert type(got) is float
    assert got == 1.0


@pytest.mark.parametrize(("held_out", "evaluation", "got"), [([], [], "0 and 0"), ([1.0, 2.0], [1.0], "2 and 1")])
def test_empty_and_unequal_sequences_are_refused(held_out, evaluation, got):
    with pytest.raises(ValueError, match=f"got {got} values"):
        relative_fitting_difficulty(held_out, evaluation)


@given(st.lists(values, min_size=1, max_size=12), st.integers(1, 8))
def test_the_mean_of_the_best_against_loop(scores, count):
    left, chosen = list(scores), []
    while left and len(chosen) < count:
        chosen.append(max(left))
        left.remove(chosen[-1])
    assert mean_of_best(scores, count) == pytest.approx(sum(chosen) / len(chosen), abs=1e-9)
    assert mean_of_best(scores[::-1], count) == mean_of_best(scores, count)
    assert mean_of_best(scores, 1) == max(scores)


def test_the_mean_of_the_best_by_hand():
    assert mean_of_best([1, 2, 3, 4, 5, 6, 7]) == 5
    assert mean_of_best([2.0, 4.0]) == 3  # fewer than five
    assert mean_of_best([-3.0, -1.0, -2.0], count=2) == -1.5
    assert mean_of_best([1.0, 1.0, 1.0, 0.0], count=3) == 1  # equal values count each
    got = mean_of_best(torch.tensor([1.0, 2.0, 3.0]), count=2)
    assert type(got) is float
    assert got == mean_of_best(iter([1.0, 2.0, 3.0]), count=2) == 2.5


@pytest.mark.parametrize(
    ("scores", "count", "message"),
    [
        ([], 5, r"need finite values and count >= 1, got \[\] and 5"),
        ([0.5, float("nan")], 5, r"need finite values .* got \[0.5, nan\]"),
        ([0.5], 0, "and 0"),
    ],
)
def test_no_best_of_nothing(scores, count, message):
    with pytest.raises(ValueError, match=message):
        mean_of_best(scores, count)
