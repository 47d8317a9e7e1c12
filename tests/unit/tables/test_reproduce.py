"""What is finished, what is missing, and what is run of a spec; the commands themselves are
faked here.
"""

import json
import re
import shutil
from argparse import Namespace
from pathlib import Path

import pytest
import yaml
from fake_plan import leave_run

from lightning_cse import runs as records
from lightning_cse.errors import BUSY, ConfigError
from lightning_cse.tables import reproduce as reproducing
from lightning_cse.tables.files import read_spec
from lightning_cse.tables.keep import keep, kept_folders, kept_runs, repetitions, runs_table
from lightning_cse.tables.listing import overview
from lightning_cse.tables.plan import Plan, missing, overrides_of, status
from lightning_cse.tables.points import Point, composed, key_of, limited
from lightning_cse.tables.records import RunsTable
from lightning_cse.tables.reproduce import reproduce, run_missing
from lightning_cse.tables.spec import Request

HEAD = "title: t\nsource: A paper, Table 1\nencoders: [roberta_base]\ncolumns: {RTE: test/rte/accuracy_all}\nrows:\n"
TABLE = f"""{HEAD}
  LENGTH: {{baseline: length, of: whole}}
  whole: {{experiment: dualcse_cross}}
  without: {{experiment: dualcse_cross_no_both}}
  LLM: {{published: "it is asked, not trained"}}
"""
GRID = f"{HEAD}  best: {{experiment: dualcse_cross, grid: {{method.optimizer.lr: [1e-5, 3e-5]}}}}\n"
EVALUATED = f"""{HEAD}
  trained: {{experiment: simcse_inli, suite: stsb}}
  plain: {{evaluate: {{model: "{{encoder}}", suite: stsb}}}}
"""
PAID = TABLE.replace("cross}", "cross, needs: {variable: CSE_MAY_ASK, why: it costs money}}")
TWICE = f"{HEAD}  a: {{experiment: impscore}}\n  b: {{experiment: impscore, overrides: [trainer.max_steps=-1]}}\n"
MATCHED = HEAD.replace("columns", "reference: dual\nmatch: [dual, more]\ncolumns") + (
    "  length: {baseline: length, of: more}\n  dual: {experiment: dualcse_cross}\n"
    "  more: {experiment: simcse_inli, overrides: [data.batch_size=64]}\n"
)


@pytest.fixture
def plan_of(tmp_path):
    index = RunsTable(tmp_path / "runs")

    def plan(text=TABLE, seeds=(0, 1), name="table1", **request):
        path = tmp_path / "paper" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        arguments = Request(**{"profile": "tiny", "seeds": seeds} | request)

        return Plan(read_spec(path), arguments, index)

    return plan


def finish(plan, point, seed, score=0.5):
    """Leave the record of a finished training."""
    config = composed(point)
    run = leave_run(
        plan.table.runs_dir,
        config["name"],
        seed,
        key_of(point)[:10],
        key=key_of(point),
        steps=10,
        metrics={"test/rte/accuracy_all": 0.5},
        seconds={"training": 60.0, "test": 30.0},
        best={"score": score},
        baselines={"length": {"test/rte/accuracy_all": 0.25}},
        environment=records.environment(),
        decisive={"config": config},
    )
    (run.folder / "curves.csv").write_text("step,key,value\n4,val/rte/accuracy_all,0.5\n")
    plan.table.refresh()

    return run.folder


def point_of(plan, label):
    return next(plan.jobs(line)[0].point for line in plan.lines if line.label == label)


def fail(plan, label):
    point = point_of(plan, label)
    run = records.Run(plan.table.runs_dir, composed(point)["name"], "0123456789", 0)
    run.start("name: x\n", key_of(point))
    run.fail(RuntimeError("the loss is not a number"), stage="training")
    plan.table.refresh()

    return run


