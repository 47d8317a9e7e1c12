"""The spaces that Hydra's grammar describes."""

from __future__ import annotations

import math

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from lightning_cse.config.spaces import Axis, Choices, Real, Whole, all_points, lines, size, split
from lightning_cse.errors import ConfigError


def axes(*overrides: str) -> list[Axis]:
    return split(OverridesParser.create().parse_overrides(list(overrides)))[1]


@pytest.mark.parametrize(
    ("override", "axis"),
    [
        ("lr=1e-5,3e-5,5e-5", Choices("lr", ("1e-05", "3e-05", "5e-05"))),
        ("+experiment=choice(a,b)", Choices("+experiment", ("a", "b"))),
        ("sets=[ent],[ent,con]", Choices("sets", ("[ent]", "[ent,con]"))),
        ("n=shuffle(3,1,2)", Choices("n", ("3", "1", "2"))),
        ("n=1,2,1", Choices("n", ("1", "2"))),
        ("n=range(0,5)", Whole("n", 0, 4)),
        ("n=range(5,0,-2)", Whole("n", 1, 5, 2)),
        ("n=range(0,1,0.5)", Choices("n", ("0.0", "0.5"))),
        ("n=interval(1,5)", Real("n", 1.0, 5.0)),
        ("n=int(interval(16,64))", Whole("n", 16, 64)),
        ("lr=tag(log,interval(1e-5,1e-3))", Real("lr", 1e-5, 1e-3, log=True)),
        ("n=tag(log,int(interval(1,64)))", Whole("n", 1, 64, log=True)),
    ],
)
def test_an_axis_is_read_as_hydra_writes_it(override: str, axis: Axis) -> None:
    assert axes(override) == [axis]


def test_what_is_not_swept_is_fixed_and_a_later_key_wins() -> None:
    fixed, searched = split(OverridesParser.create().parse_overrides(["a=1,2", "+experiment=x", "a=3", "b=4,5"]))
    assert [override.input_line for override in fixed] == ["a=3", "+experiment=x"]
    assert searched == [Choices("b", ("4", "5"))]


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("a=interval(5,1)", "a=interval(5,1): an interval goes from a smaller number to a larger one, not from 5.0"),
        ("a=interval(1,1)", "from a smaller number to a larger one"),
        ("a=interval(1,inf)", "from a smaller number to a larger one"),
        ("a=tag(log,interval(0,1))", "with the tag log an interval starts above 0, not at 0.0"),
        ("a=tag(lgo,interval(1,2))", "there is no tag 'lgo'; an interval may have the tag log"),
        ("a=range(0,0)", "there is no value to choose"),
        ("seed=range(0,5)", "seed: the luckiest seed is no setting; search with one, seed=0"),
        ("a=1", "hydra/sweeper=tpe: nothing to search"),
    ],
)  # fmt: skip
def test_what_is_no_axis(override: str, fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        axes(override)
    (told,) = raised.value.faults
    assert fault in told


def test_the_size_and_the_points_of_a_space() -> None:
    finite = axes("a=x,y", "b=range(0,6,2)")
    assert size(finite) == 6
    points = list(all_points(finite))
    assert len(points) == 6
    assert points[1] == {"a": "x", "b": 2}
    assert lines(points[1]) == ["a=x", "b=2"]
    assert size([*finite, Real("c", 0, 1)]) == math.inf
