"""Experiments from config to record under ``+debug=tiny``: what the golden results do not cover."""

import functools
import hashlib

import pytest
import torch
from omegaconf import OmegaConf

from lightning_cse.engine import train as training
from lightning_cse.engine.load import load
from lightning_cse.evaluation import run_tasks
from lightning_cse.metrics import auprc, spearman
from lightning_cse.runs import read_predictions

pytestmark = pytest.mark.slow
CROSS = "+experiment=dualcse_cross"
EXPERIMENTS = (
    "dualcse_bi",
    "dualcse_cross",
    "dualgauss",
    "gausscse",
    "impscore_inli",
    "ngcse_wiki_sts_ht",
    "simcse_inli",
    "simcse_unsup",
)
EACH = pytest.mark.parametrize("experiment", EXPERIMENTS)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """The folder in which the runs of this file are."""
    return tmp_path_factory.mktemp("experiments")


@pytest.fixture(scope="module")
def run(run_tiny, workdir):
    """An experiment's run, trained once, with figures for one of them."""

    @functools.cache
    def make(experiment):
        figures = str(experiment == "dualcse_cross").lower()
        return run_tiny(workdir, f"+experiment={experiment}", f"figures={figures}")

    return make


def test_folder_of_a_run_is_complete(run, workdir):
    folder = run("dualcse_cross")
    record = folder.read()

    assert (folder.status, folder.path.parent) == ("finished", workdir / "runs" / "dualcse_cross")
    assert folder.path.name == f"{record['config_hash']}-s0"

    paths = [path for path in folder.path.rglob("*") if path.is_file()]
    files = {str(path.relative_to(folder.path)) for path in paths}
    predictions = {name for name in files if name.startswith("predictions/")}

    assert files - predictions >= {"config.yaml", "curves.csv", "train.log"}
    assert "figures/diagnostics.png" in files

    for name in ("eis", "length-eis", "rte", "untrained-rte"):
        assert f"predictions/{name}.parquet" in predictions

    best = (folder.checkpoints / "best.ckpt").read_bytes()
    assert record["checkpoint"] == {"sha256": hashlib.sha256(best).hexdigest()}
    assert (record["name"], record["seed"]) == ("dualcse_cross", 0)
    for digests in record["task_data"].values():
        assert digests.items() <= record["data"].items()

    assert OmegaConf.load(folder.config_path).encoder.name == "tiny"


def recomputed(table, threshold):
    """The main metrics that follow from a task's predictions, each checked against its scores."""
    if "gold" in table:
        name = "spearman_all" if "subset" in table else "spearman"
        return {name: spearman(table["gold"], table["score"])}

    if "correct" in table:
        assert "lead" not in table or ((table["lead"] > 0) == table["correct"]).all()
        return {"accuracy": table["correct"].mean()}

    is_right = table["prediction"] == table["label"]
    if "type" not in table:
        assert ((table["score"] >= threshold) == table["prediction"]).all()
        return {"accuracy": is_right.mean(), "auprc": auprc(table["label"], table["score"])}

    assert ((table["score"] > threshold) == table["prediction"]).all()
    accuracies = is_right.groupby(table["type"]).mean().add_prefix("accuracy_")
    assert len(accuracies) == 4

    return {**accuracies, "accuracy_all": accuracies.mean()}


@EACH
def test_predictions_give_the_recorded_metrics(experiment, run):
    folder = run(experiment)
    record = folder.read()
    paths = sorted(folder.predictions.iterdir())

    assert paths

    for path in paths:
        baseline, _, task = path.stem.rpartition("-")
        metrics = record["baselines"][baseline] if baseline else record["metrics"]
        threshold = metrics.get(f"test/{task}/threshold", 0.0)

        for name, value in recomputed(read_predictions(path), threshold).items():
            assert value == pytest.approx(metrics[f"test/{task}/{name}"], abs=1e-12), path.name


def metrics_of(parts, answers):
    """The test metrics of a model, by their keys."""
    metrics = {}
    for task, result in run_tasks(parts.tasks, answers, "test").items():
        for name, value in result.metrics.items():
            metrics[f"test/{task}/{name}"] = value

    return metrics


@EACH
def test_best_checkpoint_gives_the_recorded_test_scores(experiment, run, compose, one_thread):
    folder = run(experiment)
    assert [path.name for path in folder.checkpoints.iterdir()] == ["best.ckpt"]

    best = torch.load(folder.checkpoints / "best.ckpt", map_location="cpu", weights_only=True)
    assert best["global_step"] == folder.read()["best"]["step"]
    assert "optimizer_states" not in best  # weights only, so a third of the size

    parts = training.build(compose(f"+experiment={experiment}", "+debug=tiny"))
    untrained = metrics_of(parts, parts.method.eval().model)
    metrics = metrics_of(parts, load(folder.path).answers)

    assert metrics == folder.read()["metrics"]
    assert metrics != untrained


# Switches and another place of the cache decide nothing, so they name the same run.
UNDECISIVE = ("figures=true", "paths.cache_dir=elsewhere", "keep_last=true")


def test_finished_run_is_not_trained_again(run, run_tiny, workdir, monkeypatch):
    folder = run("dualcse_cross")
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")}
    monkeypatch.setattr(training, "build_training", lambda *_: pytest.fail("it was trained"))
    repeated = run_tiny(workdir, CROSS, *UNDECISIVE)

    assert repeated.path == folder.path
    assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")} == before


def test_forced_run_has_the_same_numbers_and_another_seed_others(run, run_tiny, workdir):
    folder = run("dualcse_cross")
    first = folder.read()
    curves_before = folder.curves_path.read_text()
    stamp = folder.record_path.stat().st_mtime_ns

    forced = run_tiny(workdir, CROSS, "force=true")
    assert forced.record_path.stat().st_mtime_ns > stamp
    assert forced.curves_path.read_text() == curves_before

    for key in ("metrics", "baselines", "best", "final", "config_hash", "decisive", "checkpoint"):
        assert forced.read()[key] == first[key]

    reseeded = run_tiny(workdir, CROSS, "seed=1")
    assert reseeded.path.name == forced.path.name.removesuffix("-s0") + "-s1"
    assert reseeded.read()["decisive"] == first["decisive"]
    assert reseeded.read()["metrics"] != first["metrics"]
    assert reseeded.read()["baselines"] == first["baselines"]