class Command:
    """Stands for the command that runs points: finishes them, unless it is to fail."""

    def __init__(self, plan, monkeypatch, code=0):
        self.plan, self.code = plan, code
        self.calls, self.points = [], []
        monkeypatch.setattr(reproducing, "_run", self)

    def __call__(self, command, environment):
        assert environment["LIGHTNING_CSE_RUNS"] == str(self.plan.table.runs_dir)
        file = command[4].removeprefix("hydra.sweeper.file='").removesuffix("'").replace("\\'", "'")
        self.calls.append(command)
        self.points.append(yaml.safe_load(Path(file).read_text()))
        for *overrides, seed in self.points[-1] if self.code == 0 else ():
            finish(self.plan, Point("train", tuple(overrides)), int(seed.removeprefix("seed=")))

        return self.code


def test_runs_that_a_plan_needs(plan_of):
    plan, same = plan_of(), plan_of(name="table2")
    seeds = [job.seed for job in status([plan])["missing"]]
    assert seeds == [0, 1, 0, 1], "LENGTH is measured by a run of whole"
    assert len(status([plan, same])["missing"]) == 4, "runs of two specs are counted once"
    assert len(status([plan_of(TWICE, (0,))])["missing"]) == 1, "and those written in two ways"
    finish(plan, point_of(plan, "whole"), 1)
    jobs = status([plan])
    assert ([job.seed for job in jobs["finished"]], len(missing(jobs))) == ([1], 3)
    assert [len(plan.finished(line)) for line in plan.lines] == [1, 1, 0, 0]
    means = reproduce(plan).table.cells["mean"].dropna()
    assert means.tolist() == [25.0, 50.0], "a baseline of any run"
    text = overview([plan])
    assert "4 runs: 1 finished, 3 missing" in text
    command = (
        "python -m lightning_cse.train +experiment=dualcse_cross +debug=tiny encoder=tiny seed=0\n"
    )
    assert command in text


def test_a_part_never_takes_the_name_of_the_whole(plan_of):
    requests = [{"seeds": (0,)}, {"only": ("LLM",)}, {"settings": ("trainer.max_epochs=1",)}]
    stems = [plan_of(**{"seeds": None} | request).stem for request in ({}, *requests)]
    assert stems[:2] == ["table1.tiny", "table1.tiny.seeds0"]
    assert len(set(stems)) == len(stems)


def test_a_grid_is_run_with_one_seed_and_its_winner_with_the_others(plan_of, tmp_path, monkeypatch):
    plan = plan_of(GRID)
    (line,), (column,) = plan.lines, plan.spec.columns
    low, high = (job.point for job in plan.jobs(line))
    finish(plan, low, 0, score=0.25)
    assert plan.chosen(line, column) == ()
    command = Command(plan, monkeypatch)
    options = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    assert run_missing([plan], tmp_path / "it's, here", options) == 0
    assert command.points == [[[*high.overrides, "seed=0"]], [[*high.overrides, "seed=1"]]]
    assert command.calls[0][1:4] == ["-m", "lightning_cse.train", "--multirun"]
    assert re.search(r"it\\'s, here/train-[0-9a-f]{8}\.points\.yaml'$", command.calls[0][4])
    assert list((tmp_path / "it's, here").iterdir()) == []
    assert command.calls[0][5:] == options
    assert [run.record["seed"] for run in plan.runs(line, column)] == [0, 1]
    assert run_missing([plan], tmp_path) == 0
    assert len(command.calls) == 2, "all is finished"


def test_trained_models_are_evaluated_after_training(plan_of, tmp_path, monkeypatch):
    plan = plan_of(EVALUATED, (0,))
    command = Command(plan, monkeypatch, code=2)
    finish(plan, point_of(plan, "trained"), 1)
    assert run_missing([plan], tmp_path) == 2
    entries = [call[2].rpartition(".")[2] for call in command.calls]
    assert entries == ["train", "evaluate"], "each is tried once"
    assert [line[0] for line in command.points[1]] == ["model=tiny"]
    folder = finish(plan, Point("train", tuple(command.points[0][0][:-1])), 0)
    runs_found = [overrides_of(job, plan.table)[0] for job in missing(status([plan]))]
    assert sorted(runs_found) == [f"model={folder}", "model=tiny"]


