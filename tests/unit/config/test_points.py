"""Points that are listed, and grids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from lightning_cse.config.points import ListedPoint, listed_points, merged, not_of_one_point, params_lines, rectangle
from lightning_cse.errors import ConfigError

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str) -> str:
        path = tmp_path / "points.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return to_file


def parse(*lines: str) -> list[Override]:
    return OverridesParser.create().parse_overrides(list(lines))


def test_points_are_read_from_a_file_and_from_a_config(write: Write) -> None:
    file = write("- [+experiment=a, seed=0]\n- []\n- ['method.loss.sets=[x,y]']\n")
    points = listed_points(file, None)
    assert [point.overrides for point in points] == [("+experiment=a", "seed=0"), (), ("method.loss.sets=[x,y]",)]
    assert [point.place for point in points] == [f"{file}, point {number}" for number in range(3)]
    assert listed_points(None, [["seed=1"]]) == [ListedPoint("hydra.sweeper.points, point 0", ("seed=1",))]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "holds no points; what is needed is a list of points"),
        ("[]", "holds no points"),
        ("a: 1", "is of type dict; what is needed"),
        ("- [seed=0]\n- seed=1", "point 1: 'seed=1' is no list of overrides"),
        ("- [seed=0]\n- [{seed: 1}]", "point 1: {'seed': 1} is no override, which is one text: key=value, quoted if"),
        ("- [seed=0, a=1]\n- [b=1]\n- [a=1, seed=0]", "point 2: the same as"),
        ("- [seed=0", "cannot be read"),
    ],
)
def test_what_is_no_list_of_points_is_told_with_its_file_and_place(write: Write, text: str, fault: str) -> None:
    file = write(text)
    with pytest.raises(ConfigError) as raised:
        listed_points(file, None)
    (told,) = raised.value.faults
    assert file in told
    assert fault in told


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hydra\.sweeper\.file=.*none\.yaml: cannot be read \(No such file"):
        listed_points(str(tmp_path / "none.yaml"), None)


@pytest.mark.parametrize(("file", "points"), [(None, None), ("points.yaml", [["seed=0"]])])
def test_points_come_from_one_place(file: str | None, points: list[list[str]] | None) -> None:
    with pytest.raises(ConfigError, match=r"takes its points from hydra\.sweeper\.file=FILE or hydra\.sweeper\.points"):
        listed_points(file, points)


def test_a_grid_is_every_combination_and_a_later_key_wins() -> None:
    lines = ["a=1,2", "+experiment=x,y", "a=3", "b=range(0,2)", "c='1,2'", "d=[5,6]", "~e"]
    assert list(rectangle(parse(*lines))) == [
        ["a=3", f"+experiment={x}", f"b={b}", "c='1,2'", "d=[5,6]", "~e"] for x in "xy" for b in "01"
    ]
    assert list(rectangle([])) == [[]]


def test_a_point_has_the_last_word() -> None:
    shared = parse("seed=0,1", "+profile=laptop", "data.batch_size=8", "encoder=tiny", "data@held=x")
    own = parse("++data.batch_size=4", "profile=small", "data=y")
    lines = [line.input_line for line in merged(shared, own)]
    assert lines == ["seed=0,1", "encoder=tiny", "data@held=x", "++data.batch_size=4", "profile=small", "data=y"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("seed=0,1", "a point has one value a key"),
        ("seed=range(2)", "a point has one value a key"),
        ("hydra.sweep.dir=x", "on the command line"),
        ("hydra/launcher=joblib", "on the command line"),
    ],
)
def test_what_a_point_cannot_hold(line: str, why: str) -> None:
    assert why in not_of_one_point(parse(line)[0])
    assert not_of_one_point(parse("method.loss.sets=[a,b]")[0]) == ""


def test_parameters_are_overrides() -> None:
    assert params_lines({"seed": "range(0,3)", "+experiment": "a,b", "lr": 1e-5}) == [
        "seed=range(0,3)",
        "+experiment=a,b",
        "lr=1e-05",
    ]
    assert params_lines(None) == []
