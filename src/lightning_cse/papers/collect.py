"""Records of runs beside the published numbers of a paper, as Markdown tables; nothing in them is typed by hand."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy.stats import t as student

Columns = Mapping[str, str]
"""Heading of a column, and the metric in it."""

RTE_AND_EIS: Columns = {
    "explicit": "test/rte/accuracy_explicit",
    "implied": "test/rte/accuracy_implied",
    "neutral": "test/rte/accuracy_neutral",
    "contradiction": "test/rte/accuracy_contradiction",
    "RTE all": "test/rte/accuracy_all",
    "EIS": "test/eis/accuracy",
}
"""DualCSE, Tables 2, 4, 7 and 8."""

NLI: Columns = {
    "SNLI acc": "test/snli/accuracy",
    "SNLI AUPRC": "test/snli/auprc",
    "MNLI-m acc": "test/mnli_matched/accuracy",
    "MNLI-m AUPRC": "test/mnli_matched/auprc",
    "MNLI acc": "test/mnli/accuracy",
    "MNLI AUPRC": "test/mnli/auprc",
    "SICK acc": "test/sick/accuracy",
    "SICK AUPRC": "test/sick/auprc",
}
"""GaussCSE, Tables 1 and 3. MNLI is its mismatched dev, MNLI-m its matched dev."""

DIRECTION: Columns = {
    "SNLI": "test/snli_direction/accuracy",
    "MNLI-m": "test/mnli_matched_direction/accuracy",
    "MNLI": "test/mnli_direction/accuracy",
    "SICK": "test/sick_direction/accuracy",
    "SNLI det": "test/snli_direction/accuracy_determinant",
    "SICK det": "test/sick_direction/accuracy_determinant",
}
"""GaussCSE, Tables 2 and 4; det: told by the wider Gaussian."""

STS: Columns = {
    **{f"STS{year}": f"test/sts{year}/spearman_all" for year in range(12, 17)},
    "STS-B": "test/stsb/spearman",
    "SICK-R": "test/sickr/spearman",
    "STS Avg": "test/sts_avg/spearman_all",
}
"""NGCSE, Tables 1 and 2: Spearman, all subsets of a year together."""

CONFIDENCE = 0.95


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


def measured_rows(records: Sequence[Mapping[str, Any]], columns: Columns) -> list[Row]:
    """Return a row a point, over its seeds, and a row a baseline; those without a value in any column are left out."""
    rows: dict[str, Row] = {}
    for record in records:
        point = rows.setdefault(record["config_hash"], Row(record["name"]))
        point.note = settings(record)
        point.seeds = (point.seeds or 0) + 1
        _add(point, record["metrics"], columns)
    for record in records:
        for name, metrics in record["baselines"].items():
            label = "LENGTH" if name == "length" else f"{name} {record['encoder']['name']}"
            if label not in rows:  # a baseline does not depend on the seed: one run's is everybody's
                _add(rows.setdefault(label, Row(label)), metrics, columns)
    return [row for row in rows.values() if row.values or row.seeds]


def settings(record: Mapping[str, Any]) -> str:
    """Return in a few words how a run was trained."""
    options = record["decisive"]["config"]
    loss = options["method"].get("loss", {})
    parts = [record["encoder"]["name"]]
    if "sets" in loss:
        parts += ["+".join(loss["sets"]), loss["reduce"]]
    parts.append(f"{options['trainer']['max_epochs']} epochs")
    parts.append(f"batch {options['data']['batch_size']}, lr {options['method']['optimizer']['lr']:g}")
    return ", ".join([*parts, record["precision"]])


def published_rows(path: Path) -> list[Row]:
    """Return the rows of all tables of ``published.csv``, a row and encoder once: column, value as printed."""
    rows: dict[str, Row] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            label = ", ".join(part for part in (line["row"], line["encoder"]) if part)
            rows.setdefault(label, Row(label)).values[line["column"]] = [float(line["value"])]
    return list(rows.values())


def markdown(rows: Sequence[Row], columns: Columns, *, title: str) -> str:
    """Return a Markdown table of rows, without the columns in which no row has a value."""
    shown = [column for column in columns if any(row.values.get(column) for row in rows)]
    head = f"| {title} | seeds | {' | '.join(shown)} | settings |"
    rule = f"|---|{'---:|' * (len(shown) + 1)}---|"
    lines = [
        f"| {row.label} | {row.seeds or ''} | {' | '.join(row.cell(column) for column in shown)} | {row.note} |"
        for row in rows
        if any(column in row.values for column in shown)
    ]
    return "\n".join([head, rule, *lines])


@dataclass(frozen=True)
class Effect:
    r"""The difference of two points in a metric, over the seeds that both have, in percentage points.

    ``low`` and ``high`` are the ends of the 95 % interval of Student's t over the differences by seed,
    :math:`\bar d \pm t_{0.975, n-1} s_d / \sqrt{n}`; with one seed there is none.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int

    def __str__(self) -> str:
        """Return the difference with its interval."""
        if self.low is None:
            return f"{self.mean:+.2f}"
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def effect(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]], metric: str) -> Effect | None:
    """Return by how much the records ``a`` exceed the records ``b`` in a metric; None where they share no seed."""
    values = [{r["seed"]: 100 * r["metrics"][metric] for r in records if metric in r["metrics"]} for records in (a, b)]
    common = sorted(values[0].keys() & values[1].keys())
    if not common:
        return None
    differences = [values[0][seed] - values[1][seed] for seed in common]
    mean = statistics.fmean(differences)
    if len(common) == 1:
        return Effect(mean, None, None, 1)
    quantile = float(student.ppf(0.5 + CONFIDENCE / 2, len(common) - 1))
    half = quantile * statistics.stdev(differences) / math.sqrt(len(common))
    return Effect(mean, mean - half, mean + half, len(common))


def _add(row: Row, metrics: Mapping[str, float], columns: Columns) -> None:
    for column, key in columns.items():
        if key in metrics:
            row.values.setdefault(column, []).append(100 * metrics[key])