def test_a_training_kept_as_a_record_is_repeated_for_its_evaluation(plan_of, tmp_path, monkeypatch):
    plan = plan_of(EVALUATED, (0,))
    before = finish(plan, point_of(plan, "trained"), 0)
    keep(reproduce(plan), tmp_path)
    shutil.rmtree(before)
    table = RunsTable(plan.table.runs_dir, kept_folders(tmp_path))
    kept_plan = Plan(plan.spec, plan.request, table)
    jobs = status([kept_plan])
    assert [job.point.command for job in jobs["missing"]] == ["train", "evaluate", "evaluate"]
    assert jobs["finished"] == []
    models = [overrides_of(job, kept_plan.table)[0] for job in jobs["missing"][1:]]
    assert sorted(models) == ["model=<its run>", "model=tiny"]

    command = Command(kept_plan, monkeypatch, code=2)
    assert run_missing([kept_plan], tmp_path) == 2
    assert [line[0] for line in command.points[0]] == ["+experiment=simcse_inli"]
    assert [line[0] for line in command.points[1]] == ["model=tiny"], "not of the missing weights"
    folder = finish(kept_plan, point_of(kept_plan, "trained"), 0)
    jobs = status([kept_plan])
    assert [job.point.command for job in jobs["finished"]] == ["train"]
    models = [overrides_of(job, kept_plan.table)[0] for job in jobs["missing"]]
    assert sorted(models) == [f"model={folder}", "model=tiny"]


def test_failed_runs_are_repeated_only_on_request(plan_of, tmp_path, monkeypatch):
    plan = plan_of(seeds=(0,))
    fail(plan, "whole")
    text = overview([plan])
    for part in ("RuntimeError: the loss is", "--retry-failed", "2 runs: 1 failed, 1 missing"):
        assert part in text

    command = Command(plan, monkeypatch)
    assert run_missing([plan], tmp_path) == 0
    assert run_missing([plan], tmp_path, retry_failed=True) == 0
    assert [len(points) for points in command.points] == [1, 1]
    assert ["retry_failed=true" in call for call in command.calls] == [False, True]


def test_runs_of_another_process_are_left_alone(plan_of, tmp_path, monkeypatch):
    plan = plan_of(seeds=(0,))
    Command(plan, monkeypatch)
    with fail(plan, "whole").lock():
        assert "1 running" in overview([plan])
        assert run_missing([plan], tmp_path) == BUSY


@pytest.mark.parametrize("value", ["", "0"])
def test_a_row_that_needs_a_variable_is_not_run_without_it(plan_of, tmp_path, monkeypatch, value):
    monkeypatch.setenv("CSE_MAY_ASK", value)
    plan = plan_of(PAID)
    command = Command(plan, monkeypatch)
    assert run_missing([plan], tmp_path, retry_failed=True) == 0
    assert {overrides[0] for overrides in command.points[0]} == {
        "+experiment=dualcse_cross_no_both"
    }
    assert missing(status([plan])) == [], "what is withheld is not a failure"
    text = overview([plan])
    assert "not run: it costs money; CSE_MAY_ASK=1 in the environment runs it (2 runs)" in text
    assert "2 runs: 2 finished\n" in text
    other_plan = plan_of(TABLE, name="other_plan")
    assert len(missing(status([plan, other_plan]))) == 2, (
        "another row needs it without the variable"
    )
    monkeypatch.setenv("CSE_MAY_ASK", "1")
    assert len(missing(status([plan]))) == 2
    finish(plan, point_of(plan, "whole"), 1)
    monkeypatch.delenv("CSE_MAY_ASK")
    assert len(plan.finished(plan.lines[1])) == 1, "what was paid for stays in the table"


def test_a_kept_reproduction_is_made_again_from_its_records(plan_of, tmp_path):
    plan = plan_of(seeds=(0,))
    folders = [finish(plan, point_of(plan, label), 0) for label in ("whole", "without")]
    files = {path.name for path in keep(reproduce(plan), tmp_path)}
    assert files >= {"runs.jsonl", "curves.parquet", "predictions.parquet"}
    assert files >= {f"{plan.stem}{ending}" for ending in (".md", ".csv", ".tex")}
    (folder_of_kept,) = kept_folders(tmp_path)
    assert {*folder_of_kept.records} == {
        f"{folder.parent.name}-{folder.name}" for folder in folders
    }
    kept_plan = Plan(plan.spec, plan.request, RunsTable(tmp_path / "nothing", [folder_of_kept]))
    before = [path.read_bytes() for path in sorted(folder_of_kept.folder.iterdir())]
    keep(reproduce(kept_plan), tmp_path)  # onto themselves
    assert [path.read_bytes() for path in sorted(folder_of_kept.folder.iterdir())] == before
    texts = []
    for number, any_plan in enumerate((plan, kept_plan)):
        written = reproduce(any_plan).write(tmp_path / str(number))
        texts.append([path.read_text() for path in written])

    assert texts[0] == texts[1]


