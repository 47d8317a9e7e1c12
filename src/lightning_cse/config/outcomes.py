"""What became of the points of a sweep: each leaves a word in its folder, and the driver makes a summary of them.

A job of a multirun runs in this process or, under another launcher, anywhere. What it has to say goes to
``<hydra.sweep.dir>/<number of the job>/outcome.json``; a job that was killed says nothing, and is missed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, filter_overrides
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig

from lightning_cse.config.causes import user_error
from lightning_cse.runs import FailedBefore, Run, write_atomic

Kind = Literal["finished", "skipped", "failed", "left", "busy"]
"""``skipped`` was finished before, ``left`` failed before and is not tried again, ``busy`` is run by somebody else."""

BASIC_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
JOBLIB_LAUNCHER = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"

_NAMES: Mapping[Kind | None, str] = {
    "finished": "done now",
    "skipped": "done before",
    "failed": "failed",
    "left": "failed before, left alone",
    "busy": "being run by somebody else",
    None: "left no word",
}


def in_sweep() -> bool:
    """Whether this is a point of a multirun."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def leave_failed(cfg: DictConfig, folder: Run) -> None:
    """In a multirun, leave a point alone that failed before: the others are what the command is given again for.

    Args:
        cfg: the point's config; with ``retry_failed`` or ``force``, it is tried again.
        folder: its run folder, whose lock is held.

    Raises:
        FailedBefore: if it is to be left alone.
    """
    if in_sweep() and folder.status == "failed" and not (cfg.retry_failed or cfg.force):
        raise FailedBefore(f"{folder.path} failed before ({folder.reason()}): retry_failed=true tries it again")


# ----------------------------------------------------------------------------------------------------- the point's word


@dataclass(frozen=True)
class Outcome:
    """The word of one point.

    ``folder`` is its run folder, where it came so far; ``reason`` one line for whatever is not there; ``by_user`` says
    of a failure that it is the user's to mend; ``score`` is what the sweeper got.
    """

    overrides: tuple[str, ...]
    outcome: Kind
    folder: str | None = None
    reason: str = ""
    by_user: bool = False
    seconds: float = 0.0
    score: float | None = None


@dataclass
class Told:
    """What a running point has told of itself so far, see `tell`."""

    folder: Path | None = None
    skipped: bool = False


_NOW: ContextVar[Told | None] = ContextVar("told", default=None)


@contextlib.contextmanager
def listening() -> Iterator[Told]:
    """Give what is told with `tell` inside the block."""
    told = Told()
    token = _NOW.set(told)
    try:
        yield told
    finally:
        _NOW.reset(token)


def tell(folder: Path, *, skipped: bool = False) -> None:
    """Tell the sweep, if there is one, which run folder this point has, and whether it was finished before."""
    if (told := _NOW.get()) is not None:
        told.folder, told.skipped = folder, skipped


def place(job: HydraConf) -> Path:
    """Return where a job leaves its word.

    Args:
        job: Hydra's own config, ``HydraConfig.get()``.
    """
    return _word(Path(job.runtime.cwd, job.sweep.dir), int(job.job.num or 0))


