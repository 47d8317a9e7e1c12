"""The processes that torchrun or SLURM has started, against those that a config asks for."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from lightning_cse.engine import processes
from lightning_cse.engine.processes import Launcher, check_processes, detect_launcher
from lightning_cse.errors import ConfigError
from lightning_cse.runs import Run

TORCHRUN = {"TORCHELASTIC_RUN_ID": "one", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
SLURM = {
    "SLURM_NTASKS": "4",
    "SLURM_NNODES": "2",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_JOB_NAME": "train",
}
NTASKS_ALONE = {name: value for name, value in SLURM.items() if "PER_NODE" not in name}


@pytest.fixture
def environment(monkeypatch):
    """Set the variables of a launcher, and no others."""
    for name in (*TORCHRUN, *SLURM):
        monkeypatch.delenv(name, raising=False)

    def variables(values):
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return variables


@pytest.mark.parametrize(("variables", "by"), [(TORCHRUN, "torchrun"), (SLURM, "SLURM")])
def test_processes_of_a_launcher(variables, by, environment):
    environment(variables)
    assert detect_launcher() == Launcher(by, machines=2, on_each=2)
    check_processes(detect_launcher(), machines=2, count=4)


@pytest.mark.parametrize(
    ("variables", "machines", "count", "message"),
    [
        (TORCHRUN, 1, 1, r"torchrun started 2 on each of 2 machines, so set trainer\.num_nodes=2 "),
        (SLURM, 1, 1, r"SLURM started 2 on each of 2 .*trainer\.devices=2, or change what is"),
        (NTASKS_ALONE, 2, 4, "give srun --ntasks-per-node, which Lightning reads, not --ntasks"),
        ({}, 2, 2, r"trainer\.num_nodes: 2 machines need the command on each of them"),
        ({}, 1, 2, r"trainer\.devices: a point of a sweep, or a call from Python, trains on one"),
    ],
)
def test_other_processes_than_a_config_asks_for(variables, machines, count, message, environment):
    environment(variables)
    with pytest.raises(ConfigError, match=message):
        check_processes(detect_launcher(), machines=machines, count=count)


def test_what_keeps_a_process_from_following(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "SHOWS_LATE", 0.3)
    folder = Run(tmp_path, "a_run", "0123456789", 0)

    fault = processes._fault(folder, "new", "9876543210-s0", "first")
    assert "has the run 0123456789-s0, first 9876543210-s0: config, data files" in str(fault)

    unseen = processes._fault(folder, "new", folder.path.name, "first")
    assert "put LIGHTNING_CSE_RUNS on a file system that all machines share" in str(unseen)

    with folder.lock():
        assert processes._fault(folder, "new", folder.path.name, "first") is None

    assert processes._fault(folder, "finished", folder.path.name, "first") is None


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
