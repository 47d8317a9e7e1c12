"""Commands as a user starts them, also for tests that stop and kill them."""

import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from llm_server import KEY
from small_runs import environment


def _restore_interrupts():
    """Restore Ctrl-C, which a shell's background jobs inherit as ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def key():
    """A key that must not appear anywhere."""
    return KEY


@pytest.fixture
def start(tmp_path, key):
    """Start a command in an empty folder that also holds runs and caches, with a key; no command
    outlives its test.
    """
    processes = []

    def started(name, *args):
        process = subprocess.Popen(
            [sys.executable, "-m", f"lightning_cse.{name}", *args],
            cwd=tmp_path,
            env=os.environ | environment(tmp_path) | {"OPENAI_API_KEY": key},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_restore_interrupts,  # noqa: PLW1509 - only this runs between fork and exec,
        )

        processes.append(process)
        return process

    yield started
    for process in processes:
        with suppress(ProcessLookupError):
            process.kill()

        process.wait()


@pytest.fixture
def in_place(monkeypatch, capsys):
    """Run a command's ``main`` in this process with arguments; return exit code, stdout and
    stderr.
    """
    from hydra.core.global_hydra import GlobalHydra

    def run(main, *args):
        name = main.__module__.rpartition(".")[2]
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *args])
        handlers = logging.root.handlers[:]
        GlobalHydra.instance().clear()
        capsys.readouterr()

        try:
            code = main()
        finally:
            logging.root.handlers[:] = handlers  # Hydra's have this test's stdout

        return code, *capsys.readouterr()

    return run


@pytest.fixture
def evaluate(tmp_path, monkeypatch, key, in_place):
    """Run ``lightning_cse.evaluate`` in this process, in an empty folder; return exit code, stdout
    and stderr.
    """
    from lightning_cse import evaluate

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("LIGHTNING_CSE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LIGHTNING_CSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LIGHTNING_CSE_DATA", raising=False)

    return lambda *args: in_place(evaluate.main, *args)
