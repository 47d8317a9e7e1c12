"""Tables of what is finished and what is missing: of one artefact, of all, and of a sweep that is running."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightning_cse.papers.artefacts import Published, Request
from lightning_cse.papers.records import RunsIndex, State
from lightning_cse.papers.reproducing import MISSING, Job, Plan, Status, lacking, overrides_of, status

_STATES: Final[tuple[State, ...]] = ("finished", "running", "interrupted", "failed", "missing")
_LISTED: Final = 12  # commands that are listed one by one


def remaining(jobs: Iterable[Job], records: RunsIndex) -> tuple[float, int]:
    """Return the hours that some runs will take by the records of runs like them, and how many have no such record."""
    known = [records.seconds(job.point) for job in jobs]
    return sum(seconds for seconds in known if seconds is not None) / 3600, known.count(None)


def _hours(jobs: Sequence[Job], records: RunsIndex) -> str:
    hours, unknown = remaining(jobs, records)
    if not jobs or unknown == len(jobs):
        return "?" if jobs else ""
    return f"{hours:.1f}{'+' if unknown else ''}" if hours >= 0.1 else f"<0.1{'+' if unknown else ''}"


def _table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in titles:
        table.add_column(title, justify="right" if title in (*_STATES, "hours") else "left", overflow="fold")
    return table


def plan_table(plan: Plan, records: RunsIndex) -> RenderableType:
    """Return what is finished and missing of an artefact, row by row, with the commands that run the missing."""
    table = _table(plan.artefact.key, "encoder", *_STATES, "hours")
    for line in plan.lines:
        jobs = plan.jobs(line)
        states = [plan.index.state(job.point, job.seed) for job in jobs]
        if lacking(line):
            jobs, states = [], [state for state in states if state in ("finished", "running")]
        missing = [job for job, state in zip(jobs, states, strict=False) if state in MISSING]
        counts = [str(states.count(state) or "") for state in _STATES]
        table.add_row(Text(line.label), line.encoder or "", *counts, _hours(missing, records))
    now = status([plan])
    missing = now.of(*MISSING)
    heading = f"{plan.artefact.source}: {plan.artefact.title}{_asked(plan.request)}"
    told = [
        f"only the paper's value: {line.label} ({line.way.why})"
        for line in plan.lines
        if isinstance(line.way, Published)
    ]
    commands = [
        f"  python -m lightning_cse.{job.point.command} {shlex.join(overrides_of(job, plan.index))}" for job in missing
    ]
    more = [f"  and {len(missing) - _LISTED} more"] if len(missing) > _LISTED else []
    counted = f"{len(now.of('finished'))} of {now.total} runs finished{_left(missing, records)}"
    lines = [Text(line, no_wrap=True, overflow="ignore") for line in (*commands[:_LISTED], *more)]
    return Group(heading, "", table, "", counted, *(Text(one, style="dim") for one in (*told, *_withheld(now))), *lines)


def overview_table(plans: Sequence[Plan], records: RunsIndex) -> RenderableType:
    """Return a line for each artefact: what it shows, runs finished and missing, and the hours these take."""
    table = _table("artefact", "shows", "finished", "missing", "hours")
    for plan in plans:
        now = status([plan])
        missing = now.of("running", *MISSING)
        counts = (str(len(jobs) or "") for jobs in (now.of("finished"), missing))
        table.add_row(plan.artefact.key, Text(plan.artefact.title), *counts, _hours(now.of(*MISSING), records))
    now = status(plans)
    counted = f"{len(now.of('finished'))} of {now.total} distinct runs finished{_asked(plans[0].request)}"
    notes = [*_withheld(now), "?, +: no record of such runs says how long they, or some of them, take"]
    return Group(
        table, "", f"{counted}{_left(now.of(*MISSING), records)}", *(Text(note, style="dim") for note in notes)
    )


def status_table(plans: Sequence[Plan], records: RunsIndex) -> RenderableType:
    """Return how far the runs of some artefacts are: counts, what runs, what failed and why, and the time that remains."""
    now = status(plans)
    counts = ", ".join(f"{len(now.of(state))} {state}" for state in _STATES if now.of(state))
    parts: list[RenderableType] = [
        Text(f"{_runs(now.total)}: {counts or 'none'}{_left(now.of('missing', 'interrupted'), records)}", style="bold")
    ]
    parts += [Text(f"running: {_short(job)}") for job in now.of("running")]
    if failed := now.of("failed"):
        table = _table("failed", "why")
        for job in failed:
            table.add_row(Text(_short(job)), Text(plans[0].index.failure(job.point, job.seed)[:400]))
        parts += ["", table, Text("--retry-failed tries them again", style="dim")]
    return Group(*parts, *(Text(note, style="dim") for note in _withheld(now)))


def _withheld(now: Status) -> list[str]:
    return [f"not run: {needs} ({_runs(len(jobs))})" for needs, jobs in now.withheld.items()]


def _left(missing: Sequence[Job], records: RunsIndex) -> str:
    """Return how many runs are missing, and how long they take one after another."""
    hours, unknown = remaining(missing, records)
    if not missing:
        return ""
    time = f"about {hours:.1f} h" if hours >= 1 else f"about {hours * 60:.0f} min"
    if unknown:
        time = "time unknown" if unknown == len(missing) else f"{time}, and {_runs(unknown)} of unknown time"
    return f", {len(missing)} missing ({time}, one after another)"


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _short(job: Job) -> str:
    return f"{' '.join(job.point.overrides)} seed={job.seed}"


def _asked(request: Request) -> str:
    parts = [f"{key} {value}" for key, value in (("profile", request.profile), ("encoder", request.encoder)) if value]
    parts += [f"with {' '.join(request.settings)}"] if request.settings else []
    return f" ({', '.join(parts)})" if parts else ""
