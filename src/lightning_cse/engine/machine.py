"""The machine a run is on: which device, and what the run cost it."""

from __future__ import annotations

import resource
import sys

import torch


def device_of(accelerator: str = "auto") -> torch.device:
    """Return the device of an accelerator: ``gpu`` is CUDA or else Apple's MPS, ``auto`` CUDA or else the CPU."""
    cuda = torch.cuda.is_available()
    devices = {"gpu": "cuda" if cuda else "mps", "auto": "cuda" if cuda else "cpu"}
    return torch.device(devices.get(accelerator, accelerator))


def device_name(device: torch.device) -> str:
    """Return what a run was computed on: the name of the GPU, or ``cpu``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def forget_peak_memory() -> None:
    """Begin a GPU's peak anew, so that a run in a sweep does not take over that of the one before it."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak_memory() -> float:
    """Return the most memory held, in MiB: a GPU's since `forget_peak_memory`, else that of the whole process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
