"""What is finished, what is missing, and what is run of an artefact; the commands themselves are
faked here.
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from lightning_cse import arguments
from lightning_cse import runs as records
from lightning_cse.errors import BUSY, ConfigError
from lightning_cse.papers import reproducing
from lightning_cse.papers.artefacts import Request
from lightning_cse.papers.files import read_artefact
from lightning_cse.papers.listing import plans_table, status_table
from lightning_cse.papers.plan import Plan, missing, overrides_of, status
from lightning_cse.papers.points import Point, composed, key_of, limited
from lightning_cse.papers.records import RunsTable
from lightning_cse.papers.reproducing import keep, reproduce, run_missing

HEAD = "title: t\nsource: A paper, Table 1\nencoders: [roberta_base]\ncolumns: {RTE: test/rte/accuracy_all}\nrows:\n"
TABLE = f"""{HEAD}
  LENGTH: {{baseline: length, of: whole}}
  whole: {{experiment: dualcse_cross}}
  without: {{experiment: dualcse_cross_no_both}}
  LLM: {{published: "it is asked, not trained"}}
"""
GRID = HEAD.replace("columns: {", "columns: {lr: {config: method.optimizer.lr, decimals: 5}, ") + (
    "  best: {experiment: dualcse_cross, grid: {method.optimizer.lr: [1e-5, 3e-5]}, choose: best.score}\n"
)
EVALUATED = f"""{HEAD}
  trained: {{experiment: simcse_inli, suite: stsb}}
  plain: {{evaluate: {{model: "{{encoder}}", suite: stsb}}}}
