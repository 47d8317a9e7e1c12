"""Every experiment from its config to its record, under ``+debug=tiny``, in this one process."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from lightning_cse import records, training
from lightning_cse.evaluation import run_tasks
from lightning_cse.records import RunFolder

Compose = Callable[..., DictConfig]
RunTiny = Callable[..., RunFolder]

CONF = Path(__file__).resolve().parents[2] / "conf"
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").rglob("*.yaml"))
CROSS = "+experiment=dualcse_cross"
SIDES, MEASURES = ("held_out", "eval"), ("alignment", "uniformity")
RTE = {f"accuracy_{kind}" for kind in ("explicit", "implied", "neutral", "contradiction", "all")} | {"threshold"}

# What the sample corpus and +debug=tiny make of each experiment: rows, optimizer steps, views.
DUAL = {"rows": 40, "steps": 10, "prefixes": ("diag/", "diag/implicit/")}
EXPECTED: dict[str, dict[str, Any]] = {
    "dualcse_bi": DUAL,
    "dualcse_bi_no_both": DUAL,
    "dualcse_bi_no_contradiction": DUAL,
    "dualcse_bi_no_intra": DUAL,
    "dualcse_cross": DUAL,
    "dualcse_cross_no_both": DUAL,
    "dualcse_cross_no_contradiction": DUAL,
    "dualcse_cross_no_intra": DUAL,
    "simcse_inli": {"rows": 80, "steps": 20, "prefixes": ("diag/",)},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of this module lie."""
    return tmp_path_factory.mktemp("experiments")


@pytest.fixture(scope="module")
def run(place: Path, run_tiny: RunTiny) -> Callable[[str], RunFolder]:
    """Train an experiment, once for the whole module."""
    done: dict[str, RunFolder] = {}

    def once(experiment: str) -> RunFolder:
        if experiment not in done:
            done[experiment] = run_tiny(place, f"+experiment={experiment}")
        return done[experiment]

    return once


def curves(folder: RunFolder) -> dict[str, dict[int, float]]:
    return {key: dict(points) for key, points in records.Curves(folder.curves).read().items()}


