"""Reproduces tables: runs what is missing, and writes tables, figures and texts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import yaml  # type: ignore[import-untyped,unused-ignore]

from lightning_cse.config.launch import wait_for
from lightning_cse.errors import BUSY
from lightning_cse.plots import save_figures
from lightning_cse.runs import remove_leftovers, temporary_file, write_atomic
from lightning_cse.tables.figures import Result
from lightning_cse.tables.render import texts_of
from lightning_cse.tables.table import Table, missing, overrides_of, status, trained


def run_missing(
    tables: Sequence[Table],
    folder: Path,
    options: Sequence[str] = (),
    *,
    retry_failed: bool = False,
) -> int:
    """Run the missing runs of some tables, and return the exit code of the first command that
    failed.

    Training comes first, then rows of language models, the evaluation of the trained models, and
    the runs of a grid's winner. Each run is tried once. ``options`` apply to the commands as a
    whole, such as ``hydra/launcher=joblib``.
    """
    code = 0
    runs = tables[0].runs
    tried: set[tuple[str, int]] = set()
    if retry_failed:
        options = [*options, "retry_failed=true"]

    while True:
        runs.refresh()
        jobs = status(tables)
        if not retry_failed:
            failed = jobs[jobs["state"] == "failed"]
            tried.update(zip(failed["key"], failed["seed"], strict=True))

        ready = [
            job
            for job in missing(jobs).itertuples()
            if (job.key, job.seed) not in tried and (not job.point.of or trained(job, runs))
        ]
        if not ready:
            return code or (BUSY if (jobs["state"] == "running").any() else 0)

        # In this order: "train", "generate", "evaluate".
        command = max(job.point.command for job in ready)
        ready = [job for job in ready if job.point.command == command]
        tried.update((job.key, job.seed) for job in ready)
        points = [overrides_of(job, runs) for job in ready]
        ended = _run_points(command, points, runs.runs_dir, folder, options)
        code = ended if code in (0, BUSY) and ended else code


def _run_points(
    command: str,
    points: Sequence[Sequence[str]],
    runs_dir: Path,
    folder: Path,
    options: Sequence[str],
) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder, "*.points.yaml")
    # Another process may reproduce something else.
    with temporary_file(folder, f"{command}-", ".points.yaml") as file:
        file.write(yaml.safe_dump(points, width=1000).encode())
        file.flush()
        quoted = file.name.replace("\\", "\\\\").replace("'", "\\'")
        sweep = ["--multirun", f"hydra.sweeper.file='{quoted}'", *options]
        environment = {**os.environ, "LIGHTNING_CSE_RUNS": str(runs_dir)}

        return _run([sys.executable, "-m", f"lightning_cse.{command}", *sweep], environment)


def _run(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command, and return its exit code."""
    code = wait_for(subprocess.Popen(command, env=environment))

    return 128 - code if code < 0 else code  # as the shell reports a command that a signal ended


def write(table: Table, result: Result, folder: Path) -> list[Path]:
    """Write a table, its figures and its text to a folder, and return the files."""
    texts = texts_of(table) if table.is_shown else {}
    if result.text:
        texts["text.md"] = result.text

    for name, rows in result.tables.items():
        frame = pd.DataFrame(list(rows), dtype=object)
        texts[f"{name}.csv"] = frame.to_csv(index=False, lineterminator="\n")

    stem = table.stem
    for ending, text in texts.items():
        write_atomic(folder / f"{stem}.{ending}", text)

    files = [folder / f"{stem}.{ending}" for ending in texts]
    figures = {f"{stem}.{name}.png": figure for name, figure in result.figures.items()}

    return files + save_figures(figures, folder)
