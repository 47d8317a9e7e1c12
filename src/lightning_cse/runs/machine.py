"""The environment of a process: code, versions, machine, and the device that it computes on."""

import importlib.metadata
import os
import platform
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_FILE = Path(__file__).resolve()
_DISTRIBUTIONS = (
    "lightning_cse",
    "torch",
    "pytorch-lightning",
    "transformers",
    "tokenizers",
    "numpy",
    "scipy",
    "hydra-core",
)


def environment() -> dict[str, Any]:
    """Return the commit, the versions, the machine and its threads.

    The commit ends in ``-dirty`` if there are uncommitted changes. Values that cannot be found are
    None.
    """
    torch = sys.modules.get("torch")  # not imported for this alone
    has_affinity = hasattr(os, "sched_getaffinity")

    return {
        "commit": commit(),
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": {
            "platform": platform.platform(),
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count(),
        },
        "threads": os.cpu_count() if torch is None else int(torch.get_num_threads()),
    }


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None

    return versions


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.is_file() else ""
    match = re.search(r"(?i)^model name\s*:\s*(.+)$", text, re.MULTILINE)

    return match[1] if match else platform.machine()


def _git(*arguments: str) -> str:
    """Return the output of a git command in the repository of this file; raise if there is none."""
    # Hooks of git set variables that would name another repository.
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    process = subprocess.run(
        ["git", "--no-optional-locks", "-C", str(_FILE.parent), *arguments],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    return process.stdout.strip()


def commit() -> str | None:
    """Return the commit of this code, with ``-dirty`` after changes; None without a repository."""
    try:
        _git("ls-files", "--error-unmatch", "--", _FILE.name)  # fails in another repository
        # Results that `reproduce --keep` writes into experiments/ change no run.
        paths = (":/", ":(top,exclude)experiments")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", *paths)

        return _git("rev-parse", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def in_history(name: str) -> bool:
    """Whether a commit, as `commit` returns it, is in the history of this code's repository."""
    try:
        _git("merge-base", "--is-ancestor", name.removesuffix("-dirty"), "HEAD")
    except (OSError, subprocess.SubprocessError):
        return False

    return True


def has(accelerator: str) -> bool:
    """Whether torch finds an accelerator on this machine; ``gpu`` is CUDA or Apple's MPS."""
    import torch

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()

    return {"gpu": cuda or mps, "cuda": cuda, "mps": mps}.get(accelerator, True)


def device_of(accelerator: str = "auto") -> "torch.device":
    """Return the device of an accelerator: ``gpu`` is CUDA or MPS, ``auto`` CUDA or the CPU.

    Each process that torchrun starts on a machine has a GPU of its own.
    """
    import torch

    cuda = torch.cuda.is_available()
    devices = {"gpu": "cuda" if cuda else "mps", "auto": "cuda" if cuda else "cpu"}
    name = devices.get(accelerator, accelerator)
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"

    return torch.device(name)


def device_name(device: "torch.device") -> str:
    """Return the name of a GPU, or the type of another device, such as ``cpu``."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def peak_memory() -> float:
    """Return the peak memory in MiB: of the GPU since its last reset, or else of the process."""
    import torch

    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20

    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB elsewhere

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
