"""The handler of all commands: an exit code and one line for whatever is raised."""

import errno
import os
import signal

import pytest

from lightning_cse.errors import ConfigError, DataError, Interrupted, install_hint, report, reported


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError(["seed: wrong"]), 2, "error: seed: wrong\n"),
        (ConfigError(["a", "b"]), 2, "error: 2 faults:\n  a\n  b\n"),
        (DataError("no corpus"), 2, "error: no corpus\n"),
        (
            PermissionError(errno.EACCES, "Permission denied", "runs"),
            2,
            "error: runs: Permission denied\n",
        ),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 2, "error: Broken pipe\n"),
        (KeyboardInterrupt(), 130, "interrupted; the same command continues where it stopped\n"),
        (Interrupted("stopped at step 40", signal.SIGTERM), 143, "stopped at step 40\n"),
    ],
)
def test_what_is_raised_becomes_a_line(error, code, line, capsys):
    @reported
    def main():
        raise error

    assert main() == code
    assert capsys.readouterr() == ("", line)


def test_the_traceback_of_a_fault_of_ours_is_printed(capsys):
    assert report(KeyError("x")) == 1

    stderr = capsys.readouterr().err
    assert stderr == "KeyError: 'x'\nerror: KeyError: 'x' (a bug in lightning_cse)\n"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_is_an_interrupt_and_its_handler_goes_with_the_command(
    signum, capsys, monkeypatch
):
    monkeypatch.setenv("SLURM_JOB_ID", "1")  # SLURM sends SIGUSR1 before its time limit
    before = signal.getsignal(signum)

    @reported
    def command():
        os.kill(os.getpid(), signum)

    assert command() == 128 + signum
    assert capsys.readouterr().err == "stopped; the same command continues where it stopped\n"
    assert signal.getsignal(signum) is before


@pytest.mark.parametrize(
    ("module", "hint"),
    [
        ("peft.tuners", "; pip install 'lightning_cse[adapters]'"),
        ("sentence_transformers", "; pip install 'lightning_cse[export]'"),
        ("torch", ""),  # no extra: always installed
        ("pef", ""),
        (None, ""),
    ],
)
def test_a_module_that_is_missing_is_named_with_its_extra(module, hint):
    assert install_hint(module) == hint
