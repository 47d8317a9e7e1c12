"""Reproduces specs: runs what is missing, and makes tables, figures and texts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import yaml  # type: ignore[import-untyped,unused-ignore]

from lightning_cse.config.launch import wait_for
from lightning_cse.errors import BUSY
from lightning_cse.plots import save_figures
from lightning_cse.runs import remove_leftovers, temporary_file, write_atomic
from lightning_cse.tables.figures import Result, make
from lightning_cse.tables.plan import Job, Plan, missing, overrides_of, status, trained
from lightning_cse.tables.records import RunsTable
from lightning_cse.tables.render import texts_of
from lightning_cse.tables.table import Table, make_table


def run_missing(
    plans: Sequence[Plan], folder: Path, options: Sequence[str] = (), *, retry_failed: bool = False
) -> int:
    """Run the missing runs of some specs, and return the exit code of the first command that
    failed.

    Training comes first, then rows of language models, the evaluation of the trained models, and
    the runs of a grid's winner. Each run is tried once. ``options`` apply to the commands as a
    whole, such as ``hydra/launcher=joblib``.
    """
    code = 0
    table = plans[0].table
    tried: set[Job] = set()
    if retry_failed:
        options = [*options, "retry_failed=true"]

    while True:
        table.refresh()
        jobs_by_state = status(plans)
        excluded = tried if retry_failed else tried.union(jobs_by_state["failed"])
        waiting = [job for job in missing(jobs_by_state) if job not in excluded]
        ready = [job for job in waiting if not job.point.of or trained(job, table)]
        if not ready:
            return code or (BUSY if jobs_by_state["running"] else 0)

        # In this order: "train", "generate", "evaluate".
        command = max(job.point.command for job in ready)
        jobs = [job for job in ready if job.point.command == command]
        tried.update(jobs)
        ended = _run_points(command, jobs, table, folder, options)
        code = ended if code in (0, BUSY) and ended else code


def _run_points(
    command: str, jobs: Sequence[Job], table: RunsTable, folder: Path, options: Sequence[str]
) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder, "*.points.yaml")
    points = [overrides_of(job, table) for job in jobs]
    # Another process may reproduce something else.
    with temporary_file(folder, f"{command}-", ".points.yaml") as file:
        file.write(yaml.safe_dump(points, width=1000).encode())
        file.flush()
        quoted = file.name.replace("\\", "\\\\").replace("'", "\\'")
        sweep = ["--multirun", f"hydra.sweeper.file='{quoted}'", *options]
        environment = {**os.environ, "LIGHTNING_CSE_RUNS": str(table.runs_dir)}

        return _run([sys.executable, "-m", f"lightning_cse.{command}", *sweep], environment)


def _run(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command, and return its exit code."""
    code = wait_for(subprocess.Popen(command, env=environment))

    return 128 - code if code < 0 else code  # as the shell reports a command that a signal ended


@dataclass(frozen=True)
class Reproduction:
    """A spec made from the finished runs: its table, its figures and its text, where it has
    them.
    """

    plan: Plan
    table: Table | None
    result: Result

    def write(self, folder: Path) -> list[Path]:
        """Write table, figures and text to a folder, and return the files."""
        texts = texts_of(self.table) if self.table is not None else {}
        if self.result.text:
            texts["text.md"] = self.result.text

        for name, rows in self.result.tables.items():
            frame = pd.DataFrame(list(rows), dtype=object)
            texts[f"{name}.csv"] = frame.to_csv(index=False, lineterminator="\n")

        stem = self.plan.stem
        for ending, text in texts.items():
            write_atomic(folder / f"{stem}.{ending}", text)

        files = [folder / f"{stem}.{ending}" for ending in texts]
        figures = {f"{stem}.{name}.png": figure for name, figure in self.result.figures.items()}

        return files + save_figures(figures, folder)


def reproduce(plan: Plan) -> Reproduction:
    """Make a spec from the finished runs.

    Figures and texts made from data alone read the corpora of the profile and the settings.
    """
    spec = plan.spec
    table = None
    # If no row is measured, the figure or text has the numbers, and a table would have only the
    # paper's.
    is_measured = any(not line.published for line in plan.lines)
    if spec.columns and (is_measured or spec.make is None):
        table = make_table(plan)

    return Reproduction(plan, table, make(plan) if spec.make else Result())
