"""Command lines of the Hydra commands, run in this process."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from lightning_cse.config.launch import launch

Give = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Give:
    """Run a command line with a task that takes no time; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("RUNS", "CACHE", "DATA"):
        monkeypatch.delenv(f"LIGHTNING_CSE_{name}", raising=False)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)

    def given(*args: str, command: str = "train") -> tuple[int, str, str]:
        quiet = (
            "hydra/job_logging=none",
            "hydra/hydra_logging=none",
        )  # Hydra's logging would replace pytest's
        monkeypatch.setattr(sys, "argv", [command, *args, *quiet])
        GlobalHydra.instance().clear()
        code = launch("sweep_task:run", command)
        said = capsys.readouterr()
        return code, said.out, said.err

    return given
