"""The errors a user can cause, each told in one message that names the file, line or key and the next step."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class LightningCSEError(Exception):
    """Base of every error that is the user's to mend: entry points print it without a traceback and exit with 2."""


class ConfigError(LightningCSEError):
    """The configuration has faults; ``faults`` holds all of them, one line each.

    Example:
        >>> raise ConfigError(["method.loss: unknown argument 'temprature'"])
        Traceback (most recent call last):
        ...
        lightning_cse.errors.ConfigError: 1 fault in the config:
          method.loss: unknown argument 'temprature'
    """

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = list(faults)
        count = len(self.faults)
        lines = "".join(f"\n  {fault}" for fault in self.faults)
        super().__init__(f"{count} fault{'' if count == 1 else 's'} in the config:{lines}")

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str]]]:
        return (type(self), (self.faults,))


class DataError(LightningCSEError):
    """A corpus is missing, or a file of it does not have the official layout."""


class EncoderError(LightningCSEError):
    """No encoder could be loaded, or the one loaded cannot do what the method asks of it."""


class TrainingError(LightningCSEError):
    """Training had to stop; what was computed until then is kept. ``rows`` are the training rows at fault, if any."""

    def __init__(self, message: str, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.rows = list(rows)


class TaskError(LightningCSEError):
    """An evaluation task asks for an answer that the method does not give."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM; the message says from where the same command continues."""

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.signum = signum


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``" - did you mean 'x'?"`` for the closest known word, or an empty string.

    Example:
        >>> did_you_mean("temprature", ["temperature", "lr"])
        " - did you mean 'temperature'?"
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" - did you mean '{close[0]}'?" if close else ""
