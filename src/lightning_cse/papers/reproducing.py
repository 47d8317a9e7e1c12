"""From an artefact's file to its table: which runs it needs, run what is missing, put it beside the paper's numbers."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from lightning_cse.errors import BUSY, ConfigError, LightningCSEError, did_you_mean
from lightning_cse.papers.artefacts import Artefact, Baseline, Chosen, Column, Line, Published, Request
from lightning_cse.papers.cells import Table, assemble
from lightning_cse.papers.nested import value_at
from lightning_cse.papers.points import Point, composed, points_of
from lightning_cse.papers.records import Found, Key, Measured, RunsIndex, State, key_of
from lightning_cse.papers.render import write
from lightning_cse.papers.staleness import change_of
from lightning_cse.runs import write_atomic

if TYPE_CHECKING:
    from lightning_cse.papers.makers import Made

_WHOLE: Final = Column("", "metric", ())  # of a figure without columns: stands for the runs themselves
_SEVERITY: Final = (0, BUSY, 2, 1)  # exit codes, the least severe first; then all others


@dataclass(frozen=True)
class Job:
    """A point and a seed."""

    point: Point
    seed: int


class Plan:
    """An artefact as it was asked for: its lines, and the runs that each of them needs."""

    def __init__(self, artefact: Artefact, request: Request, index: RunsIndex) -> None:
        self.artefact, self.request, self.index = artefact, request, index
        self.lines = artefact.lines(request)
        self.columns = artefact.columns or (_WHOLE,)

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

    def points(self, line: Line, column: Column) -> tuple[Point, ...]:
        """Return the points of a cell."""
        return points_of(self.artefact, line, column, self.request)

    def jobs(self, line: Line) -> list[Job]:
        """Return the runs that a line needs.

        A grid is run with the first seed; once it is complete, its winner is needed with the other seeds too.
        """
        return list(dict.fromkeys(job for column in self.columns for job in self._jobs(line, column)))

    def _jobs(self, line: Line, column: Column) -> Iterator[Job]:
        points, seeds = self.points(line, column), line.seeds
        if column.source == "mean" or (column.source == "config" and not isinstance(line.way, Chosen)):
            return  # made of other columns, or of the config without a run
        if isinstance(line.way, Chosen):
            yield from (Job(point, seeds[0]) for point in points)
            best = self.winner(line, column)
            points, seeds = () if best is None else (best,), seeds[1:]
        elif isinstance(line.way, Baseline):
            seeds = seeds[:1]  # it does not depend on the seed
        for job in (Job(point, seed) for point in points for seed in seeds):
            yield from [job] if job.point.of is None else [Job(job.point.of, job.seed), job]

    def winner(self, line: Line, column: Column) -> Point | None:
        """Return the best point of a grid with the first seed; None while one is missing. Of equals the first wins."""
        if not isinstance(line.way, Chosen):
            return None
        found = {point: self.index.find(point, line.seeds[0]) for point in self.points(line, column)}
        scores = {point: value_at(run.record, line.way.by) for point, run in found.items() if run is not None}
        if wrong := [point for point, score in scores.items() if not isinstance(score, int | float)]:
            source = getattr(found[wrong[0]], "source", "")
            raise ConfigError([f"{self.artefact.path}: rows.{line.label}.choose: {source} has no {line.way.by!r}"])
        return max(scores, key=scores.__getitem__) if scores and len(scores) == len(found) else None

    def measured(self, line: Line, column: Column) -> Measured:
        """Return the finished runs of a cell by seed; a baseline takes the first run that has it."""
        points, seeds = self.points(line, column), line.seeds
        if isinstance(line.way, Chosen):
            best = self.winner(line, column)
            points = () if best is None else (best,)
        if not points:
            return Measured()
        found = {seed: run for seed in seeds if (run := self.index.find(points[0], seed)) is not None}
        if isinstance(line.way, Baseline):
            having = [seed for seed, run in found.items() if line.way.name in (run.record.get("baselines") or {})]
            return Measured({seed: found[seed] for seed in having[:1]}, tuple(having[:1] or seeds[:1]))
        return Measured(found, seeds)

    def setting(self, line: Line, column: Column) -> Any:
        """Return the setting of a config column for a line that has no run; None if a run must choose it."""
        points = self.points(line, column)
        if not points or isinstance(line.way, Chosen):
            return None
        return value_at(composed(points[0].of or points[0]), column.keys[0])

    def found(self, line: Line) -> list[Found]:
        """Return all finished runs of a line, in the order of its columns and seeds."""
        runs = [run for column in self.columns for run in self.measured(line, column).found.values()]
        return list({run.source: run for run in runs}.values())


@dataclass
class Status:
    """The runs of some artefacts, each once: by state, and by their rows' needs those that are withheld."""

    by_state: dict[State, list[Job]] = field(default_factory=dict)
    withheld: dict[str, list[Job]] = field(default_factory=dict)

    def of(self, *states: State) -> list[Job]:
        """Return the jobs in these states."""
        return [job for state in states for job in self.by_state.get(state, ())]

    @property
    def total(self) -> int:
        """The number of jobs that are finished or will be run."""
        return sum(map(len, self.by_state.values()))


