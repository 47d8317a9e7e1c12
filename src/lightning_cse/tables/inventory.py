"""All runs below a folder as one table: a line for the seeds of one setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lightning_cse import runs
from lightning_cse.tables.nested import value_at
from lightning_cse.tables.records import RunsTable

COLUMNS = ("experiment", "differs", "seeds", "score", "date", "minutes", "status", "folder")


def lines_of(runs_dir: Path) -> pd.DataFrame:
    """Return the runs below a folder, one line for the seeds of a setting in one status: `COLUMNS`
    and ``runs``, the runs themselves.

    ``differs`` are the overrides beside the experiment and the seed, or why the run failed or its
    record cannot be read;
    ``score`` is the mean of the best dev scores, ``date`` the minute at which the newest run
    changed last, and ``minutes`` are those of all seeds.
    """
    table = RunsTable(runs_dir)
    stale = {found.source.resolve(): table.is_stale(found) for found in table.frame["run"]}
    groups: dict[tuple[str, str, str], list[runs.Run]] = {}
    for run in runs.find_runs(runs_dir):
        status: str = run.status
        if run.record_path in table.damaged:
            status = "damaged"
        # A record of an older version, which has no key, is out of date as well.
        elif status == "finished" and stale.get(run.record_path.resolve(), True):
            status = "finished, stale"

        groups.setdefault((run.name, run.config_hash, status), []).append(run)

    lines = [_line(*group, members, table.damaged) for group, members in groups.items()]

    return pd.DataFrame(lines, columns=[*COLUMNS, "runs"])


def _line(
    name: str,
    config_hash: str,
    status: str,
    members: Sequence[runs.Run],
    damaged: Mapping[Path, str],
) -> dict[str, Any]:
    records = [run.read() if status.startswith("finished") else {} for run in members]
    scores = pd.Series([value_at(record, "best.score") for record in records], dtype=float)
    seconds = [sum((record.get("seconds") or {}).values()) for record in records]
    newest = datetime.fromtimestamp(max(map(_changed, members))).astimezone()
    seeds = " ".join(map(str, sorted(run.seed for run in members)))

    return {
        "experiment": name,
        "differs": _differences(records[0])
        if records[0]
        else damaged.get(members[0].record_path) or members[0].reason() or "",
        "seeds": seeds,
        "score": scores.mean(),
        "date": newest.strftime("%Y-%m-%d %H:%M"),
        "minutes": sum(seconds) / 60 or np.nan,
        "status": status,
        "folder": f"{name}/{config_hash}-s{'*' if ' ' in seeds else seeds}",
        "runs": members,
    }


def _differences(record: Mapping[str, Any]) -> str:
    """Return the overrides of a run beside its experiment and its seed."""
    fixed = ("experiment=", "seed=", "paths.", "hydra", "logger=", "force=")
    overrides = record.get("overrides") or ()
    return " ".join(one for one in overrides if not one.lstrip("+").startswith(fixed))


def _changed(run: runs.Run) -> float:
    files = (run.record_path, run.failed_path, run.curves_path, run.path)
    return max(file.stat().st_mtime for file in files if file.exists())


def matching(lines: pd.DataFrame, words: Sequence[str]) -> pd.DataFrame:
    """Return the lines that have all words in name, differences, status or folder."""
    texts = lines[["experiment", "differs", "status", "folder"]].astype(str)
    for word in words:
        found = [column.str.contains(word, case=False, regex=False) for _, column in texts.items()]
        texts = texts[np.any(found, axis=0)]

    return lines.loc[texts.index]
