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
def workdir(tmp_path, monkeypatch):
    """The working directory: an empty folder, and in it those of runs and caches."""
    for name in ("LIGHTNING_CSE_DATA", "HYDRA_FULL_ERROR"):
        monkeypatch.delenv(name, raising=False)

    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)

    monkeypatch.chdir(tmp_path)

    return tmp_path


@pytest.fixture
def command(workdir):
    """Run a command in a process of its own."""

    def run(name, *args, python=()):
        line = [sys.executable, *python, "-m", f"lightning_cse.{name}", *args]
        return subprocess.run(line, cwd=workdir, capture_output=True, text=True, timeout=400)

    return run


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
def evaluate(workdir, monkeypatch, key, in_place):
    """Run ``lightning_cse.evaluate`` in this process; return exit code, stdout and stderr."""
    from lightning_cse import evaluate

    monkeypatch.setenv("OPENAI_API_KEY", key)

    return lambda *args: in_place(evaluate.main, *args)
