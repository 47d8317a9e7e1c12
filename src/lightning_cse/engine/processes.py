"""The processes of a run: those that torchrun or SLURM has started, and what they agree on.

Without these, a run is one process, or Lightning starts the others on the same machine.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from omegaconf import DictConfig
from pytorch_lightning.plugins.environments import SLURMEnvironment, TorchElasticEnvironment  # type: ignore[attr-defined]  # not theirs
from pytorch_lightning.utilities import rank_zero_only
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import rendezvous

from lightning_cse import runs
from lightning_cse.callbacks import Interrupts
from lightning_cse.callbacks.checkpoints import LAST
from lightning_cse.config.check import devices
from lightning_cse.config.compose import in_sweep
from lightning_cse.devices import from_all, is_lost
from lightning_cse.errors import ConfigError, TrainingError, one_line

Start = Literal["finished", "resumed", "new"]
"""Where a run starts, as its first process found it."""

SHOWS_LATE = 30.0
"""Seconds after which a network file system shows a file that another machine has made."""

MEETS_WITHIN = 100.0
"""Seconds within which all processes of a run must have started and reached `meet`."""

_PAGE = "docs/clusters.md"


@dataclass(frozen=True)
class Launcher:
    """What has started this process: ``on_each`` processes on each of ``machines``."""

    name: str
    machines: int
    on_each: int


@dataclass(frozen=True)
class Processes:
    """The rank of this process, and the number of all of a run; the first writes everything."""

    rank: int = 0
    count: int = 1


def join(cfg: DictConfig) -> Processes:
    """Return the processes of a run, after meeting those that a launcher has started.

    Raises ConfigError if the config asks for other processes than were started, and as `meet`.
    """
    launcher = detect_launcher()
    count = devices(cfg)
    check_processes(launcher, machines=int(cfg.trainer.num_nodes), count=count)
    if launcher is not None:
        meet()
    if count == 1:
        rank_zero_only.rank = 0  # type: ignore[attr-defined]  # Lightning takes it from the environment, as under srun

    rank = int(rank_zero_only.rank)  # type: ignore[attr-defined]  # set by Lightning

    _quiet(rank)

    return Processes(rank, count)


def _quiet(rank: int) -> None:
    """Silence Lightning's tips, and all processes but the first."""
    # No tips of Lightning, and no list of missing hardware.
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    # Where SLURM is installed but has not started this process, Lightning advises to use it.
    warnings.filterwarnings("ignore", message=r"The `srun` command is available")
    if rank:
        logging.getLogger("lightning_cse").setLevel(logging.ERROR)  # the first process logs it


