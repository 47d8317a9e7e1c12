"""What is there, what is missing, and what is run of an artefact; the commands themselves are faked here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_cse import runs as records
from lightning_cse.errors import LightningCSEError
from lightning_cse.papers import reproducing
from lightning_cse.papers.artefacts import Artefact, Needs, Request, read_artefact
from lightning_cse.papers.points import Found, Point, RunsIndex, composed
from lightning_cse.papers.reproducing import (
    BUSY,
    Job,
    Launch,
    Plan,
    check_keys,
    keep,
    overrides_of,
    reproduce,
    run_missing,
    standing,
)
from lightning_cse.papers.standing import Estimate, map_of, plan_of, status_of

ENVIRONMENT = records.environment()

TINY = Request(profile="tiny", seeds=(0, 1))

TABLE = """
title: Two losses
source: A paper, Table 1
encoders: [roberta_base]
columns:
  RTE: test/rte/accuracy_all
rows:
  LENGTH: {baseline: length, of: whole}
  whole: {experiment: dualcse_cross}
  without: {experiment: dualcse_cross_no_both}
  LLM: {published: "it is asked, not trained"}
"""

GRID = """
title: The best of a grid
source: A paper, Table 2
encoders: [roberta_base]
columns:
  RTE: test/rte/accuracy_all
  lr: {config: method.optimizer.lr, decimals: 5}
rows:
  chosen:
    experiment: dualcse_cross
    grid: {method.optimizer.lr: [1e-5, 3e-5]}
    choose: best.score
"""

EVALUATED = """
title: A trained model on another suite
source: A paper, Table 3
encoders: [roberta_base]
columns:
  STS-B: test/stsb/spearman
rows:
  trained: {experiment: simcse_inli, suite: stsb}
  plain: {evaluate: {model: "{encoder}", suite: stsb}}
"""

WITHHELD = """
title: What is paid for
source: A paper, Table 5
encoders: [roberta_base]
columns:
  RTE: test/rte/accuracy_all
rows:
  LENGTH: {baseline: length, of: whole}
  whole: {experiment: dualcse_cross, needs: {variable: CSE_MAY_ASK, why: it costs money}}
  without: {experiment: dualcse_cross_no_both}
"""

SETTINGS = """
title: Settings
source: A paper, Table 4
encoders: [roberta_base]
columns:
  lr: {config: method.optimizer.lr, decimals: 5}
rows:
  cross: {experiment: dualcse_cross}
"""


def an_artefact(folder: Path, text: str, name: str = "table1") -> Artefact:
    path = folder / "paper" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return read_artefact(path)


def a_run(runs: Path, point: Point, seed: int, **more: Any) -> Path:
    """Write the record that a finished run of a training point would have left."""
    config = composed(point)
    document = records.decisive(config, data={}, encoder={"name": "tiny"}, resolved={})
    identity = records.config_hash(config, data={}, encoder={"name": "tiny"}, resolved={})
    folder = runs / config["name"] / f"{identity}-s{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        "name": config["name"],
        "config_hash": identity,
        "seed": seed,
        "steps": 10,
        "metrics": {"test/rte/accuracy_all": 0.5},
        "baselines": {"length": {"test/rte/accuracy_all": 0.25}},
        "best": {"score": 0.5, "step": 4, "monitor": "val/rte/accuracy_all"},
        "encoder": {"name": "tiny"},
        "environment": ENVIRONMENT,
        "device": "cpu",
        "precision": "32-true",
        "seconds": {"training": 30.0, "test": 6.0},
        "decisive": {**document, "data": {}, "encoder": {"name": "tiny"}},
        **more,
    }
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "curves.csv").write_text("step,key,value\n4,val/rte/accuracy_all,0.5\n")
    return folder


def points_of(plan: Plan, label: str) -> list[Point]:
    (line,) = [line for line in plan.lines if line.label == label]
    return list(dict.fromkeys(job.point for job in plan.jobs(line)))


def test_a_plan_needs_every_row_with_every_seed_but_what_is_only_published(tmp_path: Path) -> None:
    plan = Plan(an_artefact(tmp_path, TABLE), TINY, RunsIndex(tmp_path / "runs"))
    now = standing([plan])
    assert now.total == 4  # LENGTH takes its value from a run that is needed anyway
    assert [job.seed for job in now.of("missing")] == [0, 1, 0, 1]
    a_run(tmp_path / "runs", points_of(plan, "whole")[0], 1)
    plan.index.refresh()
    now = standing([plan])
    assert (len(now.of("finished")), len(now.of("missing"))) == (1, 3)
    assert [job.seed for job in now.of("finished")] == [1]


def test_runs_that_two_artefacts_need_are_counted_once(tmp_path: Path) -> None:
    index = RunsIndex(tmp_path / "runs")
    one = Plan(an_artefact(tmp_path, TABLE), TINY, index)
    other = Plan(an_artefact(tmp_path, TABLE, "table2"), TINY, index)
    assert standing([one, other]).total == standing([one]).total


def test_one_run_written_in_two_ways_is_counted_once(tmp_path: Path) -> None:
    rows = """
  as it is: {experiment: dualcse_cross}
  spelt out: {experiment: dualcse_cross, overrides: [method.loss.temperature=0.05]}
