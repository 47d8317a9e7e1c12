"""The points of a sweep: one file per point with its outcome, and the table that the command prints at the end."""

import contextlib
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from lightning_cse.errors import (
    BUG,
    BUSY,
    USER,
    ConfigError,
    DataError,
    EncoderError,
    exit_code,
    one_line,
)
from lightning_cse.runs.files import write_atomic

DONE: Final = ("finished", "skipped")
# Names of statuses in the table, where these differ.
SHOWN: Final = {
    "skipped": "finished before",
    "left": "failed before",
    "busy": "run by another process",
}


@dataclass
class Point:
    """The outcome of a point: finished, skipped (finished before), failed, left (failed before), busy, or killed.

    ``code`` is the exit code that a single run would have.
    """

    overrides: Sequence[str]
    status: str = "killed"
    score: float | None = None
    folder: str | None = None
    reason: str = ""
    code: int = BUG
    refused: bool = False  # because of its config, so it never began

    @classmethod
    def of(cls, overrides: Sequence[str], result: Any) -> Self:
        """Return the outcome of a task that raised an error, or returned an `Outcome` or nothing."""
        if isinstance(result, Exception):
            status = {"Busy": "busy", "FailedBefore": "left"}.get(type(result).__name__, "failed")
            reason = " ".join(one_line(result).split())
            refused = isinstance(result, (ConfigError, DataError, EncoderError))
            return cls(overrides, status, reason=reason, code=exit_code(result), refused=refused)
        found: Any = {
            key: getattr(result, key)
            for key in ("status", "score", "folder")
            if hasattr(result, key)
        }
        return cls(overrides, **({"status": "finished", "code": 0} | found))

    def write(self, path: Path) -> None:
        """Write the file of the point, whole or not at all."""
        write_atomic(path, json.dumps(asdict(self), indent=2) + "\n")


class Sweep:
    """A sweep as its command sees it: the folder with one file ``<number>.json`` per point, and their overrides."""

    def __init__(self, folder: Path, jobs: Sequence[Sequence[str]]) -> None:
        self.folder = folder.absolute()
        self.jobs = {self.folder / f"{number}.json": job for number, job in enumerate(jobs)}
        self._remove()

    def finish(self) -> int:
        """Print the table of the points, and return the exit code; a point without a file was killed."""
        points = []
        if sys.exc_info() != (None, None, None) and not any(path.is_file() for path in self.jobs):
            self._remove()  # nothing has begun
            return 0
        lost = "not finished" if isinstance(sys.exc_info()[1], KeyboardInterrupt) else "killed"
        for path, job in self.jobs.items():
            point = (
                Point(**json.loads(path.read_text(encoding="utf-8")))
                if path.is_file()
                else Point(job, lost)
            )
            point.overrides = [one for one in job if not one.startswith("hydra")]
            points.append(point)
        sys.stdout.write(table(points))
        codes = {point.code for point in points}
        if all(point.refused for point in points):
            self._remove()
        return next((code for code in (BUG, USER, BUSY) if code in codes), 0)

    def _remove(self) -> None:
        for path in self.jobs:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # anything else in the folder stays
            for folder in (self.folder, *self.folder.parents[:2]):
                folder.rmdir()


def table(points: Sequence[Point]) -> str:
    """Return a table with one row per point, over its seeds, and below it why points are not finished."""
    common = set.intersection(*(set(point.overrides) for point in points))
    rows: dict[str, list[Point]] = {}
    reasons: dict[str, list[str]] = {}
    for point in points:
        own = [one for one in point.overrides if one not in common]
        rows.setdefault(
            " ".join(one for one in own if not one.startswith("seed=")) or "all seeds", []
        ).append(point)
        if point.status not in DONE:
            reason = f"{SHOWN.get(point.status, point.status)}: {point.reason}".rstrip(": ")
            reasons.setdefault(reason, []).append(" ".join(own) or "the point")
    width = max(map(len, rows))
    lines = [f"{'point':<{width}}   n    mean    s.d.  not finished"]
    for name, group in rows.items():
        done = [point for point in group if point.status in DONE]
        scores = [point.score for point in done if point.score is not None]
        mean = f"{statistics.fmean(scores):.4f}" if scores else "-"
        spread = f"{statistics.stdev(scores):.4f}" if len(scores) > 1 else "-"
        rest = _counted(point for point in group if point not in done)
        lines.append(f"{name:<{width}}  {len(done):>2}  {mean:>6}  {spread:>6}  {rest}".rstrip())
    lines += ["", f"{len(points)} point{'' if len(points) == 1 else 's'}: {_counted(points)}"]
    lines += [f"  {reason} ({'; '.join(which)})" for reason, which in reasons.items()]
    if reasons:
        lines.append(
            "the same command continues, and with retry_failed=true tries the failed points again"
        )
    return "\n".join(lines) + "\n"


def _counted(points: Iterable[Point]) -> str:
    counts = Counter(SHOWN.get(point.status, point.status) for point in points)
    return ", ".join(f"{count} {status}" for status, count in counts.items())
