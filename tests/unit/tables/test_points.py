"""From rows and columns to points, and from points to the runs on disk."""

import json
import os
import sys

import pytest
from fake_table import leave_run
from omegaconf import OmegaConf

from lightning_cse import runs as records
from lightning_cse.errors import ConfigError
from lightning_cse.methods import DualCSE
from lightning_cse.runs.keys import asked_precision
from lightning_cse.tables.files import read_spec
from lightning_cse.tables.kept import KeptRuns
from lightning_cse.tables.points import Point, composed, key_of, points_of
from lightning_cse.tables.records import FinishedRun, RunsTable
from lightning_cse.tables.spec import Request

TABLE = """
title: t
source: s
encoders: [roberta_base, bert_base]
columns:
  RTE: test/rte/accuracy_all
  "1e-5": {field: best.score, overrides: [method.optimizer.lr=1e-5]}
rows:
  Cross: {experiment: dualcse_cross, overrides: [data.batch_size=32]}
  avg: {evaluate: {model: "{encoder}", suite: sts, overrides: [pooling=mean]}}
  transfer: {experiment: ngcse_wiki_sts_ht, suite: transfer, suite_overrides: [max_length=64]}
  LENGTH: {baseline: length, of: Cross}
  chosen: {experiment: ngcse_wiki_sts_ht, grid: {method.beta: [0.1, 1.0]}}
  GPT-4: {published: "not run"}
profiles:
  small: {overrides: [encoder.pooling=cls, limits.dev_pairs=50], rows: {Cross: [data.train_rows=500]}}
"""
CROSS = "+experiment=dualcse_cross encoder=roberta_base data.batch_size=32"
HT = "+experiment=ngcse_wiki_sts_ht encoder=roberta_base"


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "table1.yaml"
    path.write_text(TABLE)
    return read_spec(path)


def points(spec, label, column=0, **request):
    line = next(line for line in spec.lines(Request(**request)).itertuples() if line.label == label)
    return points_of(spec, Request(**request), line, spec.columns[column])


def train(line):
    return Point("train", tuple(line.split()))


def evaluate(line, of=None):
    return Point("evaluate", tuple(line.split()), of)


SET = "trainer.max_epochs=1 limits.test_pairs=9 corpora=partial method.beta=2"
SMALL = (
    "+experiment=dualcse_cross +profile=small encoder=minilm_l4 encoder.pooling=cls "
    "limits.dev_pairs=50 data.batch_size=32 data.train_rows=500"
)
ON_SMALL = "corpora=partial limits.dev_rows=200 limits.dev_pairs=1000 limits.dev_pairs=50"
LIKE = "+suite=transfer max_length=64"


@pytest.mark.parametrize(
    ("label", "column", "profile", "settings", "expected"),
    [
        ("Cross", 0, None, "", [train(CROSS)]),
        ("LENGTH", 0, None, "", [train(CROSS)]),
        ("Cross", 1, None, "", [train(f"{CROSS} method.optimizer.lr=1e-5")]),
        ("avg", 0, None, "", [evaluate("model=roberta_base +suite=sts pooling=mean")]),
        ("transfer", 0, None, "", [evaluate(LIKE, train(HT))]),
        ("chosen", 0, None, "", [train(f"{HT} method.beta={beta}") for beta in ("0.1", "1.0")]),
        ("GPT-4", 0, None, "", []),
        ("Cross", 1, "small", "a=b", [train(f"{SMALL} method.optimizer.lr=1e-5 a=b")]),
        ("avg", 0, "small", "", [evaluate(f"model=minilm_l4 +suite=sts {ON_SMALL} pooling=mean")]),
        ("Cross", 0, None, SET, [train(f"{CROSS} {SET}")]),
        (
            *("transfer", 0, None, f"{SET} max_length=32"),
            [
                evaluate(
                    f"{LIKE} limits.test_pairs=9 corpora=partial max_length=32",
                    train(f"{HT} {SET}"),
                )
            ],
        ),
    ],
)
def test_points(spec, label, column, profile, settings, expected):
    settings = tuple(settings.split())
    assert points(spec, label, column, profile=profile, settings=settings) == tuple(expected)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("method.optimizer.rl=1", r"train \+exp.*: Could not override 'method\.optimizer\.rl'"),
        ("whatever", r"whatever"),
    ],
)
def test_wrong_settings(spec, setting, message):
    with pytest.raises(ConfigError, match=message):
        composed(points(spec, "Cross", settings=(setting,))[0])