def test_every_experiment_is_expected() -> None:
    assert set(EXPERIMENTS) == set(EXPECTED)
    assert len(EXPERIMENTS) == 9


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_leaves_a_complete_record(experiment: str, run: Callable[[str], RunFolder], place: Path) -> None:
    folder, expected = run(experiment), EXPECTED[experiment]
    record = folder.read()
    assert folder.state == "finished"
    assert folder.path == place / "runs" / experiment / f"{record['identity']}-s0"
    assert (record["name"], record["seed"], record["steps"]) == (experiment, 0, expected["steps"])
    assert isinstance(record["overrides"], list)  # filled where Hydra starts the run: tests/cli
    assert (record["device"], record["precision"], record["environment"]["threads"]) == ("cpu", "32-true", 1)
    assert record["environment"]["commit"] is None or len(record["environment"]["commit"].removesuffix("-dirty")) == 40
    assert record["environment"]["versions"]["torch"] == torch.__version__
    assert {"platform", "cpu", "cores", "memory_gib"} <= record["environment"]["machine"].keys()
    assert record["rows"]["used"] == 40
    assert record["rows"]["read"] == record["rows"]["used"] + record["rows"]["dropped: data.train_rows"]
    assert record["rows"]["training_rows"] == expected["rows"]
    assert record["rows"]["sentences_cut"] == 0
    assert all(seconds > 0 for seconds in record["seconds"].values())
    assert {"training", "evaluation", "test"} == record["seconds"].keys()
    assert record["peak_memory_mib"] > 0
    assert record["sentences_per_second"] > 0
    assert set(record["data"]) == {
        "INLI/train.csv",
        "INLI/val.csv",
        "INLI/test.csv",
        "STS/STSBenchmark/sts-dev.csv",
    }
    assert set(record["encoder"]) == {"name", "weights", "tokenizer"}
    assert "seed" not in json.dumps(record["identity_document"]["config"]["data"])

    tasks = {"rte"} if experiment == "simcse_inli" else {"rte", "eis"}
    wanted = {f"test/rte/{metric}" for metric in RTE} | ({"test/eis/accuracy"} if "eis" in tasks else set())
    assert set(record["metrics"]) == wanted
    assert set(record["baselines"]) == {"untrained", "length"}
    assert set(record["baselines"]["length"]) == {"test/eis/accuracy"}
    assert set(record["baselines"]["untrained"]) == {f"test/rte/{metric}" for metric in RTE}

    config = OmegaConf.load(folder.config_path)
    assert (config.name, config.encoder.name, config.method.optimizer.lr) == (
        experiment,
        "tiny",
        config.recipe.default.lr,
    )
    assert not (folder.path / "failed.json").exists()
    assert not list(folder.path.rglob("*.part")) + list(folder.path.rglob("*.tmp"))
    assert not list(folder.path.rglob("lightning_logs"))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_is_evaluated_at_the_start_on_the_way_and_at_the_end(
    experiment: str, run: Callable[[str], RunFolder]
) -> None:
    folder, expected = run(experiment), EXPECTED[experiment]
    values, steps = curves(folder), list(range(0, expected["steps"], 4))
    steps += [] if steps[-1] == expected["steps"] else [expected["steps"]]
    for prefix in expected["prefixes"]:
        for measure in MEASURES:
            for side in SIDES:
                assert list(values[f"{prefix}{side}/{measure}"]) == steps
            assert list(values[f"{prefix}rfd_{measure}"]) == steps[1:]
            for until in steps[1:]:  # the running mean over the evaluations after step 0
                past = [step for step in steps[1:] if step <= until]
                held_out, other = ([values[f"{prefix}{side}/{measure}"][step] for step in past] for side in SIDES)
                difference = math.fsum(a - b for a, b in zip(held_out, other, strict=True)) / len(past)
                assert values[f"{prefix}rfd_{measure}"][until] == pytest.approx(difference, abs=1e-12)
    diagnosed = len(expected["prefixes"]) * len(MEASURES) * (len(SIDES) + 1)
    assert sum(key.startswith("diag/") for key in values) == diagnosed
    assert list(values["val/rte/accuracy_all"]) == steps
    assert list(values["train/loss"]) == list(range(1, expected["steps"] + 1))
    assert all(math.isfinite(value) for curve in values.values() for value in curve.values())
    rates = values["train/learning_rate"]
    lr = OmegaConf.load(folder.config_path).method.optimizer.lr
    assert [rates[step] for step in rates] == pytest.approx(
        [lr * (1 - (step - 1) / expected["steps"]) for step in rates]
    )
    with folder.curves.open(newline="") as file:  # one row a value: nothing is logged twice
        rows = [(row["step"], row["key"]) for row in csv.DictReader(file)]
    assert len(rows) == len(set(rows)) == sum(len(curve) for curve in values.values())

    record, score = folder.read(), values["val/rte/accuracy_all"]
    best = max(steps[1:], key=lambda step: (score[step], -step))
    assert record["best"] == {"step": best, "score": score[best], "monitor": "val/rte/accuracy_all"}
    assert record["final"] == {key: curve[steps[-1]] for key, curve in values.items() if not key.startswith("train/")}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_leaves_its_predictions_and_figures(experiment: str, run: Callable[[str], RunFolder]) -> None:
    folder = run(experiment)
    record = folder.read()
    tasks = ["length-eis", "rte", "untrained-rte"] + ([] if experiment == "simcse_inli" else ["eis"])
    assert sorted(path.name for path in folder.predictions.iterdir()) == sorted(f"{task}.parquet" for task in tasks)
    rte = pq.read_table(folder.predictions / "rte.parquet").to_pydict()
    assert len(rte["row"]) == 16 * 4
    for kind in ("explicit", "implied", "neutral", "contradiction"):
        right = [
            prediction == label
            for prediction, label, of in zip(rte["prediction"], rte["label"], rte["type"], strict=True)
            if of == kind
        ]
        assert sum(right) / len(right) == record["metrics"][f"test/rte/accuracy_{kind}"]
    threshold = record["metrics"]["test/rte/threshold"]
    assert [score >= threshold for score in rte["score"]] == rte["prediction"]
    eis = pq.read_table(folder.predictions / "length-eis.parquet").to_pydict()
    assert sum(eis["correct"]) / len(eis["correct"]) == record["baselines"]["length"]["test/eis/accuracy"]
    assert record["figures"] == sorted((path.name for path in folder.figures.iterdir()), key=record["figures"].index)
    assert len(record["figures"]) == 3
    for name in record["figures"]:
        assert (folder.figures / name).read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize("experiment", ["dualcse_bi", "dualcse_cross", "simcse_inli"])
