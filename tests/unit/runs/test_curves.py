"""The curves of a run: their file, its state at a checkpoint, and their summary."""

import json
import math

import numpy as np
import pytest

from lightning_cse.errors import DataError
from lightning_cse.runs import Curves, CurveSummary, summarise


def test_curves_round_trip(tmp_path):
    values = [0.1 + 0.2, 1e-320, -0.0, 1.7976931348623157e308, math.inf, float(np.float32(0.1))]
    curves = Curves(tmp_path / "sub" / "curves.csv")
    assert curves.read() == {}
    for step, value in enumerate(values):
        curves.append(step, {"train/loss": value, 'odd, "key"': 1})

    read = Curves(curves.path).read()
    assert [value.hex() for _, value in read["train/loss"]] == [value.hex() for value in values]
    assert read['odd, "key"'] == [(step, 1.0) for step in range(len(values))]


def test_partial_last_line_is_dropped(tmp_path):
    curves = Curves(tmp_path / "c.csv")
    curves.append(1, {"train/loss": 0.125})
    curves.append(2, {"train/loss": 0.0625})
    content = curves.path.read_bytes()
    for length in range(len(content) + 1):
        curves.path.write_bytes(content[:length])
        want = [(1, 0.125), (2, 0.0625)][: max(content[:length].count(b"\n") - 1, 0)]
        assert curves.read().get("train/loss", []) == want


def test_curves_end_at_a_damaged_line(tmp_path):
    path = tmp_path / "c.csv"
    path.write_bytes(b"step,key,value\n1,a,1.0\n\0\0\0\n")  # a power failure
    assert Curves(path).read() == {"a": [(1, 1.0)]}


# The state of curves at a checkpoint


@pytest.fixture
def synced(tmp_path):
    """Curves of three steps, their state after two of them, and their bytes then."""
    curves = Curves(tmp_path / "curves.csv")
    for step in (1, 2):
        curves.append(step, {"train/loss": 1 / step})

    before = curves.path.read_bytes()
    state = curves.sync()
    curves.append(3, {"train/loss": 1 / 3})

    return curves, state, before


def test_curves_are_what_the_checkpoint_says(synced):
    curves, state, before = synced
    assert json.loads(json.dumps(state))["bytes"] == len(before)
    for _ in range(2):
        curves.restore(state)
        assert curves.path.read_bytes() == before


def test_damaged_curves_are_refused(synced):
    curves, state, before = synced
    original = curves.path.read_bytes()
    damaged = [original[:length] for length in range(len(before))]
    for bit in range(8 * len(before)):
        flipped = bytearray(original)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))

    for content in damaged:
        curves.path.write_bytes(content)
        with pytest.raises(DataError, match=r"curves\.csv is damaged .* force=true"):
            curves.restore(state)

        assert curves.path.read_bytes() == content, "nothing is changed"

    curves.path.unlink()
    with pytest.raises(DataError, match=r"curves\.csv is damaged \(it is missing"):
        curves.restore(state)


def test_curves_before_the_first_value(tmp_path):
    curves = Curves(tmp_path / "curves.csv")
    state = curves.sync()
    curves.restore(state)
    curves.append(1, {"a": 1.0})
    curves.restore(state)
    curves.append(2, {"a": 2.0})
    assert curves.read() == {"a": [(2, 2.0)]}


# The summary


def test_step_zero_does_not_count():
    curves = {
        "val/stsb/spearman": [
            (0, 0.99),
            *((step, score / 10) for step, score in enumerate((4, 8, 5, 8, 6, 7, 1), 1)),
        ],
        "diag/held_out/alignment": [(0, 100.0), (1, 0.5), (2, 0.75)],
        "diag/eval/alignment": [(0, 0.0), (1, 0.25), (2, 0.25)],
        "diag/held_out/uniformity": [(0, -100.0), (1, -2.0), (2, -2.0)],
        "diag/eval/uniformity": [(0, 0.0), (1, -3.0), (2, -1.5)],
    }
    assert summarise(curves) == CurveSummary(
        rfd_alignment=0.375,
        rfd_uniformity=0.25,
        final_score=pytest.approx((8 + 8 + 7 + 6 + 5) / 50),
        best_score=0.8,
        best_step=2,  # the first of two
        eval_alignment_at_best=0.25,
        eval_uniformity_at_best=-1.5,
        evaluations=7,
    )


def test_non_finite_values_give_none():
    curves = {
        "val/rte/accuracy_all": [(5, 0.5), (10, math.nan), (15, 0.25)],
        "diag/held_out/alignment": [(5, 0.5), (10, math.inf)],
        "diag/eval/alignment": [(5, math.nan), (10, math.inf)],
    }
    got = summarise(curves, "val/rte/accuracy_all")
    assert got == CurveSummary(final_score=0.375, best_score=0.5, best_step=5, evaluations=2)