def test_without_kept_runs_the_error_names_the_repository(tmp_path):
    arguments = Namespace(kept=True, runs_dir=tmp_path)
    with pytest.raises(ConfigError, match=r"has no kept runs, .* in the repository: clone \S+ and"):
        runs_table(arguments, tmp_path, kept_folders(tmp_path))


def test_runs_made_again_are_compared_with_those_kept(plan_of, tmp_path):
    plan = plan_of(seeds=(0, 1))
    folders = [finish(plan, point_of(plan, "whole"), seed) for seed in (0, 1)]

    def compared():
        plan.table.refresh()
        return repetitions(plan, kept_runs(kept_folders(tmp_path)))

    def change(**entries):
        path = folders[1] / "record.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))

    assert compared() == "", "nothing is kept"
    keep(reproduce(plan), tmp_path)
    assert compared() == (
        "2 of these runs are kept in the repository: 2 have the same weights and scores here"
    )
    change(metrics={"test/rte/accuracy_all": 0.53125})
    name = f"{folders[1].parent.name}-{folders[1].name}"
    assert compared().endswith(
        "1 have the same weights and scores here\n"
        f"  {name}: the same weights, 1 other score, at most 0.031 apart (test/rte/accuracy_all)"
    )
    change(metrics={"test/rte/accuracy_all": 0.5}, checkpoint={"sha256": "of other weights"})
    assert compared().endswith(f"\n  {name}: other weights, the same scores")
    change(key="described in other words")
    assert compared().startswith("1 of"), "the run with this key is not of the plan"
    folder_of_kept = Plan(
        plan.spec, plan.request, RunsTable(tmp_path / "nothing", kept_folders(tmp_path))
    )
    assert repetitions(folder_of_kept, kept_runs(kept_folders(tmp_path))) == "", (
        "they are those kept"
    )


def test_a_run_made_again_replaces_its_record_where_that_is(plan_of, tmp_path):
    plan = plan_of(seeds=(0,))
    folder = finish(plan, point_of(plan, "whole"), 0)
    keep(reproduce(plan), tmp_path)
    (tmp_path / "paper").rename(tmp_path / "other")
    # The same identity, with another hash.
    path = folder / "record.json"
    record = {**json.loads(path.read_text()), "config_hash": "abcdef0123"}
    path.write_text(json.dumps(record))
    (tmp_path / "paper").mkdir()
    plan.table.refresh()
    keep(reproduce(plan), tmp_path)
    (folder_of_kept,) = kept_folders(tmp_path)
    assert folder_of_kept.folder.parent.name == "other"
    assert (
        [*folder_of_kept.records] == [*folder_of_kept.curves] == [f"{record['name']}-abcdef0123-s0"]
    )


def test_matched_rows_train_for_as_many_steps_as_the_first(plan_of, tmp_path, monkeypatch):
    plan = plan_of(MATCHED)
    command = Command(plan, monkeypatch)
    experiments = {job.point.overrides[0] for job in plan.jobs(plan.lines[2])}
    assert experiments == {"+experiment=dualcse_cross"}
    assert run_missing([plan], tmp_path) == 0
    own_overrides = ("+experiment=simcse_inli", "+debug=tiny", "encoder=tiny", "data.batch_size=64")
    limit = ("trainer.max_epochs=-1", "trainer.max_steps=10")
    assert command.points[1] == [[*own_overrides, *limit, f"seed={seed}"] for seed in (0, 1)]
    assert "Equal steps: more as dual (tiny), 10 steps." in reproduce(plan).table.legend
    assert len(plan.finished(plan.lines[0])) == 1, "its baseline is of the matched runs"
    evaluated = limited(Point("evaluate", (), Point("train", own_overrides)), 10)
    assert evaluated.of == Point("train", (*own_overrides, *limit))
