"""The environment of a process: code, versions, machine, and the device that it computes on."""

import importlib.metadata
import os
import platform
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

_DISTRIBUTIONS: Final = (
    "lightning_cse torch pytorch-lightning transformers tokenizers numpy scipy hydra-core"
)


def environment() -> dict[str, Any]:
    """Return the commit (with ``-dirty`` for uncommitted changes), the versions, the machine and its threads.

    Values that cannot be found are None.
    """
    found = {
        name: next(iter(importlib.metadata.distributions(name=name)), None)
        for name in _DISTRIBUTIONS.split()
    }
    versions = {name: None if one is None else one.version for name, one in found.items()}
    info, loaded = (
        Path("/proc/cpuinfo"),
        sys.modules.get("torch"),
    )  # torch is not imported for this alone
    cpu = re.search(
        r"(?i)^model name\s*:\s*(.+)$", info.read_text() if info.is_file() else "", re.MULTILINE
    )
    memory = (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    )
    return {
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **versions},
        "machine": {
            "platform": platform.platform(),
            "cpu": cpu[1] if cpu else platform.processor() or platform.machine() or None,
            "cores": len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count(),
            "memory_gib": None if memory is None else round(memory / 2**30, 1),
        },
        "threads": os.cpu_count() if loaded is None else int(loaded.get_num_threads()),
    }


def _commit() -> str | None:
    file = Path(__file__).resolve()
    variables = {
        key: value for key, value in os.environ.items() if not key.startswith("GIT_")
    }  # set by git hooks

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(file.parent), *arguments]
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.strip()

    try:
        git(
            "ls-files", "--error-unmatch", "--", file.name
        )  # fails if the repository around it is another one
        # Results that `reproduce --keep` writes into experiments/ change no run.
        changed = git(
            "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)experiments"
        )
        return git("rev-parse", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def has(accelerator: str) -> bool:
    """Whether torch finds an accelerator on this machine; ``gpu`` is CUDA or Apple's MPS."""
    import torch

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    return {"gpu": cuda or mps, "cuda": cuda, "mps": mps}.get(accelerator, True)


def device_of(accelerator: str = "auto") -> "torch.device":
    """Return the device of an accelerator: ``gpu`` is CUDA or else Apple's MPS, ``auto`` CUDA or else the CPU."""
    import torch

    cuda = torch.cuda.is_available()
    devices = {"gpu": "cuda" if cuda else "mps", "auto": "cuda" if cuda else "cpu"}
    return torch.device(devices.get(accelerator, accelerator))


def device_name(device: "torch.device") -> str:
    """Return the name of a GPU, or the type of another device, such as ``cpu``."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def peak_memory() -> float:
    """Return the peak memory in MiB: of the GPU since its counter was reset, or else of the whole process."""
    import torch

    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
