"""How far something that takes long has come, on a terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["progress"]


def progress(*more: TextColumn) -> Progress:
    """Return a progress bar on stderr, which shows nothing where there is no terminal.

    Args:
        more: columns behind those that every bar has.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), *more)
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
