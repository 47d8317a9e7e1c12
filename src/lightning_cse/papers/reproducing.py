"""From an artefact's file to its table: what is there, what is missing, run it, put it beside the paper's numbers."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import yaml

from lightning_cse.errors import LightningCSEError, did_you_mean
from lightning_cse.papers.artefacts import Artefact, Baseline, Chosen, Column, Line, Needs, Published, Request
from lightning_cse.papers.cells import Measured, Table, assemble
from lightning_cse.papers.points import (
    Found,
    Point,
    RunsIndex,
    State,
    composed,
    point_key,
    points_of,
    value_at,
    winner,
)
from lightning_cse.papers.render import write
from lightning_cse.papers.staleness import change_of
from lightning_cse.runs import write_atomic

if TYPE_CHECKING:
    from lightning_cse.papers.makers import Made

__all__ = ["Job", "Launch", "Plan", "Reproduction", "kept_records", "run_missing"]

ALL_THERE: Final = 0
BUSY: Final = 3
_SIGNALLED: Final = 128  # by the shell's rule, the exit code of what a signal ended is this and the signal's number
_ENTRIES: Final = ("train", "evaluate")  # in this order: what is trained is evaluated after


@dataclass(frozen=True)
class Job:
    """A run that an artefact needs: a point and a seed."""

    point: Point
    seed: int


@dataclass(frozen=True)
class Launch:
    """How what is missing is run.

    Attributes:
        launcher: the name of a Hydra launcher; None for Hydra's own, one point after another in one process.
        retry_failed: also run what failed before.
        hydra: overrides that begin with ``hydra``, for the command as a whole.
        runs_dir: the folder of all runs.
    """

    runs_dir: Path
    launcher: str | None = None
    retry_failed: bool = False
    hydra: tuple[str, ...] = ()

    def command(self, entry: str, points: Path) -> list[str]:
        """Return the command that runs the points listed in a file."""
        quoted = str(points).replace("\\", "\\\\").replace("'", "\\'")
        return [
            sys.executable,
            "-m",
            f"lightning_cse.{entry}",
            "--multirun",
            f"hydra.sweeper.file='{quoted}'",
            *([f"hydra/launcher={self.launcher}"] if self.launcher else []),
            *self.hydra,
            *(["retry_failed=true"] if self.retry_failed else []),
        ]


class Plan:
    """An artefact as it was asked for: its lines, and the runs that each of them needs.

    Args:
        artefact: the table, figure or text.
        request: the profile, encoder, seeds, settings and rows asked for.
        index: what has been run.
    """

    def __init__(self, artefact: Artefact, request: Request, index: RunsIndex) -> None:
        self.artefact = artefact
        self.request = request
        self.index = index
        self.lines = artefact.lines(request)

    @property
    def stem(self) -> str:
        """The name of the artefact's files: its own, with what was asked for, so that no part overwrites the whole."""
        request = self.request
        parts = [self.artefact.name, request.profile, request.encoder]
        if request.seeds is not None:
            parts.append(f"seeds{'-'.join(map(str, request.seeds))}")
        if request.settings or request.only:
            parts.append(hashlib.sha256(repr((request.settings, request.only)).encode()).hexdigest()[:6])
        return ".".join(part for part in parts if part)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns; for a figure that has none, one that stands for the runs themselves."""
        return self.artefact.columns or (_WHOLE,)

    def jobs(self, line: Line) -> list[Job]:
        """Return the runs that a line needs, as far as they are known.

        A grid is run with the first seed; once it is complete, its winner is needed with the other seeds, too.
        """
        return list(dict.fromkeys(job for column in self.columns for job in self._jobs(line, column)))

    def _jobs(self, line: Line, column: Column) -> Iterator[Job]:
        if column.source == "mean" or (column.source == "config" and not isinstance(line.way, Chosen)):
            return  # made of other columns, or of what the config says without a run
        points = points_of(self.artefact, line, column, self.request)
        if not points:
            return
        seeds = line.seeds
        if isinstance(line.way, Chosen):
            for point in points:
                yield Job(point, seeds[0])
            best = self.winner(line, column)
            seeds, points = seeds[1:], () if best is None else (best,)
        elif isinstance(line.way, Baseline):
            seeds = seeds[:1]  # a baseline does not depend on the seed
        for point in points:
            for seed in seeds[:1] if _has_no_seed(point) else seeds:
                if point.of is not None:
                    yield Job(point.of, seed)
                yield Job(point, seed)

    def winner(self, line: Line, column: Column) -> Point | None:
        """Return the point that a grid's dev scores choose; None while a point of it is missing."""
        if not isinstance(line.way, Chosen):
            return None
        points = points_of(self.artefact, line, column, self.request)
        return winner(self.index, points, line.seeds[:1], line.way.by)

    def measured(self, line: Line, column: Column) -> Measured:
        """Return the finished runs of one cell, by seed."""
        points = points_of(self.artefact, line, column, self.request)
        seeds = line.seeds
        if isinstance(line.way, Chosen):
            best = self.winner(line, column)
            points = () if best is None else (best,)
        if not points:
            return Measured({}, ())
        if isinstance(line.way, Baseline):
            return self._baseline(line.way, points, seeds)
        if _has_no_seed(points[0]):
            seeds = seeds[:1]
        found = {seed: self.index.find(points[0], seed) for seed in seeds}
        return Measured({seed: run for seed, run in found.items() if run is not None}, tuple(seeds))

    def _baseline(self, way: Baseline, points: Iterable[Point], seeds: Sequence[int]) -> Measured:
        """Return the first run that holds the baseline: what it gives does not depend on the seed."""
        for point in points:
            for seed in seeds:
                run = self.index.find(point, seed)
                if run is not None and way.name in (run.record.get("baselines") or {}):
                    return Measured({seed: run}, (seed,))
        return Measured({}, (seeds[0],))

    def setting(self, line: Line, column: Column) -> Any:
        """Return the setting of a config column for a line that has no run; None where a run must choose it."""
        points = points_of(self.artefact, line, column, self.request)
        if not points or isinstance(line.way, Chosen):
            return None
        return value_at(composed(points[0].of or points[0]), column.keys[0])

    def found(self, line: Line) -> list[Found]:
        """Return all finished runs of a line, in the order of its columns and seeds."""
        runs = [run for column in self.columns for run in self.measured(line, column).found.values()]
        return list({run.source: run for run in runs}.values())


