"""From rows and columns to points, and from points to the runs on the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from lightning_cse import runs as records
from lightning_cse.config import experiments_dir
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.papers.artefacts import Artefact, Line, Request, read_artefact
from lightning_cse.papers.points import (
    Point,
    RunsIndex,
    composed,
    point_key,
    points_of,
    value_at,
    winner,
)

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


@pytest.fixture
def artefact(tmp_path: Path) -> Artefact:
    path = tmp_path / "dualcse" / "table1.yaml"
    path.parent.mkdir()
    path.write_text(TABLE, encoding="utf-8")
    return read_artefact(path)


def points(artefact: Artefact, label: str, column: int = 0, **request: Any) -> tuple[Point, ...]:
    """The points of the first line of a row."""
    asked = Request(**request)
    line = next(line for line in artefact.lines(asked) if line.label == label)
    return points_of(artefact, line, artefact.columns[column], asked)


# ---------------------------------------------------------------------------------------------- from lines to points


def test_points_of_every_way(artefact: Artefact) -> None:
    cross = Point("train", ("+experiment=dualcse_cross", "encoder=roberta_base", "data.batch_size=32"))
    ht = ("+experiment=ngcse_wiki_sts_ht", "encoder=roberta_base")
    assert points(artefact, "Cross") == points(artefact, "LENGTH") == (cross,)
    assert points(artefact, "Cross", 1) == (Point("train", (*cross.overrides, "method.optimizer.lr=1e-5")),)
    assert points(artefact, "avg") == (Point("evaluate", ("model=roberta_base", "+suite=sts", "pooling=mean")),)
    assert points(artefact, "transfer") == (
        Point("evaluate", ("+suite=transfer", "transfer.protocol=senteval"), Point("train", ht)),
    )
    assert points(artefact, "chosen") == tuple(Point("train", (*ht, f"method.beta={beta}")) for beta in ("0.1", "1.0"))
    assert points(artefact, "GPT-4") == ()


def test_a_later_override_wins(artefact: Artefact) -> None:
    """The profile, the row, the profile for this row, the column, the request."""
    (point,) = points(artefact, "Cross", 1, profile="small", settings=("data.batch_size=8",))
    assert point.overrides == (
        "+experiment=dualcse_cross",
        "+profile=small",
        *("encoder.pooling=cls", "limits.dev_pairs=50"),
        "data.batch_size=32",
        "data.train_rows=500",
        "method.optimizer.lr=1e-5",
        "data.batch_size=8",
    )
    config = composed(point)
    assert config["data"]["batch_size"] == 8
    assert config["encoder"]["name"] == "minilm_l6"


def test_an_encoder_beats_that_of_the_profile(artefact: Artefact) -> None:
    (point,) = points(artefact, "Cross", profile="small", encoder="bert_base")
    assert composed(point)["encoder"]["name"] == "bert_base"
    (point,) = points(artefact, "Cross", profile="gpu")
    assert point.overrides[:3] == ("+experiment=dualcse_cross", "+profile=gpu", "encoder=roberta_base")


def test_evaluations_read_what_their_profile_trains_on(artefact: Artefact) -> None:
    def corpora(profile: str | None) -> tuple[str, ...]:
        return points(artefact, "avg", profile=profile)[0].overrides[2:-1]

    assert corpora(None) == corpora("gpu") == ()
    assert corpora("laptop") == ("corpora=sample", "paths=sample")
    limits = ("limits.dev_rows=16", "limits.test_rows=16", "limits.dev_pairs=30", "limits.test_pairs=30")
    assert corpora("tiny") == ("corpora=sample", "paths=sample", *limits), (
        "or its rows could not be compared with others"
    )
    small = ("corpora=partial", "limits.dev_rows=200", "limits.dev_pairs=1000", "limits.dev_pairs=50")
    assert corpora("small") == small, "and no encoder.pooling, which it has not"
    (point,) = points(artefact, "avg", profile="small")
    assert composed(point)["limits"] == {"dev_rows": 200, "test_rows": None, "dev_pairs": 50, "test_pairs": None}


def test_settings_go_where_their_key_is(artefact: Artefact) -> None:
    settings = ("trainer.max_epochs=1", "precision=bf16-mixed", "limits.test_pairs=9", "corpora=partial")
    train, evaluate = (points(artefact, label, settings=settings)[0] for label in ("Cross", "avg"))
    assert train.overrides[3:] == ("trainer.max_epochs=1", "limits.test_pairs=9", "corpora=partial")
    assert evaluate.overrides[3:] == ("precision=bf16-mixed", "limits.test_pairs=9", "corpora=partial")
    (of_run,) = points(artefact, "transfer", settings=("method.beta=2", "transfer.protocol=lbfgs"))
    assert of_run.overrides[-1] == "transfer.protocol=lbfgs"
    assert of_run.of is not None
    assert of_run.of.overrides[-1] == "method.beta=2"


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (
            "method.optimizer.rl=1",
            r"train \+exp.*: method\.optimizer\.rl=1: unknown key 'method\.optimizer\.rl'",
        ),
        ("limits.test_pair=9", r"unknown key 'limits\.test_pair' - did you mean 'limits\.test_pairs'"),
        ("nothing.like_it=1", r"unknown key 'nothing\.like_it'"),
        ("corpora=ful", r"there is no corpora 'ful' - did you mean 'full'"),
    ],
)
def test_a_setting_that_means_nothing(artefact: Artefact, setting: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        composed(points(artefact, "Cross", settings=(setting,))[0])


@pytest.mark.parametrize("setting", ["seed=3", "+profile=small", "hydra.mode=RUN", "whatever"])
def test_a_setting_that_is_none(artefact: Artefact, setting: str) -> None:
    with pytest.raises(ConfigError, match=rf"^'{setting.replace('+', '[+]')}'"):
        points(artefact, "Cross", settings=(setting,))


# --------------------------------------------------------------------------------------------------------- composing


@pytest.mark.parametrize(
    "overrides",
    [
        ("+experiment=dualcse_cross",),
        ("+experiment=gausscse", "encoder=bert_base", "method.loss.reduce=sim_of_sum", "trainer.max_epochs=1"),
        ("+experiment=gausscse", "+profile=small", "encoder=bert_large", "method.optimizer.lr=1e-5"),
        (
            "+experiment=ngcse_wiki_sts_ht",
            "+profile=small",
            "corpora.llm_wiki_sts=[wiki_split/train]",
            "limits.dev_pairs=null",
        ),
        (
            "+experiment=ngcse_nli_sts",
            "+profile=laptop",
            "encoder.pooling=cls",
            "data.watched_in=[a/b,c/d]",
            "data.llm_rows=500",
        ),
        ("+experiment=ngcse_nli_sup", "+debug=tiny", "++method.optimizer.lr=3e-5", "baselines=none", "name=other/name"),
        ("+experiment=simcse_sup", "+trainer.deterministic=true", "~diag.dropout", "data.rows={}"),
        ("+experiment=simcse_unsup", "recipe.default.lr=5e-4", "encoder=tiny", "encoder.width=16"),
    ],
)
def test_composed_as_hydra_does(compose: Callable[..., Any], overrides: tuple[str, ...]) -> None:
    assert composed(Point("train", overrides)) == OmegaConf.to_container(compose(*overrides), resolve=True)


def test_one_point_leaves_the_next_as_it_is() -> None:
    plain = Point("train", ("+experiment=gausscse", "encoder=tiny"))
    before = json.dumps(composed(plain))
    assert composed(Point("train", (*plain.overrides, "data.batch_size=7")))["data"]["batch_size"] == 7
    assert json.dumps(composed(Point("train", (*plain.overrides, "seed=0")))) == before


def test_points_that_are_the_same_runs() -> None:
    head = ("+experiment=dualcse_cross", "encoder=bert_base")
    key = point_key(Point("train", (*head, "method.optimizer.lr=1e-5")))
    assert point_key(Point("train", (*head, "method.optimizer.lr=0.00001", "baselines=none"))) == key
    assert point_key(Point("train", (*head, "method.optimizer.lr=2e-5"))) != key
    assert point_key(Point("train", (*head, "method.optimizer.lr=1e-5", "paths=sample"))) != key


def test_nothing_heavy_is_imported() -> None:
    code = """
