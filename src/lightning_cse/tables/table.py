"""A table of a spec: the runs that it needs, and the frames that are made from their records."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pandas as pd

from lightning_cse.tables import frame
from lightning_cse.tables.comparisons import TEST_FIELDS, compare, is_comparable
from lightning_cse.tables.effects import effects
from lightning_cse.tables.nested import value_at
from lightning_cse.tables.points import Point, key_of, limited, points_of
from lightning_cse.tables.records import FinishedRun, RunsTable, State
from lightning_cse.tables.spec import COMPUTED, Column, Request, Spec, withheld

if TYPE_CHECKING:
    from lightning_cse.tables.comparisons import Pair

JOBS = ["line", "column", "needs", "point", "seed", "fills", "run"]
"""The columns of `Table.jobs`."""
STATES = get_args(State)
TO_RUN = ("missing", "interrupted", "failed")


@dataclass(frozen=True)
class Table:
    """A spec with the user's choices and the runs on disk.

    ``values``, ``cells``, ``tests`` and ``effects`` are made once, from the runs that are finished
    when they are first asked for; ``dataclasses.replace(table)`` makes them anew.
    """

    spec: Spec
    request: Request
    runs: RunsTable

    @functools.cached_property
    def lines(self) -> pd.DataFrame:
        """A row for each row of the spec and encoder: `Spec.lines`."""
        return self.spec.lines(self.request)

    @property
    def labels(self) -> list[str]:
        """The labels of the rows."""
        return list(dict.fromkeys(self.lines["label"]))

    @property
    def is_shown(self) -> bool:
        """Whether it has cells to show: if no row is measured, a figure or text has the numbers."""
        spec = self.spec
        return bool(spec.columns) and (spec.make is None or (self.lines["published"] == "").any())

    @property
    def stem(self) -> str:
        """The stem of the table's files; it has the request, so that a part does not overwrite the
        whole.
        """
        request = self.request
        parts = [self.spec.name, request.profile, request.encoder]
        if request.seeds:
            parts.append(f"seeds{'-'.join(map(str, request.seeds))}")

        if request.settings or request.only:
            choices = repr((request.settings, request.only))
            parts.append(hashlib.sha256(choices.encode()).hexdigest()[:6])

        return ".".join(part for part in parts if part)

    # Runs

    def jobs(self) -> pd.DataFrame:
        """Return the runs that the table needs now, a row for each cell, point and seed: `JOBS`.

        ``run`` is the finished run, if there is one, and ``fills`` is true if it fills the cell.
        The others are the trainings of evaluations, the points of a grid, and the run from which a
        matched row has its number of steps.

        A grid is run with the first seed; once it is complete, its winner, the first one with the
        best dev score, is run with the other seeds too. A matched row first needs the run that it
        is matched with.
        """
        rows = [
            (line.Index, column.title, line.needs, point, seed, fills, self.runs.find(point, seed))
            for line in self.lines.itertuples()
            for column in self.spec.columns
            if column.source not in COMPUTED
            for point, seed, fills in self._jobs_of(line, column)
        ]

        return pd.DataFrame(rows, columns=JOBS, dtype=object)

    def _jobs_of(self, line: Any, column: Column) -> Iterator[tuple[Point, int, bool]]:
        points = points_of(self.spec, self.request, line, column)
        if points and (matched := self._matched(line, column)):
            steps = self.steps(line, column)
            if steps is None:
                yield *matched, False
                return

            points = tuple(limited(point, steps) for point in points)

        first = line.seeds[0]
        if line.grid:
            yield from ((point, first, False) for point in points)
            points = self._winner(points, first)

        for point in points:
            if line.baseline:  # any run of its row has it, with the same value
                seeds = [seed for seed in line.seeds if self._has_baseline(line, point, seed)]
                yield point, min(seeds, default=first), True
                continue

            for seed in sorted(line.seeds):
                if point.of is not None:
                    yield point.of, seed, False

                yield point, seed, True

    def _winner(self, points: Sequence[Point], seed: int) -> tuple[Point, ...]:
        """Return the point of a grid with the best dev score; none while a run is missing."""
        runs = [run for point in points if (run := self.runs.find(point, seed))]
        if not runs or len(runs) < len(points):
            return ()

        scores = [value_at(run.record, "best.score") for run in runs]

        return (points[scores.index(max(scores))],)

    def _has_baseline(self, line: Any, point: Point, seed: int) -> bool:
        run = self.runs.find(point, seed)
        return run is not None and line.baseline in run.record.get("baselines", ())

    def _matched(self, line: Any, column: Column) -> tuple[Point, int] | None:
        """Return the point and the seed of the run that a line is matched with."""
        label = self.spec.matched(line.of or line.label)
        if label is None:
            return None

        first = self.spec.line(label, self.request, like=line)
        point = points_of(self.spec, self.request, first, column)[0]

        return point.of or point, first.seeds[0]

    def steps(self, line: Any, column: Column) -> int | None:
        """Return the steps of the run that a line is matched with; None while it is missing."""
        matched = self._matched(line, column)
        run = matched and self.runs.find(*matched)

        return run.record["steps"] if run else None

    def finished(self, line: Any = None) -> list[FinishedRun]:
        """Return the finished runs of a line's cells, or of all, each once."""
        jobs = self.jobs()
        jobs = jobs[jobs["fills"].astype(bool) & jobs["run"].notna()]
        if line is not None:
            jobs = jobs[jobs["line"] == line.Index]

        return list(dict.fromkeys(jobs["run"]))

    # Frames

    @functools.cached_property
    def filling(self) -> pd.DataFrame:
        """The jobs that fill cells."""
        jobs = self.jobs()
        return jobs[jobs["fills"].astype(bool)]

    @functools.cached_property
    def values(self) -> pd.DataFrame:
        """The long frame: `lightning_cse.tables.frame.VALUES`."""
        return frame.read_values(self)

    @functools.cached_property
    def pairs(self) -> list[Pair]:
        """What is compared: each line with the reference row or, for ``mcnemar_all``, with every
        other row, in each column, where both cells are of the same metrics of examples.
        """
        weights = frame.weights_of(self.spec)
        return [pair for pair in self._pairs() if is_comparable(self.values, pair, weights)]

    def _pairs(self) -> Iterator[Pair]:
        reference = self.spec.reference
        lines, labels = self.lines, self.labels
        for line in lines.itertuples():
            if reference not in labels or line.label == reference:
                continue

            compared = [reference]
            if self.spec.test == "mcnemar_all":
                compared += labels[labels.index(line.label) + 1 :]

            for label in dict.fromkeys(compared):
                # With the same encoder; a line without one is compared with a row of one line.
                is_other = lines["label"] == label
                if line.encoder:
                    is_other &= lines["encoder"].isin([line.encoder, ""])

                if is_other.sum() == 1:
                    other = lines.index[is_other][0]
                    yield from ((line.Index, other, column.title) for column in self.spec.columns)

    @functools.cached_property
    def comparisons(self) -> pd.DataFrame:
        """All comparisons that could be made: `lightning_cse.tables.comparisons.compare`."""
        return compare(self.values, self.pairs, frame.weights_of(self.spec))

    @property
    def tests(self) -> pd.DataFrame:
        """The comparisons as they are kept."""
        return self.comparisons[TEST_FIELDS]

    @functools.cached_property
    def effects(self) -> pd.DataFrame:
        """The means and the differences over the seeds."""
        return effects(self.values, self.spec.columns, self.spec.reference)

    @functools.cached_property
    def cells(self) -> pd.DataFrame:
        """A row for each line and column: `lightning_cse.tables.frame.read_cells`."""
        return frame.read_cells(self)

    @functools.cached_property
    def symbols(self) -> dict[str, str]:
        """The symbols of the marks of all cells."""
        return frame.symbols_of(self.cells["marks"])