_WHOLE = Column(title="", source="metric", keys=(), instead={}, scale=100.0, decimals=2, overrides=())


def _has_no_seed(point: Point) -> bool:
    """Tell whether a point is the evaluation of a named model, which draws nothing."""
    return point.command == "evaluate" and point.of is None


# ------------------------------------------------------------------------------------------------- running the missing


@dataclass
class Standing:
    """How far the runs of some artefacts are.

    Attributes:
        by_state: jobs by their state.
        withheld: jobs that are neither there nor running, and are not run since what their rows need is not set; they
            count nowhere else.
    """

    by_state: dict[State, list[Job]] = field(default_factory=dict)
    withheld: dict[Needs, list[Job]] = field(default_factory=dict)

    def of(self, *states: State) -> list[Job]:
        """Return the jobs in these states."""
        return [job for state in states for job in self.by_state.get(state, ())]

    @property
    def total(self) -> int:
        """The number of jobs that are there or will be run."""
        return sum(map(len, self.by_state.values()))

    def holds(self, job: Job) -> bool:
        """Tell whether a job is withheld."""
        return any(_key(job) == _key(other) for jobs in self.withheld.values() for other in jobs)


def standing(plans: Iterable[Plan]) -> Standing:
    """Return the state of every run that some artefacts need, each run once, however its overrides are written."""
    result = Standing()
    seen: set[tuple[str, int]] = set()
    # What one row waits with another may ask for as well, and then it is run.
    lines = [(plan, line) for plan in plans for line in plan.lines]
    for plan, line in sorted(lines, key=lambda pair: lacking(pair[1]) is not None):
        needs = lacking(line)
        for job in plan.jobs(line):
            if _key(job) in seen:
                continue
            seen.add(_key(job))
            state = plan.index.state(job.point, job.seed)
            if needs is not None and state not in ("finished", "running"):
                result.withheld.setdefault(needs, []).append(job)
            else:
                result.by_state.setdefault(state, []).append(job)
    return result


