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
from fake_table import leave_run

from lightning_cse import runs as records
from lightning_cse.errors import BUSY, ConfigError
from lightning_cse.tables import reproduce as reproducing
from lightning_cse.tables.figures import Result
from lightning_cse.tables.files import read_spec
from lightning_cse.tables.keep import keep, kept_folders, kept_runs, repetitions, runs_table
from lightning_cse.tables.legend import legend
from lightning_cse.tables.listing import overview
from lightning_cse.tables.points import Point, composed, key_of, limited
from lightning_cse.tables.records import RunsTable
from lightning_cse.tables.reproduce import run_missing, write
from lightning_cse.tables.spec import Request
from lightning_cse.tables.table import Table, missing, overrides_of, status

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
def table_of(tmp_path):
    index = RunsTable(tmp_path / "runs")

    def table(text=TABLE, seeds=(0, 1), name="table1", **request):
        path = tmp_path / "paper" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        arguments = Request(**{"profile": "tiny", "seeds": seeds} | request)

        return Table(read_spec(path), arguments, index)

    return table


def finish(table, point, seed, score=0.5):
    """Leave the record of a finished training."""
    config = composed(point)
    run = leave_run(
        table.runs.runs_dir,
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
    table.runs.refresh()

    return run.folder


def point_of(table, label):
    jobs = table.jobs()
    return jobs["point"][jobs["line"] == table.labels.index(label)].iloc[0]


def fail(table, label):
    point = point_of(table, label)
    run = records.Run(table.runs.runs_dir, composed(point)["name"], "0123456789", 0)
    run.start("name: x\n", key_of(point))
    run.fail(RuntimeError("the loss is not a number"), stage="training")
    table.runs.refresh()

    return run


class Command:
    """Stands for the command that runs points: finishes them, unless it is to fail."""

    def __init__(self, table, monkeypatch, code=0):
        self.table, self.code = table, code
        self.calls, self.points = [], []
        monkeypatch.setattr(reproducing, "_run", self)

    def __call__(self, command, environment):
        assert environment["LIGHTNING_CSE_RUNS"] == str(self.table.runs.runs_dir)
        file = command[4].removeprefix("hydra.sweeper.file='").removesuffix("'").replace("\\'", "'")
        self.calls.append(command)
        self.points.append(yaml.safe_load(Path(file).read_text()))
        for *overrides, seed in self.points[-1] if self.code == 0 else ():
            finish(self.table, Point("train", tuple(overrides)), int(seed.removeprefix("seed=")))

        return self.code


def seeds_in(table, state):
    jobs = status([table])
    return jobs["seed"][jobs["state"] == state].tolist()


def finished_of(table, label):
    return table.finished(next(line for line in table.lines.itertuples() if line.label == label))


def test_runs_that_a_table_needs(table_of):
    table, same = table_of(), table_of(name="table2")
    assert seeds_in(table, "missing") == [0, 1, 0, 1], "LENGTH is measured by a run of whole"
    assert len(missing(status([table, same]))) == 4, "runs of two specs are counted once"
    assert len(missing(status([table_of(TWICE, (0,))]))) == 1, "and those written in two ways"
    finish(table, point_of(table, "whole"), 1)
    assert (seeds_in(table, "finished"), len(missing(status([table])))) == ([1], 3)
    assert [len(finished_of(table, label)) for label in table.labels] == [1, 1, 0, 0]
    means = table.cells["mean"].dropna()
    assert means.tolist() == [25.0, 50.0], "a baseline of any run"
    text = overview([table])
    assert "4 runs: 1 finished, 3 missing" in text
    command = (
        "python -m lightning_cse.train +experiment=dualcse_cross +debug=tiny encoder=tiny seed=0\n"
    )
    assert command in text


def test_a_part_never_takes_the_name_of_the_whole(table_of):
    requests = [{"seeds": (0,)}, {"only": ("LLM",)}, {"settings": ("trainer.max_epochs=1",)}]
    stems = [table_of(**{"seeds": None} | request).stem for request in ({}, *requests)]
    assert stems[:2] == ["table1.tiny", "table1.tiny.seeds0"]
    assert len(set(stems)) == len(stems)


def test_a_grid_is_run_with_one_seed_and_its_winner_with_the_others(
    table_of, tmp_path, monkeypatch
):
    table = table_of(GRID)
    low, high = table.jobs()["point"]
    finish(table, low, 0, score=0.25)
    assert not table.jobs()["fills"].any()
    command = Command(table, monkeypatch)
    options = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    assert run_missing([table], tmp_path / "it's, here", options) == 0
    assert command.points == [[[*high.overrides, "seed=0"]], [[*high.overrides, "seed=1"]]]
    assert command.calls[0][1:4] == ["-m", "lightning_cse.train", "--multirun"]
    assert re.search(r"it\\'s, here/train-[0-9a-f]{8}\.points\.yaml'$", command.calls[0][4])
    assert list((tmp_path / "it's, here").iterdir()) == []
    assert command.calls[0][5:] == options
    assert [run.record["seed"] for run in table.finished()] == [0, 1]
    assert run_missing([table], tmp_path) == 0
    assert len(command.calls) == 2, "all is finished"


def test_trained_models_are_evaluated_after_training(table_of, tmp_path, monkeypatch):
    table = table_of(EVALUATED, (0,))
    command = Command(table, monkeypatch, code=2)
    finish(table, point_of(table, "trained"), 1)
    assert run_missing([table], tmp_path) == 2
    entries = [call[2].rpartition(".")[2] for call in command.calls]
    assert entries == ["train", "evaluate"], "each is tried once"
    assert [line[0] for line in command.points[1]] == ["model=tiny"]
    folder = finish(table, Point("train", tuple(command.points[0][0][:-1])), 0)
    runs_found = [overrides_of(job, table.runs)[0] for job in missing(status([table])).itertuples()]
    assert sorted(runs_found) == [f"model={folder}", "model=tiny"]


def test_a_training_kept_as_a_record_is_repeated_for_its_evaluation(
    table_of, tmp_path, monkeypatch
):
    table = table_of(EVALUATED, (0,))
    before = finish(table, point_of(table, "trained"), 0)
    keep(table, Result(), tmp_path)
    shutil.rmtree(before)
    kept = RunsTable(table.runs.runs_dir, kept_folders(tmp_path))
    kept_table = Table(table.spec, table.request, kept)
    jobs = missing(status([kept_table]))
    assert [point.command for point in jobs["point"]] == ["train", "evaluate", "evaluate"]
    assert seeds_in(kept_table, "finished") == []
    models = [overrides_of(job, kept)[0] for job in jobs[1:].itertuples()]
    assert sorted(models) == ["model=<its run>", "model=tiny"]

    command = Command(kept_table, monkeypatch, code=2)
    assert run_missing([kept_table], tmp_path) == 2
    assert [line[0] for line in command.points[0]] == ["+experiment=simcse_inli"]
    assert [line[0] for line in command.points[1]] == ["model=tiny"], "not of the missing weights"
    folder = finish(kept_table, point_of(kept_table, "trained"), 0)
    jobs = status([kept_table])
    assert [point.command for point in jobs["point"][jobs["state"] == "finished"]] == ["train"]
    models = [overrides_of(job, kept)[0] for job in missing(jobs).itertuples()]
    assert sorted(models) == [f"model={folder}", "model=tiny"]


def test_failed_runs_are_repeated_only_on_request(table_of, tmp_path, monkeypatch):
    table = table_of(seeds=(0,))
    fail(table, "whole")
    text = overview([table])
    for part in ("RuntimeError: the loss is", "--retry-failed", "2 runs: 1 failed, 1 missing"):
        assert part in text

    command = Command(table, monkeypatch)
    assert run_missing([table], tmp_path) == 0
    assert run_missing([table], tmp_path, retry_failed=True) == 0
    assert [len(points) for points in command.points] == [1, 1]
    assert ["retry_failed=true" in call for call in command.calls] == [False, True]


def test_runs_of_another_process_are_left_alone(table_of, tmp_path, monkeypatch):
    table = table_of(seeds=(0,))
    Command(table, monkeypatch)
    with fail(table, "whole").lock():
        assert "1 running" in overview([table])
        assert run_missing([table], tmp_path) == BUSY


@pytest.mark.parametrize("value", ["", "0"])
def test_a_row_that_needs_a_variable_is_not_run_without_it(table_of, tmp_path, monkeypatch, value):
    monkeypatch.setenv("CSE_MAY_ASK", value)
    table = table_of(PAID)
    command = Command(table, monkeypatch)
    assert run_missing([table], tmp_path, retry_failed=True) == 0
    assert {overrides[0] for overrides in command.points[0]} == {
        "+experiment=dualcse_cross_no_both"
    }
    assert missing(status([table])).empty, "what is withheld is not a failure"
    text = overview([table])
    assert "not run: it costs money; CSE_MAY_ASK=1 in the environment runs it (2 runs)" in text
    assert "2 runs: 2 finished\n" in text
    other_table = table_of(TABLE, name="other_table")
    assert len(missing(status([table, other_table]))) == 2, (
        "another row needs it without the variable"
    )
    monkeypatch.setenv("CSE_MAY_ASK", "1")
    assert len(missing(status([table]))) == 2
    finish(table, point_of(table, "whole"), 1)
    monkeypatch.delenv("CSE_MAY_ASK")
    assert len(finished_of(table, "whole")) == 1, "what was paid for stays in the table"


def test_a_kept_reproduction_is_made_again_from_its_records(table_of, tmp_path):
    table = table_of(seeds=(0,))
    folders = [finish(table, point_of(table, label), 0) for label in ("whole", "without")]
    files = {path.name for path in keep(table, Result(), tmp_path)}
    assert files >= {"runs.jsonl", "curves.parquet", "predictions.parquet"}
    assert files >= {f"{table.stem}{ending}" for ending in (".md", ".csv", ".tex")}
    (folder_of_kept,) = kept_folders(tmp_path)
    assert {*folder_of_kept.records} == {
        f"{folder.parent.name}-{folder.name}" for folder in folders
    }
    kept_table = Table(table.spec, table.request, RunsTable(tmp_path / "nothing", [folder_of_kept]))
    before = [path.read_bytes() for path in sorted(folder_of_kept.folder.iterdir())]
    keep(kept_table, Result(), tmp_path)  # onto themselves
    assert [path.read_bytes() for path in sorted(folder_of_kept.folder.iterdir())] == before
    texts = []
    for number, any_table in enumerate((table, kept_table)):
        written = write(any_table, Result(), tmp_path / str(number))
        texts.append([path.read_text() for path in written])

    assert texts[0] == texts[1]


def test_without_kept_runs_the_error_names_the_repository(tmp_path):
    arguments = Namespace(kept=True, runs_dir=tmp_path)
    with pytest.raises(ConfigError, match=r"has no kept runs, .* in the repository: clone \S+ and"):
        runs_table(arguments, tmp_path, kept_folders(tmp_path))


def test_runs_made_again_are_compared_with_those_kept(table_of, tmp_path):
    table = table_of(seeds=(0, 1))
    folders = [finish(table, point_of(table, "whole"), seed) for seed in (0, 1)]

    def compared():
        table.runs.refresh()
        return repetitions(table, kept_runs(kept_folders(tmp_path)))

    def change(**entries):
        path = folders[1] / "record.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))

    assert compared() == "", "nothing is kept"
    keep(table, Result(), tmp_path)
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
    assert compared().startswith("1 of"), "the run with this key is not of the table"
    folder_of_kept = Table(
        table.spec, table.request, RunsTable(tmp_path / "nothing", kept_folders(tmp_path))
    )
    assert repetitions(folder_of_kept, kept_runs(kept_folders(tmp_path))) == "", (
        "they are those kept"
    )


def test_a_run_made_again_replaces_its_record_where_that_is(table_of, tmp_path):
    table = table_of(seeds=(0,))
    folder = finish(table, point_of(table, "whole"), 0)
    keep(table, Result(), tmp_path)
    (tmp_path / "paper").rename(tmp_path / "other")
    # The same identity, with another hash.
    path = folder / "record.json"
    record = {**json.loads(path.read_text()), "config_hash": "abcdef0123"}
    path.write_text(json.dumps(record))
    (tmp_path / "paper").mkdir()
    table.runs.refresh()
    keep(table, Result(), tmp_path)
    (folder_of_kept,) = kept_folders(tmp_path)
    assert folder_of_kept.folder.parent.name == "other"
    assert (
        [*folder_of_kept.records] == [*folder_of_kept.curves] == [f"{record['name']}-abcdef0123-s0"]
    )


def test_matched_rows_train_for_as_many_steps_as_the_first(table_of, tmp_path, monkeypatch):
    table = table_of(MATCHED)
    command = Command(table, monkeypatch)
    experiments = {point.overrides[0] for point in table.jobs()["point"]}
    assert experiments == {"+experiment=dualcse_cross"}
    assert run_missing([table], tmp_path) == 0
    own_overrides = ("+experiment=simcse_inli", "+debug=tiny", "encoder=tiny", "data.batch_size=64")
    limit = ("trainer.max_epochs=-1", "trainer.max_steps=10")
    assert command.points[1] == [[*own_overrides, *limit, f"seed={seed}"] for seed in (0, 1)]
    assert "Equal steps: more as dual (tiny), 10 steps." in legend(table)
    assert len(finished_of(table, "length")) == 1, "its baseline is of the matched runs"
    evaluated = limited(Point("evaluate", (), Point("train", own_overrides)), 10)
    assert evaluated.of == Point("train", (*own_overrides, *limit))
