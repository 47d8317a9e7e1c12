"""What Hydra is asked for a sweep: whether this is one, where a point writes its outcome, and which GPU it takes."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

if TYPE_CHECKING:
    from lightning_cse.runs.sweep import Point, Sweep

current: Sweep | None = None
"""The sweep of this process, noted by the sweeper: Hydra gives its callers no other way to it."""
_gpu: Any = None  # the lock of the GPU that this process uses, until it ends


def in_sweep() -> bool:
    """Whether this is a point of a sweep."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def point(overrides: Sequence[str], result: Any) -> Point:
    """Return what became of a point, whose task returned or raised ``result``."""
    from lightning_cse.runs.sweep import Point

    return Point.of(overrides, result)


class Outcomes(Callback):
    """Writes ``<hydra.sweep.dir>/<number>.json`` when a point ends, in the process that runs it."""

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Write what became of the point; it was killed if it does not come so far."""
        if in_sweep() and hasattr(job_return.return_value, "write"):
            folder = Path(config.hydra.runtime.cwd, str(config.hydra.sweep.dir))
            job_return.return_value.write(folder / f"{config.hydra.job.num}.json")


def take_gpu() -> None:
    """Give each worker of a joblib sweep a GPU of its own, as long as there are enough, for what ``cuda`` means."""
    global _gpu  # noqa: PLW0603 - a worker runs many points, and keeps its GPU
    if _gpu is not None or not in_sweep() or "joblib" not in HydraConfig.get().launcher._target_:
        return
    import torch
    from filelock import FileLock, Timeout

    folder = Path(HydraConfig.get().runtime.cwd, HydraConfig.get().sweep.dir)
    for device in range(torch.cuda.device_count()):
        lock = FileLock(folder / f"gpu-{socket.gethostname()}-{device}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            continue
        _gpu = lock
        torch.cuda.set_device(device)  # unlike the environment, it can be changed at any time
        return
