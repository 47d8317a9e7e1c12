"""How far something that takes long has come, on a terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def progress(*more: TextColumn, width: int = 40) -> Progress:
    """Return a progress bar on stderr, ``width`` characters wide, which shows nothing where there is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(width), MofNCompleteColumn(), TimeRemainingColumn(), *more)
    console, shown = Console(stderr=True), sys.stderr.isatty()
    # The time left is estimated over all steps, so that it counts the pauses between them too.
    return Progress(*columns, console=console, transient=True, disable=not shown, speed_estimate_period=86_400.0)
