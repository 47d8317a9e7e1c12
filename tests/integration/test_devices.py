"""Runs on two devices: the numbers of one, killed and resumed too, and one process that writes."""

import os
import signal
import subprocess
import sys
import time

import pytest
from small_runs import assert_same, curves, environment

from lightning_cse.runs import Run

# Each command loads torch, twice where there are two devices.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
POINT = (
    "trainer.accelerator=cpu",
    "trainer.max_epochs=-1",
    "trainer.max_steps=20",
    "eval_every=4",
    "least_evaluations=1",
)
SEVERAL = ("trainer.devices=2", "trainer.strategy=ddp")


@pytest.fixture
def start(tmp_path):
    """Start ``train`` in a session of its own; the runs lie in ``<folder>/runs``."""

    def started(name, *overrides):
        return subprocess.Popen(
            [sys.executable, "-m", "lightning_cse.train", "+debug=tiny", *POINT, *overrides],
            cwd=tmp_path,
            env=environment(tmp_path, name),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    return started


def finished(process, folder):
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert output.count("\nrecord: ") == 1, "the second process prints nothing"

    (record,) = folder.rglob("record.json")

    return Run.at(record.parent)


SMALL = ("encoder.dropout=0", "data.train_rows=27", "data.batch_size=9")
POINTS = {
    "dualcse_cross": "",
    "gausscse": "",
    # An adapter, whose weights are the same on both.
    "simcse_sup": "+adapter=lora encoder.adapter.lora_dropout=0 method.optimizer.lr=1e-3 "
    "encoder.gradient_checkpointing=true",
}


@pytest.mark.parametrize("name", POINTS)
def test_two_devices_have_the_curves_of_one(name, start, run_tiny, tmp_path):
    point = [f"+experiment={name}", *SMALL, *POINTS[name].split()]
    single = run_tiny(tmp_path / "one", *POINT, *point)
    two = finished(start("two", *point, *SEVERAL), tmp_path / "two")
    assert single.path.name == two.path.name  # devices are no part of the config hash

    expected, values = curves(single), curves(two)
    assert values.keys() == expected.keys()
    for key, points in expected.items():
        assert values[key] == pytest.approx(points, rel=1e-4, abs=1e-4), key

    assert len(expected["train/loss"]) == 20
    # Ranks of scores that nearly tie.
    assert two.read()["metrics"] == pytest.approx(single.read()["metrics"], abs=1e-3)


def kill(pid):
    os.killpg(pid, signal.SIGKILL)


def interrupt(pid):
    os.kill(pid, signal.SIGINT)


def stopped_at(step, stop, process, folder):
    """Stop a process when a step is in the curves; return its exit code and output."""
    while not any(f"\n{step}," in path.read_text() for path in folder.rglob("curves.csv")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)

    stop(process.pid)
    output, _ = process.communicate(timeout=300)

    return process.returncode, output


def test_killed_stopped_and_resumed(start, tmp_path):
    point = ("+experiment=dualcse_cross", *SEVERAL, "keep_last=true")
    folder = tmp_path / "stopped"
    reference = finished(start("whole", *point), tmp_path / "whole")

    code, _ = stopped_at(5, kill, start("stopped", *point), folder)

    assert code == -signal.SIGKILL

    # The second process gets the signal from the first.
    code, output = stopped_at(9, interrupt, start("stopped", *point), folder)

    assert code == 130, output
    assert "resuming from step 4" in output
    assert "the same command continues from the last checkpoint" in output
    assert not list(folder.rglob("failed.json"))

    run = finished(start("stopped", *point), folder)
    assert_same(run, reference)
    run.record_path.unlink()
    output, _ = start("stopped", *point[:1], "keep_last=true").communicate(timeout=300)

    assert "error: the run was started on 2 devices, whose random numbers are not those" in output
    assert "continue with trainer.devices x trainer.num_nodes = 2" in output
    assert not run.failed_path.exists(), "it was refused before it started"


def test_a_sweep_over_several_devices_is_refused(start):
    process = start("sweep", "+experiment=dualcse_cross", *SEVERAL, "seed=0,1", "-m")
    output, _ = process.communicate(timeout=600)

    assert process.returncode == 2, output
    assert "trainer.devices: a point of a sweep, or a call from Python, trains on one" in output
