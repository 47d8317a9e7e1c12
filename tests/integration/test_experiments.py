"""Experiments from their config to their record under ``+debug=tiny``: what the golden results do not cover."""

import csv
import functools
import hashlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from small_runs import curves

from lightning_cse.engine import train as training
from lightning_cse.engine.load import load
from lightning_cse.evaluation import run_tasks
from lightning_cse.metrics import auprc, spearman
from lightning_cse.runs import Run

Compose = Callable[..., DictConfig]
RunTiny = Callable[..., Run]

CROSS = "+experiment=dualcse_cross"
EXPERIMENTS = (
    *("dualcse_bi", "dualcse_cross", "dualgauss", "gausscse", "impscore_inli"),
    *("ngcse_wiki_sts_ht", "simcse_inli", "simcse_unsup"),
)
EACH = pytest.mark.parametrize("experiment", EXPERIMENTS)
SIDES, MEASURES = ("held_out", "eval"), ("alignment", "uniformity")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the runs of this file are."""
    return tmp_path_factory.mktemp("experiments")


@pytest.fixture(scope="module")
def run(run_tiny: RunTiny, place: Path) -> Callable[[str], Run]:
    """An experiment's run, made once, with figures; neither these nor their absence change anything else."""

    @functools.cache
    def make(experiment: str) -> Run:
        return run_tiny(
            place,
            f"+experiment={experiment}",
            f"figures={str(experiment == 'dualcse_cross').lower()}",
        )

    return make


def test_a_run_leaves_a_complete_folder(run: Callable[[str], Run], place: Path) -> None:
    folder = run("dualcse_cross")
    record = folder.read()
    assert (folder.status, folder.path.parent) == ("finished", place / "runs" / "dualcse_cross")
    assert folder.path.name == f"{record['config_hash']}-s0"
    files = {
        str(path.relative_to(folder.path)) for path in folder.path.rglob("*") if path.is_file()
    }
    assert {name for name in files if not name.startswith("predictions/")} == {
        *("config.yaml", "curves.csv", "record.json", "train.log", "checkpoints/best.ckpt"),
        *(f"figures/{name}.png" for name in ("loss", "dev_score", "diagnostics")),
    }
    assert {
        f"predictions/{name}.parquet" for name in ("eis", "length-eis", "rte", "untrained-rte")
    } <= files
    best = (folder.checkpoints / "best.ckpt").read_bytes()
    assert record["checkpoint"] == {"sha256": hashlib.sha256(best).hexdigest()}
    assert (record["name"], record["seed"]) == ("dualcse_cross", 0)
    assert (record["device"], record["precision"]) == ("cpu", "32-true")
    assert record["environment"]["versions"]["torch"] == torch.__version__
    assert set(record["seconds"]) == {"training", "evaluation", "test"}
    assert set(record["encoder"]) == {"name", "weights", "tokenizer"}
    assert all(
        digests.items() <= record["data"].items() for digests in record["task_data"].values()
    )
    assert OmegaConf.load(folder.config_path).encoder.name == "tiny"


@EACH
def test_evaluated_at_the_start_on_the_way_and_at_the_end(
    experiment: str, run: Callable[[str], Run]
) -> None:
    folder = run(experiment)
    record, values = folder.read(), curves(folder)
    monitor, steps = record["best"]["monitor"], list(values[record["best"]["monitor"]])
    every = OmegaConf.load(folder.config_path).eval_every
    assert steps == sorted({*range(0, record["steps"], every), record["steps"]})
    evaluated = {key for key in values if key.startswith(("val/", "diag/"))}
    assert all(
        list(values[key]) == [step for step in steps if step or "/rfd_" not in key]
        for key in evaluated
    )
    assert record["final"] == {key: values[key][steps[-1]] for key in evaluated}
    for prefix in {
        key.removesuffix("rfd_alignment") for key in values if key.endswith("/rfd_alignment")
    }:
        for measure in MEASURES:
            for until in steps[1:]:  # the running mean over the evaluations after step 0
                past = [step for step in steps[1:] if step <= until]
                held_out, other = (
                    [values[f"{prefix}{side}/{measure}"][step] for step in past] for side in SIDES
                )
                difference = math.fsum(a - b for a, b in zip(held_out, other, strict=True)) / len(
                    past
                )
                assert values[f"{prefix}rfd_{measure}"][until] == pytest.approx(
                    difference, abs=1e-12
                )
    # Above 0 also for unsupervised SimCSE, whose pairs are one sentence each, under two dropout masks.
    assert min(values["diag/held_out/alignment"].values()) > 0
    assert list(values["train/loss"]) == list(range(1, record["steps"] + 1))
    assert all(math.isfinite(value) for curve in values.values() for value in curve.values())
    with folder.curves_path.open(newline="") as file:  # one row a value: nothing is logged twice
        rows = [(row["step"], row["key"]) for row in csv.DictReader(file)]
    assert len(rows) == len(set(rows))
    best = max(steps[1:], key=lambda step: (values[monitor][step], -step))
    assert record["best"] == {"step": best, "score": values[monitor][best], "monitor": monitor}
    five = sorted((values[monitor][step] for step in steps[1:]), reverse=True)[:5]
    assert record["summary"]["final_score"] == pytest.approx(math.fsum(five) / len(five), rel=1e-12)
    for measure in MEASURES:
        assert record["summary"][f"eval_{measure}_at_best"] == values[f"diag/eval/{measure}"][best]