def test_the_best_checkpoint_alone_gives_the_recorded_test_scores(
    experiment: str, run: Callable[[str], RunFolder], place: Path, compose: Compose, one_thread: None
) -> None:
    folder = run(experiment)
    best, last = (
        torch.load(folder.checkpoints / name, map_location="cpu", weights_only=True)
        for name in ("best.ckpt", "last.ckpt")
    )
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == ["best.ckpt", "last.ckpt"]
    assert (best["global_step"], last["global_step"]) == (folder.read()["best"]["step"], folder.read()["steps"])
    assert "optimizer_states" not in best  # weights only, so a third of the size
    parts = training.build(compose(f"+experiment={experiment}", "+debug=tiny"))
    untrained = run_tasks(parts.tasks, parts.method.eval(), "test")
    parts.method.load_state_dict(best["state_dict"])
    results = run_tasks(parts.tasks, parts.method.eval(), "test")
    metrics = {f"test/{task}/{name}": value for task, r in results.items() for name, value in r.metrics.items()}
    assert metrics == folder.read()["metrics"]
    assert metrics != {f"test/{task}/{name}": v for task, r in untrained.items() for name, v in r.metrics.items()}


def test_ablations_are_other_points(run: Callable[[str], RunFolder]) -> None:
    read = [run(experiment).read() for experiment in EXPERIMENTS]
    assert len({record["identity"] for record in read}) == len(EXPERIMENTS)
    for architecture in ("cross", "bi"):
        losses = {name: curves(run(name))["train/loss"] for name in EXPERIMENTS if f"dualcse_{architecture}" in name}
        assert len({loss[1] for loss in losses.values()}) == 4  # the same batch, another loss


def test_a_finished_run_asked_for_again_is_not_trained_again(
    run: Callable[[str], RunFolder], run_tiny: RunTiny, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run("dualcse_cross")
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")}
    monkeypatch.setattr(training, "_fit_and_test", lambda *args, **kwargs: pytest.fail("it was trained again"))
    # Switches, another logger and another place of the cache decide nothing, so they name the same point.
    again = run_tiny(place, CROSS, "+trainer.enable_progress_bar=false", "paths.cache_dir=elsewhere")
    assert again.path == folder.path
    assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")} == before


def test_force_does_it_again_with_the_same_numbers_and_another_seed_with_others(
    run: Callable[[str], RunFolder], run_tiny: RunTiny, place: Path
) -> None:
    first, was = run("dualcse_cross").read(), run("dualcse_cross").curves.read_text()
    stamp = run("dualcse_cross").record_path.stat().st_mtime_ns
    forced = run_tiny(place, CROSS, "force=true")
    assert forced.record_path.stat().st_mtime_ns > stamp
    assert forced.curves.read_text() == was
    for key in ("metrics", "baselines", "best", "final", "identity", "identity_document"):
        assert forced.read()[key] == first[key]

    other = run_tiny(place, CROSS, "seed=1")
    assert other.path.name == forced.path.name.removesuffix("-s0") + "-s1"
    assert other.read()["identity_document"] == first["identity_document"]
    losses = curves(other)["train/loss"], curves(forced)["train/loss"]
    assert losses[0][1] != losses[1][1]
    assert other.read()["metrics"] != first["metrics"]
    assert other.read()["baselines"] == first["baselines"]
