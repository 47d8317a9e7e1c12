"""What a run cost the machine it ran on."""

from __future__ import annotations

import resource
import sys

import pytorch_lightning as pl
import torch


def device_name(trainer: pl.Trainer) -> str:
    """Return what a run was computed on: the name of the GPU, or ``cpu``."""
    device = trainer.strategy.root_device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def peak_memory() -> float:
    """Return the most memory this process has held so far, in MiB: the GPU's where one was used."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