MISSING: Final[tuple[State, ...]] = ("missing", "interrupted", "failed")


def status(plans: Iterable[Plan]) -> Status:
    """Return the state of every run that some artefacts need.

    Withheld is what is neither finished nor running, and needs a variable that the environment lacks (or has as 0).
    """
    result = Status()
    seen: set[Key] = set()
    lines = [(plan, line) for plan in plans for line in plan.lines]
    # What a withheld row needs may be needed by another row as well, and is run then.
    for plan, line in sorted(lines, key=lambda pair: lacking(pair[1])):
        for job in plan.jobs(line):
            key = (job.seed, *key_of(job.point))
            if key not in seen:
                seen.add(key)
                state = plan.index.state(job.point, job.seed)
                withheld = lacking(line) and state not in ("finished", "running")
                (
                    result.withheld.setdefault(str(line.needs), [])
                    if withheld
                    else result.by_state.setdefault(state, [])
                ).append(job)
    return result


def lacking(line: Line) -> bool:
    """Return whether a line needs a variable that the environment lacks, or has as 0."""
    return line.needs is not None and os.environ.get(line.needs.variable, "") in ("", "0")


# Running what is missing ---------------------------------------------------------------------------------------------


def run_missing(plans: Sequence[Plan], folder: Path, options: Sequence[str] = (), *, retry_failed: bool = False) -> int:
    """Run what is missing of some artefacts, and return the most severe exit code of the commands.

    Training comes first, then the evaluation of what was trained, then what a grid's winner needs; a run is tried once.

    Args:
        plans: The artefacts, with one index.
        folder: Where the lists of points are written.
        options: Overrides for the commands as a whole, such as ``hydra/launcher=joblib``.
        retry_failed: Also run what failed before.
    """
    code, tried, index = 0, set(), plans[0].index
    if retry_failed:
        options = [*options, "retry_failed=true"]
    while True:
        index.refresh()
        now = status(plans)
        waiting = [job for job in now.of(*MISSING[: 3 if retry_failed else 2]) if job not in tried]
        ready = [job for job in waiting if job.point.of is None or index.find(job.point.of, job.seed)]
        command = min((job.point.command for job in ready), key=["train", "evaluate"].index, default=None)
        if command is None:
            return _worse(code, BUSY if now.of("running") else 0)
        jobs = [job for job in ready if job.point.command == command]
        tried.update(jobs)
        points = folder / f"{command}.points.yaml"
        write_atomic(points, yaml.safe_dump([overrides_of(job, index) for job in jobs], width=1000))
        quoted = str(points).replace("\\", "\\\\").replace("'", "\\'")
        line = [
            sys.executable,
            "-m",
            f"lightning_cse.{command}",
            "--multirun",
            f"hydra.sweeper.file='{quoted}'",
            *options,
        ]
        code = _worse(code, _run(line, {**os.environ, "LIGHTNING_CSE_RUNS": str(index.runs_dir)}))


def _worse(*codes: int) -> int:
    return max(codes, key=lambda code: (_SEVERITY.index(code) if code in _SEVERITY else len(_SEVERITY), code))


