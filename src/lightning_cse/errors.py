"""The errors that a user can cause, and the handler of all commands.

Exit codes: 0, done. 1, a fault of lightning_cse, or a killed point of a sweep. 2, a user error. 3,
another process runs all missing points. 130 and 143, stopped by Ctrl-C and by SIGTERM. 141, the
reader of stdout is gone.
"""

import contextlib
import difflib
import functools
import os
import re
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, requires
from typing import ClassVar, ParamSpec, Self

BUG = 1
USER = 2
BUSY = 3

P = ParamSpec("P")


class LightningCSEError(Exception):
    """Base of every user error: printed without a traceback, with the exit code ``exit_code``."""

    exit_code: ClassVar[int] = USER


class Interrupted(KeyboardInterrupt):
    """A command was stopped by a signal; the message says from where the same command continues."""

    def __init__(self, message: str, signum: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.signum = int(signum)


def stop_signals() -> list[int]:
    """Return the signals that stop a command, with those of SLURM before its time limit."""
    of_slurm = [signal.SIGUSR1, signal.SIGUSR2] if "SLURM_JOB_ID" in os.environ else []
    return [signal.SIGINT, signal.SIGTERM, *of_slurm]


class ConfigError(LightningCSEError):
    """The configuration has faults; ``faults`` holds all of them, one line each."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = list(faults)
        several = "".join(f"\n  {fault}" for fault in self.faults)
        super().__init__(
            self.faults[0] if len(self.faults) == 1 else f"{len(self.faults)} faults:{several}"
        )

    def __reduce__(self) -> tuple[type[Self], tuple[list[str]]]:
        return (type(self), (self.faults,))


class DataError(LightningCSEError):
    """A corpus or file is missing, or its content does not fit the layout that is needed."""


class EncoderError(LightningCSEError):
    """No encoder could be loaded, or the loaded one cannot do what the method needs."""


class TrainingError(LightningCSEError):
    """Training had to stop, perhaps because of some training ``rows``; its results are kept."""

    def __init__(self, message: str, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.rows = list(rows)


class TaskError(LightningCSEError):
    """An evaluation task needs an answer that the method does not give."""


def user_error(error: BaseException | None) -> LightningCSEError | None:
    """Return an exception's user error: itself, or one that Hydra or OmegaConf wrapped."""
    while error is not None and not isinstance(error, LightningCSEError):
        wraps = type(error).__module__.startswith(("hydra.", "omegaconf."))
        error = (error.__cause__ or error.__context__) if wraps else None

    return error


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the choice that is spelled most like a word; None if none is alike."""
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)
    return close[0] if close else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return ``" - did you mean 'x'?"`` for the nearest choice, or an empty string."""
    choice = nearest(word, choices)
    return f" - did you mean '{choice}'?" if choice else ""


def install_hint(module: str | None) -> str:
    """Return ``"; pip install 'lightning_cse[EXTRA]'"`` for a module that an extra of this package
    installs, or an empty string.
    """
    name = re.escape((module or "none").partition(".")[0].replace("_", "-"))
    with contextlib.suppress(PackageNotFoundError):
        for requirement in requires("lightning_cse") or ():
            match = re.fullmatch(rf"{name}\b[^;]*; extra == ['\"]([^'\"]+)['\"]", requirement)
            if match and match[1] != "dev":
                return f"; pip install 'lightning_cse[{match[1]}]'"

    return ""


def exit_code(error: BaseException) -> int:
    """Return the exit code of an exception; refusals of the system are user errors."""
    fault = user_error(error)
    return (
        fault.exit_code if fault else USER if isinstance(error, OSError) and error.strerror else BUG
    )


def one_line(error: BaseException) -> str:
    """Return a user error's message, a system error's file and reason, or type and message."""
    if (fault := user_error(error)) is not None:
        return str(fault)

    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror

    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def report(error: BaseException, *, verbose: bool = False) -> int:
    """Print an exception in one line, and return the exit code.

    The traceback comes before it for a fault of lightning_cse, and if ``verbose``.
    """
    if isinstance(error, BrokenPipeError) and _reader_is_gone():
        # Python flushes stdout once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE

    code = exit_code(error)
    is_bug = code == BUG and not isinstance(error, KeyboardInterrupt)
    if verbose or is_bug:
        traceback.print_exception(error)

    if isinstance(error, KeyboardInterrupt):
        sys.stderr.write(
            f"{str(error) or 'interrupted; the same command continues where it stopped'}\n"
        )
        return 128 + int(getattr(error, "signum", signal.SIGINT))

    bug = " (a bug in lightning_cse)" if is_bug else ""
    sys.stderr.write(f"error: {one_line(error)}{bug}\n")

    return code


def _reader_is_gone() -> bool:
    """Whether nothing reads stdout any more; any other pipe that breaks is a fault."""
    stdout = select.poll()
    stdout.register(1)
    return any(event & select.POLLERR for _, event in stdout.poll(0))


def reported(main: Callable[P, int | None]) -> Callable[P, int]:
    """Make a command's main function return its exit code, whatever is raised in it."""

    @functools.wraps(main)
    def command(*args: P.args, **kwargs: P.kwargs) -> int:
        verbose = os.environ.get("HYDRA_FULL_ERROR") == "1"
        pid = os.getpid()

        def stop(signum: int, frame: object) -> None:
            if os.getpid() == pid:
                raise Interrupted("stopped; the same command continues where it stopped", signum)

            os._exit(128 + signum)  # a worker that inherited this handler

        in_main = threading.current_thread() is threading.main_thread()
        signals = stop_signals()[1:] if in_main else []  # Python itself handles Ctrl-C
        before = {signum: signal.signal(signum, stop) for signum in signals}
        try:
            try:
                return main(*args, **kwargs) or 0
            finally:
                sys.stdout.flush()
        except SystemExit:  # argparse
            raise
        except BaseException as error:  # noqa: BLE001 - all of them end here
            return report(error, verbose=verbose)
        finally:
            for signum, handler in before.items():  # the caller may be a notebook
                signal.signal(signum, handler or signal.SIG_DFL)

    return command
