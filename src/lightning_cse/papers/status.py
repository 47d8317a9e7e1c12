"""What is finished and what is missing: of one artefact, of several, and of a sweep that is running."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightning_cse.papers.artefacts import Published
from lightning_cse.papers.records import State
from lightning_cse.papers.reproducing import Job, Plan, missing, overrides_of, status

_STATES: Final[tuple[State, ...]] = ("finished", "running", "interrupted", "failed", "missing")
_LISTED: Final = 12  # commands that are listed one by one


def plans_table(plans: Sequence[Plan]) -> RenderableType:
    """Return how many runs are in each state: by artefact, or by row of a single one, with the commands to run."""
    now, plan = status(plans), plans[0]
    if len(plans) > 1:
        table = _table("artefact", "shows", *_STATES)
        for one in plans:
            table.add_row(one.artefact.key, Text(one.artefact.title), *_counts(status([one])))
        return Group(table, "", "All of them, each run once:", *_summary(now))
    table = _table(plan.artefact.key, "encoder", *_STATES)
    for line in plan.lines:
        table.add_row(Text(line.label), line.encoder or "", *_counts(status([plan], line)))
    quoted = {line.label: line.way.why for line in plan.lines if isinstance(line.way, Published)}
    notes = [Text(f"published only: {label} ({why})", style="dim") for label, why in quoted.items()]
    jobs = [f"{job.point.command} {shlex.join(overrides_of(job, plan.index))}" for job in missing(now)]
    commands = [Text(f"  python -m lightning_cse.{job}", no_wrap=True, overflow="ignore") for job in jobs[:_LISTED]]
    more = [f"  and {len(jobs) - _LISTED} more"] if len(jobs) > _LISTED else []
    heading = Text(f"{plan.artefact.source}: {plan.artefact.title}")
    return Group(heading, "", table, "", *_summary(now), *notes, *commands, *more)


def status_table(plans: Sequence[Plan]) -> RenderableType:
    """Return how far runs are: what is running, what failed and why, and how many are in each state."""
    now, table = status(plans), _table("run", "status")
    for state in ("running", "failed"):
        for job in now[state]:
            why = f": {plans[0].index.failure(job.point, job.seed)[:400]}" if state == "failed" else ""
            table.add_row(Text(f"{' '.join(job.point.overrides)} seed={job.seed}"), Text(f"{state}{why}"))
    hint = ["--retry-failed runs again what failed"] if now["failed"] else []
    return Group(*([table] if table.rows else []), *hint, *_summary(now))


def _table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in titles:
        table.add_column(title, justify="right" if title in _STATES else "left", overflow="fold")
    return table


def _counts(now: Mapping[str, Sequence[Job]]) -> list[str]:
    return [str(len(now[state]) or "") for state in _STATES]


def _summary(now: Mapping[str, Sequence[Job]]) -> list[RenderableType]:
    """Return how many runs are in each state, and why some are not run."""
    states = ", ".join(f"{len(now[state])} {state}" for state in _STATES if now[state])
    notes = (f"{why} ({len(jobs)} run{'s' * (len(jobs) > 1)})" for why, jobs in now.items() if why not in _STATES)
    total = sum(len(now[state]) for state in _STATES)
    return [f"{total} runs: {states or 'none'}", *(Text(note, style="dim") for note in notes)]
