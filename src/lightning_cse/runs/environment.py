"""What a process runs on: code, versions, machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

_DISTRIBUTIONS: Final = [
    "lightning_cse",
    "torch",
    "pytorch-lightning",
    "transformers",
    "tokenizers",
    "numpy",
    "scipy",
    "hydra-core",
]


def environment() -> dict[str, Any]:
    """Return the commit (with ``-dirty`` for uncommitted changes), the versions, the machine and its threads.

    Never raises; None stands for what cannot be found out.
    """
    torch = sys.modules.get("torch")  # not imported for this alone
    threads = int(torch.get_num_threads()) if torch is not None else os.cpu_count()
    return {"commit": _commit(), "versions": _versions(), "machine": _machine(), "threads": threads}


def _commit() -> str | None:
    file = Path(__file__).resolve()
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}  # those of a git hook

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(file.parent), *arguments]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "--", file.name)  # else some other repository that this lies in
        commit = git("rev-parse", "HEAD")
        return f"{commit}-dirty" if git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        found = next(iter(importlib.metadata.distributions(name=name)), None)
        versions[name] = None if found is None else found.version
    return versions


def _machine() -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        memory: float | None = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        memory = None
    return {"platform": platform.platform(), "cpu": _cpu(), "cores": cores, "memory_gib": memory}


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine() or None
