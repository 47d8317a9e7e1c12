"""A plan for tests of tables, whose runs are given instead of found on disk."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from lightning_cse.papers.artefacts import Artefact, Request
from lightning_cse.papers.records import Found, frame_of


@dataclass
class FakePlan:
    """Has the runs of each row by seed; a baseline has one of the runs of its row."""

    artefact: Artefact
    by_label: Mapping[str, Mapping[int, Found]]
    request: Request = field(default_factory=Request)
    is_stale: Callable[[Found], bool] = lambda run: False

    @property
    def lines(self):
        return self.artefact.lines(self.request)

    def runs(
        self,
        line,
        column,
    ):
        found = dict(sorted(self.by_label.get(line.row.of or line.label, {}).items()))
        rows = frame_of(found.values())
        rows.index = pd.Index(list(found), name="seed")

        return rows.iloc[:1] if line.row.baseline else rows

    def seeds(
        self,
        line,
        column,
    ):
        return line.seeds[:1] if line.row.baseline else line.seeds