def status(tables: Sequence[Table]) -> pd.DataFrame:
    """Return each run that the tables need, once: `JOBS`, the ``key`` of its point, and its
    ``state`` or the reason not to run it.

    A training that is kept as a record only is missing if an evaluation of it is: its weights are
    gone.
    """
    runs = tables[0].runs
    jobs = pd.concat([table.jobs() for table in tables], ignore_index=True)
    jobs["key"] = [key_of(point) for point in jobs["point"]]
    jobs["is_withheld"] = [withheld(needs) for needs in jobs["needs"]]
    # Withheld lines come last: a run that another line needs as well is run.
    jobs = jobs.sort_values("is_withheld", kind="stable").drop_duplicates(["key", "seed"])
    states: list[str] = []
    for job in jobs.itertuples():
        state: str = runs.state(job.point, job.seed)
        if job.is_withheld and state not in ("finished", "running"):
            state = f"not run: {job.needs}"

        states.append(state)

    jobs["state"] = states
    evaluations = [job for job in missing(jobs).itertuples() if job.point.of]
    evaluated = {(key_of(job.point.of), job.seed) for job in evaluations}
    for job in jobs[jobs["run"].notna()].itertuples():
        if job.run.folder is None and (job.key, job.seed) in evaluated:
            jobs.loc[job.Index, "state"] = "missing"

    return jobs


def missing(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of `status` that are neither finished nor running nor withheld."""
    return jobs[jobs["state"].isin(TO_RUN)]


def trained(job: Any, runs: RunsTable) -> Path | None:
    """Return the folder of the training that a run evaluates, if there is one with its weights."""
    run = job.point.of and runs.find(job.point.of, job.seed)

    return run.folder if run else None


def overrides_of(job: Any, runs: RunsTable) -> list[str]:
    """Return the overrides that run a job of `status`; an evaluation of a run names the folder of
    that run.
    """
    overrides = list(job.point.overrides)
    if job.point.of is not None:
        return [f"model={trained(job, runs) or '<its run>'}", *overrides]

    return overrides if job.point.command == "evaluate" else [*overrides, f"seed={job.seed}"]
