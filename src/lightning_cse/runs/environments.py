"""What a process runs on: code, versions, machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

_DISTRIBUTIONS: Final = (
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
    """Return what this process runs on; never raises, and says None where something cannot be found out.

    Returns:
        ``commit`` (of the repository that tracks this package, with ``-dirty`` where tracked files differ from it),
        ``versions`` by distribution, ``machine`` (platform, cpu, cores, memory in GiB) and ``threads``. Device and
        precision are the caller's to add.
    """
    return {"commit": _commit(), "versions": _versions(), "machine": _machine(), "threads": _threads()}


def _commit() -> str | None:
    package = Path(__file__).resolve().parent
    # In a git hook, GIT_DIR and its kin point elsewhere.
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    variables["GIT_OPTIONAL_LOCKS"] = "0"

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "--", Path(__file__).name)  # else some other repository that we lie in
        commit = git("rev-parse", "HEAD")
        return f"{commit}-dirty" if git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    if versions["lightning_cse"] is None:  # run from a checkout that is not installed
        package = sys.modules.get("lightning_cse")
        versions["lightning_cse"] = getattr(package, "__version__", None)
    return versions


def _machine() -> dict[str, Any]:
    try:
        cores: int | None = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        cores = os.cpu_count()
    try:
        memory: float | None = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        memory = None
    return {"platform": platform.platform(), "cpu": _cpu_model(), "cores": cores, "memory_gib": memory}


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    models = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine() or None


def _threads() -> int | None:
    torch = sys.modules.get("torch")  # asking must not be what loads it
    if torch is not None:
        return int(torch.get_num_threads())
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() else os.cpu_count()
