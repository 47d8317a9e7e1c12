"""Reproduces artefacts: plans the runs, runs those that are missing, and makes tables beside the paper's numbers."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import yaml
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as Listing
from rich.text import Text

from lightning_cse.config.compose import CONFIG_DIR
from lightning_cse.errors import BUSY, ConfigError, did_you_mean
from lightning_cse.papers.artefacts import (
    Artefact,
    Baseline,
    Chosen,
    Column,
    Line,
    Published,
    Request,
)
from lightning_cse.papers.nested import value_at
from lightning_cse.papers.points import Point, composed, limited, points_of
from lightning_cse.papers.records import Found, Key, Measured, RunsIndex, State, kept_name, key_of
from lightning_cse.papers.render import write
from lightning_cse.papers.staleness import change_of
from lightning_cse.papers.tables import Assembly, Table
from lightning_cse.runs import write_atomic

if TYPE_CHECKING:
    from lightning_cse.papers.figures import Made

_STATES: Final = get_args(State)
_LISTED: Final = 12  # commands that are listed one by one
_WHOLE: Final = Column(
    "", "metric", ()
)  # stands for the runs themselves in a figure without columns


@dataclass(frozen=True)
class Job:
    """A point and a seed."""

    point: Point
    seed: int


class Plan:
    """An artefact with a request: its lines, and the runs that each line needs."""

    def __init__(self, artefact: Artefact, request: Request, index: RunsIndex) -> None:
        self.artefact, self.request, self.index = artefact, request, index
        self.lines = artefact.lines(request)
        self.columns = artefact.columns or (_WHOLE,)

    @property
    def stem(self) -> str:
        """The stem of the artefact's files: its name and the request, so that a part does not overwrite the whole."""
        request = self.request
        seeds = f"seeds{'-'.join(map(str, request.seeds))}" if request.seeds else ""
        digest = hashlib.sha256(repr((request.settings, request.only)).encode()).hexdigest()[:6]
        rest = digest if request.settings or request.only else ""
        return ".".join(
            filter(None, [self.artefact.name, request.profile, request.encoder, seeds, rest])
        )

    def points(self, line: Line, column: Column) -> tuple[Point, ...]:
        """Return the points of a cell; a matched row has none until the run that it is matched with is finished."""
        points, job = (
            points_of(self.artefact, self.request, line, column),
            self.matched(line, column),
        )
        if job is None or (run := self.index.find(job.point, job.seed)) is None:
            return points if job is None else ()
        return tuple(
            limited(point, next(iter(self.artefact.match)), run.record) for point in points
        )

    def matched(self, line: Line, column: Column) -> Job | None:
        """Return the run that a line is matched with."""
        label = self.artefact.matched(line.way.of if isinstance(line.way, Baseline) else line.label)
        if label is None:
            return None
        other = self.artefact.line(label, self.request, like=line)
        point = points_of(self.artefact, self.request, other, column)[0]
        return Job(point.of or point, other.seeds[0])

    def jobs(self, line: Line) -> list[Job]:
        """Return the runs that a line needs.

        A grid is run with the first seed; once it is complete, its winner is run with the other seeds too. A matched
        row first needs the run that it is matched with.
        """
        return list(
            dict.fromkeys(job for column in self.columns for job in self._jobs(line, column))
        )

    def _jobs(self, line: Line, column: Column) -> Iterator[Job]:
        points, seeds = self.points(line, column), line.seeds
        if column.source == "mean" or (
            column.source == "config" and not isinstance(line.way, Chosen)
        ):
            return  # made of other columns, or of the config without a run
        if not points and (job := self.matched(line, column)) is not None:
            yield job
        if isinstance(line.way, Chosen):
            yield from (Job(point, seeds[0]) for point in points)
            points, seeds = self.winner(line, column), seeds[1:]
        elif isinstance(line.way, Baseline):
            seeds = seeds[:1]  # it does not depend on the seed
        for job in (Job(point, seed) for point in points for seed in seeds):
            yield from [job] if job.point.of is None else [Job(job.point.of, job.seed), job]

    def winner(self, line: Line, column: Column) -> tuple[Point, ...]:
        """Return the best point of a grid with the first seed, none while one is missing; the first wins a tie."""
        by, points = getattr(line.way, "by", ""), self.points(line, column)
        found = {
            point: run
            for point in points
            if (run := self.index.find(point, line.seeds[0])) is not None
        }
        scores = {point: value_at(run.record, by) for point, run in found.items()}
        if None in scores.values():
            raise ConfigError(
                [f"{self.artefact.path}: rows.{line.label}.choose: a record has no {by!r}"]
            )
        return (
            (max(scores, key=scores.__getitem__),) if scores and len(scores) == len(points) else ()
        )

    def measured(self, line: Line, column: Column) -> Measured:
        """Return the finished runs of a cell by seed; a baseline takes the first run that has it."""
        points, seeds = (
            (self.winner if isinstance(line.way, Chosen) else self.points)(line, column),
            line.seeds,
        )
        if not points:
            return Measured()
        found = {
            seed: run for seed in seeds if (run := self.index.find(points[0], seed)) is not None
        }
        if isinstance(line.way, Baseline):
            having = [
                seed
                for seed, run in found.items()
                if line.way.name in (run.record.get("baselines") or {})
            ]
            return Measured(
                {seed: found[seed] for seed in having[:1]}, tuple(having[:1] or seeds[:1])
            )
        return Measured(found, seeds)

    def setting(self, line: Line, column: Column) -> Any:
        """Return the setting of a config column for a line that has no run; None if a run must choose it."""
        points = () if isinstance(line.way, Chosen) else self.points(line, column)
        return value_at(composed(points[0].of or points[0]), column.keys[0]) if points else None

    def found(self, line: Line) -> list[Found]:
        """Return all finished runs of a line, in the order of its columns and seeds."""
        runs = [
            run for column in self.columns for run in self.measured(line, column).found.values()
        ]
        return list({run.source: run for run in runs}.values())