@pytest.mark.parametrize(
    "line",
    [
        "+experiment=ngcse_nli_sts +profile=laptop corpora.llm_wiki_sts=[a/b] data.watched_in=[a/b,c/d]",
        "+experiment=ngcse_nli_sup +debug=tiny ++method.optimizer.lr=3e-5 baselines=none name=other/name",
        "+experiment=simcse_unsup recipe.default.lr=5e-4 encoder=tiny encoder.width=16 limits.dev_pairs=null",
    ],
)
def test_composed_as_hydra_does(compose, line):
    assert composed(train(line)) == OmegaConf.to_container(compose(*line.split()), resolve=True)


# Runs on disk -------------------------------------------------------------------------------------

HEAD = "+experiment=dualcse_cross +debug=tiny"
POINT = train(HEAD)


class Runs:
    """Run folders as training and evaluating leave them."""

    def __init__(self, root):
        self.root = root

    @property
    def index(self):
        return RunsTable(self.root)

    def begin(self, point, digest="0a", seed=0):
        run = records.Run(self.root, composed(point)["name"], digest, seed)
        run.start("name: x\n", key_of(point))
        return run

    def record(self, point, digest="0a", seed=0, **more):
        config = composed(point)
        overrides = asked_precision(config)
        return {
            "name": config["name"],
            "config_hash": digest,
            "seed": seed,
            "key": key_of(point),
            "precision": "bf16-mixed" if overrides == "auto" else overrides,
            "metrics": {},
            "decisive": {"config": config},
            **more,
        }

    def finish(self, point, digest="0a", seed=0):
        run = self.begin(point, digest, seed)
        run.finish(self.record(point, digest, seed))
        return run

    def evaluated(self, point, run=None):
        """Leave a finished evaluation, of a run or of a named model; return its folder."""
        of = run and {"name": run.name, "config_hash": run.config_hash, "seed": run.seed}
        seed = run.seed if run else 0
        more = {"suite": "stsb", "key": key_of(point), "model": {"run": of}}

        return leave_run(self.root / "m/evaluate", "stsb", seed, "0e", **more).folder


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path / "runs")


@pytest.mark.parametrize(
    ("run_overrides", "point_overrides", "same"),
    [
        ("", "logger=wandb baselines=none force=true", True),
        ("trainer.precision=32", "trainer.precision=32-true", True),
        ("method.optimizer.lr=1e-5", "method.optimizer.lr=0.00001", True),
        ("paths.data_dir=${sample_dir:}", "", True),
        ("trainer.precision=bf16-mixed", "trainer.precision=32-true", False),
        ("method.optimizer.lr=0.9", "", False),
        ("name=other", "", False),
        ("paths.data_dir=/corpora", "", False),
    ],
)
def test_runs_are_found_by_what_decides_their_results(runs, run_overrides, point_overrides, same):
    run = runs.finish(train(f"{HEAD} {run_overrides}"))
    runs.begin(train(f"{HEAD} {run_overrides}"), "0b", seed=1).fail(ValueError("x"), "fit")
    run_found = runs.index.find(train(f"{HEAD} {point_overrides}"), 0)
    assert (run_found and run_found.folder) == (run.path if same else None)
    assert runs.index.state(train(f"{HEAD} {point_overrides}"), 1) == (
        "failed" if same else "missing"
    )


@pytest.mark.parametrize(
    ("run_overrides", "point_overrides", "same"),
    [
        ("bf16-mixed", "auto", True),
        ("32", "auto", True),
        ("auto", "bf16", True),
        ("auto", "32-true", False),
    ],
)
def test_a_precision_may_have_been_chosen_automatically(runs, run_overrides, point_overrides, same):
    run_overrides, point_overrides = (
        train(f"{HEAD} trainer.precision={run_or_none}")
        for run_or_none in (run_overrides, point_overrides)
    )
    run = runs.finish(run_overrides)
    suite = "+suite=stsb corpora=sample paths=sample"
    folder = runs.evaluated(evaluate(suite, run_overrides), run)
    index = runs.index
    run_found = index.find(point_overrides, 0), index.find(evaluate(suite, point_overrides), 0)
    assert [run_or_none and run_or_none.folder for run_or_none in run_found] == (
        [run.path, folder] if same else [None, None]
    )


def test_the_precision_of_a_point_comes_before_one_chosen_automatically(runs):
    explicit = train(f"{HEAD} trainer.precision=bf16-mixed")
    run = runs.finish(explicit)
    runs.finish(train(f"{HEAD} trainer.precision=auto"), "0b")
    assert runs.index.find(explicit, 0).folder == run.path