def recomputed(table: Mapping[str, list[Any]], threshold: float) -> dict[str, float]:
    """The main metrics that follow from what a task wrote down for every example, each checked against its scores."""
    if "gold" in table:
        return {
            "spearman_all" if "subset" in table else "spearman": spearman(
                table["gold"], table["score"]
            )
        }
    if "correct" in table:
        if "lead" in table:
            assert [lead > 0 for lead in table["lead"]] == table["correct"]
        return {"accuracy": float(np.mean(table["correct"]))}
    predicted = np.array(table["prediction"])
    right = predicted == np.array(table["label"])
    if "type" not in table:
        assert ((np.array(table["score"]) >= threshold) == predicted).all()
        return {"accuracy": float(right.mean()), "auprc": auprc(table["label"], table["score"])}
    assert ((np.array(table["score"]) > threshold) == predicted).all()
    kinds = np.array(table["type"])
    found = {f"accuracy_{kind}": float(right[kinds == kind].mean()) for kind in sorted(set(kinds))}
    assert len(found) == 4
    return found | {"accuracy_all": sum(found.values()) / 4}


@EACH
def test_predictions_give_the_recorded_metrics(experiment: str, run: Callable[[str], Run]) -> None:
    folder = run(experiment)
    record = folder.read()
    paths = sorted(folder.predictions.iterdir())
    assert paths
    for path in paths:
        baseline, _, task = path.stem.rpartition("-")
        metrics = record["baselines"][baseline] if baseline else record["metrics"]
        said = {
            key.rpartition("/")[2]: value
            for key, value in metrics.items()
            if key.startswith(f"test/{task}/")
        }
        table = pq.read_table(path).to_pydict()
        found = recomputed(table, said.get("threshold", 0.0))
        assert found == pytest.approx({name: said[name] for name in found}, abs=1e-12), path.name


@EACH
def test_the_best_checkpoint_alone_gives_the_recorded_test_scores(
    experiment: str, run: Callable[[str], Run], compose: Compose, one_thread: None
) -> None:
    folder = run(experiment)
    assert [path.name for path in folder.checkpoints.iterdir()] == ["best.ckpt"]
    best = torch.load(folder.checkpoints / "best.ckpt", map_location="cpu", weights_only=True)
    assert best["global_step"] == folder.read()["best"]["step"]
    assert "optimizer_states" not in best  # weights only, so a third of the size
    parts = training.build(compose(f"+experiment={experiment}", "+debug=tiny"))
    untrained = run_tasks(parts.tasks, parts.method.eval().model, "test")
    results = run_tasks(parts.tasks, load(folder.path).answers, "test")
    metrics = {
        f"test/{task}/{name}": value
        for task, r in results.items()
        for name, value in r.metrics.items()
    }
    assert metrics == folder.read()["metrics"]
    assert metrics != {
        f"test/{task}/{name}": v for task, r in untrained.items() for name, v in r.metrics.items()
    }


def test_a_finished_run_asked_for_again_is_not_trained_again(
    run: Callable[[str], Run], run_tiny: RunTiny, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run("dualcse_cross")
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")}
    monkeypatch.setattr(
        training, "_fit_and_test", lambda *args, **kwargs: pytest.fail("it was trained again")
    )
    # Switches, another logger and another place of the cache decide nothing, so they name the same run.
    again = run_tiny(
        place,
        CROSS,
        "+trainer.enable_progress_bar=false",
        "paths.cache_dir=elsewhere",
        "keep_last=true",
    )
    assert again.path == folder.path
    assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")} == before


def test_force_runs_again_with_the_same_numbers_and_another_seed_gives_others(
    run: Callable[[str], Run], run_tiny: RunTiny, place: Path
) -> None:
    folder = run("dualcse_cross")
    first, was, stamp = (
        folder.read(),
        folder.curves_path.read_text(),
        folder.record_path.stat().st_mtime_ns,
    )
    forced = run_tiny(place, CROSS, "force=true")
    assert forced.record_path.stat().st_mtime_ns > stamp
    assert forced.curves_path.read_text() == was
    for key in ("metrics", "baselines", "best", "final", "config_hash", "decisive", "checkpoint"):
        assert forced.read()[key] == first[key]
    other = run_tiny(place, CROSS, "seed=1")
    assert other.path.name == forced.path.name.removesuffix("-s0") + "-s1"
    assert other.read()["decisive"] == first["decisive"]
    assert other.read()["metrics"] != first["metrics"]
    assert other.read()["baselines"] == first["baselines"]
