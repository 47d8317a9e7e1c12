"""The progress of long tasks, on a terminal."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def progress(*more: TextColumn, shown: bool | None = None) -> Progress:
    """Return a progress bar on stderr; by default it is shown where there is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(40),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        *more,
    )

    console = Console(stderr=True, force_terminal=shown or None)
    shown = sys.stderr.isatty() if shown is None else shown

    # The time left is estimated over all steps, so that it includes the pauses between them.
    return Progress(
        *columns, console=console, transient=True, disable=not shown, speed_estimate_period=86_400.0
    )