def detect_launcher() -> Launcher | None:
    """Return what torchrun or SLURM has started; None if neither has started this process."""
    if TorchElasticEnvironment.detect():
        processes = int(os.environ["WORLD_SIZE"])
        on_each = int(os.environ["LOCAL_WORLD_SIZE"])
        return Launcher("torchrun", processes // on_each, on_each)

    if SLURMEnvironment.detect():
        machines = int(os.environ.get("SLURM_NNODES", "1"))
        return Launcher("SLURM", machines, int(os.environ["SLURM_NTASKS"]) // machines)

    return None


def check_processes(launcher: Launcher | None, *, machines: int, count: int) -> None:
    """Raise ConfigError if a config asks for other processes than a launcher has started, or than
    Lightning can start.
    """
    if launcher is not None:
        if (launcher.machines, launcher.machines * launcher.on_each) != (machines, count):
            raise ConfigError(
                [
                    f"trainer.devices: {launcher.name} started {launcher.on_each} on each of "
                    f"{launcher.machines} machines, so set trainer.num_nodes={launcher.machines} "
                    f"trainer.devices={launcher.on_each}, or change what is started ({_PAGE})"
                ]
            )

        if launcher.name == "SLURM" and count > 1 and "SLURM_NTASKS_PER_NODE" not in os.environ:
            fault = "give srun --ntasks-per-node, which Lightning reads, not --ntasks"
            raise ConfigError([f"trainer.devices: {fault} ({_PAGE})"])
    elif machines > 1:
        fault = f"{machines} machines need the command on each of them, by torchrun or srun"
        raise ConfigError([f"trainer.num_nodes: {fault} ({_PAGE})"])

    if count > 1 and not _is_started(launcher):
        raise ConfigError(
            [
                "trainer.devices: a point of a sweep, or a call from Python, trains on one device; "
                "give each run a command of its own, start it by torchrun, or sweep by "
                f"hydra/launcher=submitit_slurm ({_PAGE})"
            ]
        )


def _is_started(launcher: Launcher | None) -> bool:
    """Whether the processes of a run are there, or Lightning can start them by this command line;
    torchrun's processes stay together for one run.
    """
    if in_sweep():
        return launcher is not None and launcher.name == "SLURM"

    spec = sys.modules["__main__"].__spec__

    return launcher is not None or (spec is not None and spec.name == "lightning_cse.train")


def meet() -> None:
    """Wait for the other processes that torchrun or SLURM has started, and form torch's process
    group with them; as it is formed early, a process that ends later is noticed at once.

    Raises TrainingError if some process is missing after `MEETS_WITHIN` seconds. Later calls, and
    Lightning, find the group formed.
    """
    if dist.is_initialized():
        return

    environment = TorchElasticEnvironment if TorchElasticEnvironment.detect() else SLURMEnvironment
    cluster = environment()
    rank = cluster.global_rank()
    count = cluster.world_size()
    address = f"{cluster.main_address}:{cluster.main_port}"
    limit = timedelta(seconds=MEETS_WITHIN)
    try:
        store, _, _ = next(rendezvous(f"tcp://{address}", rank, count, timeout=limit))
        store.set(f"lightning_cse/{rank}", "")
        store.wait([f"lightning_cse/{process}" for process in range(count)], limit)
    except RuntimeError as error:  # torch's errors of the network and of its store
        raise TrainingError(
            f"process {rank} of {count} has waited {MEETS_WITHIN:.0f} s for the others at "
            f"{address}: one has not started, has ended, or cannot be reached; give the same "
            f"command again on all machines ({_PAGE})"
        ) from error

    # The limit is for the meeting alone, not for the steps of a training.
    store.set_timeout(default_pg_timeout)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=count)
    if torch.cuda.is_available():
        atexit.register(dist.destroy_process_group)


@contextlib.contextmanager
def lost_process(interrupts: Interrupts) -> Iterator[None]:
    """Raise TrainingError, which says how to continue, if another process of the run is lost."""
    try:
        yield
    except RuntimeError as error:
        if not is_lost(error):
            raise

        raise TrainingError(
            "another process of this run has ended, or its machine cannot be reached "
            f"({one_line(error)[:160]}...): on all machines, {interrupts.advice}"
        ) from error


@contextlib.contextmanager
def claimed(
    folder: runs.Run, processes: Processes, *, force: bool, leave_failed: bool
) -> Iterator[Start]:
    """Yield where a run starts, in every process; the first one holds the lock of its folder, as
    `Run.claim`.

    Processes that have met agree on it. Each checks that the first has the same run, and that it
    sees the lock of the first on the folder. Raises ConfigError in all of them with what one of
    them lacks.
    """
    start: Start
    last = folder.checkpoints / LAST
    if processes.rank == 0:
        with folder.claim(force=force, leave_failed=leave_failed) as is_unfinished:
            start = "resumed" if last.is_file() else "new"
            start = start if is_unfinished else "finished"
            yield _agree(folder, start) if dist.is_initialized() else start
    elif dist.is_initialized():
        yield _agree(folder)
    elif force:
        yield "new"
    elif folder.status == "finished":
        yield "finished"
    else:
        # Lightning has started this process beside the first one, which waits for it.
        yield "resumed" if last.is_file() else "new"


def _agree(folder: runs.Run, start: Start | None = None) -> Start:
    """Return where the first process starts, which alone passes it."""
    first = from_all((start, folder.path.name, socket.gethostname()))[0]
    faults = from_all(_fault(folder, *first))
    if any(faults):
        raise ConfigError(dict.fromkeys(fault for fault in faults if fault))

    first_start: Start = first[0]

    return first_start


def _fault(folder: runs.Run, start: Start, name: str, machine: str) -> str | None:
    """Return what keeps this process from following the first, which works on a machine."""
    hostname = socket.gethostname()
    if folder.path.name != name:
        return (
            f"{hostname} has the run {folder.path.name}, {machine} {name}: config, data files, encoder "
            "and versions must be the same on all machines"
        )

    deadline = time.monotonic() + SHOWS_LATE
    while start != "finished" and not folder.lock_path.is_file():
        if time.monotonic() > deadline:
            return (
                f"paths.runs_dir: {hostname} does not see {folder.lock_path} of {machine}: put "
                f"LIGHTNING_CSE_RUNS on a file system that all machines share ({_PAGE})"
            )

        time.sleep(0.2)

    return None
