"""The processes that torchrun or SLURM has started, against those that a config asks for."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from lightning_cse.engine import processes
from lightning_cse.engine.processes import Launcher, Start, check_processes, detect_launcher
from lightning_cse.errors import ConfigError
from lightning_cse.runs import Run

TORCHRUN = {"TORCHELASTIC_RUN_ID": "one", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
SLURM = {
    "SLURM_NTASKS": "4",
    "SLURM_NNODES": "2",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_JOB_NAME": "train",
}


@pytest.fixture
def environment(monkeypatch):
    """Set the variables of a launcher, and no others."""
    for name in (*TORCHRUN, *SLURM):
        monkeypatch.delenv(name, raising=False)

    def variables(values):
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return variables


def check(machines, count):
    check_processes(detect_launcher(), machines=machines, count=count)


@pytest.mark.parametrize(("variables", "by"), [(TORCHRUN, "torchrun"), (SLURM, "SLURM")])
def test_processes_of_a_launcher(variables, by, environment):
    environment(variables)

    assert detect_launcher() == Launcher(by, machines=2, on_each=2)

    check(2, 4)
    with pytest.raises(ConfigError) as caught:
        check(1, 1)

    message = str(caught.value)
    assert message.startswith(f"trainer.devices: {by} started 2 on each of 2 machines, the config")
    assert "asks for 1 on each of 1: set trainer.num_nodes=2 trainer.devices=2" in message


def test_without_a_launcher(environment):
    environment({})

    assert detect_launcher() is None

    check(1, 2)  # Lightning starts the second one
    with pytest.raises(ConfigError, match=r"trainer\.num_nodes: 2 machines need the command on"):
        check(2, 2)


def test_slurm_with_ntasks_alone(environment):
    environment({name: value for name, value in SLURM.items() if "PER_NODE" not in name})
    with pytest.raises(ConfigError, match="reads --ntasks-per-node=2, so give that to srun"):
        check(2, 4)


def test_what_keeps_a_process_from_following(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "SHOWS_LATE", 0.3)
    folder = Run(tmp_path, "a_run", "0123456789", 0)
    start = Start(finished=False)

    fault = processes._fault(folder, start, "9876543210-s0", "first")
    assert "has the run 0123456789-s0, first 9876543210-s0: config, data files" in str(fault)

    unseen = processes._fault(folder, start, folder.path.name, "first")
    assert "put LIGHTNING_CSE_RUNS on a file system that all machines share" in str(unseen)

    with folder.lock():
        assert processes._fault(folder, start, folder.path.name, "first") is None

    assert processes._fault(folder, Start(finished=True), folder.path.name, "first") is None


MEETS = """
import sys, time
import torch.distributed as dist
from lightning_cse.engine import processes

processes.MEETS_WITHIN = float(sys.argv[1])
processes.meet()
print("met", flush=True)
if sys.argv[2] == "waits":
    time.sleep(60)

dist.barrier()
"""


@pytest.fixture
def process():
    """Start a process of two that torchrun started on this machine."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]

    def start(rank, seconds, then="ends"):
        variables = {
            "TORCHELASTIC_RUN_ID": "one",
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GROUP_RANK": "0",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(port),
        }
        command = [sys.executable, "-c", MEETS, str(seconds), then]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=os.environ | variables, stdout=pipe, stderr=pipe, text=True
        )

    return start


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_whose_other_never_comes_ends(process, rank):
    output, errors = process(rank, 3).communicate(timeout=60)
    assert output == ""
    last = errors.strip().splitlines()[-1]
    assert f"process {rank} of 2 has waited 3 s for the others at localhost:" in last


@pytest.mark.slow
def test_a_process_whose_other_is_killed_ends(process):
    with process(0, 30, "waits") as first, process(1, 30) as second:
        assert first.stdout.readline() == second.stdout.readline() == "met\n"
        start = time.monotonic()
        os.kill(first.pid, signal.SIGKILL)
        second.communicate(timeout=30)
        assert second.returncode
        assert time.monotonic() - start < 20
