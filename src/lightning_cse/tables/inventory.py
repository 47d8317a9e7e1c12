"""All runs below a folder as one table: a line for the seeds of one setting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from lightning_cse import runs
from lightning_cse.tables.nested import value_at
from lightning_cse.tables.records import RunsTable

COLUMNS = ("experiment", "differs", "seeds", "score", "date", "minutes", "status", "folder")


def lines_of(runs_dir: Path) -> pd.DataFrame:
    """Return the runs below a folder, one line for the seeds of a setting in one status: `COLUMNS`
    and ``runs``, the runs themselves.

    ``differs`` are the overrides beside the experiment and the seed, or why the run failed or its
    record cannot be read; ``score`` is the mean of the best dev scores, ``date`` the minute at
    which the newest run changed last, and ``minutes`` are those of all seeds.
    """
    table = RunsTable(runs_dir)
    # A record of an older version, which has no key, is not in the table, and stale.
    current = {run.source.resolve() for run in table.runs if not table.is_stale(run)}
    rows = [_row(run, table.damaged, current) for run in runs.find_runs(runs_dir)]
    frame = pd.DataFrame(rows, columns=[*COLUMNS, "hash", "runs"])
    lines = frame.groupby(["experiment", "hash", "status"], sort=False, as_index=False).agg(
        {
            "differs": "first",
            "seeds": lambda seeds: " ".join(map(str, sorted(seeds))),
            "score": "mean",
            "date": lambda times: (
                f"{datetime.fromtimestamp(max(times)).astimezone():%Y-%m-%d %H:%M}"
            ),
            "minutes": lambda minutes: minutes.sum(min_count=1),
            "runs": list,
        }
    )
    seeds = lines["seeds"].where(~lines["seeds"].str.contains(" "), "*")
    lines["folder"] = lines["experiment"] + "/" + lines["hash"] + "-s" + seeds

    return lines[[*COLUMNS, "runs"]]


def _row(run: runs.Run, damaged: Mapping[Path, str], current: Collection[Path]) -> dict[str, Any]:
    status: str = run.status
    if run.record_path in damaged:
        status = "damaged"
    elif status == "finished" and run.record_path.resolve() not in current:
        status = "finished, stale"

    record = run.read() if status.startswith("finished") else {}
    files = (run.record_path, run.failed_path, run.curves_path, run.path)
    seconds = (record.get("seconds") or {}).values()

    return {
        "experiment": run.name,
        "hash": run.config_hash,
        "status": status,
        "differs": _differences(record)
        if record
        else damaged.get(run.record_path) or run.reason() or "",
        "seeds": run.seed,
        "score": value_at(record, "best.score"),
        "date": max(file.stat().st_mtime for file in files if file.exists()),
        "minutes": sum(seconds) / 60 if seconds else None,
        "runs": run,
    }


def _differences(record: Mapping[str, Any]) -> str:
    """Return the overrides of a run beside its experiment and its seed."""
    fixed = ("experiment=", "seed=", "paths.", "hydra", "logger=", "force=")
    overrides = record.get("overrides") or ()
    return " ".join(text for text in overrides if not text.lstrip("+").startswith(fixed))


def matching(lines: pd.DataFrame, words: Sequence[str]) -> pd.DataFrame:
    """Return the lines that have all words in name, differences, status or folder."""
    columns = lines[["experiment", "differs", "status", "folder"]].astype(str)
    texts = map("\n".join, columns.to_numpy().tolist())
    has_all = [all(word.casefold() in text.casefold() for word in words) for text in texts]

    return lines.loc[has_all]
