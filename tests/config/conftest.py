"""Command lines of the Hydra commands, run in this process."""

import sys

import pytest
from hydra.core.global_hydra import GlobalHydra

from lightning_cse.config.launch import launch

# Hydra's logging would replace pytest's.
QUIET = ("hydra/job_logging=none", "hydra/hydra_logging=none")


@pytest.fixture
def give(tmp_path, monkeypatch, capsys):
    """Run a command line with a task that takes no time; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("LIGHTNING_CSE_RUNS", "LIGHTNING_CSE_CACHE", "LIGHTNING_CSE_DATA"):
        monkeypatch.delenv(name, raising=False)

    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)

    def given(*args, command="train"):
        monkeypatch.setattr(sys, "argv", [command, *args, *QUIET])
        GlobalHydra.instance().clear()
        code = launch("sweep_task:run", command)
        printed = capsys.readouterr()

        return code, printed.out, printed.err

    return given
