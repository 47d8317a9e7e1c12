"""Runs that are kept beside the specs as files, and how runs made again compare with them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from lightning_cse.runs import write_atomic
from lightning_cse.runs.machine import in_history
from lightning_cse.tables.plan import Plan
from lightning_cse.tables.predictions import digest, pack, packed_bytes
from lightning_cse.tables.records import FinishedRun, RunsTable, left_out, read_run
from lightning_cse.tables.reproduce import Reproduction

Identity: TypeAlias = tuple[str | None, int]
"""The key of a run, or the hash of a training, and the seed."""


def kept_folders(experiments: Path) -> list[Path]:
    """Return the folders of the records that are kept beside the specs."""
    return sorted(experiments.glob("*/results/records"))


def runs_table(arguments: argparse.Namespace, experiments: Path) -> RunsTable:
    """Return the runs that a command line names (`lightning_cse.arguments.add_runs`)."""
    return RunsTable(arguments.runs_dir, kept_folders(experiments) if arguments.kept else ())


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


def kept_runs(experiments: Path) -> dict[Identity, FinishedRun]:
    """Return the records that are kept beside the specs, each under all its identities."""
    files = [file for folder in kept_folders(experiments) for file in folder.glob("*.json")]
    by_identity: dict[Identity, FinishedRun] = {}
    for path in files:
        with left_out():
            run = read_run(path)
            by_identity |= dict.fromkeys(_identities(run), run)

    return by_identity


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

        lines.append(f"  {_name(one.run.record)}: {weights}, {scores}")

    return "\n".join(lines)


def keep(reproduction: Reproduction, experiments: Path) -> list[Path]:
    """Write a spec into ``experiments/<paper>/results/``, with its records and curves.

    A record that a paper keeps already is replaced where it is. Predictions are kept without
    sentences, packed (`lightning_cse.tables.predictions`), with their digest in the record. A text
    that quotes a corpus is not kept, since the corpus has its own licence.
    """
    plan, result = reproduction.plan, reproduction.result
    folder = experiments / plan.spec.paper / "results"
    if result.quotes:
        reproduction = replace(reproduction, result=replace(result, text=""))

    files = reproduction.write(folder)
    kept = kept_runs(experiments)
    for run in _runs_of(plan):
        before = _before(run, kept)
        home = before.source.parent if before else folder / "records"
        contents = {home / name: content for name, content in _kept_files(run).items()}
        for path, content in contents.items():
            if not path.is_file() or path.read_bytes() != content:
                write_atomic(path, content)
                files.append(path)

        if before and before.source not in contents:
            for path in home.glob(f"{before.source.stem}.*"):
                path.unlink()

    return files


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


def _name(record: Mapping[str, Any]) -> str:
    suite = f"-{record['suite']}" if "suite" in record else ""
    name = record["name"].replace("/", "-")

    return f"{name}{suite}-{record['config_hash']}-s{record['seed']}"


def _kept_files(run: FinishedRun) -> dict[str, bytes]:
    """Return the record, curves and packed predictions of a run by file name, without repeated
    information.

    The commit is left out if it is not in the history, where nobody could look it up.
    """
    record = {key: value for key, value in run.record.items() if key not in ("data", "task_data")}
    environment = record.get("environment") or {}
    commit = environment.get("commit")
    if commit and not in_history(commit):
        record["environment"] = {**environment, "commit": None}

    name = _name(record)
    files = {}
    # Unlike `FinishedRun.packed`, a damaged file is an error here: what is kept is complete.
    if run.folder is not None and (packed := pack(run.folder)):
        record["predictions"] = {"sha256": digest(packed)}
        files[f"{name}.predictions.npz"] = packed_bytes(packed)

    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    files[f"{name}.json"] = text.encode("utf-8", "backslashreplace")
    if run.curves_path.is_file():
        lines = run.curves_path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if ",train/learning_rate," not in line]
        files[f"{name}.curves.csv"] = "".join(kept).encode()

    return files