def test_states_of_a_run(runs):
    assert runs.index.state(POINT, 0) == "missing"
    run = runs.begin(POINT)
    assert runs.index.state(POINT, 0) == "missing", "begun, and nothing to continue from"
    run.checkpoints.mkdir()
    (run.checkpoints / "last.ckpt").touch()
    index = runs.index
    assert index.state(POINT, 0) == "interrupted"
    with run.lock():
        assert index.state(POINT, 0) == "running"

    run.fail(ValueError("no rows"), stage="fit")
    assert (index.state(POINT, 0), index.failure(POINT, 0)) == ("failed", "ValueError: no rows")
    run.finish(runs.record(POINT))
    assert index.state(POINT, 0) == "finished", "seen without a refresh"
    assert index.state(POINT, 1) == "missing"


def test_kept_records(runs, tmp_path):
    records = [
        runs.record(POINT, seed=2, key=None),
        runs.record(POINT, "0c"),
        runs.record(POINT, "0d", 1),
    ]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, records)))
    first, second = runs.finish(POINT, "0a"), runs.finish(POINT, "0b")
    for number, path in enumerate((second.record_path, first.record_path)):
        os.utime(path, (number, number))

    index = RunsTable(runs.root, [KeptRuns(tmp_path)])
    assert index.find(POINT, 0).folder == first.path, "the newest run before a kept record"
    assert index.find(POINT, 1).source == tmp_path / "runs.jsonl"
    assert index.find(POINT, 2) is None
    first.record_path.write_text("[]")
    index.refresh()
    assert list(index.damaged) == [first.record_path]
    assert index.find(POINT, 0).folder == second.path, "the others are there"


@pytest.mark.parametrize(
    ("run_overrides", "point_overrides", "same"),
    [
        ("", "precision=auto", True),
        ("pooling=mean", "pooling=mean", True),
        ("", "corpora=sample paths=sample", False),
        ("whitening=[stsb/train]", "whitening=[stsb/dev]", False),
        ("", "model=roberta_base", False),
    ],
)
def test_evaluations_of_a_named_model(runs, run_overrides, point_overrides, same):
    plain = "model=bert_base +suite=stsb"
    folder = runs.evaluated(evaluate(f"{plain} {run_overrides}"))
    run_found = runs.index.find(evaluate(f"{plain} {point_overrides}"), 0)
    assert (run_found and run_found.folder) == (folder if same else None)


def test_evaluations_of_a_run(runs):
    point = evaluate("+suite=stsb corpora=sample paths=sample", POINT)
    of = [runs.finish(POINT, "0a", seed) for seed in (0, 1)]
    folder = runs.evaluated(point, of[1])
    index = runs.index
    assert index.find(point, 1).folder == folder
    assert index.find(point, 0) is None
    other_point = evaluate(" ".join(point.overrides), train(f"{HEAD} eval_every=9"))
    assert index.find(other_point, 1) is None, "of another training"
    runs.finish(POINT, "0b", seed=1)
    assert runs.index.find(point, 1) is None, "an evaluation of an older run"


def test_a_run_is_stale_if_it_has_another_version_of_its_method(runs, monkeypatch):
    finished = FinishedRun(runs.record(POINT, version=DualCSE.version), None, runs.root)
    assert not runs.index.is_stale(finished)
    without_version = FinishedRun(runs.record(POINT), None, runs.root)
    assert runs.index.is_stale(without_version)
    monkeypatch.setattr(DualCSE, "version", DualCSE.version + 1)
    assert runs.index.is_stale(finished)
    of = {"name": "x", "config_hash": "99", "seed": 0}
    lost = runs.record(POINT, suite="sts", model={"run": of})
    assert runs.index.is_stale(FinishedRun(lost, None, runs.root)), "its training is missing"


@pytest.mark.parametrize(
    "source", [None, "raise OSError", "import missing", "class Mine: ...", "("]
)
def test_a_run_whose_method_cannot_be_imported_is_not_stale(runs, tmp_path, monkeypatch, source):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    if source is not None:
        (tmp_path / "my_method.py").write_text(source)

    record = runs.record(POINT, version=2)
    record["decisive"]["config"]["method"] = {"_target_": "my_method.Mine"}
    assert not runs.index.is_stale(FinishedRun(record, None, runs.root))
    sys.modules.pop("my_method", None)