def _run(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command, which saves what it has when this process is interrupted or ended."""
    process = subprocess.Popen(command, env=environment)
    try:
        code = process.wait()
        return 128 - code if code < 0 else code  # by the shell's rule for what a signal ended
    except KeyboardInterrupt:
        process.wait()  # the terminal has interrupted it as well
        raise
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def overrides_of(job: Job, index: RunsIndex) -> list[str]:
    """Return the overrides that run a job; an evaluation of a run names its folder."""
    if job.point.of is not None:
        found = index.find(job.point.of, job.seed)
        return [f"model={'<its run>' if found is None else found.folder or found.source}", *job.point.overrides]
    return [*job.point.overrides, *([f"seed={job.seed}"] if job.point.command == "train" else [])]


# What is made --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reproduction:
    """An artefact made of the runs there are: its table, its figures and its text, as far as it has them."""

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
        import pandas as pd

        texts = {f"{stem}.text.md": self.made.text} if self.made.text else {}
        tables = {
            f"{stem}.{name}.csv": pd.DataFrame(list(rows), dtype=object) for name, rows in self.made.tables.items()
        }
        for name, text in (
            texts | {name: table.to_csv(index=False, lineterminator="\n") for name, table in tables.items()}
        ).items():
            write_atomic(folder / name, text)
            files.append(folder / name)
        return files


def reproduce(plan: Plan, data_dir: Path | None = None, kept_tests: Path | None = None) -> Reproduction:
    """Make an artefact of the runs that are there.

    Args:
        plan: The artefact as it was asked for.
        data_dir: The corpora for what is made of data alone; None for those of the profile and the settings.
        kept_tests: The file of significance tests of an earlier table, used where predictions are missing.
    """
    artefact, lines = plan.artefact, plan.lines
    table = made = None
    # Without a row that is measured, what is made has the numbers, and a table would have the paper's alone.
    if artefact.columns and not (artefact.make and all(isinstance(line.way, Published) for line in lines)):
        asked = (artefact, lines, plan.measured, plan.request)
        table = assemble(*asked, change_of=change_of, kept_tests=kept_tests, setting_of=plan.setting)
    if artefact.make is not None:
        from lightning_cse.papers.makers import MAKERS, Material

        found = {line: plan.found(line) for line in lines}
        made = MAKERS[artefact.make](Material(artefact, lines, found, data_dir, plan.request))
    return Reproduction(plan, table, made)


def kept_records(experiments: Path) -> list[Path]:
    """Return the folders of the records that are kept beside the artefacts."""
    return sorted(experiments.glob("*/results/records"))


def keep(reproduction: Reproduction, experiments: Path) -> list[Path]:
    """Write an artefact into ``experiments/<paper>/results/``, with the records and curves it is made of.

    Predictions are not kept, since they may be large, nor a text that quotes a corpus, which has its own licence.
    """
    plan, made = reproduction.plan, reproduction.made
    folder = experiments / plan.artefact.paper / "results"
    if made is not None and made.quotes:
        reproduction = replace(reproduction, made=replace(made, text=""))
    files = reproduction.write(folder)
    (folder / "records").mkdir(parents=True, exist_ok=True)
    for run in (run for line in plan.lines for run in plan.found(line)):
        suite = "" if "steps" in run.record else f"-{run.record.get('suite', 'evaluation')}"
        name = f"{run.record['name'].replace('/', '-')}{suite}-{run.record['config_hash']}-s{run.record['seed']}"
        for source, ending in ((run.source, ".json"), (run.curves, ".curves.csv")):
            target = folder / "records" / f"{name}{ending}"
            if source is not None and source.resolve() != target.resolve():
                shutil.copyfile(source, target)
            files += [target] if source is not None else []
    return files


def check_keys(keys: Sequence[str], artefacts: Mapping[str, Artefact]) -> list[Artefact]:
    """Return the artefacts that a command line names: by key, or all of a paper by its name.

    Raises:
        LightningCSEError: If a name is neither.
    """
    papers = {artefact.paper for artefact in artefacts.values()}
    if unknown := [key for key in keys if key not in artefacts and key not in papers]:
        near = (f"there is no artefact {key!r}{did_you_mean(key, [*artefacts, *papers])}" for key in unknown)
        raise LightningCSEError("; ".join(near))
    chosen = [name for key in keys for name, artefact in artefacts.items() if key in (name, artefact.paper)]
    return [artefacts[name] for name in dict.fromkeys(chosen)]