def status(plans: Iterable[Plan], only: Line | None = None) -> dict[str, list[Job]]:
    """Return each run that the artefacts or only one line need, once, by its state or the reason not to run it."""
    found: dict[str, list[Job]] = {state: [] for state in _STATES}
    seen: set[Key] = set()
    lines = [(plan, line) for plan in plans for line in plan.lines if only in (None, line)]
    # Withheld lines come last: a run that another line needs as well is run.
    for plan, line in sorted(lines, key=lambda pair: withheld(pair[1])):
        for job in plan.jobs(line):
            key = (job.seed, *key_of(job.point))
            if key not in seen:
                seen.add(key)
                state = plan.index.state(job.point, job.seed)
                fixed = state in ("finished", "running") or not withheld(line)
                found.setdefault(state if fixed else f"not run: {line.needs}", []).append(job)
    return found


def missing(status: Mapping[str, Sequence[Job]]) -> list[Job]:
    """Return the runs that are neither finished nor running nor withheld."""
    return [*status["missing"], *status["interrupted"], *status["failed"]]


def withheld(line: Line) -> bool:
    """Return whether a line needs an environment variable that is not set, or is 0."""
    return line.needs is not None and os.environ.get(line.needs.variable, "") in ("", "0")


def run_missing(
    plans: Sequence[Plan], folder: Path, options: Sequence[str] = (), *, retry_failed: bool = False
) -> int:
    """Run the missing runs of some artefacts, and return the exit code of the first command that failed.

    Training comes first, then the evaluation of the trained models, then the runs of a grid's winner. Each run is tried
    once. ``options`` apply to the commands as a whole, such as ``hydra/launcher=joblib``.
    """
    code, index = 0, plans[0].index
    tried: set[Job] = set()
    while True:
        index.refresh()
        now = status(plans)
        waiting = [
            job
            for job in missing(now)
            if job not in tried and (retry_failed or job not in now["failed"])
        ]
        ready = [
            job for job in waiting if job.point.of is None or index.find(job.point.of, job.seed)
        ]
        if not ready:
            return code or (BUSY if now["running"] else 0)
        command = "train" if any(job.point.command == "train" for job in ready) else "evaluate"
        jobs = [job for job in ready if job.point.command == command]
        tried.update(jobs)
        points = (
            folder / f"{command}-{os.getpid()}.points.yaml"
        )  # another process may reproduce something else
        write_atomic(points, yaml.safe_dump([overrides_of(job, index) for job in jobs], width=1000))
        file = str(points).replace("\\", "\\\\").replace("'", "\\'")
        line = [
            sys.executable,
            "-m",
            f"lightning_cse.{command}",
            "--multirun",
            f"hydra.sweeper.file='{file}'",
        ]
        line += [*options, *(["retry_failed=true"] if retry_failed else [])]
        ended = _run(line, {**os.environ, "LIGHTNING_CSE_RUNS": str(index.runs_dir)})
        code = ended if code in (0, BUSY) and ended else code


