"""What is there of an artefact's runs, for the eye: a plan, a map of all artefacts, the live state of a sweep."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightning_cse.papers.artefacts import Needs, Published, Request
from lightning_cse.papers.cells import few
from lightning_cse.papers.points import RunsIndex, State
from lightning_cse.papers.reproducing import Job, Plan, Standing, overrides_of, standing

__all__ = ["Estimate", "map_of", "plan_of", "status_of"]

_STATES: Final[tuple[State, ...]] = ("finished", "running", "interrupted", "failed", "missing")
_TITLES: Final = {"finished": "done"}
_LISTED: Final = 12  # commands that are listed one by one
_SECONDS_AN_HOUR: Final = 3600.0
_LEAST_HOURS: Final = 0.1


class Estimate:
    """How long some runs will take, from the records of runs like them.

    Args:
        jobs: the runs.
        records: where runs like them may be found.
    """

    def __init__(self, jobs: Iterable[Job], records: RunsIndex) -> None:
        known = [records.seconds(job.point) for job in jobs]
        self.seconds = sum(seconds for seconds in known if seconds is not None)
        self.unknown = sum(seconds is None for seconds in known)
        self.runs = len(known)

    def __str__(self) -> str:
        """Return the time, and how many runs no record speaks of."""
        if self.runs and self.unknown == self.runs:
            return "no record says how long such runs take"
        told = f"about {_duration(self.seconds)}, one after another"
        return f"{told}, and {_runs(self.unknown)} that no record speaks of" if self.unknown else told

    @property
    def short(self) -> str:
        """The same for a narrow column: a plus stands for runs that no record speaks of."""
        if self.unknown and self.unknown == self.runs:
            return "?"
        hours = self.seconds / _SECONDS_AN_HOUR
        told = f"{hours:.1f}" if hours >= _LEAST_HOURS else "<0.1"
        return f"{told}+" if self.unknown else told


def plan_of(plan: Plan, records: RunsIndex) -> RenderableType:
    """Return what is there of an artefact and what is missing, row by row, with the commands that run the missing."""
    artefact = plan.artefact
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(artefact.key, overflow="fold")
    table.add_column("encoder")
    for state in _STATES:
        table.add_column(_TITLES.get(state, state), justify="right")
    table.add_column("hours", justify="right")
    now = standing([plan])
    withheld: dict[Needs, list[str]] = {}
    for line in plan.lines:
        if isinstance(line.way, Published):
            table.add_row(Text(line.label), line.encoder or "", *[""] * len(_STATES), "")
            continue
        every = plan.jobs(line)
        jobs = [job for job in every if not now.holds(job)]
        if len(jobs) < len(every) and line.needs is not None:
            withheld.setdefault(line.needs, []).append(line.label)
        states = [plan.index.state(job.point, job.seed) for job in jobs]
        counts = [str(states.count(state) or "") for state in _STATES]
        missing = [job for job, state in zip(jobs, states, strict=True) if state not in ("finished", "running")]
        table.add_row(
            Text(line.label), line.encoder or "", *counts, Estimate(missing, records).short if missing else ""
        )
    missing = now.of("missing", "interrupted", "failed")
    parts: list[RenderableType] = [Text(_heading(plan)), Text(), table, Text()]
    there = len(now.of("finished"))
    told = f"{there} of {now.total} runs {_are(there)} there, {len(missing)} {_are(len(missing))} missing"
    if missing:
        told += f": {Estimate(missing, records)}"
    parts.append(Text(told))
    parts.extend(
        Text(f"only the paper's value: {line.label} ({line.way.why})", style="dim")
        for line in plan.lines
        if isinstance(line.way, Published)
    )
    parts.extend(_not_run(now, withheld))
    commands = (f"  {command_of(job, plan.index)}" for job in missing[:_LISTED])
    parts.extend(Text(command, no_wrap=True, overflow="ignore") for command in commands)
    if len(missing) > _LISTED:
        parts.append(Text(f"  and {len(missing) - _LISTED} more"))
    return Group(*parts)


def command_of(job: Job, index: RunsIndex) -> str:
    """Return the command that runs one job alone."""
    return f"python -m lightning_cse.{job.point.command} {shlex.join(overrides_of(job, index))}"


def map_of(plans: Sequence[Plan], records: RunsIndex, request: Request) -> RenderableType:
    """Return one line an artefact: what it shows, runs done and missing, and the hours that are missing."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("artefact", no_wrap=True)
    table.add_column("shows", overflow="fold")
    for title in ("done", "missing", "hours"):
        table.add_column(title, justify="right")
    for plan in plans:
        now = standing([plan])
        missing = now.of("missing", "interrupted", "failed")
        hours = Estimate(missing, records).short if missing else ""
        lacking = str(len(missing) + len(now.of("running")) or "")
        table.add_row(plan.artefact.key, Text(plan.artefact.title), str(len(now.of("finished")) or ""), lacking, hours)
    now = standing(plans)
    told = (
        f"{len(now.of('finished'))} of {now.total} distinct runs are there"
        f"{_asked(request)}; what is missing: "
        f"{Estimate(now.of('missing', 'interrupted', 'failed'), records)}"
    )
    about_plus = Text("a + stands for runs that no record speaks of", style="dim")
    return Group(table, Text(), Text(told), *_not_run(now), about_plus)


def status_of(plans: Sequence[Plan], records: RunsIndex) -> RenderableType:
    """Return how far the runs of some artefacts are: counts, who runs what, what failed and why, time that remains."""
    now = standing(plans)
    index = plans[0].index
    counts = ", ".join(f"{len(now.of(state))} {_TITLES.get(state, state)}" for state in _STATES if now.of(state))
    parts: list[RenderableType] = [Text(f"{_runs(now.total)}: {counts or 'none'}", style="bold")]
    running = now.of("running")
    if running:
        parts += [Text(), *(Text(f"running: {_short(job)}") for job in running)]
    if now.of("failed"):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("failed", overflow="fold")
        table.add_column("why", overflow="fold")
        for job in now.of("failed"):
            failure = index.failure(job.point, job.seed) or {}
            why = " ".join(str(failure.get("message", "")).split())
            table.add_row(Text(_short(job)), Text(f"{failure.get('type', '')}: {why}"[:400]))
        parts += [Text(), table, Text("--retry-failed tries them again", style="dim")]
    left = now.of("missing", "interrupted")
    if left:
        parts += [
            Text(),
            Text(f"{_runs(len(left))} still to do: {Estimate(left, records)}"),
        ]
    return Group(*parts, *_not_run(now))


def _not_run(now: Standing, rows: Mapping[Needs, Sequence[str]] | None = None) -> Iterator[Text]:
    """Yield why some runs are withheld and what runs them, a line for each reason."""
    for needs, jobs in now.withheld.items():
        labels = list(dict.fromkeys((rows or {}).get(needs, ())))
        of = f": {few(labels)}" if labels else ""
        yield Text(f"not run: {needs} ({_runs(len(jobs))}{of})", style="dim")


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _short(job: Job) -> str:
    return f"{' '.join(job.point.overrides)} seed={job.seed}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _heading(plan: Plan) -> str:
    return f"{plan.artefact.source}: {plan.artefact.title}{_asked(plan.request)}"


def _asked(request: Request) -> str:
    parts = [
        f"profile {request.profile}" if request.profile else "",
        f"encoder {request.encoder}" if request.encoder else "",
    ]
    parts += [f"with {' '.join(request.settings)}" if request.settings else ""]
    told = ", ".join(part for part in parts if part)
    return f" ({told})" if told else ""
