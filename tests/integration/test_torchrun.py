"""Two machines of one process each, both started by torchrun on this one: the numbers of one
process, also after a kill.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch
from small_runs import assert_same, curves, environment

from lightning_cse.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
POINT = (
    "+experiment=dualcse_cross",
    "+debug=tiny",
    "trainer.accelerator=cpu",
    "trainer.max_epochs=-1",
    "trainer.max_steps=12",
    "least_evaluations=1",
    "keep_last=true",
)
MACHINES = ("trainer.num_nodes=2", "trainer.strategy=ddp")
EQUAL = ("encoder.dropout=0", "data.train_rows=27", "data.batch_size=9")

# `train`, with the gradient of each step as it is before clipping: after DDP's mean.
RECORDS = """
import os, runpy, torch
from lightning_cse.methods import Method

clip = Method.configure_gradient_clipping

def record(self, *args, **kwargs):
    named = {name: p.grad.clone() for name, p in self.named_parameters() if p.grad is not None}
    if self.global_rank == 0:
        path = os.path.join(os.environ["LIGHTNING_CSE_RUNS"], f"gradient{self.global_step}.pt")
        torch.save(named, path)
    clip(self, *args, **kwargs)

Method.configure_gradient_clipping = record
runpy.run_module("lightning_cse.train", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def start(tmp_path):
    """Start ``train`` in one process, or a machine's torchrun if there is a port."""
    (tmp_path / "records.py").write_text(RECORDS)

    def started(name, *overrides, port=None, program=("-m", "lightning_cse.train")):
        launcher = [
            *("-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}"),
        ]
        return subprocess.Popen(
            [sys.executable, *(launcher if port else ()), *program, *POINT, *overrides],
            cwd=tmp_path,
            env=environment(tmp_path, name),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return started


@pytest.fixture
def two(start):
    """Start the torchrun of two machines; each has its own folder of runs if two are named."""

    def started(*names, overrides=MACHINES, **options):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]

        return [start(name, *overrides, port=port, **options) for name in names]

    return started


def outputs(processes):
    return [process.communicate(timeout=600)[0] for process in processes]


def finished(processes, folder):
    """Wait for the processes of one run, and return it."""
    printed = "\n".join(outputs(processes))
    assert not any(process.returncode for process in processes), printed
    assert printed.count("\nrecord: ") == 1, "only the first process prints"

    (record,) = folder.rglob("record.json")

    return Run.at(record.parent)


def test_loss_and_gradient_of_one_process(start, two, tmp_path):
    """At the same weights, which do not move: Adam would make a rounding error a step as large as
    any other.
    """
    point = (*EQUAL, "method.optimizer.lr=0")
    records = {"program": (str(tmp_path / "records.py"),)}
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()

    single = finished([start("one", *point, **records)], tmp_path / "one")
    processes = two("two", "two", overrides=(*point, *MACHINES), **records)
    distributed = finished(processes, tmp_path / "two")

    assert distributed.path.name == single.path.name

    losses = curves(single)["train/loss"]
    assert len(losses) == 12
    assert curves(distributed)["train/loss"] == pytest.approx(losses, rel=1e-6)

    for step in range(12):
        name = f"gradient{step}.pt"
        expected = torch.load(tmp_path / "one" / name, weights_only=True)
        gradients = torch.load(tmp_path / "two" / name, weights_only=True)
        assert gradients.keys() == expected.keys()

        squares, difference = torch.zeros(()), torch.zeros(())
        for key, gradient in expected.items():
            squares += gradient.square().sum()
            difference += (gradients[key] - gradient).square().sum()

        assert float((difference / squares).sqrt()) < 1e-6, step


def test_killed_machine_and_the_same_commands_again(start, two, tmp_path):
    reference = finished(
        [start("whole", "trainer.devices=2", "trainer.strategy=ddp")], tmp_path / "whole"
    )
    folder = tmp_path / "runs"
    processes = two("runs", "runs")
    while not any("\n5," in path.read_text() for path in folder.rglob("curves.csv")):
        assert all(process.poll() is None for process in processes), outputs(processes)
        time.sleep(0.01)

    (child,) = children(processes[1].pid)
    os.kill(child, signal.SIGKILL)
    printed = "\n".join(outputs(processes))

    assert all(process.returncode for process in processes)
    assert re.search("error: another process of this run has ended, .* the same command", printed)
    assert "a bug in" not in printed

    run = finished(two("runs", "runs"), folder)
    assert "resuming from step 4" in run.log_path.read_text()
    assert_same(run, reference)


def children(pid):
    """Return the processes that a process has started."""
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return [int(line) for line in listed.stdout.split()]


def test_folders_that_are_not_shared(two, tmp_path):
    processes = two("here", "there")
    for printed in outputs(processes):
        assert re.search("error: paths.runs_dir: .* does not see .*/run.lock of", printed)
        assert "put LIGHTNING_CSE_RUNS on a file system that all machines share" in printed

    assert not list(tmp_path.rglob("failed.json"))
    assert not list(tmp_path.rglob("curves.csv"))