def _key(job: Job) -> tuple[str, int]:
    return point_key(job.point), job.seed


def lacking(line: Line) -> Needs | None:
    """Return what a line needs if the environment lacks it; the variable set to 0 says no, too."""
    needs = line.needs
    return None if needs is None or os.environ.get(needs.variable, "") not in ("", "0") else needs


def run_missing(plans: Sequence[Plan], launch: Launch, folder: Path) -> int:
    """Run what is missing of some artefacts, and return the exit code of the commands that did.

    Training comes first, then the evaluation of what was trained, then what a grid's winner needs; a run is tried once.

    Args:
        plans: the artefacts.
        launch: how to run.
        folder: where the lists of points are written.
    """
    code = ALL_THERE
    tried: set[Job] = set()
    while True:
        for plan in plans:
            plan.index.refresh()
        now = standing(plans)
        wanted: tuple[State, ...] = ("missing", "interrupted", *(("failed",) if launch.retry_failed else ()))
        waiting = [job for job in now.of(*wanted) if job not in tried]
        entry, ready = _next(waiting, plans[0].index)
        if not ready:
            return _worse(code, BUSY) if now.of("running") else code
        tried.update(ready)
        code = _worse(code, _run(entry, ready, launch, folder, plans[0].index))


def _worse(one: int, other: int) -> int:
    """Return the exit code that says more: others' runs say less than the user's errors, these less than a bug."""
    order = (ALL_THERE, BUSY, 2, 1)
    return max(one, other, key=lambda code: (order.index(code) if code in order else len(order), code))


def _next(waiting: Iterable[Job], index: RunsIndex) -> tuple[Literal["train", "evaluate"], list[Job]]:
    """Return what can be run now with one command: all trainings, else the evaluations whose run is there."""
    by_command: dict[str, list[Job]] = {entry: [] for entry in _ENTRIES}
    for job in waiting:
        if job.point.of is None or index.find(job.point.of, job.seed) is not None:
            by_command[job.point.command].append(job)
    if by_command["train"]:
        return "train", by_command["train"]
    return "evaluate", by_command["evaluate"]


def _run(entry: str, jobs: Sequence[Job], launch: Launch, folder: Path, index: RunsIndex) -> int:
    points = folder / f"{entry}.points.yaml"
    text = yaml.safe_dump(
        [overrides_of(job, index) for job in jobs], default_flow_style=None, width=1000, sort_keys=False
    )
    write_atomic(points, text)
    environment = {**os.environ, "LIGHTNING_CSE_RUNS": str(launch.runs_dir)}
    process = subprocess.Popen(launch.command(entry, points), env=environment)
    try:
        code = process.wait()
        return _SIGNALLED - code if code < 0 else code
    except KeyboardInterrupt:
        # The terminal sent it to the command as well, which saves what it has and ends.
        process.wait()
        raise
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def overrides_of(job: Job, index: RunsIndex | None) -> list[str]:
    """Return the overrides that run a job; an evaluation of a run names its folder, where the run is there."""
    overrides = list(job.point.overrides)
    if job.point.of is not None:
        found = index.find(job.point.of, job.seed) if index is not None else None
        run = "<its run>" if found is None else str(found.folder or found.source)
        overrides.insert(0, f"model={run}")
    elif job.point.command == "train":
        overrides.append(f"seed={job.seed}")
    return overrides


# ------------------------------------------------------------------------------------------------------ what is made


@dataclass(frozen=True)
class Reproduction:
    """An artefact made of what is there: its table, its figures and its text, as far as it has them."""

    plan: Plan
    table: Table | None
    made: Made | None

    def write(self, folder: Path) -> list[Path]:
        """Write table, figures and text to a folder, and return the files."""
        stem = self.plan.stem
        files = write(self.table, folder, stem) if self.table is not None else []
        if self.made is None:
            return files
        if self.made.figures:
            from lightning_cse.plots import plot_style, save_figures

            with plot_style():
                files += save_figures({f"{stem}.{name}.png": f for name, f in self.made.figures.items()}, folder)
        if self.made.text:
            path = folder / f"{stem}.text.md"
            write_atomic(path, self.made.text)
            files.append(path)
        for name, rows in self.made.tables.items():
            path = folder / f"{stem}.{name}.csv"
            write_atomic(path, _csv(rows))
            files.append(path)
        return files


