"""Runs that are kept beside the specs as files, and how runs made again compare with them."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from lightning_cse.errors import ConfigError
from lightning_cse.runs.machine import in_history
from lightning_cse.tables.figures import Result
from lightning_cse.tables.kept import RECORDS, Content, KeptRuns, write_runs
from lightning_cse.tables.predictions import check_digest, digest, pack
from lightning_cse.tables.records import FinishedRun, RunsTable, runs_of
from lightning_cse.tables.reproduce import write
from lightning_cse.tables.table import Table

Identity: TypeAlias = tuple[str | None, int]
"""The key of a run, or the hash of a training, and the seed."""


def kept_folders(experiments: Path) -> list[KeptRuns]:
    """Return the runs that each paper keeps."""
    return [KeptRuns(path.parent) for path in sorted(experiments.glob(f"*/results/{RECORDS}"))]


def runs_table(
    arguments: argparse.Namespace, experiments: Path, folders: Sequence[KeptRuns]
) -> RunsTable:
    """Return the runs that a command line names (`lightning_cse.arguments.add_runs`).

    Raises ConfigError if it asks for kept runs and there are none, as in an installed package.
    """
    if arguments.kept and not folders:
        raise ConfigError(
            [
                f"--kept: {experiments} has no kept runs, which are not in the package but in the "
                f"repository: clone {_repository()} and give the command there"
            ]
        )

    return RunsTable(arguments.runs_dir, folders if arguments.kept else ())


def _repository() -> str:
    """Return the address of the repository, as the installed package names it."""
    try:
        urls = metadata("lightning_cse").get_all("Project-URL") or []
    except PackageNotFoundError:
        return "it"

    return dict(str(url).split(", ", 1) for url in urls)["Repository"]


def kept_runs(folders: Iterable[KeptRuns]) -> dict[Identity, FinishedRun]:
    """Return the runs that papers keep, each under all its identities."""
    return {
        identity: run
        for folder in folders
        for run in runs_of(folder)
        for identity in _identities(run)
    }


def repetitions(table: Table, kept_by_identity: Mapping[Identity, FinishedRun]) -> str:
    """Say how the runs of a table that have a folder differ from those that are kept with the same
    settings and seed; the text is empty if none is kept.
    """
    pairs = [(run, _kept_as(run, kept_by_identity)) for run in _runs_of(table) if run.folder]
    repeated = [(run, kept_run) for run, kept_run in pairs if kept_run is not None]
    lines = [line for run, kept_run in repeated if (line := _difference(run, kept_run))]
    summary = (
        f"{len(repeated)} of these runs are kept in the repository: {len(repeated) - len(lines)} "
        "have the same weights and scores here"
    )

    return "\n".join([summary, *lines]) if repeated else ""


def _difference(run: FinishedRun, kept_run: FinishedRun) -> str:
    """Return a line on the differences of two runs; empty if weights and scores are the same."""
    metrics = pd.DataFrame({"run": run.record["metrics"], "kept": kept_run.record["metrics"]})
    distances = metrics.astype(float).diff(axis=1)["kept"].abs()
    distances = distances[distances > 0]
    if run.weights == kept_run.weights and distances.empty:
        return ""

    weights = "the same weights" if run.weights == kept_run.weights else "other weights"
    scores = "the same scores"
    if len(distances):
        plural = "s" * (len(distances) != 1)
        scores = (
            f"{len(distances)} other score{plural}, at most {distances.max():.2g} apart "
            f"({distances.idxmax()})"
        )

    return f"  {run.name}: {weights}, {scores}"


def keep(table: Table, result: Result, experiments: Path) -> list[Path]:
    """Write a table into ``experiments/<paper>/results/``, with its runs (`tables.kept`).

    A run that another paper keeps already is replaced there. Predictions are kept without
    sentences (`lightning_cse.tables.predictions`), with their digest in the record. A text that
    quotes a corpus is not kept, since the corpus has its own licence.

    Raises DataError if what is kept there is damaged, since it would be lost.
    """
    folder = experiments / table.spec.paper / "results"
    files = write(table, replace(result, text="") if result.quotes else result, folder)
    kept_by_identity = kept_runs(kept_folders(experiments))
    contents: dict[Path, dict[str, Content]] = {}
    for run in _runs_of(table):
        if run.folder is None:  # it is kept
            continue

        previous = _kept_as(run, kept_by_identity)
        home = previous.source.parent if previous else folder
        if home not in contents:
            contents[home] = _contents(KeptRuns(home, strict=True))
        if previous:
            del contents[home][previous.name]

        contents[home][run.name] = _content(run, run.folder)

    for home, by_name in contents.items():
        files += write_runs(home, by_name)

    return files


def _contents(folder: KeptRuns) -> dict[str, Content]:
    """Return what a folder keeps."""
    contents = {}
    for name, record in folder.records.items():
        predictions = folder.predictions.get(name, {})
        if predictions:
            check_digest(predictions, record, f"{folder.folder}: {name}")

        contents[name] = Content(record, folder.curves.get(name, {}), predictions)

    return contents


def _runs_of(table: Table) -> list[FinishedRun]:
    """Return the finished runs of a table, each with the training that it evaluates."""
    with_trainings = [(run, table.runs.training(run)) for run in table.finished()]
    return list(dict.fromkeys(filter(None, itertools.chain.from_iterable(with_trainings))))


def _kept_as(
    run: FinishedRun, kept_by_identity: Mapping[Identity, FinishedRun]
) -> FinishedRun | None:
    """Return the kept run of the same settings and seed, None without one."""
    identities = (identity for identity in _identities(run) if identity in kept_by_identity)
    return next((kept_by_identity[identity] for identity in identities), None)


def _identities(run: FinishedRun) -> list[Identity]:
    """Return the identities of a run: a training asked for in other words has the same hash."""
    names = ["key"] if "suite" in run.record else ["key", "config_hash"]
    return [(run.record.get(name), run.record["seed"]) for name in names]


def _content(run: FinishedRun, folder: Path) -> Content:
    """Return what is kept of a run in a folder, without repeated information.

    The commit is left out if it is not in the history, where nobody could look it up.
    """
    record = {key: value for key, value in run.record.items() if key not in ("data", "task_data")}
    environment = record.get("environment") or {}
    commit = environment.get("commit")
    if commit and not in_history(commit):
        record["environment"] = {**environment, "commit": None}

    # Unlike `FinishedRun.packed`, a damaged file is an error here: what is kept is complete.
    packed = pack(folder)
    if packed:
        record["predictions"] = {"sha256": digest(packed)}

    return Content(record, run.curves, packed)
