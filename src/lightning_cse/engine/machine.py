"""The machine a run is on: which device, and what the run cost it."""

from __future__ import annotations

import resource
import sys
from typing import Any

import torch
from omegaconf import DictConfig

from lightning_cse.errors import ConfigError


def has(accelerator: str) -> bool:
    """Whether torch finds an accelerator on this machine; ``gpu`` is CUDA or Apple's MPS."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    return {"gpu": cuda or mps, "cuda": cuda, "mps": mps}.get(accelerator, True)


def device_of(accelerator: str = "auto") -> torch.device:
    """Return the device of an accelerator: ``gpu`` is CUDA or else Apple's MPS, ``auto`` CUDA or else the CPU."""
    cuda = torch.cuda.is_available()
    devices = {"gpu": "cuda" if cuda else "mps", "auto": "cuda" if cuda else "cpu"}
    return torch.device(devices.get(accelerator, accelerator))


def device_name(device: torch.device) -> str:
    """Return what a run was computed on: the name of the GPU, or ``cpu``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def peak_memory() -> float:
    """Return the most memory held, in MiB: a GPU's since its counter was reset, else that of the whole process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def resolve_automatic(cfg: DictConfig, *, under: str = "trainer") -> dict[str, Any]:
    """Replace ``auto`` choices in the config by what they become on this machine, and return what decides a result.

    Args:
        cfg: the composed config.
        under: the node that has ``accelerator`` and ``precision``; an empty string for the top.

    Raises:
        ConfigError: if this machine has no such accelerator, or it has not the precision.
    """
    from lightning_cse.config.check import PRECISIONS  # brings Hydra, which models do without

    node, prefix = (cfg[under], f"{under}.") if under else (cfg, "")
    if node.accelerator == "auto":
        node.accelerator = "gpu" if torch.cuda.is_available() else "cpu"
    if not has(node.accelerator):
        raise ConfigError([f"{prefix}accelerator: torch finds no {node.accelerator} on this machine; use auto"])
    on_gpu = node.accelerator in ("gpu", "cuda")
    if node.precision == "auto":
        # The processor's is private to torch; without it, float32 is always right.
        on_cpu = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
        node.precision = "bf16-mixed" if (torch.cuda.is_bf16_supported if on_gpu else on_cpu)() else "32-true"
    node.precision = PRECISIONS.get(str(node.precision), node.precision)
    if node.precision == "16-mixed" and not on_gpu:
        raise ConfigError([f"{prefix}precision: 16-mixed needs a GPU; use 32-true or bf16-mixed"])
    return {f"{prefix}{key}": node[key] for key in ("accelerator", "precision")}