def write(path: Path, outcome: Outcome) -> None:
    """Write a point's word, whole or not at all.

    Raises:
        LightningCSEError: if the disk is full.
    """
    word = asdict(outcome)
    if outcome.score is not None and not math.isfinite(outcome.score):
        word["score"] = None
    write_atomic(path, json.dumps(word, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read(path: Path) -> Outcome | None:
    """Return a point's word, or None where it left none that can be read."""
    try:
        word: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        outcome = Outcome(**word | {"overrides": tuple(word["overrides"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return outcome if outcome.outcome in get_args(Kind) else None


def one_line(error: BaseException, most: int = 300) -> str:
    """Return an exception in one line, its type first."""
    message = " ".join(str(error).split())
    line = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _word(folder: Path, number: int) -> Path:
    return folder / str(number) / "outcome.json"


# ------------------------------------------------------------------------------------------------- the driver's summary


class Sweep:
    """What the driver knows of its sweep: which points there are, and where each leaves its word."""

    def __init__(self) -> None:
        self._points: dict[Path, str] = {}
        self._broken = ""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """See every point that a sweeper gives to a launcher inside the block, and how the launcher ends."""
        # Callbacks are not told which points there will be, and a sweeper's list of them is its own; all sweepers get
        # their launcher here.
        original = Plugins.instantiate_launcher

        def instantiate(
            plugins: Plugins, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
        ) -> Launcher:
            launcher = original(plugins, hydra_context, task_function, config)
            return _Watched(launcher, self, Path(config.hydra.sweep.dir).absolute())

        Plugins.instantiate_launcher = instantiate  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            Plugins.instantiate_launcher = original  # type: ignore[method-assign]

    def begin(self, folder: Path, points: Sequence[Sequence[str]], first: int) -> None:
        """Note points that are about to start; words of an earlier sweep in the same folder are not theirs.

        Args:
            folder: ``hydra.sweep.dir``.
            points: the overrides of each.
            first: the number of the first.
        """
        for number, overrides in enumerate(points, start=first):
            path = _word(folder, number)
            self._points[path] = " ".join(filter_overrides(overrides)) or f"#{number}"
            path.unlink(missing_ok=True)

    def broke(self, error: Exception) -> None:
        """Note that the launcher itself failed."""
        self._broken = one_line(error, 500)

    @property
    def began(self) -> bool:
        """Whether any point has left a word."""
        return any(word is not None for _, word in self._words())

    def verdict(self) -> Literal["good", "user", "bug", "busy"]:
        """Say what the sweep lacks points by: a bug or a crash, the user's errors, or nothing but others' runs."""
        words = self._words()
        lacking = [word for _, word in words if word is None or word.outcome not in ("finished", "skipped")]
        if self._broken or any(w is None or (w.outcome == "failed" and not w.by_user) for w in lacking):
            return "bug"
        if any(w is not None and w.outcome != "busy" for w in lacking):
            return "user"
        return "busy" if lacking else "good"

    def summary(self) -> str:
        """Return how many points are there, and each that is not with its reason; empty if no point was begun."""
        words = self._words()
        if not words:
            return f"error: {self._breakdown()}\n" if self._broken else ""
        counts = {
            kind: sum(w is None if kind is None else w is not None and w.outcome == kind for _, w in words)
            for kind in _NAMES
        }
        counted = ", ".join(f"{count} {_NAMES[kind]}" for kind, count in counts.items() if count)
        verdict = self.verdict()
        lines = [f"{'error: ' if verdict in ('bug', 'user') else ''}{_points(len(words))}: {counted}"]
        for kind in ("failed", "left", "busy", None):
            for overrides, word in words:
                if (word.outcome if word is not None else None) == kind:
                    reason = f": {word.reason}" if word is not None and word.reason else ""
                    lines.append(f"  {_NAMES[kind]}: {overrides}{reason}")
        if self._broken:
            lines.append(self._breakdown())
        if counts["failed"] + counts["left"]:
            lines.append("retry_failed=true tries the failed ones again, force=true starts everything anew")
        if counts[None]:
            lines.append("a point that left no word was killed, or not reached; the same command goes on with it")
        if counts["busy"]:
            lines.append("the same command, given when the others are through, finds what they ran")
        return "\n".join(lines) + "\n"

    def _breakdown(self) -> str:
        killed = "TerminatedWorkerError" in self._broken
        advice = "; mostly that is memory: run fewer at once with hydra.launcher.n_jobs" if killed else ""
        return f"the launcher broke down: {self._broken}{advice} (HYDRA_FULL_ERROR=1 shows the traceback)"

    def _words(self) -> list[tuple[str, Outcome | None]]:
        return [(overrides, read(path)) for path, overrides in self._points.items()]


def _points(count: int) -> str:
    return f"{count} point{'' if count == 1 else 's'}"


class _Watched(Launcher):
    """A launcher that tells the sweep what it is given. It stands before the real one, which may be pickled whole."""

    def __init__(self, launcher: Launcher, sweep: Sweep, folder: Path) -> None:
        self._launcher = launcher
        self._sweep = sweep
        self._folder = folder

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._launcher.setup(hydra_context=hydra_context, task_function=task_function, config=config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        self._sweep.begin(self._folder, job_overrides, initial_job_idx)
        try:
            return self._launcher.launch(job_overrides, initial_job_idx)
        except Exception as error:
            # Points raise nothing. In this process that leaves Hydra's own messages, which are good; other launchers
            # break down with pages of the traceback of a pool.
            target = f"{type(self._launcher).__module__}.{type(self._launcher).__qualname__}"
            if target == BASIC_LAUNCHER:
                raise
            if user_error(error) is None:  # else told as any error of the user's
                self._sweep.broke(error)
            if os.environ.get("HYDRA_FULL_ERROR") == "1":
                raise
            raise SystemExit(1) from error