def _config_dir() -> list[str]:
    """Return the argument that gives a command the configs of one's own, which it otherwise has by the environment."""
    folder = os.environ.get(CONFIG_DIR)
    return [f"--config-dir={folder}"] if folder else []


def _run(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command; if this process is interrupted or terminated, wait while the command saves its state."""
    process = subprocess.Popen(command, env=environment)
    try:
        code = process.wait()
    except BaseException as stop:
        if type(stop) is not KeyboardInterrupt:  # the terminal has interrupted the command as well
            process.terminate()
        process.wait()
        raise
    return 128 - code if code < 0 else code  # as the shell reports a command that a signal ended


def overrides_of(job: Job, index: RunsIndex) -> list[str]:
    """Return the overrides that run a job; an evaluation of a run names the folder of that run."""
    if job.point.of is not None:
        found = index.find(job.point.of, job.seed)
        return [
            f"model={'<its run>' if found is None else found.folder or found.source}",
            *job.point.overrides,
        ]
    return [*job.point.overrides, *([f"seed={job.seed}"] if job.point.command == "train" else [])]


@dataclass(frozen=True)
class Reproduction:
    """An artefact made from the finished runs: its table, its figures and its text, where it has them."""

    plan: Plan
    table: Table | None
    made: Made | None

    def write(self, folder: Path) -> list[Path]:
        """Write table, figures and text to a folder, and return the files."""
        stem, made = self.plan.stem, self.made
        files = write(self.table, folder, stem) if self.table is not None else []
        if made is None:
            return files
        if made.figures:
            from lightning_cse.plots import save_figures

            files += save_figures(
                {f"{stem}.{name}.png": one for name, one in made.figures.items()}, folder
            )
        texts = {"text.md": made.text} if made.text else {}
        for name, rows in made.tables.items():
            texts[f"{name}.csv"] = pd.DataFrame(list(rows), dtype=object).to_csv(
                index=False, lineterminator="\n"
            )
        for name, text in texts.items():
            files.append(folder / f"{stem}.{name}")
            write_atomic(files[-1], text)
        return files


def reproduce(plan: Plan, kept_tests: Path | None = None) -> Reproduction:
    """Make an artefact from the finished runs.

    Figures and texts made from data alone read the corpora of the profile and the settings. Significance tests with
    the same seeds and means are taken from the file of an earlier table, ``kept_tests``, and need no predictions.
    """
    artefact, lines = plan.artefact, plan.lines
    table = made = None
    # If no row is measured, the figure or text has the numbers, and a table would have only the paper's.
    if artefact.columns and not (
        artefact.make and all(isinstance(line.way, Published) for line in lines)
    ):
        assembly = Assembly(artefact, lines, plan.measured, plan.request, change_of, plan.setting)
        table = assembly.table(kept_tests)
    if artefact.make is not None:
        from lightning_cse.papers.figures import Material, make

        made = make(
            Material(artefact, lines, {line: plan.found(line) for line in lines}, plan.request)
        )
    return Reproduction(plan, table, made)


def kept_records(experiments: Path) -> list[Path]:
    """Return the folders of the records that are kept beside the artefacts."""
    return sorted(experiments.glob("*/results/records"))


def keep(reproduction: Reproduction, experiments: Path) -> list[Path]:
    """Write an artefact into ``experiments/<paper>/results/``, with the records and curves that no paper keeps yet.

    Predictions are not kept, since they may be large. A text that quotes a corpus is not kept, since the corpus has its
    own licence.
    """
    plan, made = reproduction.plan, reproduction.made
    folder = experiments / plan.artefact.paper / "results"
    if made is not None and made.quotes:
        reproduction = replace(reproduction, made=replace(made, text=""))
    files = reproduction.write(folder)
    (folder / "records").mkdir(parents=True, exist_ok=True)
    found = [one for line in plan.lines for run in plan.found(line) for one in (run, run.training)]
    for run in dict.fromkeys(filter(None, found)):
        # The digests are in ``decisive`` too, and the learning rates follow from the config.
        record = {
            key: value for key, value in run.record.items() if key not in ("data", "task_data")
        }
        texts = {".json": json.dumps(record, indent=2, ensure_ascii=False) + "\n"}
        if run.curves_path.is_file():
            lines = run.curves_path.read_text(encoding="utf-8").splitlines(keepends=True)
            texts[".curves.csv"] = "".join(
                line for line in lines if ",train/learning_rate," not in line
            )
        for ending, text in texts.items():
            name = f"{kept_name(record)}{ending}"
            others = experiments.glob(f"*/results/records/{name}")
            if all(file.read_text(encoding="utf-8") != text for file in others):
                files.append(folder / "records" / name)
                write_atomic(files[-1], text)
    return files


def check_keys(keys: Sequence[str], artefacts: Mapping[str, Artefact]) -> list[Artefact]:
    """Return the artefacts that a command line names: by key, or all of a paper by its name."""
    known = {*artefacts, *(artefact.paper for artefact in artefacts.values())}
    if unknown := [
        f"there is no artefact {key!r}{did_you_mean(key, known)}"
        for key in keys
        if key not in known
    ]:
        raise ConfigError(unknown)
    return [artefact for key, artefact in artefacts.items() if {key, artefact.paper} & set(keys)]


# Finished and missing runs --------------------------------------------------------------------------------------------


def plans_table(plans: Sequence[Plan]) -> RenderableType:
    """Return the number of runs in each state: by artefact, or, for one artefact, by row with the commands to run."""
    now, plan = status(plans), plans[0]
    if len(plans) > 1:
        table = _table("artefact", "shows", *_STATES)
        for one in plans:
            table.add_row(one.artefact.key, Text(one.artefact.title), *_counts(status([one])))
        return Group(table, "", "In total, counting each run once:", *_summary(now))
    table = _table(plan.artefact.key, "encoder", *_STATES)
    for line in plan.lines:
        table.add_row(Text(line.label), line.encoder or "", *_counts(status([plan], line)))
    quoted = {line.label: line.way.why for line in plan.lines if isinstance(line.way, Published)}
    notes = [Text(f"published only: {label} ({why})", style="dim") for label, why in quoted.items()]
    jobs = [
        f"{job.point.command} {shlex.join([*overrides_of(job, plan.index), *_config_dir()])}"
        for job in missing(now)
    ]
    commands = [
        Text(f"  python -m lightning_cse.{job}", no_wrap=True, overflow="ignore")
        for job in jobs[:_LISTED]
    ]
    more = [f"  and {len(jobs) - _LISTED} more"] if len(jobs) > _LISTED else []
    heading = Text(f"{plan.artefact.source}: {plan.artefact.title}")
    return Group(heading, "", table, "", *_summary(now), *notes, *commands, *more)


def status_table(plans: Sequence[Plan]) -> RenderableType:
    """Return the running runs, the failed runs with the reasons, and the number of runs in each state."""
    now, table = status(plans), _table("run", "status")
    for state in ("running", "failed"):
        for job in now[state]:
            why = (
                f": {plans[0].index.failure(job.point, job.seed)[:400]}"
                if state == "failed"
                else ""
            )
            table.add_row(
                Text(f"{' '.join(job.point.overrides)} seed={job.seed}"), Text(f"{state}{why}")
            )
    hint = ["--retry-failed reruns what failed"] if now["failed"] else []
    return Group(*([table] if table.rows else []), *hint, *_summary(now))


def _table(*titles: str) -> Listing:
    table = Listing(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in titles:
        table.add_column(title, justify="right" if title in _STATES else "left", overflow="fold")
    return table


def _counts(now: Mapping[str, Sequence[Job]]) -> list[str]:
    return [str(len(now[state]) or "") for state in _STATES]


def _summary(now: Mapping[str, Sequence[Job]]) -> list[RenderableType]:
    """Return the number of runs in each state, and the reasons why some are not run."""
    states = ", ".join(f"{len(now[state])} {state}" for state in _STATES if now[state])
    notes = (
        f"{why} ({len(jobs)} run{'s' * (len(jobs) > 1)})"
        for why, jobs in now.items()
        if why not in _STATES
    )
    total = sum(len(now[state]) for state in _STATES)
    return [f"{total} runs: {states or 'none'}", *(Text(note, style="dim") for note in notes)]
