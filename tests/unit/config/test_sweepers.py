"""The sweepers: which points they hand to a launcher, and what a search makes of their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.callbacks import Callbacks
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.lightning_cse_sweepers._base import PointSweeper
from hydra_plugins.lightning_cse_sweepers.points import PointsSweeper
from hydra_plugins.lightning_cse_sweepers.tpe import TPESweeper
from lightning_cse.config.spaces import Axis, Choices, Real, Whole
from lightning_cse.config.tree import ConfigTree
from lightning_cse.errors import ConfigError
from lightning_cse.runs import Busy, Lock

Score = Callable[[dict[str, str]], float]
AXES = [Choices("a", ("x", "y", "z")), Whole("b", 0, 3)]


class Here(Launcher):
    """Runs a function of the overrides in place of a task."""

    def __init__(self, score: Score) -> None:
        self.score = score
        self.batches: list[list[list[str]]] = []

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        raise AssertionError("built by hand")

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        assert initial_job_idx == sum(map(len, self.batches))
        self.batches.append([list(overrides) for overrides in job_overrides])
        results = []
        for overrides in job_overrides:
            result = JobReturn(overrides=overrides, status=JobStatus.COMPLETED)
            result.return_value = self.score(dict(line.split("=", 1) for line in overrides))
            results.append(result)
        return results

    @property
    def points(self) -> list[list[str]]:
        return [point for batch in self.batches for point in batch]


def start(sweeper: PointSweeper, conf: Path, arguments: Sequence[str], score: Score = lambda point: 0.0) -> Here:
    """Run a sweeper over the tree of configs as Hydra does, but with a launcher of ours."""
    tree = ConfigTree([conf], "train")
    launcher = Here(score)
    sweeper.config = tree.loader.load_configuration("train", [*arguments, "hydra.mode=MULTIRUN"], RunMode.MULTIRUN)
    sweeper._hydra_context = HydraContext(config_loader=tree.loader, callbacks=Callbacks())
    sweeper._launcher = launcher
    sweeper.sweep(list(arguments))
    return launcher


# Listed points


def test_points_take_what_holds_for_all_and_come_in_the_order_of_a_command_line(conf: Path) -> None:
    sweeper = PointsSweeper(
        points=OmegaConf.create([["seed=7", "+experiment=simcse"], ["method.loss.temperature=1", "encoder=tiny"]]),
        params=OmegaConf.create({"encoder": "bert_base", "monitor": "a,b"}),
    )
    launcher = start(sweeper, conf, ["seed=1,2", "+debug=tiny", "+experiment=dualcse_cross", "monitor=c"])
    (points,) = launcher.batches
    assert points == [
        ["+experiment=simcse", "+debug=tiny", "encoder=bert_base", "monitor=c", "seed=7"],
        *(
            [
                *("+experiment=dualcse_cross", "+debug=tiny", "monitor=c"),
                *(f"seed={seed}", "method.loss.temperature=1", "encoder=tiny"),
            ]
            for seed in (1, 2)
        ),
    ]
    assert (conf.parent / "runs" / "sweep" / "multirun.yaml").is_file()


def test_points_that_are_none_stop_before_anything_runs(conf: Path) -> None:
    sweeper = PointsSweeper(points=[["+experiment=simcse"], ["+experiment=simcse", "seed=0,1"]])
    with pytest.raises(ConfigError, match="point 1: seed=0,1: a point has one value a key"):
        start(sweeper, conf, [])
    assert not (conf.parent / "runs").exists()


# A search


@pytest.fixture
def search(tmp_path: Path) -> Callable[..., Any]:
    pytest.importorskip("optuna", reason="needs the extra `optuna`")
    from hydra_plugins.lightning_cse_sweepers._study import Search

    def make(axes: Sequence[Axis] = AXES, *, file: str | None = None, **settings: Any) -> Search:
        defaults: dict[str, Any] = {"name": "s", "content": "c", "seed": 0, "startup_trials": 3}
        storage = None if file is None else f"sqlite:///{tmp_path / file}"
        return Search(axes, storage=storage, **defaults | settings)

    return make


def score(values: dict[str, Any]) -> float:
    return 10 * (str(values["a"]) == "y") - abs(int(values["b"]) - 2)


def run(search: Any, points: int) -> list[dict[str, Any]]:
    asked = []
    for _ in range(points):
        point = search.ask()
        search.tell(point.number, score(point.values))
        asked.append(point.values)
    return asked


def test_a_finite_space_is_searched_without_repeats_and_to_its_end(search: Callable[..., Any]) -> None:
    study = search()
    points = run(study, 12)
    assert len({tuple(point.items()) for point in points}) == 12
    assert study.ask() is None
    assert (study.finished, study.best.params, study.best.value) == (12, {"a": "y", "b": 2}, 10.0)


def test_a_search_learns(search: Callable[..., Any]) -> None:
    """With a third of a space of sixty it comes closer to the best of it than chance does, over ten seeds."""
    axes = [Choices("a", ("x", "y", "z")), Whole("b", 0, 19)]
    found = []
    for seed in range(10):
        study = search(axes, seed=seed, startup_trials=5)
        run(study, 20)
        found.append(study.best.value)
    # Twenty of the sixty at random: the best of them is 9.5 on average (the three best values are 10, 9 and 9).
    assert sum(found) / len(found) > 9.5
    assert sum(value == 10 for value in found) >= 7, "at random, one in three"


def test_the_seed_decides_and_nothing_else(search: Callable[..., Any]) -> None:
    axes = [*AXES, Real("c", 1e-5, 1e-3, log=True)]
    first, again, other = (run(search(axes, seed=seed), 6) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert all(1e-5 <= point["c"] <= 1e-3 for point in first)


def test_a_search_that_was_killed_goes_on_as_if_it_had_not_been(search: Callable[..., Any]) -> None:
    whole = run(search(), 7)
    begun = search(file="study.db")
    before = run(begun, 4)
    lost = begun.ask()  # and the process is gone
    resumed = search(file="study.db")
    assert (resumed.finished, resumed.resumed) == (4, 1)
    after = run(resumed, 3)
    assert after[0] == lost.values
    assert before + after == whole


def test_a_failed_point_is_not_drawn_again_unless_it_is_asked_for(search: Callable[..., Any]) -> None:
    axes = [Choices("a", ("x", "y")), Whole("b", 0, 0)]
    study = search(axes, file="study.db")
    failed = study.ask()
    study.tell(failed.number, math.nan)
    other = study.ask()
    study.tell(other.number, 1.0)
    assert failed.values != other.values
    assert study.ask() is None
    assert search(axes, file="study.db").ask() is None
    again = search(axes, file="study.db", retry_failed=True)
    point = again.ask()
    assert point.values == failed.values
    again.tell(point.number, 2.0)
    assert (again.ask(), again.best.params) == (None, failed.values)


def test_a_study_of_something_else_is_refused(search: Callable[..., Any], tmp_path: Path) -> None:
    search(file="study.db")
    with pytest.raises(ConfigError, match=r"hydra\.sweeper\.study=s: this study .* is of another recipe or another"):
        search(file="study.db", content="other")
    (tmp_path / "text.db").write_text("no database " * 100)
    with pytest.raises(ConfigError, match=r"the study s cannot be opened in sqlite:///.*text\.db"):
        search(file="text.db")


# hydra/sweeper=tpe


def tpe(conf: Path, *arguments: str, score: Score, runs: str = "runs", **settings: Any) -> Here:
    pytest.importorskip("optuna", reason="needs the extra `optuna`")
    place = f"+paths={{runs_dir: '{conf.parent / runs}'}}"
    params = {"method.loss.temperature": "1,2,3", "monitor": "a,b", "encoder": "tiny"}
    return start(
        TPESweeper(params, startup_trials=2, **settings), conf, ["+experiment=simcse", place, *arguments], score
    )


def by_temperature(point: dict[str, str]) -> float:
    return float(point["method.loss.temperature"]) + (point["monitor"] == "b")


def test_a_search_runs_so_many_points_and_tells_the_best(conf: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    launcher = tpe(conf, "+sweep=seeds", "seed=3", score=by_temperature, trials=6, jobs=4)
    assert [len(batch) for batch in launcher.batches] == [4, 2]
    assert len({tuple(point) for point in launcher.points}) == 6
    assert all(point[:2] == ["+experiment=simcse", "+sweep=seeds"] for point in launcher.points)
    found = OmegaConf.load(conf.parent / "runs" / "sweep" / "optimization_results.yaml")
    assert found.best_value == 4
    assert found.best_params == {"method.loss.temperature": "3", "monitor": "b"}
    assert found.study.startswith("simcse-seeds-")
    assert (conf.parent / "runs" / "studies" / f"{found.study}.db").is_file()
    assert found.command.startswith("python -m lightning_cse.train +experiment=simcse ")
    assert "+sweep" not in found.command, "which would train many"
    assert {"seed=3", "encoder=tiny", "method.loss.temperature=3", "monitor=b"} <= set(found.command.split())
    assert f"this trains it: {found.command}" in caplog.messages


def test_the_same_command_goes_on_and_another_recipe_has_another_study(conf: Path) -> None:
    first = tpe(conf, score=by_temperature, trials=2)
    assert len(first.points) == 2
    second = tpe(conf, score=by_temperature, trials=5)
    assert len(second.points) == 3
    assert len({tuple(point) for point in first.points + second.points}) == 5
    assert tpe(conf, "logger=csv", score=by_temperature, trials=5).points == []
    assert len(tpe(conf, "tags=[other]", score=by_temperature, trials=5).points) == 5
    assert len(list((conf.parent / "runs" / "studies").glob("simcse-*.db"))) == 2


def test_failed_points_count_for_nothing_and_do_not_make_a_search_endless(
    conf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(tpe(conf, score=lambda point: math.nan, trials=4).points) == 4
    assert "no point has a value yet; the same command goes on" in caplog.messages
    assert len(tpe(conf, score=by_temperature, trials=4).points) == 2, "two of six are left"
    retried = tpe(conf, "+retry_failed=true", score=by_temperature, trials=4)
    assert len(retried.points) == 2


def test_two_searches_on_one_study_are_not_run_at_once(conf: Path) -> None:
    with (
        Lock(conf.parent / "runs" / "studies" / "mine.lock", "the study mine"),
        pytest.raises(Busy, match="the study mine is being run by pid"),
    ):
        tpe(conf, score=by_temperature, trials=1, study="mine")


def test_numbers_that_make_no_search_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        TPESweeper({}, trials=0, jobs=0, direction="up")
    assert raised.value.faults == [
        "hydra.sweeper.trials=0: the smallest is 1",
        "hydra.sweeper.jobs=0: the smallest is 1",
        "hydra.sweeper.direction=up: either maximize or minimize",
    ]
