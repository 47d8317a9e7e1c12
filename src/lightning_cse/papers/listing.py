"""Lists the runs that artefacts need on the terminal: how many are in each state, and what runs or
failed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightning_cse.config.compose import CONFIG_DIR
from lightning_cse.papers.artefacts import Published
from lightning_cse.papers.plan import STATES, Job, Plan, missing, overrides_of, status

_LISTED: Final = 12  # commands that are listed one by one

Status = Mapping[str, Sequence[Job]]


def plans_table(plans: Sequence[Plan]) -> RenderableType:
    """Return the number of runs in each state: by artefact, or, for one artefact, by row with the
    commands to run.
    """
    now = status(plans)
    if len(plans) == 1:
        return _plan_table(plans[0], now)
    table = _table("artefact", "shows", *STATES)
    for plan in plans:
        table.add_row(
            plan.artefact.key,
            Text(plan.artefact.title),
            *_counts(status([plan])),
        )
    return Group(
        table,
        "",
        "In total, counting each run once:",
        *_summary(now),
    )


def _plan_table(plan: Plan, now: Status) -> RenderableType:
    table = _table(plan.artefact.key, "encoder", *STATES)
    quoted = {}
    for line in plan.lines:
        table.add_row(
            Text(line.label),
            line.encoder or "",
            *_counts(status([plan], line)),
        )
        if isinstance(line.way, Published):
            quoted[line.label] = line.way.why
    heading = Text(f"{plan.artefact.source}: {plan.artefact.title}")
    notes = [Text(f"published only: {label} ({why})", style="dim") for label, why in quoted.items()]
    commands = [_command(job, plan) for job in missing(now)]
    shown = [Text(line, overflow="fold") for line in commands[:_LISTED]]
    more = [f"  and {len(commands) - _LISTED} more"] if len(commands) > _LISTED else []
    return Group(
        heading,
        "",
        table,
        "",
        *_summary(now),
        *notes,
        *shown,
        *more,
    )


def _command(job: Job, plan: Plan) -> str:
    arguments = overrides_of(job, plan.table)
    if folder := os.environ.get(CONFIG_DIR):
        arguments.append(f"--config-dir={folder}")
    return f"  python -m lightning_cse.{job.point.command} {shlex.join(arguments)}"


def status_table(plans: Sequence[Plan]) -> RenderableType:
    """Return the running runs, the failed runs with the reasons, and the number of runs in each
    state.
    """
    now = status(plans)
    table = _table("run", "status")
    for state in ("running", "failed"):
        for job in now[state]:
            why = plans[0].table.failure(job.point, job.seed)[:400]
            shown = f"{state}: {why}" if why else state
            table.add_row(Text(f"{' '.join(job.point.overrides)} seed={job.seed}"), Text(shown))
    hint = ["--retry-failed reruns what failed"] if now["failed"] else []
    return Group(
        *([table] if table.rows else []),
        *hint,
        *_summary(now),
    )


def _table(*titles: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    for title in titles:
        table.add_column(
            title,
            justify="right" if title in STATES else "left",
            overflow="fold",
        )
    return table


def _counts(now: Status) -> list[str]:
    return [str(len(now[state]) or "") for state in STATES]


def _summary(now: Status) -> list[RenderableType]:
    """Return the number of runs in each state, and the reasons why some are not run."""
    states = ", ".join(f"{len(now[state])} {state}" for state in STATES if now[state])
    total = sum(len(now[state]) for state in STATES)
    lines: list[RenderableType] = [f"{total} runs: {states or 'none'}"]
    for why, jobs in now.items():
        if why not in STATES:
            count = f"{len(jobs)} run{'s' * (len(jobs) > 1)}"
            lines.append(Text(f"{why} ({count})", style="dim"))
    return lines
