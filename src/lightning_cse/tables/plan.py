"""The runs that a spec needs: their commands, seeds and states, and those that are
finished.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from lightning_cse.tables.nested import value_at
from lightning_cse.tables.points import Point, key_of, limited, points_of
from lightning_cse.tables.records import FinishedRun, RunsTable, State
from lightning_cse.tables.spec import COMPUTED, Column, Line, Request, Spec

STATES = get_args(State)
TO_RUN = ("missing", "interrupted", "failed")


class Job(NamedTuple):
    """A point and a seed."""

    point: Point
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        """What the record of the run has: the key of the point, and the seed."""
        return key_of(self.point), self.seed


class Plan:
    """A spec with a request: its lines, and the runs that each line needs."""

    def __init__(self, spec: Spec, request: Request, table: RunsTable) -> None:
        self.spec = spec
        self.request = request
        self.table = table
        self.lines = spec.lines(request)

    @property
    def stem(self) -> str:
        """The stem of the spec's files; it has the request, so that a part does not overwrite
        the whole.
        """
        request = self.request
        parts = [self.spec.name, request.profile, request.encoder]
        if request.seeds:
            parts.append(f"seeds{'-'.join(map(str, request.seeds))}")

        if request.settings or request.only:
            choices = repr((request.settings, request.only))
            parts.append(hashlib.sha256(choices.encode()).hexdigest()[:6])

        return ".".join(part for part in parts if part)

    # What is to be run

    def points(self, line: Line, column: Column) -> tuple[Point, ...]:
        """Return the points of a cell; a matched row has none until the run that it is matched with
        is finished.
        """
        points = points_of(self.spec, self.request, line, column)
        if self.matched(line, column) is None:
            return points

        steps = self.steps(line, column)

        return tuple(limited(point, steps) for point in points) if steps else ()

    def steps(self, line: Line, column: Column) -> int | None:
        """Return the steps of the run that a line is matched with; None while it is missing."""
        job = self.matched(line, column)
        run = job and self.table.find(*job)

        return run.record["steps"] if run else None

    def matched(self, line: Line, column: Column) -> Job | None:
        """Return the run that a line is matched with."""
        label = self.spec.matched(line.row.of or line.label)
        if label is None:
            return None

        first = self.spec.line(label, self.request, like=line)
        point = points_of(self.spec, self.request, first, column)[0]

        return Job(point.of or point, first.seeds[0])

    def chosen(self, line: Line, column: Column) -> tuple[Point, ...]:
        """Return the points that fill a cell: of a grid, that with the best dev score of the first
        seed.

        None of a grid is chosen while one is missing; the first wins a tie.
        """
        points = self.points(line, column)
        if not line.row.grid or not points:
            return points

        runs = [self.table.find(point, line.seeds[0]) for point in points]
        scores = [value_at(run.record, "best.score") for run in runs if run is not None]

        return (points[scores.index(max(scores))],) if len(scores) == len(points) else ()

    def jobs(self, line: Line) -> list[Job]:
        """Return the runs that a line needs.

        A grid is run with the first seed; once it is complete, its winner is run with the other
        seeds too. A matched row first needs the run that it is matched with.
        """
        jobs = [job for column in self.spec.columns for job in self._jobs(line, column)]
        return list(dict.fromkeys(jobs))

    def _jobs(self, line: Line, column: Column) -> Iterator[Job]:
        if column.source in COMPUTED:
            return

        points = self.points(line, column)
        if not points and (job := self.matched(line, column)) is not None:
            yield job
        if line.row.grid:
            yield from (Job(point, line.seeds[0]) for point in points)

        for point in self.chosen(line, column):
            for seed in self.seeds(line, column):
                if point.of is not None:
                    yield Job(point.of, seed)

                yield Job(point, seed)

    def seeds(self, line: Line, column: Column) -> tuple[int, ...]:
        """Return the seeds that a cell should have; none while its point is not known."""
        if not self.chosen(line, column):
            return ()

        return line.seeds[:1] if line.row.baseline else line.seeds  # it needs no seed

    # What is finished

    def runs(self, line: Line, column: Column) -> list[FinishedRun]:
        """Return the finished runs of a cell by seed; for a baseline, the first that has it."""
        points = self.chosen(line, column)
        runs = self.table.finished(points[0], line.seeds) if points else []
        if line.row.baseline:
            runs = [run for run in runs if line.row.baseline in run.record.get("baselines", ())][:1]

        return runs

    def finished(self, line: Line) -> list[FinishedRun]:
        """Return all finished runs of a line, in the order of its columns and seeds."""
        runs = (run for column in self.spec.columns for run in self.runs(line, column))
        return list(dict.fromkeys(runs))


def status(plans: Iterable[Plan]) -> dict[str, list[Job]]:
    """Return each run that the specs need, once, by its state or the reason not to run it.

    A training that is kept as a record only is missing if an evaluation of it is: its weights are
    gone.
    """
    jobs: dict[str, list[Job]] = {state: [] for state in STATES}
    listed: set[tuple[str, int]] = set()
    without_weights: dict[tuple[str, int], Job] = {}
    lines = [(plan, line) for plan in plans for line in plan.lines]
    # Withheld lines come last: a run that another line needs as well is run.
    for plan, line in sorted(lines, key=lambda pair: withheld(pair[1])):
        for job in plan.jobs(line):
            if job.key in listed:
                continue

            listed.add(job.key)
            state: str = plan.table.state(*job)
            if withheld(line) and state not in ("finished", "running"):
                state = f"not run: {line.needs}"

            jobs.setdefault(state, []).append(job)
            if state in TO_RUN and job.point.of is not None:
                training = Job(job.point.of, job.seed)
                run = plan.table.find(*training)
                if run is not None and run.folder is None:
                    without_weights[training.key] = training

    finished = [job for job in jobs["finished"] if job.key not in without_weights]

    return jobs | {"finished": finished, "missing": [*without_weights.values(), *jobs["missing"]]}


def trained(job: Job, table: RunsTable) -> Path | None:
    """Return the folder of the training that a run evaluates, if there is one with its weights."""
    run = job.point.of and table.find(job.point.of, job.seed)

    return run.folder if run else None


def missing(status: Mapping[str, Sequence[Job]]) -> list[Job]:
    """Return the runs that are neither finished nor running nor withheld."""
    return [job for state in TO_RUN for job in status[state]]


def withheld(line: Line) -> bool:
    """Return whether a line needs an environment variable that is not set, or is 0."""
    return line.needs is not None and os.environ.get(line.needs.variable, "") in ("", "0")


def overrides_of(job: Job, table: RunsTable) -> list[str]:
    """Return the overrides that run a job; an evaluation of a run names the folder of that run."""
    overrides = list(job.point.overrides)
    if job.point.of is not None:
        return [f"model={trained(job, table) or '<its run>'}", *overrides]

    return overrides if job.point.command == "evaluate" else [*overrides, f"seed={job.seed}"]
