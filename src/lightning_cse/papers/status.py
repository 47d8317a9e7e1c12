"""What is finished and what is missing: of one artefact, of several, and of a sweep that is running."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightning_cse.papers.artefacts import Published, Request
from lightning_cse.papers.records import RunsIndex, State
from lightning_cse.papers.reproducing import Job, Plan, missing, overrides_of, status, withheld

_STATES: Final[tuple[State, ...]] = ("finished", "running", "interrupted", "failed", "missing")
_LISTED: Final = 12  # commands that are listed one by one


def time_of(jobs: Iterable[Job], records: RunsIndex) -> str:
    """Return how long runs take one after another, by the records of runs like them; + stands for runs without any."""
    known = [records.seconds(job.point) for job in jobs]
    minutes, unknown = sum(seconds or 0 for seconds in known) / 60, known.count(None)
    if unknown == len(known):
        return "?" if known else ""
    return (f"{minutes / 60:.1f} h" if minutes >= 60 else f"{minutes:.0f} min") + ("+" if unknown else "")


def plan_table(plan: Plan, records: RunsIndex) -> RenderableType:
    """Return what is finished and missing of an artefact, row by row, with the commands that run the missing."""
    now, artefact = status([plan]), plan.artefact
    table = _table(artefact.key, "encoder", *_STATES, "time")
    for line in plan.lines:
        states = {job: plan.index.state(job.point, job.seed) for job in plan.jobs(line)}
        if withheld(line):
            states = {job: state for job, state in states.items() if state in ("finished", "running")}
        counts = [str([*states.values()].count(state) or "") for state in _STATES]
        left = [job for job, state in states.items() if state not in ("finished", "running")]
        table.add_row(Text(line.label), line.encoder or "", *counts, time_of(left, records))
    quoted = {line.label: line.way.why for line in plan.lines if isinstance(line.way, Published)}
    notes = [Text(f"published only: {label} ({why})", style="dim") for label, why in quoted.items()]
    jobs = [f"{job.point.command} {shlex.join(overrides_of(job, plan.index))}" for job in missing(now)]
    commands = [Text(f"  python -m lightning_cse.{job}", no_wrap=True, overflow="ignore") for job in jobs[:_LISTED]]
    more = [f"  and {len(jobs) - _LISTED} more"] if len(jobs) > _LISTED else []
    heading = Text(f"{artefact.source}: {artefact.title}{_asked(plan.request)}")
    return Group(heading, "", table, "", *_counts(now, records), *notes, *commands, *more)


def overview_table(plans: Sequence[Plan], records: RunsIndex) -> RenderableType:
    """Return a line for each artefact: what it shows, how many runs are finished and missing, and the time of these."""
    table = _table("artefact", "shows", "finished", "missing", "time")
    for plan in plans:
        now = status([plan])
        counts = (len(now["finished"]), len(now["running"]) + len(missing(now)))
        shown = [str(count or "") for count in counts]
        table.add_row(plan.artefact.key, Text(plan.artefact.title), *shown, time_of(missing(now), records))
    return Group(table, "", f"All of them{_asked(plans[0].request)}, each run once:", *_counts(status(plans), records))


def status_table(plans: Sequence[Plan], records: RunsIndex) -> RenderableType:
    """Return how far runs are: counts, what is running, what failed and why, and the time that remains."""
    now = status(plans)
    table = _table("run", "status")
    for job in now["running"]:
        table.add_row(Text(f"{' '.join(job.point.overrides)} seed={job.seed}"), "running")
    for job in now["failed"]:
        why = plans[0].index.failure(job.point, job.seed)[:400]
        table.add_row(Text(f"{' '.join(job.point.overrides)} seed={job.seed}"), Text(f"failed: {why}"))
    hint = ["--retry-failed runs again what failed"] if now["failed"] else []
    return Group(*([table] if table.rows else []), *hint, *_counts(now, records))


def _table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in titles:
        table.add_column(title, justify="right" if title in (*_STATES, "time") else "left", overflow="fold")
    return table


def _counts(now: Mapping[str, Sequence[Job]], records: RunsIndex) -> list[RenderableType]:
    """Return how many runs are in each state, the time of those that are missing, and why some are not run."""
    total = sum(len(now[state]) for state in _STATES)
    states = ", ".join(f"{len(now[state])} {state}" for state in _STATES if now[state])
    left = time_of(missing(now), records)
    time = (
        f"; time left, one after another: {left}{' (+, ?: unknown for some)' if left[-1] in '+?' else ''}"
        if left
        else ""
    )
    notes = (f"{why} ({len(jobs)} run{'s' * (len(jobs) > 1)})" for why, jobs in now.items() if why not in _STATES)
    return [f"{total} runs: {states or 'none'}{time}", *(Text(note, style="dim") for note in notes)]


def _asked(request: Request) -> str:
    parts = [f"{key} {value}" for key, value in (("profile", request.profile), ("encoder", request.encoder)) if value]
    parts += [f"with {' '.join(request.settings)}"] if request.settings else []
    return f" ({', '.join(parts)})" if parts else ""
