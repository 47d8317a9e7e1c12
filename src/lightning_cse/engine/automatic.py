"""What ``auto`` stands for in a config: the accelerator and the precision of this machine."""

import torch
from omegaconf import DictConfig

from lightning_cse.errors import ConfigError
from lightning_cse.runs.keys import PRECISIONS
from lightning_cse.runs.machine import has


def machine_values(node: DictConfig, prefix: str = "") -> dict[str, str]:
    """Return the accelerator and the precision of a node of the config, with this machine's in
    place of ``auto``; raise ConfigError, which names keys with ``prefix``, if it lacks them.
    """
    accelerator = str(node.accelerator)
    if accelerator == "auto":
        accelerator = "gpu" if torch.cuda.is_available() else "cpu"

    if not has(accelerator):
        fault = f"accelerator: torch finds no {accelerator} on this machine; use auto"
        raise ConfigError([prefix + fault])

    on_gpu = accelerator in ("gpu", "cuda")
    precision = PRECISIONS.get(str(node.precision), str(node.precision))
    if precision == "auto":
        precision = "bf16-mixed" if _has_fast_bfloat16(on_gpu) else "32-true"

    if precision == "16-mixed" and not on_gpu:
        raise ConfigError([f"{prefix}precision: 16-mixed needs a GPU; use 32-true or bf16-mixed"])

    return {"accelerator": accelerator, "precision": precision}


def _has_fast_bfloat16(on_gpu: bool) -> bool:
    """Whether the hardware multiplies bfloat16 fast."""
    if on_gpu:
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))

    # The check of the CPU is private to torch; where it is missing, float32 is always right.
    check = getattr(torch.cpu, "_is_avx512_bf16_supported", None)

    return check is not None and bool(check())
