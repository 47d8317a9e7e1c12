"""The points of a sweep: each writes its outcome where it runs, and the command prints a table of them at the end."""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from lightning_cse.errors import BUG, BUSY, USER, exit_code, one_line

DONE: Final = ("finished", "skipped")
SHOWN: Final = {"skipped": "finished before", "left": "failed before", "busy": "run by another process"}
"""What a status is called in the table, where that is not its own name."""
ADVICE: Final = {
    "failed": "retry_failed=true tries the failed points again, in a sweep",
    "left": "retry_failed=true tries the failed points again",
    "killed": "killed points left no outcome, or were never started; the same command continues with them",
}


@dataclass
class Point:
    """What became of a point: finished, skipped (finished before), failed, left (failed before), busy, or killed.

    ``code`` is the exit code that a single run would have.
    """

    overrides: Sequence[str]
    status: str = "killed"
    score: float | None = None
    folder: str | None = None
    reason: str = ""
    code: int = BUG

    @classmethod
    def of_result(cls, overrides: Sequence[str], result: Any) -> Point:
        """The outcome of a task that returned a `lightning_cse.runs.Outcome`, or nothing."""
        found = {key: getattr(result, key) for key in ("status", "score", "folder") if hasattr(result, key)}
        return cls(overrides, **({"status": "finished"} | found), code=0)

    @classmethod
    def of_error(cls, overrides: Sequence[str], error: Exception) -> Point:
        """The outcome of a task that raised."""
        status = {"Busy": "busy", "FailedBefore": "left"}.get(type(error).__name__, "failed")
        return cls(overrides, status, reason=" ".join(one_line(error).split()), code=exit_code(error))


class Outcomes(Callback):
    """Writes ``<hydra.sweep.dir>/<number>.json`` when a point ends, in the process that runs it."""

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Write what became of the point; it was killed if it does not come so far."""
        if not in_sweep() or not isinstance(job_return.return_value, Point):
            return
        path = Path(config.hydra.runtime.cwd, str(config.hydra.sweep.dir), f"{config.hydra.job.num}.json")
        scratch = path.with_suffix(".tmp")
        scratch.write_text(json.dumps(asdict(job_return.return_value), indent=2) + "\n", encoding="utf-8")
        scratch.replace(path)


class Sweep:
    """A sweep as its command sees it: its points in their order, and the files of their outcomes.

    Args:
        folder: ``hydra.sweep.dir``; outcomes of an earlier sweep in it are removed.
        jobs: the overrides of each point.
    """

    def __init__(self, folder: Path, jobs: Sequence[Sequence[str]]) -> None:
        self.folder = folder.absolute()
        self.jobs = {self.folder / f"{number}.json": job for number, job in enumerate(jobs)}
        self._remove_outcomes()

    def points(self) -> list[Point]:
        """Return what became of every point."""
        found = []
        for path, job in self.jobs.items():
            point = Point(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else Point(job)
            point.overrides = [one for one in job if not one.startswith("hydra")]
            found.append(point)
        return found

    def finish(self) -> int:
        """Print what became of the points, and return the exit code they ask for."""
        points = self.points()
        sys.stdout.write(table(points))
        codes = {point.code for point in points}
        if all(point.code == USER and point.folder is None and point.status == "failed" for point in points):
            self._remove_outcomes()
            with contextlib.suppress(OSError):  # anything else in the folder stays
                self.folder.rmdir()
                self.folder.parent.rmdir()
        return next((code for code in (BUG, USER, BUSY) if code in codes), 0)

    def _remove_outcomes(self) -> None:
        for path in self.jobs:
            path.unlink(missing_ok=True)


current: Sweep | None = None
"""The sweep of this process, noted by the sweeper: Hydra gives its callers no other way to it."""


def in_sweep() -> bool:
    """Whether this is a point of a sweep."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def table(points: Sequence[Point]) -> str:
    """Return a row a point, over its seeds, and below them why points are not finished."""
    common = set.intersection(*(set(point.overrides) for point in points))
    rows: dict[str, list[Point]] = {}
    reasons: dict[str, list[str]] = {}
    for point in points:
        own = [one for one in point.overrides if one not in common]
        rows.setdefault(" ".join(one for one in own if not one.startswith("seed=")) or "all seeds", []).append(point)
        if point.status not in DONE:
            reason = f"{SHOWN.get(point.status, point.status)}: {point.reason}".rstrip(": ")
            reasons.setdefault(reason, []).append(" ".join(own) or "the point")
    cells = [("point", "n", "mean", "s.d.", "not finished")]
    for name, group in rows.items():
        done = [point for point in group if point.status in DONE]
        scores = [point.score for point in done if point.score is not None]
        mean = f"{statistics.fmean(scores):.4f}" if scores else "-"
        spread = f"{statistics.stdev(scores):.4f}" if len(scores) > 1 else "-"
        cells.append((name, str(len(done)), mean, spread, _counted(point for point in group if point not in done)))
    width = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        f"{a:<{width[0]}}  {b:>{width[1]}}  {c:>{width[2]}}  {d:>{width[3]}}  {e}".rstrip() for a, b, c, d, e in cells
    ]
    lines += ["", f"{len(points)} point{'' if len(points) == 1 else 's'}: {_counted(points)}"]
    lines += [f"  {reason} ({'; '.join(which)})" for reason, which in reasons.items()]
    lines += dict.fromkeys(ADVICE[point.status] for point in points if point.status in ADVICE)
    return "\n".join(lines) + "\n"


def _counted(points: Iterator[Point] | Sequence[Point]) -> str:
    counts = Counter(SHOWN.get(point.status, point.status) for point in points)
    return ", ".join(f"{count} {status}" for status, count in counts.items())


@contextlib.contextmanager
def one_gpu(cfg: DictConfig) -> Iterator[None]:
    """Take a free GPU for a point of a joblib sweep, if there are several, and make it the one that ``cuda`` means."""
    accelerator = OmegaConf.select(cfg, "trainer.accelerator") or OmegaConf.select(cfg, "accelerator")
    count = 0
    if in_sweep() and "joblib" in HydraConfig.get().launcher._target_ and accelerator in ("auto", "gpu", "cuda"):
        import torch

        count = torch.cuda.device_count()
    if count < 2:
        yield
        return
    from filelock import FileLock, Timeout

    folder = Path(HydraConfig.get().runtime.cwd, HydraConfig.get().sweep.dir)
    locks = [FileLock(folder / f"gpu-{socket.gethostname()}-{device}.lock", timeout=0) for device in range(count)]
    while True:
        for device, lock in enumerate(locks):
            with contextlib.suppress(Timeout), lock:
                torch.cuda.set_device(device)  # the environment comes too late for a worker's second point
                yield
                torch.cuda.empty_cache()
                return
        time.sleep(1.0)
