"""Lists the runs that tables need: how many are in each state, and what runs, failed or is
missing.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

import pandas as pd

from lightning_cse.tables.table import STATES, Table, missing, overrides_of, status

_LISTED = 12  # commands of a table that are shown


def overview(tables: Sequence[Table]) -> str:
    """Return the number of runs of each table in each state and the minutes that the missing
    ones take, what runs or failed, why some are not run, and, for one table, the commands to
    run.
    """
    rows = {}
    for table in tables:
        jobs = status([table])
        counts = jobs["state"].value_counts()
        rows[table.spec.key, table.spec.title] = {
            **{state: counts.get(state, "") for state in STATES},
            "minutes to expect": minutes_to_expect(jobs),
        }

    frame = pd.DataFrame.from_dict(rows, orient="index")
    lines = [frame.to_string(sparsify=False, na_rep="", float_format="{:,.0f}".format), ""]
    jobs = status(tables)
    counts = jobs["state"].value_counts(sort=False)
    states = [f"{counts[state]} {state}" for state in STATES if state in counts]
    total = jobs["state"].isin(STATES).sum()
    lines.append(f"{total} runs: {', '.join(states) or 'none'}")
    lines += [f"{text} ({count} runs)" for text, count in counts.items() if text not in STATES]
    for state in ("running", "failed"):
        for job in jobs[jobs["state"] == state].itertuples():
            command = f"{state}: {' '.join(job.point.overrides)} seed={job.seed}"
            reason = tables[0].runs.failure(job.point, job.seed)[:400]
            lines.append(f"{command}: {reason}" if reason else command)

    if "failed" in counts:
        lines.append("--retry-failed reruns what failed")

    return "\n".join(lines + (_commands(tables[0], missing(jobs)) if len(tables) == 1 else []))


def minutes_to_expect(jobs: pd.DataFrame) -> float:
    """Return the minutes that the missing runs of `status` take if they take as long as the
    finished ones; NaN if nothing is missing, or nothing finished.
    """
    finished = jobs.loc[jobs["state"] == "finished", "run"]
    seconds = [sum(run.record["seconds"].values()) for run in finished if "seconds" in run.record]
    todo = len(missing(jobs))

    return todo * sum(seconds) / len(seconds) / 60 if todo and seconds else math.nan


def _commands(table: Table, jobs: pd.DataFrame) -> list[str]:
    folder = table.request.config_dir
    flags = [f"--config-dir={folder}"] if folder else []
    lines = []
    for job in jobs[:_LISTED].itertuples():
        arguments = shlex.join([*overrides_of(job, table.runs), *flags])
        lines.append(f"  python -m lightning_cse.{job.point.command} {arguments}")

    if len(jobs) > _LISTED:
        lines.append(f"  and {len(jobs) - _LISTED} more")

    return lines
