"""The points of a sweep: one file with the outcome of each, and the table of them at the end."""

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from lightning_cse.errors import (
    BUG,
    BUSY,
    USER,
    ConfigError,
    DataError,
    EncoderError,
    LightningCSEError,
    exit_code,
    one_line,
)
from lightning_cse.runs.files import read_object, write_json
from lightning_cse.runs.locks import Busy
from lightning_cse.runs.redaction import public
from lightning_cse.runs.run import FailedBefore, Outcome

DONE = ("finished", "skipped")
SHOWN = {"skipped": "finished before", "left": "failed before", "busy": "run by another process"}
"""Names of statuses in the table, where these differ."""
_STATUS_OF_ERROR: dict[type, str] = {Busy: "busy", FailedBefore: "left"}
_REFUSED = (ConfigError, DataError, EncoderError)


@dataclass
class PointOutcome:
    """The outcome of a point.

    ``status`` is finished, skipped (finished before), failed, left (failed before), busy, or
    killed. ``metric`` is the key of the score. ``code`` is the exit code that a single run would
    have. A point is ``refused`` if it never began because of its config.
    """

    overrides: Sequence[str]
    status: str = "killed"
    score: float | None = None
    folder: str | None = None
    metric: str | None = None
    reason: str = ""
    code: int = BUG
    refused: bool = False

    @classmethod
    def of(cls, overrides: Sequence[str], result: Any) -> Self:
        """Return the outcome of a task from its error or from what it returned."""
        if isinstance(result, Exception):
            return cls(
                overrides,
                _STATUS_OF_ERROR.get(type(result), "failed"),
                reason=" ".join(one_line(result).split()),
                code=exit_code(result),
                refused=isinstance(result, _REFUSED),
            )

        outcome = result if isinstance(result, Outcome) else Outcome("finished", "")

        return cls(overrides, **asdict(outcome), code=0)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file of a point; raises DataError, which names it, if it is damaged."""
        return cls(**read_object(path, cls, advice="the same command lists the point again"))

    def write(self, path: Path) -> None:
        """Write the file of the point without secrets, whole or not at all."""
        write_json(path, public(asdict(self)))


Report = Callable[[Sequence[PointOutcome], Path], str]


class Sweep:
    """A sweep as its command sees it: a folder with a file ``<number>.json`` per point.

    ``report`` returns the text of its end from the points and the folder, in place of `table`.
    """

    def __init__(
        self, folder: Path, jobs: Sequence[Sequence[str]], report: Report | None = None
    ) -> None:
        self.folder = folder.absolute()
        self.report = report
        self.jobs = {self.folder / f"{number}.json": job for number, job in enumerate(jobs)}
        self._remove()

    def finish(self) -> int:
        """Print the table, and return the exit code; a point without a file was killed."""
        error = sys.exc_info()[1]
        if error is not None and not any(path.is_file() for path in self.jobs):
            self._remove()  # nothing has begun
            return 0

        points = []
        for path, job in self.jobs.items():
            try:
                point = PointOutcome.read(path)
            except FileNotFoundError:
                stopped = isinstance(error, KeyboardInterrupt)
                point = PointOutcome(job, "not finished" if stopped else "killed")
            except LightningCSEError as fault:
                point = PointOutcome(job, "not known", reason=str(fault), code=USER)

            point.overrides = public([line for line in job if not line.startswith("hydra")])
            points.append(point)

        sys.stdout.write(table(points) if self.report is None else self.report(points, self.folder))
        if all(point.refused for point in points):
            self._remove()

        codes = {point.code for point in points}

        return next((code for code in (BUG, USER, BUSY) if code in codes), 0)

    def _remove(self) -> None:
        for path in self.jobs:
            path.unlink(missing_ok=True)

        with contextlib.suppress(OSError):  # anything else in the folder stays
            for folder in (self.folder, *self.folder.parents[:2]):
                folder.rmdir()


def table(points: Sequence[PointOutcome]) -> str:
    """Return one row per point, over its seeds, and below it why points are not finished.

    A run counts once, under the first of the points that mean it (``seed=0,0``, ``lr=0.05,5e-2``).
    """
    import pandas as pd

    shared = set.intersection(*(set(point.overrides) for point in points))
    frame = pd.DataFrame(
        {
            "point": [_name(point, shared, without="seed=") or "all seeds" for point in points],
            "status": [SHOWN.get(point.status, point.status) for point in points],
            "finished": [point.status in DONE for point in points],
            "score": pd.Series([point.score for point in points], dtype=float),
            "metric": [point.metric for point in points],
            "folder": [point.folder or None for point in points],
        }
    )
    is_repeated = frame["folder"].notna() & frame["folder"].duplicated()
    frame.loc[is_repeated, "status"] = "the same as another"
    rows = (
        frame[~is_repeated]
        .groupby("point", sort=False)
        .agg(
            n=("finished", "sum"),
            mean=("score", "mean"),
            sd=("score", "std"),
            score=("metric", "first"),
        )
        .rename(columns={"sd": "s.d."})
        .rename_axis(None)
    )
    if frame["metric"].isna().all():
        rows = rows.drop(columns="score")

    counted = ", ".join(f"{count} {status}" for status, count in Counter(frame["status"]).items())
    lines = [
        rows.to_string(float_format="{:.4f}".format, na_rep="-"),
        "",
        f"{len(points)} point{'' if len(points) == 1 else 's'}: {counted}",
    ]
    unfinished = [point for point in points if point.status not in DONE]
    for point in unfinished:
        status = SHOWN.get(point.status, point.status)
        name = _name(point, shared) or "the point"
        lines.append(f"  {name}: {status}: {point.reason}".rstrip(": "))

    if unfinished:
        advice = "with retry_failed=true tries the failed points again"
        lines.append(f"the same command continues, and {advice}")

    return "\n".join(lines) + "\n"


def _name(point: PointOutcome, shared: Container[str], without: str = "\0") -> str:
    """Return the overrides of a point that not all points share."""
    different = [word for word in point.overrides if word not in shared]
    return " ".join(word for word in different if not word.startswith(without))


def settings_of(points: Sequence[PointOutcome]) -> list[str]:
    """Return what sets each point apart from the others: its overrides that not all of them have,
    and of one that all of them set, the value alone.
    """
    shared = set.intersection(*(set(point.overrides) for point in points))
    different = [[word for word in point.overrides if word not in shared] for point in points]
    keys = {word.partition("=")[0] for words in different for word in words}
    if len(keys) == 1:
        different = [[word.partition("=")[2] for word in words] for words in different]

    return [" ".join(words) or "all" for words in different]
