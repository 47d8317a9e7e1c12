"""Runs on two devices: the numbers of one, killed and resumed too, and one process that writes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import assert_same, curves

from lightning_cse.runs import Run

pytestmark = pytest.mark.timeout(900)  # each command loads torch, twice where there are two devices
POINT = (
    "+debug=tiny",
    "trainer.accelerator=cpu",
    "trainer.max_epochs=-1",
    "trainer.max_steps=20",
    "eval_every=4",
    "least_evaluations=1",
)
SEVERAL = ("trainer.devices=2", "trainer.strategy=ddp")
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, repository: Path) -> Start:
    """Start ``train`` in a session of its own; the runs lie in ``<folder>/runs``."""

    def started(place: str, *overrides: str) -> subprocess.Popen[str]:
        environment = {
            key: value for key, value in os.environ.items() if key != "LIGHTNING_CSE_DATA"
        } | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(repository / "src"),
            "LIGHTNING_CSE_RUNS": str(tmp_path / place),
            "LIGHTNING_CSE_CACHE": str(tmp_path / "cache"),
        }
        line = [sys.executable, "-m", "lightning_cse.train", *POINT, *overrides]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(
            line, cwd=tmp_path, env=environment, text=True, start_new_session=True, **pipes
        )

    return started


def finished(process: subprocess.Popen[str], folder: Path) -> Run:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert output.count("\nrecord: ") == 1, "the second process prints nothing"
    (record,) = folder.rglob("record.json")
    return Run.at(record.parent)


@pytest.mark.parametrize(
    "experiment",
    [
        "dualcse_cross",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "simcse_sup",
                "gausscse",
                "dualcse_bi",
                "dualgauss",
                "impscore_inli",
                "ngcse_nli_nli",
            )
        ),
    ],
)
def test_two_devices_have_the_curves_of_one(experiment: str, start: Start, tmp_path: Path) -> None:
    point = (
        f"+experiment={experiment}",
        "encoder.dropout=0",
        "data.train_rows=27",
        "data.batch_size=9",
    )
    if experiment == "ngcse_nli_nli":  # whose rows are dropout pairs, but for prompts
        point = (
            *point,
            "encoder.pooling=prompt",
            "encoder.max_length=64",
            "diag.dropout=false",
            "diag.evaluation=none",
        )
    one, two = (
        finished(start(name, *point, *more), tmp_path / name)
        for name, more in (("one", ()), ("two", SEVERAL))
    )
    assert one.path.name == two.path.name, "devices are no part of the config hash"
    whole, shared = curves(one), curves(two)
    assert whole.keys() == shared.keys()
    for key, points in whole.items():
        assert shared[key] == pytest.approx(points, rel=1e-4, abs=1e-4), key
    assert len(whole["train/loss"]) == 20
    assert two.read()["metrics"] == pytest.approx(
        one.read()["metrics"], abs=1e-3
    )  # ranks of scores that nearly tie


def test_killed_stopped_and_resumed(start: Start, tmp_path: Path) -> None:
    point = ("+experiment=dualcse_cross", *SEVERAL, "keep_last=true")
    reference = finished(start("whole", *point), tmp_path / "whole")

    def run_until(step: int, stop: Callable[[int], None]) -> tuple[int, str]:
        process = start("stopped", *point)
        while not any(
            f"\n{step}," in path.read_text() for path in (tmp_path / "stopped").rglob("curves.csv")
        ):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        stop(process.pid)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    code, _ = run_until(5, lambda pid: os.killpg(pid, signal.SIGKILL))
    assert code == -signal.SIGKILL
    code, output = run_until(
        9, lambda pid: os.kill(pid, signal.SIGINT)
    )  # the second process hears it from the first
    assert code == 130, output
    assert "resuming from step 4" in output
    assert "the same command continues from there" in output
    assert not list((tmp_path / "stopped").rglob("failed.json"))
    run = finished(start("stopped", *point), tmp_path / "stopped")
    assert_same(run, reference)
    run.record_path.unlink()
    output, _ = start("stopped", *point[:1], "keep_last=true").communicate(timeout=300)
    assert "the run was started on 2 devices: continue with trainer.devices=2" in output


@pytest.mark.slow
def test_points_of_a_sweep_run_in_processes_of_their_own(start: Start, tmp_path: Path) -> None:
    points = ("+sweep=seeds", "hydra.sweeper.params.seed=0", "monitor=val/eis/accuracy,val/none")
    process = start("sweep", "+experiment=dualcse_cross", *SEVERAL, *points)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 2, output
    assert "2 points: 1 finished, 1 failed" in output
    assert "failed: monitor: 'val/none' is not a dev score" in output
    (record,) = (tmp_path / "sweep").rglob("record.json")
    assert Run.at(record.parent).read()["overrides"][0] == "+experiment=dualcse_cross"
