"""One GPU a point, where several points run at once on one machine."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hydra.conf import HydraConf
from omegaconf import DictConfig, OmegaConf

from lightning_cse.config.outcomes import JOBLIB_LAUNCHER
from lightning_cse.runs import Busy, locked

log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds between two looks for a free GPU."""

_last: dict[Path, int] = {}


@contextlib.contextmanager
def one_gpu(cfg: DictConfig, job: HydraConf) -> Iterator[int | None]:
    """Take a GPU for a point of a joblib sweep, if there are several, and make it the one that ``cuda`` means.

    A worker runs many points, and once it has used CUDA it cannot be shown fewer GPUs: ``CUDA_VISIBLE_DEVICES`` comes
    too late for its second point. The current device can be changed at any time.

    Args:
        cfg: the point's config.
        job: Hydra's own config, ``HydraConfig.get()``.
    """
    accelerator = OmegaConf.select(cfg, "trainer.accelerator") or OmegaConf.select(cfg, "accelerator")
    if job.launcher._target_ != JOBLIB_LAUNCHER or accelerator not in ("auto", "gpu", "cuda"):
        yield None
        return
    import torch

    if (count := torch.cuda.device_count()) < 2:
        yield None
        return
    with taken(Path(job.runtime.cwd, job.sweep.dir), range(count), torch.cuda.set_device) as device:
        try:
            yield device
        finally:
            torch.cuda.empty_cache()  # the next point on this GPU may be another worker's


@contextlib.contextmanager
def taken(folder: Path, devices: Sequence[int], use: Callable[[int], None]) -> Iterator[int]:
    """Take one of the devices for the length of the block, waiting for one while all are taken.

    Args:
        folder: where the locks of the devices are: all who share it share the devices of each machine.
        devices: the devices of this machine.
        use: is called with the device that was taken.
    """
    # What a worker's first point left in a device's memory (some hundred MiB) is of use to its next one.
    order = sorted(devices, key=lambda device: device != _last.get(folder))
    told = False
    while True:
        for device in order:
            lock = locked(folder / f"gpu-{socket.gethostname()}-{device}.lock", f"GPU {device}")
            with contextlib.ExitStack() as stack:
                try:
                    stack.enter_context(lock)
                except Busy:
                    continue
                _last[folder] = device
                use(device)
                yield device
                return
        if not told:
            log.info("all %d GPUs are taken; this point waits for one", len(order))
            told = True
        time.sleep(PAUSE)
