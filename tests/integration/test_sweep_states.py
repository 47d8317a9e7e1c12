"""Points that others are running, that failed before, or that are there: what a command makes of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from lightning_cse.config.launch import launch
from lightning_cse.runs import Curves, Run

# A busy machine may take minutes to load torch.
pytestmark = pytest.mark.timeout(900)

POINT = (
    "+experiment=dualcse_cross",
    "+debug=tiny",
    "baselines=none",
    "encoder.layers=1",
    "data.train_rows=20",
    "data.held_out_rows=8",
    "diag.sentences=16",
    "eval_every=2",
    *(f"limits.{split}_{what}=6" for split in ("dev", "test") for what in ("rows", "pairs")),
)
Train = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_thread: None
) -> Train:
    """Give a command line of ``train`` in this process; return its exit code, what it said, and its errors."""
    monkeypatch.setenv("LIGHTNING_CSE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LIGHTNING_CSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LIGHTNING_CSE_DATA", raising=False)

    def start(*args: str) -> tuple[int, str, str]:
        # Hydra's own logging would replace pytest's.
        quiet = ("hydra/job_logging=none", "hydra/hydra_logging=none")
        monkeypatch.setattr(sys, "argv", ["train", *POINT, *args, *quiet])
        GlobalHydra.instance().clear()
        try:
            launch("lightning_cse.engine.train:run", "train")
            code = 0
        except SystemExit as ending:
            code = int(ending.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return start


def only_run(runs: Path, seed: int = 0) -> Run:
    (path,) = runs.rglob(f"*-s{seed}/record.json")
    folder = Run(runs, path.parents[1].name, path.parent.name.partition("-s")[0], seed)
    assert folder.record_path == path
    return folder


def words(runs: Path) -> list[tuple[str, float | None]]:
    """The words of the last sweep's points."""
    last = max((runs / "hydra").glob("*-multirun"))
    found = [json.loads((last / str(n) / "outcome.json").read_text()) for n in range(len(list(last.glob("[0-9]*"))))]
    return [(word["outcome"], word["score"]) for word in found]


def test_a_failed_point_is_left_and_listed_and_tried_again_when_asked(train: Train, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert train()[0] == 0
    done = only_run(runs)
    score = done.read()["best"]["score"]
    assert not done.lock_path.exists()
    failed = Run(runs, done.name, done.config_hash, 1)
    failed.fail(ValueError("out of luck"), "training")

    code, _, errors = train("-m", "seed=0,1")
    assert code == 2
    assert f"{failed.path} failed before (ValueError: out of luck) and is left alone: retry_failed=true tries" in errors
    assert "\nerror: 2 points: 1 done before, 1 failed before, left alone\n" in errors
    assert words(runs) == [("skipped", score), ("left", None)]
    assert failed.status == "failed"

    code, said, errors = train("-m", "seed=0,1", "retry_failed=true")
    assert (code, errors) == (0, "")
    assert said.splitlines()[-1] == "2 points: 1 done now, 1 done before"
    assert failed.status == "finished"
    assert only_run(runs, seed=1).config_hash == done.config_hash, "retry_failed is no part of the identity"
    assert words(runs) == [("skipped", score), ("finished", failed.read()["best"]["score"])]

    # A single run is always tried again, and force asks nobody.
    again = Run(runs, done.name, done.config_hash, 2)
    again.fail(ValueError("out of luck"), "training")
    assert train("seed=2")[0] == 0
    assert again.status == "finished"
    again.record_path.unlink()
    again.fail(ValueError("out of luck"), "training")
    assert train("-m", "seed=2", "force=true")[0] == 0
    assert again.status == "finished"


def test_a_point_that_somebody_runs_is_theirs(train: Train, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert train()[0] == 0
    done = only_run(runs)
    theirs = Run(runs, done.name, done.config_hash, 1)
    with theirs.lock():
        code, _, errors = train("seed=1")
        assert code == 3
        assert f"error: {theirs.path} is being run by pid {os.getpid()} on " in errors
        code, _, errors = train("-m", "seed=0,1")
        assert code == 3
        assert "\n2 points: 1 done before, 1 being run by somebody else\n" in errors
        assert f"\n  being run by somebody else: {' '.join(POINT)} " in errors
        assert sorted(entry.name for entry in theirs.path.iterdir()) == ["run.lock"]
        code, _, errors = train("seed=1", "force=true")
        assert code == 3, "force clears no folder of somebody else"
        code, _, errors = train("-m", "seed=0,1", "trainer.devices=2")
        assert code == 2
        assert errors.count("use one device a run, and one run a device. A sweep does that with hydra/launcher=") > 1
        assert "one device" in train("trainer.devices=2")[2]
        assert "A sweep" not in train("trainer.devices=2")[2]
    assert train("seed=1")[0] == 0
    assert theirs.status == "finished"


@pytest.mark.slow
def test_two_commands_at_once_run_a_point_once(tmp_path: Path, repository: Path) -> None:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(repository / "src"),
        "LIGHTNING_CSE_RUNS": str(tmp_path / "runs"),
        "LIGHTNING_CSE_CACHE": str(tmp_path / "cache"),
    }
    environment.pop("LIGHTNING_CSE_DATA", None)
    line = [sys.executable, "-m", "lightning_cse.train", *POINT]
    both = [
        subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=600) for process in both]
    codes = [process.returncode for process in both]
    trained = [out for out, _ in said if "everything goes to" in out]
    assert len(trained) == 1, said
    assert sorted(codes) in ([0, 3], [0, 0]), said
    other = said[1 - [out for out, _ in said].index(trained[0])]
    assert "is being run by pid" in other[1] if 3 in codes else "is finished; force=true runs it again" in other[0]
    folder = only_run(tmp_path / "runs")
    assert not folder.lock_path.exists()
    steps = [step for step, _ in Curves(folder.curves_path).read()["train/loss"]]
    assert steps == sorted(set(steps))