"""
    artefact = an_artefact(tmp_path, TABLE[: TABLE.index("  LENGTH")] + rows.strip("\n") + "\n")
    plan = Plan(artefact, Request(profile="tiny", seeds=(0,)), RunsIndex(tmp_path / "runs"))
    assert sum(len(plan.jobs(line)) for line in plan.lines) == 2
    assert standing([plan]).total == 1


def test_a_part_of_a_table_never_takes_the_name_of_the_whole(tmp_path: Path) -> None:
    index = RunsIndex(tmp_path / "runs")
    artefact = an_artefact(tmp_path, TABLE)
    requests = [
        Request(profile="tiny"),
        Request(profile="tiny", seeds=(0,)),
        Request(profile="tiny", only=("whole",)),
        Request(profile="tiny", only=("without",)),
        Request(profile="tiny", settings=("trainer.max_epochs=1",)),
    ]
    stems = [Plan(artefact, request, index).stem for request in requests]
    assert stems[0] == "table1.tiny"
    assert stems[1] == "table1.tiny.seeds0"
    assert len(set(stems)) == len(stems)


def test_a_grid_is_run_with_one_seed_and_its_winner_with_the_others(tmp_path: Path) -> None:
    plan = Plan(an_artefact(tmp_path, GRID), TINY, RunsIndex(tmp_path / "runs"))
    (line,) = plan.lines
    first = plan.jobs(line)
    assert [job.seed for job in first] == [0, 0]
    low, high = (job.point for job in first)
    a_run(tmp_path / "runs", low, 0)
    plan.index.refresh()
    assert plan.jobs(line) == first  # half a grid has no winner
    assert not plan.measured(line, plan.columns[0]).found
    a_run(tmp_path / "runs", high, 0, best={"score": 0.75, "step": 4, "monitor": "m"})
    plan.index.refresh()
    assert plan.jobs(line) == [*first, Job(high, 1)]
    table = reproduce(plan, None).table
    assert table is not None
    assert table.lines[0].cells[1].mean == pytest.approx(3e-5)


def test_what_is_trained_is_evaluated_after(tmp_path: Path) -> None:
    plan = Plan(an_artefact(tmp_path, EVALUATED), Request(profile="tiny", seeds=(0,)), RunsIndex(tmp_path / "runs"))
    waiting = standing([plan]).of("missing")
    entry, ready = reproducing._next(waiting, plan.index)
    assert entry == "train"
    (training,) = ready
    assert training.point.command == "train"
    folder = a_run(tmp_path / "runs", training.point, 0)
    plan.index.refresh()
    entry, ready = reproducing._next(standing([plan]).of("missing"), plan.index)
    assert entry == "evaluate"
    by_model = [overrides_of(job, plan.index)[0] for job in ready]
    assert f"model={folder}" in by_model
    assert "model=tiny" in by_model
    assert not any("seed=" in part for job in ready for part in overrides_of(job, plan.index))


def test_settings_alone_need_no_run(tmp_path: Path) -> None:
    plan = Plan(an_artefact(tmp_path, SETTINGS), Request(), RunsIndex(tmp_path / "runs"))
    assert standing([plan]).total == 0
    table = reproduce(plan, None).table
    assert table is not None
    assert table.lines[0].cells[0].text is not None or table.lines[0].cells[0].mean == pytest.approx(5e-5)


class Command:
    """Stands for the command that runs points: finishes those it is told to, and keeps what it was given."""

    def __init__(self, runs: Path, finish: bool = True, code: int = 0) -> None:
        self.runs = runs
        self.finish = finish
        self.code = code
        self.calls: list[tuple[list[str], list[list[str]]]] = []

    def __call__(self, command: list[str], env: dict[str, str]) -> Command:
        assert env["LIGHTNING_CSE_RUNS"] == str(self.runs)
        (file,) = [part.split("=", 1)[1].strip("'") for part in command if part.startswith("hydra.sweeper.file=")]
        points = yaml.safe_load(Path(file).read_text())
        self.calls.append((command, points))
        for overrides in points if self.finish else ():
            *rest, seed = overrides
            a_run(self.runs, Point("train", tuple(rest)), int(seed.removeprefix("seed=")))
        return self

    def wait(self) -> int:
        return self.code

    def poll(self) -> int:
        return self.code


def launched(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setattr(reproducing.subprocess, "Popen", command)


def test_a_grid_and_then_its_winner_are_run_with_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(tmp_path / "runs")
    launched(monkeypatch, command)
    plan = Plan(an_artefact(tmp_path, GRID), TINY, RunsIndex(tmp_path / "runs"))
    launch = Launch(tmp_path / "runs", launcher="joblib", hydra=("hydra.launcher.n_jobs=2",))
    assert run_missing([plan], launch, tmp_path / "points") == 0
    assert [len(points) for _, points in command.calls] == [2, 1]
    assert [points[-1][-1] for _, points in command.calls] == ["seed=0", "seed=1"]
    line = command.calls[0][0]
    assert line[1:4] == ["-m", "lightning_cse.train", "--multirun"]
    assert "hydra/launcher=joblib" in line
    assert line[-1] == "hydra.launcher.n_jobs=2"
    command.calls.clear()
    assert run_missing([plan], launch, tmp_path / "points") == 0
    assert not command.calls  # all is there


def test_a_run_that_fails_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(tmp_path / "runs", finish=False, code=2)
    launched(monkeypatch, command)
    plan = Plan(an_artefact(tmp_path, TABLE), TINY, RunsIndex(tmp_path / "runs"))
    assert run_missing([plan], Launch(tmp_path / "runs"), tmp_path / "points") == 2
    assert len(command.calls) == 1


def test_failed_runs_are_left_alone_until_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(an_artefact(tmp_path, TABLE), Request(profile="tiny", seeds=(0,)), RunsIndex(tmp_path / "runs"))
    (whole,) = points_of(plan, "whole")
    config = composed(whole)
    folder = records.Run(tmp_path / "runs", config["name"], "0123456789", 0)
    folder.start(yaml.safe_dump(config))
    folder.fail(RuntimeError("the loss is not a number"), stage="training")
    plan.index.refresh()
    assert [job.point for job in standing([plan]).of("failed")] == [whole]
    command = Command(tmp_path / "runs")
    launched(monkeypatch, command)
    run_missing([plan], Launch(tmp_path / "runs"), tmp_path / "points")
    assert [len(points) for _, points in command.calls] == [1]
    run_missing([plan], Launch(tmp_path / "runs", retry_failed=True), tmp_path / "points")
    assert len(command.calls) == 2
    assert "retry_failed=true" in command.calls[1][0]
    again = Launch(tmp_path / "runs", retry_failed=True)
    assert "retry_failed=true" in again.command("evaluate", Path("points.yaml"))


@pytest.mark.parametrize(
    ("codes", "told"),
    [((0, 3), 3), ((3, 2), 2), ((2, 3), 2), ((2, 1), 1), ((1, 3), 1), ((1, 130), 130), ((0, 0), 0)],
)
def test_of_two_exit_codes_the_one_that_says_more_stays(codes: tuple[int, int], told: int) -> None:
    assert reproducing._worse(*codes) == told


def test_runs_of_somebody_else_are_told_by_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(an_artefact(tmp_path, TABLE), Request(profile="tiny", seeds=(0,)), RunsIndex(tmp_path / "runs"))
    (whole,) = points_of(plan, "whole")
    config = composed(whole)
    folder = records.Run(tmp_path / "runs", config["name"], "0123456789", 0)
    launched(monkeypatch, Command(tmp_path / "runs"))
    with folder.lock():
        folder.start(yaml.safe_dump(config))
        plan.index.refresh()
        assert [job.point for job in standing([plan]).of("running")] == [whole]
        told = text(status_of([plan], plan.index))
        assert "1 running" in told
        assert run_missing([plan], Launch(tmp_path / "runs"), tmp_path / "points") == BUSY


def test_the_file_of_points_survives_odd_folders() -> None:
    (part,) = [p for p in Launch(Path("runs")).command("train", Path("it's, here/points.yaml")) if "file=" in p]
    assert part == r"hydra.sweeper.file='it\'s, here/points.yaml'"


def test_a_reproduction_is_written_and_kept_with_its_records(tmp_path: Path) -> None:
    plan = Plan(an_artefact(tmp_path, TABLE), Request(profile="tiny", seeds=(0,)), RunsIndex(tmp_path / "runs"))
    for label in ("whole", "without"):
        a_run(tmp_path / "runs", points_of(plan, label)[0], 0)
    plan.index.refresh()
    made = reproduce(plan, None)
    files = {path.name for path in made.write(tmp_path / "out")}
    assert {f"{plan.stem}.{ending}" for ending in ("md", "csv", "tex")} <= files
    keep(made, tmp_path)
    kept = tmp_path / "paper" / "results" / "records"
    assert len(list(kept.glob("*.json"))) == 2
    assert len(list(kept.glob("*.curves.csv"))) == 2
    again = Plan(plan.artefact, plan.request, RunsIndex(tmp_path / "nothing", [kept]))
    assert len(standing([again]).of("finished")) == 2
    one, other = (reproduce(p, None).write(tmp_path / str(n)) for n, p in enumerate((plan, again)))
    assert [path.read_text() for path in one] == [path.read_text() for path in other]
    keep(reproduce(again, None), tmp_path)  # onto themselves
    assert len(list(kept.glob("*.json"))) == 2


@pytest.mark.parametrize("value", [None, "", "0"])
def test_what_a_variable_must_allow_is_not_run_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("CSE_MAY_ASK", raising=False)
    if value is not None:
        monkeypatch.setenv("CSE_MAY_ASK", value)
    command = Command(tmp_path / "runs")
    launched(monkeypatch, command)
    plan = Plan(an_artefact(tmp_path, WITHHELD), TINY, RunsIndex(tmp_path / "runs"))
    needs = Needs("CSE_MAY_ASK", "it costs money")
    assert {entry: [job.seed for job in jobs] for entry, jobs in standing([plan]).withheld.items()} == {needs: [0, 1]}
    assert run_missing([plan], Launch(tmp_path / "runs", retry_failed=True), tmp_path / "points") == 0
    ((_, points),) = command.calls
    assert [overrides[0] for overrides in points] == ["+experiment=dualcse_cross_no_both"] * 2
    now = standing([plan])
    assert len(now.of("finished")) == now.total == 2, "what is not allowed is no failure"
    told = "not run: it costs money; CSE_MAY_ASK=1 in the environment runs it (2 runs"
    in_plan = text(plan_of(plan, plan.index))
    assert f"{told}: LENGTH, whole)" in in_plan
    assert "2 of 2 runs are there, 0 are missing" in in_plan
    assert "+experiment=dualcse_cross " not in in_plan, "no command for what is not to be run"
    in_map, in_status = text(map_of([plan], plan.index, TINY)), text(status_of([plan], plan.index))
    assert f"{told})" in in_map
    assert "2 of 2 distinct runs are there" in in_map
    assert f"{told})" in in_status
    assert "2 runs: 2 done\n" in in_status
    assert "still to do" not in in_status
    monkeypatch.setenv("CSE_MAY_ASK", "1")
    assert len(standing([plan]).of("missing")) == 2
    assert run_missing([plan], Launch(tmp_path / "runs"), tmp_path / "points") == 0
    assert [overrides[0] for overrides in command.calls[1][1]] == ["+experiment=dualcse_cross"] * 2
    assert "not run" not in text(plan_of(plan, plan.index))


def test_what_was_paid_for_stays_in_the_table_without_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CSE_MAY_ASK", raising=False)
    plan = Plan(an_artefact(tmp_path, WITHHELD), TINY, RunsIndex(tmp_path / "runs"))
    before = reproduce(plan).table
    assert before is not None
    assert [line.quoted for line in before.lines] == [True, True, False]
    a_run(tmp_path / "runs", points_of(plan, "whole")[0], 1)
    plan.index.refresh()
    now = standing([plan])
    assert ([job.seed for job in now.of("finished")], now.total) == ([1], 3)
    made = reproduce(plan)
    assert made.table is not None
    assert [line.cells[0].mean for line in made.table.lines] == [25.0, 50.0, None]
    keep(made, tmp_path)
    assert len(list((tmp_path / "paper" / "results" / "records").glob("*.json"))) == 1


def test_a_run_that_a_row_may_have_without_a_variable_is_run_although_another_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CSE_MAY_ASK", raising=False)
    index = RunsIndex(tmp_path / "runs")
    plans = [Plan(an_artefact(tmp_path, t, f"table{n}"), TINY, index) for n, t in enumerate((WITHHELD, TABLE))]
    assert standing(plans[:1]).total == 2
    both = standing(plans)
    assert (both.total, both.withheld) == (4, {})


def test_a_baseline_is_taken_from_any_run_of_its_row(tmp_path: Path) -> None:
    plan = Plan(an_artefact(tmp_path, TABLE), TINY, RunsIndex(tmp_path / "runs"))
    a_run(tmp_path / "runs", points_of(plan, "whole")[0], 1)
    plan.index.refresh()
    table = reproduce(plan, None).table
    assert table is not None
    assert table.lines[0].line.label == "LENGTH"
    assert table.lines[0].cells[0].mean == pytest.approx(25.0)


def text(shown: Any) -> str:
    from rich.console import Console

    console = Console(width=140, force_terminal=False)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def test_the_plan_says_what_is_missing_and_how_to_run_it(tmp_path: Path) -> None:
    plan = Plan(an_artefact(tmp_path, TABLE), TINY, RunsIndex(tmp_path / "runs"))
    a_run(tmp_path / "runs", points_of(plan, "whole")[0], 0)
    plan.index.refresh()
    told = text(plan_of(plan, plan.index))
    assert "1 of 4 runs is there, 3 are missing" in told
    assert "python -m lightning_cse.train +experiment=dualcse_cross +debug=tiny seed=1" in told
    assert "it is asked, not trained" in told
    assert "profile tiny" in told


def test_time_is_estimated_from_records_of_such_runs(tmp_path: Path) -> None:
    plan = Plan(an_artefact(tmp_path, TABLE), TINY, RunsIndex(tmp_path / "runs"))
    (whole,), (without,) = points_of(plan, "whole"), points_of(plan, "without")
    a_run(tmp_path / "runs", whole, 0)
    plan.index.refresh()
    guess = Estimate([Job(whole, 1), Job(without, 0)], plan.index)
    assert guess.seconds == pytest.approx(36.0)
    assert guess.unknown == 1
    assert str(guess) == "about 36 s, one after another, and 1 run that no record speaks of"
    assert guess.short == "<0.1+"


def test_the_map_has_a_line_for_each_artefact(tmp_path: Path) -> None:
    index = RunsIndex(tmp_path / "runs")
    plans = [Plan(an_artefact(tmp_path, t, f"table{n}"), TINY, index) for n, t in enumerate((TABLE, GRID), start=1)]
    told = text(map_of(plans, index, TINY))
    assert "paper/table1" in told
    assert "paper/table2" in told
    assert "0 of 6 distinct runs are there" in told


def test_the_status_says_why_a_run_failed(tmp_path: Path) -> None:
    plan = Plan(an_artefact(tmp_path, TABLE), Request(profile="tiny", seeds=(0,)), RunsIndex(tmp_path / "runs"))
    config = composed(points_of(plan, "whole")[0])
    folder = records.Run(tmp_path / "runs", config["name"], "0123456789", 0)
    folder.start(yaml.safe_dump(config))
    folder.fail(RuntimeError("the loss is not a number"), stage="training")
    plan.index.refresh()
    told = text(status_of([plan], plan.index))
    assert "1 failed" in told
    assert "RuntimeError: the loss is not a number" in told
    assert "--retry-failed" in told


def test_names_that_are_no_artefact_are_refused_with_the_nearest(tmp_path: Path) -> None:
    artefacts = {"paper/table1": an_artefact(tmp_path, TABLE)}
    assert [a.key for a in check_keys(["paper"], artefacts)] == ["paper/table1"]
    assert [a.key for a in check_keys(["paper/table1", "paper"], artefacts)] == ["paper/table1"]
    with pytest.raises(LightningCSEError, match="did you mean 'paper/table1'"):
        check_keys(["paper/tabel1"], artefacts)


def test_a_kept_file_found_is_named_after_the_run(tmp_path: Path) -> None:
    plan = Plan(an_artefact(tmp_path, TABLE), Request(profile="tiny", seeds=(0,)), RunsIndex(tmp_path / "runs"))
    folder = a_run(tmp_path / "runs", points_of(plan, "whole")[0], 0)
    record = json.loads((folder / "record.json").read_text())
    found = Found(record=record, folder=folder, source=folder / "record.json")
    files = reproducing._keep_run(found, tmp_path / "kept")
    assert [file.name for file in files] == [
        f"dualcse_cross-{record['config_hash']}-s0.json",
        f"dualcse_cross-{record['config_hash']}-s0.curves.csv",
    ]
