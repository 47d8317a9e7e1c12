"""A process that is killed in the middle of writing: the same command continues to the same last
bit.
"""

import signal
import subprocess
import sys

import pytest
import small_runs
import torch
from small_runs import assert_same, environment

SMALL = (*small_runs.SMALL, "keep_last=true")
DIES = """
import os, runpy, signal, sys

checkpoints = []

def half_written(event, args):
    # The second checkpoint is cut to half, as a kill in the middle of writing leaves it.
    if event == "os.rename" and str(args[1]).endswith("last.ckpt"):
        checkpoints.append(args[0])
        if len(checkpoints) == 2:
            os.truncate(args[0], os.path.getsize(args[0]) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(half_written)
runpy.run_module("lightning_cse.train", run_name="__main__", alter_sys=True)
"""
pytestmark = pytest.mark.timeout(900)  # each process loads torch


def test_killed_while_a_checkpoint_is_written(run_tiny, tmp_path, caplog):
    (tmp_path / "dies.py").write_text(DIES)
    killed = subprocess.run(
        [sys.executable, "dies.py", "+debug=tiny", *SMALL],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    (last,) = tmp_path.rglob("last.ckpt")
    saved_step = torch.load(last, weights_only=True)["global_step"]
    assert (killed.returncode, saved_step) == (-signal.SIGKILL, 2), killed.stderr
    (part,) = last.parent.glob(".last.ckpt.*.tmp")
    assert 0 < part.stat().st_size < last.stat().st_size

    caplog.set_level("INFO")
    run = run_tiny(tmp_path, *SMALL)
    assert "resuming from step 2" in run.log_path.read_text()
    assert_same(run, run_tiny(tmp_path / "whole", *SMALL))
