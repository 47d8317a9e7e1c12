"""A plan for tests of tables, whose runs are given instead of found on disk, and such runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from lightning_cse.runs import Run, write_predictions
from lightning_cse.tables.files import read_spec
from lightning_cse.tables.records import FinishedRun, read_run
from lightning_cse.tables.spec import Request, Spec


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


@dataclass
class FakePlan:
    """Has the runs of each row by seed; a baseline has one of the runs of its row."""

    spec: Spec
    by_label: Mapping[str, Mapping[int, FinishedRun]]
    request: Request = field(default_factory=Request)
    is_stale: Callable[[FinishedRun], bool] = lambda run: False
    training: Callable[[FinishedRun], FinishedRun | None] = lambda run: run

    @property
    def table(self):
        return self

    @property
    def lines(self):
        return self.spec.lines(self.request)

    def runs(self, line, column):
        by_seed = sorted(self.by_label.get(line.row.of or line.label, {}).items())
        runs = [run for _, run in by_seed]

        return runs[:1] if line.row.baseline else runs

    def seeds(self, line, column):
        return line.seeds[:1] if line.row.baseline else line.seeds
