"""From rows and columns to points, and from points to the runs on disk."""

import json
import os
from collections.abc import Mapping
from typing import Any

import pytest
from omegaconf import OmegaConf

from lightning_cse import runs as records
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.papers.artefacts import Request
from lightning_cse.papers.files import read_artefact
from lightning_cse.papers.points import Point, composed, points_of
from lightning_cse.papers.records import RunsTable, key_of

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
  transfer: {experiment: ngcse_wiki_sts_ht, suite: transfer, suite_overrides: [transfer.protocol=senteval]}
  LENGTH: {baseline: length, of: Cross}
  chosen: {experiment: ngcse_wiki_sts_ht, grid: {method.beta: [0.1, 1.0]}, choose: best.score}
  GPT-4: {published: "not run"}
profiles:
  small: {overrides: [encoder.pooling=cls, limits.dev_pairs=50], rows: {Cross: [data.train_rows=500]}}
"""
CROSS = "+experiment=dualcse_cross encoder=roberta_base data.batch_size=32"
HT = "+experiment=ngcse_wiki_sts_ht encoder=roberta_base"


@pytest.fixture
def artefact(tmp_path):
    path = tmp_path / "table1.yaml"
    path.write_text(TABLE)
    return read_artefact(path)


def points(artefact, label, column=0, **request):
    line = next(line for line in artefact.lines(Request(**request)) if line.label == label)
    return points_of(
        artefact,
        Request(**request),
        line,
        artefact.columns[column],
    )


def train(line):
    return Point("train", tuple(line.split()))


def evaluate(line, of=None):
    return Point(
        "evaluate",
        tuple(line.split()),
        of,
    )


SET = "trainer.max_epochs=1 precision=bf16-mixed limits.test_pairs=9 corpora=partial method.beta=2"
SMALL = "+experiment=dualcse_cross +profile=small encoder.pooling=cls limits.dev_pairs=50 data.batch_size=32"
AVG = "model={} +suite=sts{} pooling=mean"
# no encoder.pooling
ON_SMALL = " corpora=partial limits.dev_rows=200 limits.dev_pairs=1000 limits.dev_pairs=50"
LIMITS = "limits.dev_rows=16 limits.test_rows=16 limits.dev_pairs=30 limits.test_pairs=30"
LIKE = "+suite=transfer transfer.protocol=senteval"


@pytest.mark.parametrize(
    ("label", "column", "profile", "settings", "wanted"),
    [
        ("Cross", 0, None, "", [train(CROSS)]),
        ("LENGTH", 0, None, "", [train(CROSS)]),
        ("Cross", 1, None, "", [train(f"{CROSS} method.optimizer.lr=1e-5")]),
        ("avg", 0, None, "", [evaluate(AVG.format("roberta_base", ""))]),
        ("transfer", 0, None, "", [evaluate(LIKE, train(HT))]),
        ("chosen", 0, None, "", [train(f"{HT} method.beta={beta}") for beta in ("0.1", "1.0")]),
        ("GPT-4", 0, None, "", []),
        (
            "Cross",
            1,
            "small",
            "a=b",
            [train(f"{SMALL} data.train_rows=500 method.optimizer.lr=1e-5 a=b")],
        ),
        ("avg", 0, "small", "", [evaluate(AVG.format("minilm_l4", ON_SMALL))]),
        (
            "avg",
            0,
            "tiny",
            "",
            [evaluate(AVG.format("tiny", f" corpora=sample paths=sample {LIMITS}"))],
        ),
        ("Cross", 0, None, SET, [train(f"{CROSS} {SET}".replace(" precision=bf16-mixed", ""))]),
        (
            "avg",
            0,
            None,
            SET,
            [evaluate(f"{AVG.format('roberta_base', '')} {' '.join(SET.split()[1:4])}")],
        ),
        (
            "transfer",
            0,
            None,
            "method.beta=2 limits.test_pairs=9",
            [
                evaluate(
                    f"{LIKE} limits.test_pairs=9", train(f"{HT} method.beta=2 limits.test_pairs=9")
                )
            ],
        ),
    ],
)
def test_points(artefact, label, column, profile, settings, wanted):
    found = points(
        artefact,
        label,
        column,
        profile=profile,
        settings=tuple(settings.split()),
    )
    assert found == tuple(wanted)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (
            "method.optimizer.rl=1",
            r"train \+exp.*: method\.optimizer\.rl=1: unknown key 'method\.optimizer\.rl'",
        ),
        (
            "limits.test_pair=9",
            r"unknown key 'limits\.test_pair' - did you mean 'limits\.test_pairs'",
        ),
        ("seed=3", r"^'seed=3' .*use seeds"),
        ("whatever", r"^'whatever' is not an override"),
    ],
)
def test_wrong_settings(artefact, setting, told):
    with pytest.raises(ConfigError, match=told):
        composed(
            points(
                artefact,
                "Cross",
                settings=(setting,),
            )[0]
        )


@pytest.mark.parametrize(
    "line",
    [
        "+experiment=gausscse +profile=small encoder=bert_large method.optimizer.lr=1e-5",
        "+experiment=ngcse_nli_sts +profile=laptop corpora.llm_wiki_sts=[a/b] data.watched_in=[a/b,c/d]",
        "+experiment=ngcse_nli_sup +debug=tiny ++method.optimizer.lr=3e-5 baselines=none name=other/name",
        "+experiment=simcse_sup +trainer.deterministic=true ~diag.dropout data.rows={}",
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
        self.index = RunsTable(root)

    def begin(self, point, digest="0a", seed=0):
        run = records.Run(
            self.root,
            composed(point)["name"],
            digest,
            seed,
        )
        run.start(OmegaConf.to_yaml(OmegaConf.create(composed(point))), key_of(point))
        return run

    def record(self, point, digest="0a", seed=0, **more):
        config, resolved = composed(point), more.pop("resolved", {"trainer.accelerator": "cpu"})
        own = {
            "name": config["name"],
            "config_hash": digest,
            "seed": seed,
            "key": key_of(point),
            "metrics": {"test/a": 0.5},
        }
        decisive = records.decisive(
            config,
            data={"a": "1"},
            encoder={"name": "x"},
            resolved=resolved,
        )
        own |= {
            "encoder": {"name": config["encoder"]["name"]},
            "best": {"score": 0.5},
            "summary": {"rfd": 0.25},
        }
        return (
            own
            | {
                "overrides": point.overrides,
                "seconds": {"training": 2.0},
                "decisive": decisive,
            }
            | more
        )

    def finish(self, point, digest="0a", seed=0, **more):
        run = self.begin(
            point,
            digest,
            seed,
        )
        run.finish(
            self.record(
                point,
                digest,
                seed,
                **more,
            )
        )
        self.index.refresh()
        return run

    def evaluated(self, point, model, run=None, **read):
        """Leave a finished evaluation, and return its folder."""
        options = {
            "suite": composed(point)["suite"],
            "model": {"pooling": "cls", "max_length": 512} | read,
        }
        of = run and {
            "name": run.name,
            "config_hash": run.config_hash,
            "seed": run.seed,
        }
        seed = run.seed if run else 0
        place = records.Run(
            (run.path if run else self.root / "m") / "evaluate",
            "stsb",
            f"{len(read)}e",
            seed,
        )
        place.start(OmegaConf.to_yaml(OmegaConf.create(composed(point))))
        record = {
            "name": "m",
            "suite": "stsb",
            "config_hash": "0e",
            "seed": seed,
            "metrics": {},
        }
        record["key"] = key_of(point)
        record |= {
            "model": {
                "given": model,
                "run": of,
                "prompt": None,
                **options["model"],
            },
            "encoder": {"name": model},
        }
        record |= {
            "overrides": [f'model="{model}"', *point.overrides],
            "seconds": {"evaluation": 7.0},
        }
        decides: dict[str, Any] = {
            "data": {},
            "encoder": {},
            "resolved": {"accelerator": "cpu"},
        }
        place.finish({**record, "decisive": records.decisive(options, **decides)})
        self.index.refresh()
        return place.path


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path / "runs")


@pytest.mark.parametrize(
    ("made", "asked", "same"),
    [
        ("", "logger=wandb baselines=none force=true", True),
        ("trainer.gradient_clip_val=1", "trainer.gradient_clip_val=1.0", True),
        ("trainer.precision=32", "trainer.precision=32-true", True),
        ("paths.runs_dir=/elsewhere", "+trainer.enable_progress_bar=false", True),
        ("trainer.limit_train_batches=1.0", "trainer.limit_train_batches=1.0", True),
        ("name=mine/deep/er", "name=mine/deep/er", True),
        ("method.optimizer.lr=1e-5", "method.optimizer.lr=0.00001", True),
        ("trainer.precision=bf16-mixed", "trainer.precision=auto", False),
        ("trainer.precision=bf16-mixed", "", False),
        ("encoder.max_length=65", "", False),
        ("method.optimizer.lr=0.9", "", False),
        ("data.drop_last=true", "", False),
        ("trainer.max_steps=0", "", False),
        ("eval_every=null", "", False),
        ("name=other", "", False),
        ("paths.data_dir=/corpora", "", False),
        ("paths.data_dir=${sample_dir:}", "", True),
    ],
)
def test_runs_are_found_by_what_decides_their_results(runs, made, asked, same):
    run = runs.finish(train(f"{HEAD} {made}"))
    runs.begin(
        train(f"{HEAD} {made}"),
        "0b",
        seed=1,
    ).fail(ValueError("x"), "fit")
    found = runs.index.find(train(f"{HEAD} {asked}"), 0)
    assert (found and found.folder) == (run.path if same else None)
    assert runs.index.state(train(f"{HEAD} {asked}"), 1) == ("failed" if same else "missing")
    assert (key_of(train(f"{HEAD} {made}")) == key_of(train(f"{HEAD} {asked}"))) == same


def test_states_of_a_run(runs):
    index = runs.index
    assert (index.state(POINT, 0), index.find(POINT, 0), index.failure(POINT, 0)) == (
        "missing",
        None,
        "",
    )
    run = runs.begin(POINT)
    index.refresh()
    assert index.state(POINT, 0) == "missing", "begun, and nothing to continue from"
    run.checkpoints.mkdir()
    (run.checkpoints / "last.ckpt").touch()
    assert index.state(POINT, 0) == "interrupted"
    with run.lock():
        assert index.state(POINT, 0) == "running"
    run.fail(ValueError("no rows"), stage="fit")
    assert (index.state(POINT, 0), index.failure(POINT, 0)) == ("failed", "ValueError: no rows")
    run.finish(runs.record(POINT))
    assert index.state(POINT, 0) == "finished", "seen without a refresh"
    assert index.state(POINT, 1) == "missing"


def test_kept_records(runs, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    layouts: Mapping[str, Any] = {
        "none": {},
        "list": [],
        "without a key": runs.record(
            POINT,
            seed=2,
            key=None,
        ),
    }
    for name, content in {
        **layouts,
        "x": runs.record(POINT, "0c"),
        "y": runs.record(POINT, "0d", 1),
    }.items():
        (kept / f"{name}.json").write_text(json.dumps(content))
    (kept / "y.curves.csv").touch()
    first, second = runs.finish(POINT, "0a"), runs.finish(POINT, "0b")
    for number, path in enumerate((second.record_path, first.record_path, kept / "x.json")):
        os.utime(path, (number, number))
    index = RunsTable(runs.root, [kept, tmp_path / "none"])
    newest, only = index.find(POINT, 0), index.find(POINT, 1)
    assert newest is not None
    assert only is not None
    assert (newest.folder, newest.source, newest.curves_path) == (
        first.path,
        first.record_path,
        first.curves_path,
    )
    assert (only.folder, only.source, only.curves_path) == (
        None,
        kept / "y.json",
        kept / "y.curves.csv",
    )
    assert index.find(POINT, 2) is None
    (kept / "x.json").write_text('{"name": ')
    with pytest.raises(DataError, match=r"x\.json is damaged .*: remove it"):
        RunsTable(runs.root, [kept]).find(POINT, 0)


PLAIN = "model=bert_base +suite=stsb"


@pytest.mark.parametrize(
    ("made", "read", "asked", "same"),
    [
        ("", {}, "", True),
        ("", {}, "precision=auto", True),
        ("pooling=mean", {"pooling": "mean"}, "pooling=mean", True),
        ("pooling=mean", {"pooling": "mean"}, "", False),  # not its own way to read
        ("", {}, "pooling=mean", False),
        ("", {}, "max_length=64", False),
        ("", {}, "limits.test_pairs=9", False),
        ("", {}, "corpora=sample paths=sample", False),
        ("", {}, "prompt='{}{mask}'", False),
        ("", {}, "whitening=[stsb/train]", False),
        ("whitening=[stsb/train]", {"whitening": "99ff"}, "whitening=[stsb/train]", True),
        ("whitening=[stsb/train]", {"whitening": "99ff"}, "whitening=[stsb/dev]", False),
        ("", {}, "model=roberta_base", False),
    ],
)
def test_evaluations_of_a_named_model(runs, made, read, asked, same):
    folder = runs.evaluated(
        evaluate(f"{PLAIN} {made}"),
        "bert_base",
        **read,
    )
    found = runs.index.find(evaluate(f"{PLAIN} {asked}"), 0)
    assert (found and found.folder) == (folder if same else None)
    assert runs.index.find(evaluate("model=bert_base +suite=sts"), 0) is None


def test_evaluations_of_a_run(runs):
    point = evaluate("+suite=stsb corpora=sample paths=sample", POINT)
    assert runs.index.state(point, 0) == "missing"
    of = [runs.finish(POINT, "0a", seed) for seed in (0, 1)]
    folder = runs.evaluated(
        point,
        str(of[1].path),
        of[1],
    )
    found = runs.index.find(point, 1)
    assert found is not None
    assert found.folder == folder
    assert runs.index.find(point, 0) is None
    assert (
        runs.index.find(evaluate(" ".join(point.overrides), train(f"{HEAD} eval_every=9")), 1)
        is None
    )
    unfinished = records.Run(
        of[0].path / "evaluate",
        "stsb",
        "0c",
        0,
    )
    unfinished.start(
        OmegaConf.to_yaml(OmegaConf.create(composed(point) | {"model": str(of[0].path)})),
        key_of(point),
    )
    runs.index.refresh()
    assert runs.index.state(point, 0) == "missing"
    records.write_atomic(unfinished.path / "tasks" / "stsb.json", "")
    assert runs.index.state(point, 0) == "interrupted"
    unfinished.fail(ValueError("x"), "stsb")
    assert runs.index.state(point, 0) == "failed"
    assert runs.index.state(evaluate("+suite=stsb", POINT), 0) == "missing", (
        "not on the sample corpus"
    )