import sys
from lightning_cse.config import experiments_dir
from lightning_cse.papers.artefacts import Request, read_artefact
from lightning_cse.papers.points import RunsIndex, points_of
artefact = read_artefact(experiments_dir() / "dualcse" / "table5.yaml")
request = Request(profile="small")
index = RunsIndex(experiments_dir() / "none", [experiments_dir() / "dualcse" / "inli"])
for line in artefact.lines(request)[:1]:
    for point in points_of(artefact, line, artefact.columns[0], request):
        assert index.state(point, 0) == "missing"
heavy = {"torch", "transformers", "pytorch_lightning", "matplotlib", "wandb", "scipy"} & sys.modules.keys()
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# ------------------------------------------------------------------------------------------------- runs on the disk

POINT = Point("train", ("+experiment=dualcse_cross", "+debug=tiny"))


class Runs:
    """Run folders as training leaves them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, point: Point, identity: str = "0a", seed: int = 0) -> records.Run:
        """Begin a run of a point."""
        config = composed(point)
        folder = records.Run(self.root, config["name"], identity, seed)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.config_path.write_text(OmegaConf.to_yaml(OmegaConf.create(config)), encoding="utf-8")
        return folder

    def record(
        self, point: Point, identity: str = "0a", seed: int = 0, resolved: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        config = composed(point)
        document = records.decisive(
            config, data={"a": "1"}, encoder={"name": "x"}, resolved=resolved or {"trainer.accelerator": "cpu"}
        )
        return {
            "name": config["name"],
            "config_hash": identity,
            "seed": seed,
            "encoder": {"name": config["encoder"]["name"]},
            "overrides": [*point.overrides, f"seed={seed}"],
            "best": {"score": 0.5},
            "seconds": {"training": 2.0, "evaluation": 1.0},
            "decisive": document,
            **more,
        }

    def finish(self, point: Point, identity: str = "0a", seed: int = 0, **more: Any) -> records.Run:
        folder = self.folder(point, identity, seed)
        folder.finish(self.record(point, identity, seed, **more))
        return folder

    def evaluation(self, path: Path, point: Point, given: str, run: Mapping[str, Any] | None, **model: Any) -> Path:
        """Leave a finished evaluation."""
        config = composed(point)
        options = {"suite": config["suite"], "model": {"pooling": "cls", "max_length": 512} | model}
        resolved = {"accelerator": "cpu", "precision": config["precision"]}
        path.mkdir(parents=True)
        record = {
            "name": "m",
            "suite": "stsb",
            "config_hash": path.name[-2:],
            "seed": 0,
            "model": {"given": given, "run": run, "prompt": None, **options["model"]},
            "encoder": {"name": "tiny"},
            "overrides": [f'model="{given}"', *point.overrides],
            "seconds": {"evaluation": 7.0},
            "decisive": records.decisive(options, data={}, encoder={}, resolved=resolved),
        }
        (path / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(config)), encoding="utf-8")
        (path / "record.json").write_text(json.dumps(record), encoding="utf-8")
        return path


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "runs")


def test_states_of_a_run(runs: Runs) -> None:
    index = RunsIndex(runs.root)
    assert index.state(POINT, 0) == "missing"
    assert (index.find(POINT, 0), index.folder(POINT, 0), index.failure(POINT, 0)) == (None,) * 3

    folder = runs.folder(POINT)
    assert index.state(POINT, 0) == "missing", "the disk was read before"
    index.refresh()
    assert index.state(POINT, 0) == "missing", "begun, and nothing to go on from"
    assert index.folder(POINT, 0) == folder.path

    folder.checkpoints.mkdir()
    (folder.checkpoints / "last.ckpt").touch()
    assert index.state(POINT, 0) == "interrupted"
    with folder.lock():
        assert index.state(POINT, 0) == "running"

    folder.fail(ValueError("no rows"), stage="fit")
    assert index.state(POINT, 0) == "failed"
    failure = index.failure(POINT, 0)
    assert failure is not None
    assert (failure["type"], failure["message"]) == ("ValueError", "no rows")

    folder.finish(runs.record(POINT))
    assert index.state(POINT, 0) == "finished", "seen without a refresh"
    found = index.find(POINT, 0)
    assert found is not None
    assert (found.folder, found.source) == (folder.path, folder.record_path)
    assert index.failure(POINT, 0) is None
    assert index.state(POINT, 1) == "missing"


def test_a_name_with_slashes(runs: Runs) -> None:
    point = Point("train", (*POINT.overrides, "name=mine/deep/er"))
    folder = runs.finish(point)
    assert folder.path.parent == runs.root / "mine" / "deep" / "er"
    found = RunsIndex(runs.root).find(point, 0)
    assert found is not None
    assert found.folder == folder.path
    assert RunsIndex(runs.root).find(POINT, 0) is None


def test_curves_and_predictions_of_a_run(runs: Runs, tmp_path: Path) -> None:
    folder = runs.finish(POINT)
    found = RunsIndex(runs.root).find(POINT, 0)
    assert found is not None
    assert (found.curves, found.predictions) == (None, None)
    folder.curves_path.touch()
    folder.predictions.mkdir()
    assert (found.curves, found.predictions) == (folder.curves_path, folder.predictions)

    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "dualcse_cross-0b-s1.json").write_text(json.dumps(runs.record(POINT, "0b", 1)), encoding="utf-8")
    (kept / "else.json").write_text("{}", encoding="utf-8")
    found = RunsIndex(runs.root, [kept, tmp_path / "none"]).find(POINT, 1)
    assert found is not None
    assert (found.folder, found.curves, found.predictions) == (None, None, None)
    (kept / "dualcse_cross-0b-s1.curves.csv").touch()
    assert found.curves == kept / "dualcse_cross-0b-s1.curves.csv"


def test_of_several_records_a_run_comes_before_a_kept_one(runs: Runs, tmp_path: Path) -> None:
    first, second = runs.finish(POINT, "0a"), runs.finish(POINT, "0b")
    os.utime(first.record_path, ns=(2 * 10**18, 2 * 10**18))
    os.utime(second.record_path, ns=(10**18, 10**18))
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "x-0c-s0.json").write_text(json.dumps(runs.record(POINT, "0c")), encoding="utf-8")
    os.utime(kept / "x-0c-s0.json", ns=(3 * 10**18, 3 * 10**18))
    found = RunsIndex(runs.root, [kept]).find(POINT, 0)
    assert found is not None
    assert found.folder == first.path


@pytest.mark.parametrize(
    "other",
    [
        "method.optimizer.lr=0.9",
        "data.drop_last=true",
        "encoder.max_length=65",
        "trainer.max_steps=0",
        "eval_every=null",
    ],
)
def test_another_value_is_another_point(runs: Runs, other: str) -> None:
    runs.finish(Point("train", (*POINT.overrides, other)))
    runs.folder(Point("train", (*POINT.overrides, other)), seed=1)
    index = RunsIndex(runs.root)
    assert index.find(POINT, 0) is None
    assert index.folder(POINT, 1) is None


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("logger=wandb", "logger=csv"),
        ("baselines=none", "force=true"),
        ("trainer.gradient_clip_val=1", "trainer.gradient_clip_val=1.0"),
        ("trainer.precision=32", "trainer.precision=32-true"),
        ("trainer.enable_progress_bar=false", "paths.runs_dir=/elsewhere"),
    ],
)
def test_what_decides_nothing_is_not_compared(runs: Runs, override: str, same: str) -> None:
    add = "+" if "progress" in override else ""
    runs.finish(Point("train", (*POINT.overrides, same)))
    assert RunsIndex(runs.root).find(Point("train", (*POINT.overrides, f"{add}{override}")), 0) is not None


def test_an_automatic_choice_matches_what_it_became(runs: Runs) -> None:
    automatic = ("trainer.precision=auto", "trainer.accelerator=auto", "encoder.max_length=auto")
    point = Point("train", (*POINT.overrides, *automatic))
    became = {"trainer.precision": "bf16-mixed", "trainer.accelerator": "gpu", "encoder.max_length": 128}
    runs.finish(point, resolved=became)
    index = RunsIndex(runs.root)
    assert index.find(point, 0) is not None
    assert index.find(POINT, 0) is None
    assert index.find(Point("train", (*point.overrides, "trainer.precision=bf16-mixed")), 0) is not None
    assert index.find(Point("train", (*point.overrides, "trainer.precision=16-mixed")), 0) is None


def test_runs_on_the_sample_corpus_are_told_from_others(runs: Runs) -> None:
    plain = Point("train", ("+experiment=dualcse_cross", "encoder=tiny"))
    sample = Point("train", (*plain.overrides, "paths=sample"))
    runs.finish(sample)
    runs.folder(sample, seed=1)
    index = RunsIndex(runs.root)
    assert [index.find(point, 0) is not None for point in (plain, sample)] == [False, True]
    assert [index.folder(point, 1) is not None for point in (plain, sample)] == [False, True]


def test_a_damaged_record_is_told(runs: Runs) -> None:
    folder = runs.finish(POINT)
    folder.record_path.write_text('{"name": ', encoding="utf-8")
    with pytest.raises(DataError, match=rf"{folder.record_path} is damaged .*: remove it"):
        RunsIndex(runs.root).find(POINT, 0)


@pytest.mark.parametrize("gone", ["config_hash", "name", "encoder", "seconds", "config", "model"])
def test_json_of_another_layout_is_nobodys(runs: Runs, tmp_path: Path, gone: str) -> None:
    runs.finish(POINT)
    record = runs.record(POINT, seed=1) | ({"suite": "sts"} if gone == "model" else {})
    (record["decisive"] if gone == "config" else record).pop(gone, None)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "other.json").write_text(json.dumps(record), encoding="utf-8")
    index = RunsIndex(runs.root, [kept])
    assert index.state(POINT, 0) == "finished"
    assert index.state(POINT, 1) == "missing"
    assert index.seconds(POINT) is not None


def test_records_are_read_once(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = runs.finish(POINT)
    runs.finish(POINT, "0b", 1)
    index = RunsIndex(runs.root)
    assert index.find(POINT, 0) is not None
    read: list[str] = []
    original = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, **given: (read.append(path.name), original(path, **given))[1])
    index.refresh()
    assert index.find(POINT, 1) is not None
    assert read == []
    folder.finish(runs.record(POINT, best={"score": 0.7}))
    index.refresh()
    found = index.find(POINT, 0)
    assert found is not None
    assert found.record["best"]["score"] == 0.7
    assert read == ["record.json"]


# Evaluations

PLAIN = Point("evaluate", ("model=bert_base", "+suite=stsb"))


def test_evaluations_of_a_named_model(runs: Runs) -> None:
    mean = Point("evaluate", (*PLAIN.overrides, "pooling=mean"))
    own = runs.evaluation(runs.root / "evaluate" / "bert_base" / "stsb" / "0a-s0", PLAIN, "bert_base", None)
    index = RunsIndex(runs.root)
    found = index.find(PLAIN, 0)
    assert found is not None
    assert found.folder == own
    assert index.find(mean, 0) is None
    other = runs.evaluation(
        runs.root / "evaluate" / "bert_base" / "stsb" / "0b-s0", mean, "bert_base", None, pooling="mean"
    )
    index.refresh()
    assert [index.folder(point, 0) for point in (PLAIN, mean)] == [own, other]
    assert index.find(Point("evaluate", (*PLAIN.overrides, "pooling=cls")), 0) == found, "as it reads by itself"
    for different in (
        Point("evaluate", ("model=roberta_base", "+suite=stsb")),
        Point("evaluate", ("model=bert_base", "+suite=sts")),
        *(
            Point("evaluate", (*PLAIN.overrides, *more))
            for more in (
                ("max_length=64",),
                ("limits.test_pairs=9",),
                ("whitening=[stsb/train]",),
                ("corpora=sample", "paths=sample"),
                ("prompt='{} {mask}'",),
            )
        ),
    ):
        assert index.state(different, 0) == "missing", different
    automatic = Point("evaluate", (*PLAIN.overrides, "precision=auto"))
    assert index.find(automatic, 0) == found
    assert index.seconds(PLAIN) == 7.0


def test_only_an_evaluation_that_asked_for_the_models_own_reading_is_one(runs: Runs) -> None:
    """What ``auto`` became is not compared: the average of BERT is not its own way to read."""
    mean = Point("evaluate", (*PLAIN.overrides, "pooling=mean"))
    runs.evaluation(runs.root / "evaluate" / "bert_base" / "stsb" / "0a-s0", mean, "bert_base", None, pooling="mean")
    assert RunsIndex(runs.root).find(PLAIN, 0) is None


def test_whitened_evaluations(runs: Runs) -> None:
    white = Point("evaluate", (*PLAIN.overrides, "whitening=[stsb/train]"))
    runs.evaluation(runs.root / "evaluate" / "m" / "stsb" / "0a-s0", white, "bert_base", None, whitening="99ff")
    index = RunsIndex(runs.root)
    assert [index.find(point, 0) is not None for point in (PLAIN, white)] == [False, True]
    assert index.find(Point("evaluate", (*PLAIN.overrides, "whitening=[stsb/dev]")), 0) is None


def test_evaluations_of_a_run(runs: Runs) -> None:
    point = Point("evaluate", ("+suite=stsb",), POINT)
    index = RunsIndex(runs.root)
    assert index.state(point, 0) == "missing"
    folders = {seed: runs.finish(POINT, "0a", seed) for seed in (0, 1)}
    run = {"name": "dualcse_cross", "config_hash": "0a", "seed": 1}
    path = runs.evaluation(folders[1].path / "evaluate" / "stsb" / "0c-s1", point, str(folders[1].path), run)
    index.refresh()
    assert index.find(point, 0) is None
    assert index.folder(point, 1) == path
    assert (
        index.find(Point("evaluate", ("+suite=stsb",), Point("train", (*POINT.overrides, "seed=0", "eval_every=9"))), 1)
        is None
    )
    assert index.seconds(point) == 7.0
    assert index.seconds(POINT) == 3.0


def test_states_of_an_evaluation(runs: Runs) -> None:
    folder = runs.finish(POINT)
    point = Point("evaluate", ("+suite=stsb", "corpora=sample", "paths=sample"), POINT)
    path = folder.path / "evaluate" / "stsb" / "0c-s0"
    (path / "tasks").mkdir(parents=True)
    config = composed(point) | {"model": str(folder.path)}
    (path / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(config)), encoding="utf-8")
    index = RunsIndex(runs.root)
    assert index.state(point, 0) == "missing"
    assert index.folder(point, 0) == path
    (path / "tasks" / "stsb.json").touch()
    assert index.state(point, 0) == "interrupted"
    (path / "failed.json").write_text('{"type": "E"}', encoding="utf-8")
    assert index.state(point, 0) == "failed"
    assert index.failure(point, 0) == {"type": "E"}
    assert index.state(Point("evaluate", ("+suite=stsb",), POINT), 0) == "missing", "not on the sample corpus"


# Seconds, and the best of a grid


def test_seconds_of_runs_alike(runs: Runs) -> None:
    other = Point("train", (*POINT.overrides, "data.batch_size=4"))
    runs.finish(POINT, "0a", 0, seconds={"training": 10.0, "evaluation": 1})
    runs.finish(POINT, "0a", 1, seconds={"training": 20.0, "test": 1})
    runs.finish(other, "0b", 0, seconds={"training": 100})
    index = RunsIndex(runs.root)
    assert index.seconds(POINT) == 16.0
    assert index.seconds(other) == 100.0
    assert index.seconds(Point("train", (*POINT.overrides, "data.batch_size=2"))) == 44.0
    assert index.seconds(Point("train", ("+experiment=dualcse_cross", "encoder=tiny"))) is None, "the whole recipe"
    assert index.seconds(Point("train", ("+experiment=dualcse_bi", "+debug=tiny"))) is None


def test_the_best_of_a_grid(runs: Runs) -> None:
    grid = [Point("train", (*POINT.overrides, f"method.optimizer.lr={lr}")) for lr in ("0.1", "0.2")]
    index = RunsIndex(runs.root)
    assert winner(index, grid, (0, 1), "best.score") is None
    runs.finish(grid[0], "0a", 0, best={"score": 0.6})
    index.refresh()
    assert winner(index, grid, (0, 1), "best.score") is None, "one of them is not there"
    runs.finish(grid[1], "0b", 0, best={"score": 0.7})
    runs.finish(grid[0], "0a", 1, best={"score": 1.0})
    index.refresh()
    assert winner(index, grid, (0, 1), "best.score") == grid[1], "by the seeds that all of them have"
    assert winner(index, grid, (1,), "best.score") is None
    runs.finish(grid[1], "0b", 1, best={"score": 0.1})
    index.refresh()
    assert winner(index, grid, (0, 1), "best.score") == grid[0]
    with pytest.raises(
        ConfigError, match=r"choose: .*record\.json has no number at 'best\.scor' - did you mean 'best\.score'"
    ):
        winner(index, grid, (0,), "best.scor")
    assert winner(index, [], (0,), "best.score") is None


def test_value_at_a_path() -> None:
    record = {"best": {"score": 0.5}, "metrics": {"test/a": 1}}
    assert value_at(record, "metrics.test/a") == 1
    assert [value_at(record, path) for path in ("best.step", "best.score.x", "none")] == [None] * 3


# ------------------------------------------------------------------------------------------------------ real records


def test_records_of_the_ngcse_settings_are_those_of_figure_1() -> None:
    folder = experiments_dir() / "ngcse"
    artefact = read_artefact(folder / "figure1.yaml")
    request = Request(profile="small", seeds=(0, 1))
    index = RunsIndex(folder / "none", [folder / "results" / "records"])
    found: dict[Line, list[str]] = {}
    for line in artefact.lines(request):
        (point,) = points_of(artefact, line, artefact.columns[0], request)
        sources = [run.source.name for seed in line.seeds if (run := index.find(point, seed)) is not None]
        found[line] = sources
    names = [name for sources in found.values() for name in sources]
    assert sorted(names) == sorted(path.name for path in (folder / "results" / "records").glob("*.json"))
    assert len(names) == 24
    assert all(sources for sources in found.values())
    assert len(found) == 13


def test_a_table_is_planned_in_seconds() -> None:
    """Of real artefacts, a point costs no more than a few hundredths of a second beside its group choices."""
    head = ("+experiment=dualcse_bi", "encoder=bert_large")
    composed(Point("train", head))
    start = time.process_time()
    for number in range(20):
        composed(Point("train", (*head, f"data.batch_size={number + 2}")))
    assert time.process_time() - start < 20 * 0.1
