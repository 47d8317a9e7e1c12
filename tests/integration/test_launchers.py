"""Two points of a sweep under every launcher: each ends with a record, whoever runs it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# A busy machine may take minutes to load torch in every worker.
pytestmark = pytest.mark.timeout(900)

SMALL = (
    "+debug=tiny",
    "baselines=none",
    "encoder.layers=1",
    "data.train_rows=20",
    "data.held_out_rows=8",
    "diag.sentences=16",
    "eval_every=2",
    "paths.cache_dir=null",
    *(f"limits.{split}_{what}=6" for split in ("dev", "test") for what in ("rows", "pairs")),
)
POINTS = "- [+experiment=dualcse_cross, seed=1]\n- [+experiment=gausscse, method.loss.temperature=0.1]\n"
LAUNCHERS = {
    "basic": ([], "hydra"),
    "joblib": (["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], "hydra_plugins.hydra_joblib_launcher"),
    "submitit_local": (["hydra/launcher=submitit_local"], "hydra_plugins.hydra_submitit_launcher"),
    "ray": (["hydra/launcher=ray", "hydra.launcher.ray.init.num_cpus=2"], "ray"),
}


def sweep(folder: Path, repository: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(repository / "src"),
        "LIGHTNING_CSE_RUNS": str(folder / "runs"),
    }
    environment.pop("LIGHTNING_CSE_DATA", None)
    line = [sys.executable, "-m", "lightning_cse.train", "-m", *args, *SMALL, "hydra.sweep.dir=sweep"]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=800)


@pytest.mark.parametrize(
    "launcher", [name if name == "joblib" else pytest.param(name, marks=pytest.mark.slow) for name in LAUNCHERS]
)
def test_every_launcher_runs_listed_points(launcher: str, tmp_path: Path, repository: Path) -> None:
    choice, module = LAUNCHERS[launcher]
    if importlib.util.find_spec(module.partition(".")[0]) is None or importlib.util.find_spec(module) is None:
        pytest.skip(f"needs the extra of hydra/launcher={launcher}")
    (tmp_path / "points.yaml").write_text(POINTS)
    done = sweep(tmp_path, repository, "hydra/sweeper=points", "hydra.sweeper.file=points.yaml", *choice)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 points: 2 done now" in done.stdout
    records = {path: json.loads(path.read_text()) for path in (tmp_path / "runs").rglob("record.json")}
    assert {(record["name"], record["seed"]) for record in records.values()} == {("dualcse_cross", 1), ("gausscse", 0)}
    (changed,) = (record for record in records.values() if record["name"] == "gausscse")
    assert changed["decisive"]["config"]["method"]["loss"]["temperature"] == 0.1
    assert {path.parent.name for path in (tmp_path / "sweep").glob("*/outcome.json")} == {"0", "1"}
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_search_trains_and_goes_on(tmp_path: Path, repository: Path) -> None:
    pytest.importorskip("optuna", reason="needs the extra `optuna`")
    search = ("+experiment=gausscse", "hydra/sweeper=tpe", "method.optimizer.lr=1e-5,3e-5,5e-5", "data.batch_size=8,16")
    first = sweep(tmp_path, repository, *search, "hydra.sweeper.trials=1", "hydra.sweeper.startup_trials=1")
    assert first.returncode == 0, first.stdout + first.stderr
    again = sweep(tmp_path, repository, *search, "hydra.sweeper.trials=2", "hydra.sweeper.startup_trials=1")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "1 of 2 points have a value" in again.stdout
    assert "1 point: 1 done now" in again.stdout
    assert "this trains it: python -m lightning_cse.train +experiment=gausscse +debug=tiny" in again.stdout
    records = [json.loads(path.read_text()) for path in (tmp_path / "runs" / "gausscse").rglob("record.json")]
    assert len(records) == 2
    best = max(record["best"]["score"] for record in records)
    assert f"the best is {best:.6g}" in again.stdout
