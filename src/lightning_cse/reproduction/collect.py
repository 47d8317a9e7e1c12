"""Records of runs beside the published numbers of a paper, as one Markdown table; nothing in it is typed by hand."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COLUMNS = {
    "explicit": "test/rte/accuracy_explicit",
    "implied": "test/rte/accuracy_implied",
    "neutral": "test/rte/accuracy_neutral",
    "contradiction": "test/rte/accuracy_contradiction",
    "RTE all": "test/rte/accuracy_all",
    "EIS": "test/eis/accuracy",
}
"""Heading of a column, and the metric in it."""


@dataclass
class Row:
    """A line of the table: the same metric of several seeds, in percent."""

    label: str
    seeds: int | None = None  # None: not known, or the same for all
    values: dict[str, list[float]] = field(default_factory=dict)
    note: str = ""

    def cell(self, column: str) -> str:
        """Return the mean of the seeds, with their standard deviation where there are several."""
        values = self.values.get(column, [])
        if not values:
            return ""
        mean = f"{statistics.fmean(values):.2f}"
        return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"


def read_records(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the records in these files."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def measured_rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a row a point, over its seeds, and a row a baseline."""
    rows: dict[str, Row] = {}
    for record in records:
        options = record["identity_document"]["config"]
        point = rows.setdefault(record["identity"], Row(record["name"]))
        point.note = (
            f"{record['encoder']['name']}, {options['trainer']['max_epochs']} epochs, batch "
            f"{options['data']['batch_size']}, lr {options['method']['optimizer']['lr']:g}, {record['precision']}"
        )
        point.seeds = (point.seeds or 0) + 1
        _add(point, record["metrics"])
    for record in records:
        for name, metrics in record["baselines"].items():
            label = "LENGTH" if name == "length" else f"{name} {record['encoder']['name']}"
            if label not in rows:  # a baseline does not depend on the seed: one run's is everybody's
                _add(rows.setdefault(label, Row(label)), metrics)
    return list(rows.values())


def published_rows(path: Path) -> list[Row]:
    """Return the rows of ``published.csv``: label, column, value in percent."""
    rows: dict[str, Row] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            rows.setdefault(line["label"], Row(line["label"])).values[line["column"]] = [float(line["value"])]
    return list(rows.values())


def markdown(rows: Sequence[Row], *, title: str) -> str:
    """Return a Markdown table of rows."""
    head = f"| {title} | seeds | {' | '.join(COLUMNS)} | settings |"
    rule = f"|---|{'---:|' * (len(COLUMNS) + 1)}---|"
    lines = [
        f"| {row.label} | {row.seeds or ''} | {' | '.join(row.cell(column) for column in COLUMNS)} | {row.note} |"
        for row in rows
    ]
    return "\n".join([head, rule, *lines])


def _add(row: Row, metrics: Mapping[str, float]) -> None:
    for column, key in COLUMNS.items():
        if key in metrics:
            row.values.setdefault(column, []).append(100 * metrics[key])
