"""Processes that are killed in the middle of writing, and interrupted: the same command continues
to the same last bit.
"""

import signal
import subprocess
import sys

import pytest
import small_runs
import torch
from small_runs import assert_same, environment

from lightning_cse.runs import Run

SMALL = (*small_runs.SMALL, "keep_last=true")
DIES = """
import os, runpy, signal, sys

how = sys.argv.pop(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
checkpoints = []

def half_written(event, args):
    # The second checkpoint is cut to half, as a kill in the middle of writing leaves it.
    if event == "os.rename" and str(args[1]).endswith("last.ckpt"):
        checkpoints.append(args[0])
        if len(checkpoints) == 2:
            os.truncate(args[0], os.path.getsize(args[0]) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

if how == "write":
    sys.addaudithook(half_written)
else:
    from lightning_cse.callbacks import Timing

    original = Timing.on_train_batch_end

    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        original(self, trainer, *args)

    Timing.on_train_batch_end = on_train_batch_end
runpy.run_module("lightning_cse.train", run_name="__main__", alter_sys=True)
"""
pytestmark = pytest.mark.timeout(900)  # each process loads torch


@pytest.fixture
def command(tmp_path):
    """Run the small run in a process of its own."""
    (tmp_path / "dies.py").write_text(DIES)

    def started(*start):
        return subprocess.run(
            [sys.executable, *start, "+debug=tiny", *SMALL],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=400,
        )

    return started


def saved_step(checkpoint):
    return torch.load(checkpoint, weights_only=True)["global_step"]


def test_killed_while_a_checkpoint_is_written(command, run_tiny, tmp_path, caplog):
    killed = command("dies.py", "write")
    (last,) = tmp_path.rglob("last.ckpt")
    assert (killed.returncode, saved_step(last)) == (-signal.SIGKILL, 2), killed.stderr
    (part,) = last.parent.glob(".last.ckpt.*.tmp")
    assert 0 < part.stat().st_size < last.stat().st_size

    caplog.set_level("INFO")
    run = run_tiny(tmp_path, *SMALL)
    assert "resuming from step 2" in run.log_path.read_text()
    assert_same(run, run_tiny(tmp_path / "whole", *SMALL))


@pytest.mark.slow
def test_interrupted(command, run_tiny, tmp_path):
    interrupted = command("dies.py", "interrupt")
    (path,) = (tmp_path / "runs" / "dualcse_cross").iterdir()
    last = path / "checkpoints" / "last.ckpt"
    assert (interrupted.returncode, saved_step(last)) == (130, 3), interrupted.stderr

    message = "stopped at step 3; the same command continues from there"
    assert message in interrupted.stderr.splitlines()[-1]
    assert "Traceback" not in interrupted.stderr
    assert not (path / "failed.json").exists()

    finished = command("-m", "lightning_cse.train")
    assert finished.returncode == 0, finished.stderr
    assert "resuming from step 3" in finished.stdout
    assert finished.stdout.splitlines()[-1] == f"record: {path / 'record.json'}"

    run = Run.at(path)
    assert_same(run, run_tiny(tmp_path / "whole", *SMALL))
    assert run.read()["overrides"] == ["+experiment=dualcse_cross", "+debug=tiny", *SMALL[1:]]
