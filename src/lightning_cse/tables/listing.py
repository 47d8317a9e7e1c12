"""Lists the runs that specs need: how many are in each state, and what runs, failed or is
missing.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lightning_cse.tables.plan import STATES, Job, Plan, missing, overrides_of, status

_LISTED = 12  # commands of a spec that are shown


def overview(plans: Sequence[Plan]) -> str:
    """Return the number of runs of each spec in each state and the minutes that the missing
    ones take, what runs or failed, why some are not run, and, for one spec, the commands to
    run.
    """
    rows = {}
    for plan in plans:
        of_plan = status([plan])
        row: dict[str, Any] = {state: len(of_plan[state]) or "" for state in STATES}
        row["minutes to expect"] = minutes_to_expect(plan, of_plan)
        rows[plan.spec.key, plan.spec.title] = row

    table = pd.DataFrame.from_dict(rows, orient="index").to_string(
        sparsify=False, na_rep="", float_format="{:,.0f}".format
    )
    jobs = status(plans)
    states = [f"{len(jobs[state])} {state}" for state in STATES if jobs[state]]
    total = sum(len(jobs[state]) for state in STATES)
    lines = [table, "", f"{total} runs: {', '.join(states) or 'none'}"]
    lines += [f"{text} ({len(jobs[text])} runs)" for text in jobs if text not in STATES]
    for state in ("running", "failed"):
        for job in jobs[state]:
            command = f"{state}: {' '.join(job.point.overrides)} seed={job.seed}"
            reason = plans[0].table.failure(*job)[:400]
            lines.append(f"{command}: {reason}" if reason else command)

    if jobs["failed"]:
        lines.append("--retry-failed reruns what failed")

    return "\n".join(lines + (_commands(plans[0], missing(jobs)) if len(plans) == 1 else []))


def minutes_to_expect(plan: Plan, states: Mapping[str, Sequence[Job]]) -> float:
    """Return the minutes that the missing runs of a spec take if they take as long as its
    finished ones; NaN if nothing is missing, or nothing finished.
    """
    todo = len(missing(states))
    runs = [plan.table.find(*job) for job in states["finished"]]
    spent = [sum(run.record["seconds"].values()) for run in runs if run and "seconds" in run.record]

    return todo * sum(spent) / len(spent) / 60 if todo and spent else math.nan


def _commands(plan: Plan, jobs: Sequence[Job]) -> list[str]:
    folder = plan.request.config_dir
    flags = [f"--config-dir={folder}"] if folder else []
    lines = []
    for job in jobs[:_LISTED]:
        arguments = shlex.join([*overrides_of(job, plan.table), *flags])
        lines.append(f"  python -m lightning_cse.{job.point.command} {arguments}")

    if len(jobs) > _LISTED:
        lines.append(f"  and {len(jobs) - _LISTED} more")

    return lines