def reproduce(plan: Plan, data_dir: Path | None = None, kept_tests: Path | None = None) -> Reproduction:
    """Make an artefact of the runs that are there.

    Args:
        plan: the artefact as it was asked for.
        data_dir: the corpora, for what is made of data alone; None for those that the profile and the settings name.
        kept_tests: the file of significance tests of an earlier table, used where predictions are not there.
    """
    artefact = plan.artefact
    table = None
    # Where no run fills a line, what is made has the numbers, and a table would have the paper's alone.
    if artefact.columns and not (artefact.make and all(isinstance(line.way, Published) for line in plan.lines)):
        table = assemble(
            artefact,
            plan.lines,
            plan.measured,
            plan.request,
            change_of=change_of,
            kept_tests=kept_tests,
            setting_of=plan.setting,
        )
    made = None
    if artefact.make is not None:
        from lightning_cse.papers.makers import MAKERS, Material

        found = {line: plan.found(line) for line in plan.lines}
        made = MAKERS[artefact.make](Material(artefact, plan.lines, found, data_dir, plan.request))
    return Reproduction(plan, table, made)


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    import csv
    import io

    sink = io.StringIO()
    writer = csv.DictWriter(sink, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue()


# ------------------------------------------------------------------------------------------------------ kept records


def kept_records(experiments: Path) -> list[Path]:
    """Return the folders of the records that are kept beside the artefacts, one a paper."""
    return sorted(folder for folder in experiments.glob("*/results/records") if folder.is_dir())


def keep(reproduction: Reproduction, experiments: Path) -> list[Path]:
    """Write an artefact into ``experiments/<paper>/results/``, with the records and curves it is made of.

    Predictions are not kept, since they may be large; the tests made of them stand in ``<stem>.tests.csv``. A text that
    quotes a corpus is not kept either: its sentences are somebody else's.
    """
    plan = reproduction.plan
    folder = experiments / plan.artefact.paper / "results"
    made = reproduction.made
    if made is not None and made.quotes:
        made = replace(made, text="")
    files = replace(reproduction, made=made).write(folder)
    for line in plan.lines:
        for run in plan.found(line):
            files += _keep_run(run, folder / "records")
    return files


def _keep_run(run: Found, folder: Path) -> list[Path]:
    record = run.record
    name = str(record["name"]).replace("/", "-")
    suffix = "" if "steps" in record else f"-{record.get('suite', 'evaluation')}"
    stem = f"{name}{suffix}-{record['config_hash']}-s{record['seed']}"
    files = [folder / f"{stem}.json"]
    pairs = [(run.source, files[0])]
    if run.curves is not None and run.curves.is_file():
        files.append(folder / f"{stem}.curves.csv")
        pairs.append((run.curves, files[1]))
    folder.mkdir(parents=True, exist_ok=True)
    for source, target in pairs:
        if source.resolve() != target.resolve():
            shutil.copyfile(source, target)
    return files


def check_keys(keys: Sequence[str], artefacts: Mapping[str, Artefact]) -> list[Artefact]:
    """Return the artefacts that a command line names: by key, or all of a paper by the paper's name.

    Raises:
        LightningCSEError: if a name is neither.
    """
    papers = dict.fromkeys(artefact.paper for artefact in artefacts.values())
    chosen: dict[str, Artefact] = {}
    faults = []
    for key in keys:
        if key in artefacts:
            chosen[key] = artefacts[key]
        elif key in papers:
            chosen |= {name: artefact for name, artefact in artefacts.items() if artefact.paper == key}
        else:
            near = did_you_mean(key, [*artefacts, *papers])
            faults.append(f"there is no artefact {key!r}{near}")
    if faults:
        raise LightningCSEError("; ".join(faults) + " (without a name, all of them are listed)")
    return list(chosen.values())
