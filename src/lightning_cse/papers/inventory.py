"""All runs below a folder as one table: a line for the seeds of one setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lightning_cse import runs
from lightning_cse.papers.nested import value_at
from lightning_cse.papers.records import RunsTable

COLUMNS = (
    "experiment",
    "differs",
    "seeds",
    "score",
    "date",
    "minutes",
    "status",
    "folder",
)


@dataclass(frozen=True)
class Line:
    """The runs of one setting and status, which differ by their seed alone.

    ``differs`` are the overrides beside the experiment and the seed, ``minutes`` those of all
    seeds, and ``stale`` whether the code of the method may have changed since a run.
    """

    name: str
    differs: str
    status: str
    stale: bool
    scores: tuple[float, ...]
    minutes: float
    runs: tuple[runs.Run, ...]

    @property
    def seeds(self) -> str:
        """The seeds, in order."""
        return " ".join(map(str, sorted(run.seed for run in self.runs)))

    @property
    def folder(self) -> str:
        """The folder of the runs, without the seed if there are several."""
        first = self.runs[0]
        seed = f"s{first.seed}" if len(self.runs) == 1 else "s*"
        return f"{first.name}/{first.config_hash}-{seed}"

    @property
    def date(self) -> str:
        """The minute at which the newest run changed last."""
        newest = max(_changed(run) for run in self.runs)
        return datetime.fromtimestamp(newest).astimezone().strftime("%Y-%m-%d %H:%M")


def lines_of(runs_dir: Path) -> list[Line]:
    """Return the runs below a folder, one line for the seeds of a setting in one status."""
    table = RunsTable(runs_dir)
    stale = {
        found.folder.resolve(): table.is_stale(found)
        for found in table.frame["run"]
        if found.folder is not None
    }
    groups: dict[tuple[str, str, str, bool], list[runs.Run]] = {}
    for run in runs.find_runs(runs_dir):
        # A record of an older version, which has no key, is out of date as well.
        is_stale = run.status == "finished" and stale.get(run.path.resolve(), True)
        groups.setdefault((run.name, run.config_hash, run.status, is_stale), []).append(run)

    return [_line(*key, members) for key, members in groups.items()]


def _line(name: str, _: str, status: str, stale: bool, members: list[runs.Run]) -> Line:
    records = [run.read() if status == "finished" else {} for run in members]
    scores = [value_at(record, "best.score") for record in records]
    seconds = [sum((record.get("seconds") or {}).values()) for record in records]

    return Line(
        name=name,
        differs=_differences(records[0]) if records[0] else members[0].reason() or "",
        status=status,
        stale=stale,
        scores=tuple(score for score in scores if score is not None),
        minutes=sum(seconds) / 60,
        runs=tuple(members),
    )


def _differences(record: dict[str, Any]) -> str:
    """Return the overrides of a run beside its experiment and its seed."""
    fixed = ("experiment=", "seed=", "paths.", "hydra", "logger=", "force=")
    overrides = record.get("overrides") or ()
    return " ".join(one for one in overrides if not one.lstrip("+").startswith(fixed))


def _changed(run: runs.Run) -> float:
    files = (run.record_path, run.failed_path, run.curves_path, run.path)
    return max(file.stat().st_mtime for file in files if file.exists())


def matching(lines: Iterable[Line], words: Sequence[str]) -> list[Line]:
    """Return the lines that have all words in name, differences, status or folder."""
    found = []
    for line in lines:
        text = " ".join((line.name, line.differs, _status(line), line.folder)).casefold()
        if all(word.casefold() in text for word in words):
            found.append(line)

    return found


def _status(line: Line) -> str:
    return f"{line.status}, stale" if line.stale else line.status


def as_frame(lines: Iterable[Line]) -> pd.DataFrame:
    """Return lines as a table; the score is the mean of the best dev scores over the seeds."""
    rows = []
    for line in lines:
        score = float(np.mean(line.scores)) if line.scores else np.nan
        rows.append(
            (
                line.name,
                line.differs,
                line.seeds,
                score,
                line.date,
                line.minutes or np.nan,
                _status(line),
                line.folder,
            )
        )

    return pd.DataFrame(rows, columns=list(COLUMNS))
