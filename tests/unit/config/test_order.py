"""The order of overrides on a command line."""

from __future__ import annotations

import itertools

import pytest

from lightning_cse.config.overrides import flags_last, order_overrides

FOUR = ["+experiment=a", "+profile=b", "+sweep=c", "+debug=d"]


@pytest.mark.parametrize("shuffled", list(itertools.permutations(FOUR)))
def test_the_four_groups_come_first_whatever_their_order(shuffled: tuple[str, ...]) -> None:
    args = ["lr=1", shuffled[0], "encoder=x", *shuffled[1:3], "~logger", shuffled[3]]
    assert order_overrides(args) == [*FOUR, "lr=1", "encoder=x", "~logger"]


@pytest.mark.parametrize("plus", ["", "+", "++"])
def test_each_way_to_write_them_becomes_one_plus(plus: str) -> None:
    assert order_overrides(["seed=1", f"{plus}debug=tiny", f"{plus}experiment=a,b"]) == [
        "+experiment=a,b",
        "+debug=tiny",
        "seed=1",
    ]


def test_only_the_group_itself_is_meant() -> None:
    args = ["experiments=x", "experiment.x=1", "x.debug=1", "~debug", "debugger=2", "hydra.sweep.dir=x"]
    assert order_overrides(args) == args


def test_a_package_and_a_value_of_any_form_stay() -> None:
    assert order_overrides(["a=1", "+debug@here=x", "+experiment=glob(a*)"]) == [
        "+experiment=glob(a*)",
        "+debug@here=x",
        "a=1",
    ]


@pytest.mark.parametrize(
    ("args", "ordered"),
    [
        (["-m", "seed=0,1", "+experiment=a"], ["-m", "+experiment=a", "seed=0,1"]),
        (["seed=0", "--cfg", "job", "+experiment=a"], ["+experiment=a", "--cfg", "job", "seed=0"]),
        (["seed=0", "+experiment=a", "--cfg=job"], ["+experiment=a", "seed=0", "--cfg=job"]),
        (["-cd", "extra=1", "seed=0", "+debug=x"], ["-cd", "extra=1", "+debug=x", "seed=0"]),
        (["--config-name", "debug=x", "seed=0"], ["--config-name", "debug=x", "seed=0"]),
        (["--info", "defaults", "seed=0", "+debug=x"], ["--info", "defaults", "+debug=x", "seed=0"]),
        (["--info", "seed=0", "+debug=x"], ["--info", "+debug=x", "seed=0"]),
        ([], []),
    ],
)
def test_flags_and_their_values_keep_their_places(args: list[str], ordered: list[str]) -> None:
    assert order_overrides(args) == ordered


def test_ordering_again_changes_nothing() -> None:
    once = order_overrides(["-m", "debug=x", "seed=1", "++experiment=y"])
    assert order_overrides(once) == once


def test_a_flag_between_overrides_goes_behind_them_with_its_value() -> None:
    assert flags_last(["a=1", "-m", "b=2", "--package", "x", "c=3"]) == ["a=1", "b=2", "c=3", "-m", "--package", "x"]
