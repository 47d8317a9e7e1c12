"""The processes of a run that torchrun or SLURM has started: their number, and what they agree on.

Without these, a run is one process, or Lightning starts the others on the same machine.
"""

from __future__ import annotations

import atexit
import os
import socket
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from omegaconf import DictConfig
from pytorch_lightning.plugins.environments import SLURMEnvironment, TorchElasticEnvironment  # type: ignore[attr-defined]  # not theirs
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import rendezvous

from lightning_cse import runs
from lightning_cse.config.check import devices
from lightning_cse.devices import from_all
from lightning_cse.engine.build import built
from lightning_cse.errors import ConfigError, TrainingError

SHOWS_LATE = 30.0
"""Seconds after which a network file system shows a file that another machine has made."""

MEETS_WITHIN = 100.0
"""Seconds within which all processes of a run must have started and reached `meet`."""

_PAGE = "docs/clusters.md"


@dataclass(frozen=True)
class Started:
    """What a launcher has started: ``on_each`` processes on each of ``machines``."""

    by: str
    machines: int
    on_each: int


def started() -> Started | None:
    """Return what torchrun or SLURM has started; None if neither has started this process."""
    if TorchElasticEnvironment.detect():
        by = "torchrun"
        processes = int(os.environ["WORLD_SIZE"])
        on_each = int(os.environ["LOCAL_WORLD_SIZE"])
        machines = processes // on_each
    elif SLURMEnvironment.detect():
        by = "SLURM"
        processes = int(os.environ["SLURM_NTASKS"])
        machines = int(os.environ.get("SLURM_NNODES", "1"))
        on_each = processes // machines
    else:
        return None

    return Started(by, machines, on_each)


def check_processes(cfg: DictConfig) -> None:
    """Raise ConfigError if the config asks for other processes than torchrun or SLURM started."""
    machines = int(cfg.trainer.num_nodes)
    on_each = devices(cfg) // machines
    found = started()
    if found is None:
        if machines > 1:
            raise ConfigError(
                [
                    f"trainer.num_nodes: {machines} machines need the command on each of them, by "
                    f"torchrun or srun ({_PAGE})"
                ]
            )

        return

    if (found.machines, found.on_each) != (machines, on_each):
        set_to = f"trainer.num_nodes={found.machines} trainer.devices={found.on_each}"
        how = "srun --nodes, --ntasks-per-node; in a sweep hydra.launcher.nodes, tasks_per_node"
        how = how if found.by == "SLURM" else "torchrun --nnodes, --nproc-per-node"
        fault = (
            f"trainer.devices: {found.by} started {found.on_each} on each of {found.machines} "
            f"machines, the config asks for {on_each} on each of {machines}: set {set_to}, or "
            f"change what is started ({how}; {_PAGE})"
        )
        raise ConfigError([fault])

    if (
        found.by == "SLURM"
        and found.machines * on_each > 1
        and "SLURM_NTASKS_PER_NODE" not in os.environ
    ):
        raise ConfigError(
            [
                f"trainer.devices: Lightning reads --ntasks-per-node={on_each}, so give that to "
                f"srun, not --ntasks ({_PAGE})"
            ]
        )


@dataclass(frozen=True)
class Start:
    """Where a run starts, as its first process found it: nowhere, at a checkpoint, or at step 0."""

    finished: bool
    is_resumed: bool = False


def meet(cfg: DictConfig) -> None:
    """Wait for the other processes that torchrun or SLURM has started, and form torch's process
    group with them; called early, a process that ends later is noticed at once.

    Raises TrainingError if some process is missing after `MEETS_WITHIN` seconds. Later calls, and
    Lightning, find the group formed.
    """
    if dist.is_initialized() or started() is None:
        return

    environment = TorchElasticEnvironment if TorchElasticEnvironment.detect() else SLURMEnvironment
    cluster = environment()
    rank, count = cluster.global_rank(), cluster.world_size()
    os.environ["MASTER_ADDR"] = cluster.main_address
    os.environ["MASTER_PORT"] = str(cluster.main_port)
    limit = timedelta(seconds=MEETS_WITHIN)
    try:
        store, _, _ = next(rendezvous("env://", rank, count, timeout=limit))
        store.set(f"lightning_cse/{rank}", "")
        store.wait([f"lightning_cse/{other}" for other in range(count)], limit)
    except RuntimeError as error:  # torch's errors of the network and of its store
        raise TrainingError(
            f"process {rank} of {count} has waited {MEETS_WITHIN:.0f} s for the others at "
            f"{cluster.main_address}:{cluster.main_port}: one has not started, has ended, or "
            f"cannot be reached; give the same command again on all machines ({_PAGE})"
        ) from error

    # The limit is for the meeting alone, not for the steps of a training.
    store.set_timeout(default_pg_timeout)
    accelerator = str(cfg.trainer.accelerator)
    has_gpus = accelerator == "auto" and torch.cuda.is_available()
    backend = "nccl" if has_gpus or accelerator in ("gpu", "cuda") else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=count)
    if backend == "nccl":
        atexit.register(dist.destroy_process_group)


def agree(cfg: DictConfig, folder: runs.Run, start: Start | None = None) -> Start:
    """Return where the first process starts, which alone passes it; needs `started`.

    The processes `meet`, unless they have before. Each checks that the first has the same run, and
    that it sees the first one's lock on the folder. Raises ConfigError in all processes with what
    one of them lacks.
    """
    meet(cfg)
    quiet = built(
        cfg.trainer,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        _convert_="all",
    )
    quiet.strategy.setup_environment()
    own = (start, folder.path.name, socket.gethostname())
    first: tuple[Start, str, str] = quiet.strategy.broadcast(own)
    faults = from_all(_fault(folder, *first))

    if any(faults):
        raise ConfigError(dict.fromkeys(fault for fault in faults if fault))

    return first[0]


def _fault(folder: runs.Run, start: Start, name: str, machine: str) -> str | None:
    """Return what keeps this process from following the first, which works on a machine."""
    here = socket.gethostname()
    if folder.path.name != name:
        return (
            f"{here} has the run {folder.path.name}, {machine} {name}: config, data files, encoder "
            "and versions must be the same on all machines"
        )

    deadline = time.monotonic() + SHOWS_LATE
    while not start.finished and not folder.lock_path.is_file():
        if time.monotonic() > deadline:
            return (
                f"paths.runs_dir: {here} does not see {folder.lock_path} of {machine}: put "
                f"LIGHTNING_CSE_RUNS on a file system that all machines share ({_PAGE})"
            )

        time.sleep(0.2)

    return None
