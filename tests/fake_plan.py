"""A plan for tests of tables, whose runs are given instead of found on disk."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from lightning_cse.papers.artefacts import Artefact, Baseline, Request
from lightning_cse.papers.records import Found, frame_of


@dataclass
class FakePlan:
    """Has the runs of each row by seed; a baseline has one of the runs of its row."""

    artefact: Artefact
    by_label: Mapping[str, Mapping[int, Found]]
    request: Request = field(default_factory=Request)
    settings: Mapping[str, Any] = field(default_factory=dict)
    change: Callable[[Found], str] = lambda run: "fresh"

    @property
    def lines(self):
        return self.artefact.lines(self.request)

    def runs(self, line, column):
        label = line.way.of if isinstance(line.way, Baseline) else line.label
        found = dict(sorted(self.by_label.get(label, {}).items()))
        rows = frame_of(found.values())
        rows.index = pd.Index(list(found), name="seed")
        return rows.iloc[:1] if isinstance(line.way, Baseline) else rows

    def seeds(self, line, column):
        return line.seeds[:1] if isinstance(line.way, Baseline) else line.seeds

    def setting(self, line, column):
        return self.settings.get(column.title)

    def change_of(self, run):
        return self.change(run)
