"""The progress of long tasks: a bar on a terminal, a line a minute in a file."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

SECONDS = 60.0
"""The time between two lines in a file."""


class _Lines(Progress):
    """A progress that writes a line to stderr when it begins, then one a minute at most."""

    def __init__(self) -> None:
        super().__init__(disable=True)
        self._written = -float("inf")

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._write(task_id)

    def update(self, task_id: TaskID, **values: Any) -> None:
        super().update(task_id, **values)
        self._write(task_id)

    def _write(self, task_id: TaskID) -> None:
        seconds = time.monotonic()
        if seconds - self._written < SECONDS:
            return

        self._written = seconds
        task = self._tasks[task_id]
        sys.stderr.write(f"{task.description}: {task.completed:,.0f} of {task.total:,.0f}\n")


def progress(*more: TextColumn, shown: bool | None = None) -> Progress:
    """Return a progress on stderr; by default it is shown where there is a terminal."""
    is_terminal = sys.stderr.isatty()
    if shown and not is_terminal:
        return _Lines()

    columns = (
        TextColumn("{task.description}"),
        BarColumn(40),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        *more,
    )

    # The time left is estimated over all steps, so that it includes the pauses between them.
    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=not is_terminal or shown is False,
        speed_estimate_period=86_400.0,
    )
