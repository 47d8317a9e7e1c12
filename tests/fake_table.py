"""Tables whose runs are given instead of found on disk, and such runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import yaml

from lightning_cse.runs import Run, write_predictions
from lightning_cse.tables.files import read_spec
from lightning_cse.tables.records import FinishedRun, read_run
from lightning_cse.tables.spec import COMPUTED, Request
from lightning_cse.tables.table import JOBS, Table


def leave_run(root, name="a", seed=0, digest="01", predictions=(), **record):
    """Leave a finished run with the predictions of some ``(task, columns)``, and return it."""
    run = Run(root, name, digest, seed)
    for task, columns in predictions:
        write_predictions(run.predictions, task, columns)

    run.finish({"name": name, "config_hash": digest, "seed": seed, "metrics": {}, **record})

    return read_run(run.record_path)


def spec(folder, columns, rows, paper="", **more):
    """Write and read a spec file; ``paper`` holds lines of published.csv without the table."""
    path = folder / "mine" / "table1.yaml"
    path.parent.mkdir(exist_ok=True)
    named = {"title": "Terms", "source": "Mine", "encoders": ["bert_base"], "seeds": 3, **more}
    path.write_text(yaml.safe_dump({**named, "columns": columns, "rows": rows}, sort_keys=False))
    lines = "".join(f"table1,{line}\n" for line in paper.split())
    head = "table,row,encoder,column,value,deviation,note\n"
    path.with_name("published.csv").write_text(head + lines)

    return read_spec(path)


def runs_of(**records):
    """Return the runs of rows from their records in the order of seeds."""
    runs = {}
    for name, of in records.items():
        runs[name] = {}
        for seed, entries in enumerate(of):
            runs[name][seed] = FinishedRun(
                {**entries, "seed": seed}, None, Path(f"{name}-s{seed}.json")
            )

    return runs


@dataclass(frozen=True)
class FakeTable(Table):
    """Has the runs of each row by seed; a baseline has one of the runs of its row."""

    by_label: Mapping[str, Mapping[int, FinishedRun]]

    def jobs(self):
        rows = []
        for line in self.lines.itertuples():
            by_seed = self.by_label.get(line.of or line.label, {})
            seeds = [min(by_seed, default=0)] if line.baseline else line.seeds
            rows += [
                (line.Index, column.title, line.needs, None, seed, True, by_seed.get(seed))
                for column in self.spec.columns
                if column.source not in COMPUTED and not line.published
                for seed in seeds
            ]

        return pd.DataFrame(rows, columns=JOBS, dtype=object)


def fake_table(
    table_spec, by_label, request=None, is_stale=lambda run: False, training=lambda run: run
):
    """Return the table of a spec whose rows have these runs by seed."""
    disk = SimpleNamespace(is_stale=is_stale, training=training)
    return FakeTable(table_spec, request or Request(), disk, by_label)