"""
PAID = TABLE.replace("cross}", "cross, needs: {variable: CSE_MAY_ASK, why: it costs money}}")
TWICE = f"{HEAD}  a: {{experiment: impscore}}\n  b: {{experiment: impscore, overrides: [trainer.max_steps=-1]}}\n"

MakePlan = Callable[..., Plan]


@pytest.fixture
def plan_of(tmp_path):
    index = RunsTable(tmp_path / "runs")

    def plan(text=TABLE, seeds=(0, 1), name="table1", **request):
        path = tmp_path / "paper" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return Plan(
            read_artefact(path),
            Request(**{"profile": "tiny", "seeds": seeds} | request),
            index,
        )

    return plan


def finish(runs, point, seed, score=0.5):
    """Leave the record of a finished training."""
    config = composed(point)
    document = records.decisive(
        config,
        data={},
        encoder={"name": "tiny"},
        resolved={},
    )
    digest = records.config_hash(
        config,
        data={},
        encoder={"name": "tiny"},
        resolved={},
    )
    run = records.Run(
        runs,
        config["name"],
        digest,
        seed,
    )
    record = {
        "name": run.name,
        "config_hash": digest,
        "seed": seed,
        "key": key_of(point),
        "steps": 10,
        "encoder": {"name": "tiny"},
    }
    record |= {
        "metrics": {"test/rte/accuracy_all": 0.5},
        "best": {"score": score},
        "overrides": point.overrides,
    }
    record |= {
        "baselines": {"length": {"test/rte/accuracy_all": 0.25}},
        "environment": records.environment(),
    }
    record |= {"seconds": {"training": 40.0}, "sentences_per_second": 20.0}
    run.finish(
        {
            **record,
            "device": "cpu",
            "precision": "32",
            "decisive": document,
        }
    )
    run.curves_path.write_text("step,key,value\n4,val/rte/accuracy_all,0.5\n")
    return run.path


def point_of(plan, label):
    return next(plan.jobs(line)[0].point for line in plan.lines if line.label == label)


def fail(plan, label):
    config = composed(point_of(plan, label))
    run = records.Run(
        plan.table.runs_dir,
        config["name"],
        "0123456789",
        plan.lines[0].seeds[0],
    )
    run.start(yaml.safe_dump(config), key_of(point_of(plan, label)))
    run.fail(RuntimeError("the loss is not a number"), stage="training")
    plan.table.refresh()
    return run


def shown(table):
    console = Console(
        width=160,
        force_terminal=False,
    )
    with console.capture() as capture:
        console.print(table)
    return capture.get()


class Command:
    """Stands for the command that runs points: finishes them, unless it is to fail."""

    def __init__(self, plan, monkeypatch, code=0):
        self.runs, self.code = plan.table.runs_dir, code
        self.calls: list[list[str]] = []
        self.points: list[list[list[str]]] = []
        monkeypatch.setattr(
            reproducing,
            "_run",
            self,
        )

    def __call__(self, command, environment):
        assert environment["LIGHTNING_CSE_RUNS"] == str(self.runs)
        file = command[4].removeprefix("hydra.sweeper.file='").removesuffix("'").replace("\\'", "'")
        self.calls.append(command)
        self.points.append(yaml.safe_load(Path(file).read_text()))
        for *overrides, seed in self.points[-1] if self.code == 0 else ():
            finish(
                self.runs,
                Point("train", tuple(overrides)),
                int(seed.removeprefix("seed=")),
            )
        return self.code


def test_what_a_plan_needs(plan_of):
    plan, same = plan_of(), plan_of(name="table2")
    assert [job.seed for job in status([plan])["missing"]] == [0, 1, 0, 1], (
        "LENGTH is measured by a run of whole"
    )
    assert len(status([plan, same])["missing"]) == 4, "runs of two artefacts are counted once"
    assert len(status([plan_of(TWICE, (0,))])["missing"]) == 1, "and those written in two ways"
    finish(
        plan.table.runs_dir,
        point_of(plan, "whole"),
        1,
    )
    plan.table.refresh()
    now = status([plan])
    assert ([job.seed for job in now["finished"]], len(missing(now))) == ([1], 3)
    length = plan.runs(plan.lines[0], plan.columns[0])
    assert list(length.index) == [1], "a baseline is that of any run"
    assert [len(plan.found(line)) for line in plan.lines] == [1, 1, 0, 0]
    table = reproduce(plan).table
    assert table is not None
    assert table.cells["mean"].dropna().tolist() == [25.0, 50.0]


def test_a_part_never_takes_the_name_of_the_whole(plan_of):
    requests: list[dict[str, Any]] = [
        {},
        {"seeds": (0,)},
        {"only": ("whole",)},
        {"only": ("LLM",)},
        {"settings": ("trainer.max_epochs=1",)},
    ]
    stems = [plan_of(**{"seeds": None} | request).stem for request in requests]
    assert stems[:2] == ["table1.tiny", "table1.tiny.seeds0"]
    assert len(set(stems)) == len(stems)


def test_a_grid_is_run_with_one_seed_and_its_winner_with_the_others(plan_of, tmp_path, monkeypatch):
    plan = plan_of(GRID)
    (line,) = plan.lines
    low, high = (job.point for job in plan.jobs(line))
    finish(
        plan.table.runs_dir,
        low,
        0,
        score=0.25,
    )
    plan.table.refresh()
    assert plan.winner(line, plan.columns[0]) == ()
    assert plan.runs(line, plan.columns[0]).empty
    command = Command(plan, monkeypatch)
    options = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    assert (
        run_missing(
            [plan],
            tmp_path / "it's, here",
            options,
        )
        == 0
    )
    assert command.points == [[[*high.overrides, "seed=0"]], [[*high.overrides, "seed=1"]]]
    assert command.calls[0][1:4] == ["-m", "lightning_cse.train", "--multirun"]
    assert command.calls[0][4].endswith(rf"it\'s, here/train-{os.getpid()}.points.yaml'")
    assert command.calls[0][5:] == options
    assert list(plan.runs(line, plan.columns[1]).index) == [0, 1]
    table = reproduce(plan).table
    assert table is not None
    assert table.cells.iloc[0]["mean"] == pytest.approx(3e-5)
    assert run_missing([plan], tmp_path) == 0
    assert len(command.calls) == 2, "all is finished"
    wrong = plan_of(GRID.replace("best.score", "best.scor"))
    with pytest.raises(ConfigError, match=r"rows\.best\.choose: a record has no 'best\.scor'"):
        wrong.jobs(wrong.lines[0])


def test_what_is_trained_is_evaluated_after(plan_of, tmp_path, monkeypatch):
    plan = plan_of(EVALUATED, (0,))
    command = Command(
        plan,
        monkeypatch,
        code=2,
    )
    finish(
        plan.table.runs_dir,
        point_of(plan_of(EVALUATED, (1,)), "trained"),
        1,
    )
    assert run_missing([plan], tmp_path) == 2
    entries = [call[2].rpartition(".")[2] for call in command.calls]
    assert entries == ["train", "evaluate"], "each is tried once"
    assert [line[0] for line in command.points[1]] == ["model=tiny"]
    folder = finish(
        plan.table.runs_dir,
        Point("train", tuple(command.points[0][0][:-1])),
        0,
    )
    plan.table.refresh()
    jobs = missing(status([plan]))
    assert sorted(overrides_of(job, plan.table)[0] for job in jobs) == [
        f"model={folder}",
        "model=tiny",
    ]


def test_failed_runs_wait_until_they_are_asked_for(plan_of, tmp_path, monkeypatch):
    plan = plan_of(seeds=(0,))
    fail(plan, "whole")
    told = shown(status_table([plan]))
    for part in (
        "RuntimeError: the loss is not a number",
        "--retry-failed",
        "2 runs: 1 failed, 1 missing",
    ):
        assert part in told
    command = Command(plan, monkeypatch)
    assert run_missing([plan], tmp_path) == 0
    assert (
        run_missing(
            [plan],
            tmp_path,
            retry_failed=True,
        )
        == 0
    )
    assert [len(points) for points in command.points] == [1, 1]
    assert ["retry_failed=true" in call for call in command.calls] == [False, True]


def test_runs_of_another_process_are_left_alone(plan_of, tmp_path, monkeypatch):
    plan = plan_of(seeds=(0,))
    Command(plan, monkeypatch)
    with fail(plan, "whole").lock():
        assert "1 running" in shown(status_table([plan]))
        assert run_missing([plan], tmp_path) == BUSY


@pytest.mark.parametrize("value", [None, "", "0"])
def test_what_needs_a_variable_is_not_run_without_it(plan_of, tmp_path, monkeypatch, value):
    monkeypatch.setenv("CSE_MAY_ASK", value) if value is not None else monkeypatch.delenv(
        "CSE_MAY_ASK", raising=False
    )
    plan = plan_of(PAID)
    command = Command(plan, monkeypatch)
    assert (
        run_missing(
            [plan],
            tmp_path,
            retry_failed=True,
        )
        == 0
    )
    assert [overrides[0] for overrides in command.points[0]] == [
        "+experiment=dualcse_cross_no_both"
    ] * 2
    now = status([plan])
    assert (len(now["finished"]), missing(now)) == (2, []), "what is withheld is not a failure"
    for table in (
        plans_table([plan]),
        plans_table([plan, plan_of(PAID, name="other")]),
        status_table([plan]),
    ):
        assert (
            "not run: it costs money; CSE_MAY_ASK=1 in the environment runs it (2 runs)"
            in shown(table)
        )
        assert "2 runs: 2 finished\n" in shown(table)
        assert "+experiment=dualcse_cross " not in shown(table)
    assert len(missing(status([plan, plan_of(TABLE, name="other")]))) == 2, (
        "another row needs it without the variable"
    )
    monkeypatch.setenv("CSE_MAY_ASK", "1")
    assert len(missing(status([plan]))) == 2
    finish(
        plan.table.runs_dir,
        point_of(plan, "whole"),
        1,
    )
    monkeypatch.delenv("CSE_MAY_ASK")
    plan.table.refresh()
    assert len(plan.found(plan.lines[1])) == 1, "what was paid for stays in the table"


def test_tables_of_what_is_missing(plan_of):
    plan = plan_of()
    finish(
        plan.table.runs_dir,
        point_of(plan, "whole"),
        0,
    )
    plan.table.refresh()
    told = shown(plans_table([plan]))
    assert "4 runs: 1 finished, 3 missing" in told
    assert "python -m lightning_cse.train +experiment=dualcse_cross +debug=tiny seed=1\n" in told
    assert "it is asked, not trained" in told
    rows = {line.split()[0]: line.split()[1:] for line in told.splitlines() if line.strip()}
    assert rows["whole"] == ["tiny", "1", "1"]
    assert rows["without"] == ["tiny", "2"]
    told = shown(plans_table([plan, plan_of(GRID, name="table2")]))
    assert [line.split()[-2:] for line in told.splitlines() if line.startswith("paper/")] == [
        ["1", "3"],
        ["t", "2"],
    ]
    assert "6 runs: 1 finished, 5 missing" in told


def test_a_kept_reproduction_is_made_again_from_its_records(plan_of, tmp_path):
    plan = plan_of(seeds=(0,))
    folders = [
        finish(
            plan.table.runs_dir,
            point_of(plan, label),
            0,
        )
        for label in ("whole", "without")
    ]
    plan.table.refresh()
    made = reproduce(plan)
    files = {path.name for path in keep(made, tmp_path)}
    names = {f"{folder.parent.name}-{folder.name}" for folder in folders}
    assert files >= {f"{name}{ending}" for name in names for ending in (".json", ".curves.csv")}
    assert files >= {f"{plan.stem}{ending}" for ending in (".md", ".csv", ".tex")}
    kept = tmp_path / "paper" / "results" / "records"
    again = Plan(
        plan.artefact,
        plan.request,
        RunsTable(tmp_path / "nothing", [kept]),
    )
    keep(reproduce(again), tmp_path)  # onto themselves
    assert len([json.loads(file.read_text()) for file in kept.glob("*.json")]) == 2
    one, other = (
        reproduce(each).write(tmp_path / str(number)) for number, each in enumerate((plan, again))
    )
    assert [path.read_text() for path in one] == [path.read_text() for path in other]


@pytest.mark.parametrize("text", ["", "0,", "-1", "a,1", "0 1"])
def test_seeds_are_whole_numbers(text):
    assert arguments.seeds("2,0,2") == (2, 0)
    with pytest.raises(argparse.ArgumentTypeError, match=r"must be a list of seeds such as 0,1,2"):
        arguments.seeds(text)


MATCHED = HEAD.replace("columns", "reference: dual\nmatch: steps\ncolumns") + (
    "  length: {baseline: length, of: more}\n  dual: {experiment: dualcse_cross}\n"
    "  more: {experiment: simcse_inli, overrides: [data.batch_size=64]}\n  other: {experiment: dualcse_bi}\n"
)


@pytest.mark.parametrize(("match", "steps"), [("steps", 10), ("{sentences: [dual, more]}", 4)])
def test_matched_rows_train_for_as_many_steps_as_the_first(
    plan_of, tmp_path, monkeypatch, match, steps
):
    """The first row makes 10 steps and reads 800 sentences; a step of 64 triplets reads 192."""
    plan = plan_of(MATCHED.replace("match: steps", f"match: {match}"), seeds=(0, 1))
    command = Command(plan, monkeypatch)
    assert {job.point.overrides[0] for job in plan.jobs(plan.lines[2])} == {
        "+experiment=dualcse_cross"
    }
    assert run_missing([plan], tmp_path) == 0
    own = ["+experiment=simcse_inli", "+debug=tiny", "data.batch_size=64"]
    limit = ["trainer.max_epochs=-1", f"trainer.max_steps={steps}"]
    assert command.points[1][:2] == [
        [
            *own,
            *limit,
            "seed=0",
        ],
        [
            *own,
            *limit,
            "seed=1",
        ],
    ]
    assert len(command.points[0]) == (2 if match == "steps" else 4), (
        "a row that is not named keeps its epochs"
    )
    table = reproduce(plan).table
    assert table is not None
    assert (
        f"Equal {'steps' if match == 'steps' else 'sentences'}: more as dual (tiny), {steps} steps."
        in table.legend
    )
    assert len(plan.runs(plan.lines[0], plan.columns[0])) == 1, (
        "its baseline is of the matched runs"
    )
    evaluated = limited(
        Point(
            "evaluate",
            (),
            Point("train", tuple(own)),
        ),
        "steps",
        {"steps": steps},
    )
    assert evaluated.of == Point("train", (*own, *limit))


def test_a_match_is_of_trained_rows_and_of_rows_of_one_size(plan_of):
    wrong = {
        "stps": r"match\.stps",
        "{steps: [dual, length]}": r"match\.steps .a trained row.*'length'",
    }
    for match, told in wrong.items():
        with pytest.raises(ConfigError, match=rf"table1\.yaml: {told}"):
            plan_of(MATCHED.replace("match: steps", f"match: {match}"))
    with pytest.raises(
        ConfigError,
        match=r"match\.sentences: ngcse_nli_sts has rows of several sizes; match\.steps",
    ):
        limited(
            Point("train", ("+experiment=ngcse_nli_sts", "+debug=tiny")),
            "sentences",
            {"steps": 1},
        )
