"""Curves and predictions of a run."""

import math

import numpy as np

from lightning_cse.runs import Curves


def test_curves_round_trip(tmp_path):
    values = [0.1 + 0.2, 1e-320, -0.0, 1.7976931348623157e308, math.inf, float(np.float32(0.1))]
    curves = Curves(tmp_path / "sub" / "curves.csv")
    assert curves.read() == {}
    for step, value in enumerate(values):
        curves.append(step, {"train/loss": value, 'odd, "key"': 1})

    read = Curves(curves.path).read()
    assert [value.hex() for _, value in read["train/loss"]] == [value.hex() for value in values]
    assert read['odd, "key"'] == [(step, 1.0) for step in range(len(values))]


def test_curves_of_a_resumed_run(tmp_path):
    curves = Curves(tmp_path / "c.csv")
    curves.keep(lambda step, key: False)
    assert not curves.path.exists()
    for step in range(6):
        curves.append(step, {"a": step / 7, "b": -step})

    whole = curves.path.read_bytes()
    curves.keep(lambda step, key: step < 3 or (step == 3 and key == "a"))
    assert curves.read()["a"] == [(step, step / 7) for step in range(4)]
    assert curves.read()["b"] == [(step, -step) for step in range(3)]
    curves.append(3, {"b": -3})
    for step in (4, 5):
        curves.append(step, {"a": step / 7, "b": -step})

    assert curves.path.read_bytes() == whole


def test_partial_last_line_is_dropped(tmp_path):
    curves = Curves(tmp_path / "c.csv")
    curves.append(1, {"train/loss": 0.125})
    curves.append(2, {"train/loss": 0.0625})
    whole = curves.path.read_bytes()
    for length in range(len(whole) + 1):
        curves.path.write_bytes(whole[:length])
        want = [(1, 0.125), (2, 0.0625)][: max(whole[:length].count(b"\n") - 1, 0)]
        assert curves.read().get("train/loss", []) == want
        curves.keep(lambda step, key: True)
        curves.append(3, {"train/loss": 1.0})
        assert curves.read()["train/loss"] == [*want, (3, 1.0)]


def test_curves_end_at_a_damaged_line(tmp_path):
    path = tmp_path / "c.csv"
    path.write_bytes(b"step,key,value\n1,a,1.0\n\0\0\0\n")  # a power failure
    assert Curves(path).read() == {"a": [(1, 1.0)]}
