"""Runs that are kept beside the specs as files, and how runs made again compare with them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import TypeAlias

from lightning_cse.errors import ConfigError
from lightning_cse.runs.machine import in_history
from lightning_cse.tables.kept import RECORDS, Content, KeptRuns, write_runs
from lightning_cse.tables.plan import Plan
from lightning_cse.tables.predictions import check_digest, digest, pack
from lightning_cse.tables.records import FinishedRun, RunsTable, runs_of
from lightning_cse.tables.reproduce import Reproduction

Identity: TypeAlias = tuple[str | None, int]
"""The key of a run, or the hash of a training, and the seed."""


def kept_folders(experiments: Path) -> list[KeptRuns]:
    """Return the runs that each paper keeps."""
    return [KeptRuns(path.parent) for path in sorted(experiments.glob(f"*/results/{RECORDS}"))]


def runs_table(
    arguments: argparse.Namespace, experiments: Path, kept: Sequence[KeptRuns]
) -> RunsTable:
    """Return the runs that a command line names (`lightning_cse.arguments.add_runs`).

    Raises ConfigError if it asks for kept runs and there are none, as in an installed package.
    """
    if arguments.kept and not kept:
        raise ConfigError(
            [
                f"--kept: {experiments} has no kept runs, which are not in the package but in the "
                f"repository: clone {_repository()} and give the command there"
            ]
        )

    return RunsTable(arguments.runs_dir, kept if arguments.kept else ())


def _repository() -> str:
    """Return the address of the repository, as the installed package names it."""
    try:
        urls = metadata("lightning_cse").get_all("Project-URL") or []
    except PackageNotFoundError:
        return "it"

    return dict(str(url).split(", ", 1) for url in urls)["Repository"]


@dataclass(frozen=True)
class Repetition:
    """A run and the kept record of the same settings and seed."""

    run: FinishedRun
    kept: FinishedRun

    @property
    def has_equal_weights(self) -> bool:
        """Whether both have the same trained weights, or neither has any."""
        return self.run.weights == self.kept.weights

    @property
    def differences(self) -> dict[str, float]:
        """The scores that are not exactly those of the kept record: how far apart they are."""
        ours, theirs = (one.record.get("metrics") or {} for one in (self.run, self.kept))
        common = [key for key in theirs if isinstance(ours.get(key), int | float)]

        return {key: abs(ours[key] - theirs[key]) for key in common if ours[key] != theirs[key]}


def kept_runs(kept: Iterable[KeptRuns]) -> dict[Identity, FinishedRun]:
    """Return the runs that papers keep, each under all its identities."""
    return {
        identity: run for folder in kept for run in runs_of(folder) for identity in _identities(run)
    }


def repetitions(plan: Plan, kept: Mapping[Identity, FinishedRun]) -> list[Repetition]:
    """Return the runs of a spec that have a folder and a kept record."""
    found = [run for run in _runs_of(plan) if run.folder is not None]
    pairs = [(run, _before(run, kept)) for run in found]

    return [Repetition(run, before) for run, before in pairs if before]


def comparison(found: Sequence[Repetition]) -> str:
    """Return what the repetitions have in common with their kept records, a line for each that
    differs.
    """
    equal = [one for one in found if one.has_equal_weights and not one.differences]
    lines = [
        f"{len(found)} of these runs are kept in the repository: {len(equal)} have the same "
        "weights and scores here"
    ]
    for one in found:
        if one in equal:
            continue

        weights = "the same weights" if one.has_equal_weights else "other weights"
        scores = "the same scores"
        if one.differences:
            count = len(one.differences)
            worst, distance = max(one.differences.items(), key=lambda item: item[1])
            scores = (
                f"{count} other score{'s' * (count != 1)}, at most {distance:.2g} apart ({worst})"
            )

        lines.append(f"  {one.run.name}: {weights}, {scores}")

    return "\n".join(lines)


def keep(reproduction: Reproduction, experiments: Path) -> list[Path]:
    """Write a spec into ``experiments/<paper>/results/``, with its runs (`tables.kept`).

    A run that another paper keeps already is replaced there. Predictions are kept without
    sentences (`lightning_cse.tables.predictions`), with their digest in the record. A text that
    quotes a corpus is not kept, since the corpus has its own licence.

    Raises DataError if what is kept there is damaged, since it would be lost.
    """
    plan, result = reproduction.plan, reproduction.result
    folder = experiments / plan.spec.paper / "results"
    if result.quotes:
        reproduction = replace(reproduction, result=replace(result, text=""))

    files = reproduction.write(folder)
    before = kept_runs(kept_folders(experiments))
    contents: dict[Path, dict[str, Content]] = {}
    for run in _runs_of(plan):
        if run.folder is None:  # it is kept
            continue

        old = _before(run, before)
        home = old.source.parent if old else folder
        if home not in contents:
            contents[home] = _contents(KeptRuns(home, strict=True))
        if old:
            del contents[home][old.name]

        contents[home][run.name] = _content(run, run.folder)

    for home, of_home in contents.items():
        files += write_runs(home, of_home)

    return files


def _contents(kept: KeptRuns) -> dict[str, Content]:
    """Return what a folder keeps."""
    contents = {}
    for name, record in kept.records.items():
        predictions = kept.predictions.get(name, {})
        if predictions:
            check_digest(predictions, record, f"{kept.folder}: {name}")

        contents[name] = Content(record, kept.curves.get(name, {}), predictions)

    return contents


def _runs_of(plan: Plan) -> list[FinishedRun]:
    """Return the finished runs of a spec, each with the training that it evaluates."""
    found = []
    for line in plan.lines:
        for run in plan.finished(line):
            found += [run, plan.table.training(run)]

    return list(dict.fromkeys(filter(None, found)))


def _before(run: FinishedRun, kept: Mapping[Identity, FinishedRun]) -> FinishedRun | None:
    """Return the kept record of a run, None without one."""
    return next((kept[one] for one in _identities(run) if one in kept), None)


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
