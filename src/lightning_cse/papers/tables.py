"""Makes the table of an artefact from its finished runs: cells, tests of significance, and a
legend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from lightning_cse.papers import legend
from lightning_cse.papers.artefacts import Artefact, Column, Line, Request
from lightning_cse.papers.cells import (
    NUMBERS,
    Readings,
    is_number,
    is_quoted,
    read_cells,
    summarise_cells,
)
from lightning_cse.papers.nested import value_at
from lightning_cse.papers.significance import TEST_FIELDS, Side, compare_lines

if TYPE_CHECKING:
    from lightning_cse.papers.plan import Plan

__all__ = ["LEVELS", "NUMBERS", "Table", "is_number", "machine_of", "make_table", "short_commit"]

LEVELS: Final = {"**": 0.01, "*": 0.05}
"""The marks of significant differences from the reference row and their levels, the strictest
first.
"""
_TESTS: Final = {
    "mcnemar": "McNemar's exact test of majority votes, of as many seeds on both sides and of an odd number",
    "bootstrap": "paired bootstrap over the sentence pairs, the seeds averaged in every draw",
}


@dataclass(frozen=True)
class Table:
    """A table: ``cells`` has a row for each line (by number) and column (by title), NaN where there
    is no number.

    ``symbols`` maps the ``marks`` of cells to the symbols shown. ``quoted`` says which lines have
    only the paper's numbers. ``tests`` has the comparisons of lines; ``p`` and ``p_holm`` in a cell
    are those with the reference row.
    """

    artefact: Artefact
    request: Request
    lines: tuple[Line, ...]
    quoted: tuple[bool, ...]
    cells: pd.DataFrame
    symbols: Mapping[str, str]
    legend: tuple[str, ...]
    tests: pd.DataFrame
    commits: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()

    def rows(self) -> Iterator[tuple[Line, list[tuple[Any, Column]]]]:
        """Yield each line with its cells and their columns; a cell has the columns of ``cells`` as
        attributes.
        """
        columns = self.artefact.columns
        cells = list(self.cells.itertuples(index=False))
        for number, line in enumerate(self.lines):
            inner = cells[number * len(columns) : (number + 1) * len(columns)]
            yield line, list(zip(inner, columns, strict=True))

    def signs(self, cell: Any) -> str:
        """Return the symbols that a cell shows."""
        return "".join(dict.fromkeys(self.symbols.get(mark, "") for mark in cell.marks))


def make_table(
    plan: Plan,
    kept_tests: Path | None = None,
    draws: int = 10_000,
) -> Table:
    """Return the table of a plan; comparisons in ``kept_tests`` with the same seeds and means need
    no predictions.
    """
    quoted = tuple(is_quoted(plan, line) for line in plan.lines)
    readings = read_cells(plan, quoted)
    cells = summarise_cells(plan, readings, quoted)
    symbols, texts = legend.symbols(plan, cells, readings)
    pairs = list(_pairs(plan, readings))
    test = "bootstrap" if plan.artefact.test == "bootstrap" else "mcnemar"
    tests = compare_lines(pairs, test, kept_tests, draws)
    letters = _mark_significance(plan, cells, tests)
    texts += _about_tests(
        plan,
        tests,
        len(pairs) - len(tests),
        letters,
        draws,
    )
    texts += legend.notes(plan, cells, readings, quoted)
    symbols |= {f"differs:{label}": letter for label, letter in letters.items()}
    records = [run.record for reading in readings.values() for run in reading.runs]
    return Table(
        artefact=plan.artefact,
        request=plan.request,
        lines=tuple(plan.lines),
        quoted=quoted,
        cells=cells,
        symbols={
            **symbols,
            "*": "*",
            "**": "**",
        },
        legend=tuple(texts),
        tests=tests[TEST_FIELDS],
        commits=tuple(sorted(set(map(short_commit, records)))),
        machines=tuple(sorted(set(map(machine_of, records)))),
    )


def _labels(plan: Plan) -> list[str]:
    return list(dict.fromkeys(line.label for line in plan.lines))


def _pairs(plan: Plan, readings: Readings) -> Iterator[tuple[Side, Side]]:
    """Yield the two sides of each comparison: a line and the reference row or, for ``mcnemar_all``,
    every other row.

    The two lines have the same encoder; a line without an encoder is compared if the other row has
    only one line.
    """
    reference = plan.artefact.reference
    labels = _labels(plan)
    if reference not in labels:
        return
    for number, line in enumerate(plan.lines):
        if line.label == reference:
            continue
        others = [reference]
        if plan.artefact.test == "mcnemar_all":
            others += labels[labels.index(line.label) + 1 :]
        for label in dict.fromkeys(others):
            other = _line_beside(plan, line, label)
            if other is None:
                continue
            for column in plan.artefact.columns:
                ours = _side(plan, readings, number, column)
                theirs = _side(plan, readings, other, column)
                if ours and theirs and ours.metrics == theirs.metrics:
                    yield ours, theirs


def _line_beside(
    plan: Plan,
    line: Line,
    label: str,
) -> int | None:
    """Return the number of the only line with a label that can be compared with a line; None
    without one.
    """
    numbers = []
    for number, other in enumerate(plan.lines):
        same_encoder = not line.encoder or other.encoder in (line.encoder, None)
        if other.label == label and same_encoder:
            numbers.append(number)
    return numbers[0] if len(numbers) == 1 else None


def _side(
    plan: Plan,
    readings: Readings,
    number: int,
    column: Column,
) -> Side | None:
    """Return a cell as a side of a comparison; None if the test does not suit it, or it has no
    value.
    """
    reading = readings[number, column.title]
    test = plan.artefact.test
    if not reading.values or not reading.metrics or test is None:
        return None
    metrics = []
    for metric in reading.metrics:
        task = metric.split("/")[1]
        parts = value_at(reading.runs[0].record, f"decisive.config.suite.{task}.of")
        metrics += [f"test/{part}" for part in parts] if isinstance(parts, list) else [metric]
    if test == "bootstrap":
        suits = all(metric.endswith(("/spearman", "/spearman_all")) for metric in metrics)
        is_whole = column.source != "mean" or len(reading.metrics) == len(column.keys)
        suits = suits and is_whole
    else:
        is_accuracy = [m.split("/")[2].partition("_")[0] == "accuracy" for m in reading.metrics]
        suits = column.source == "metric" and all(is_accuracy) and metrics == [*reading.metrics]
    if not suits:
        return None
    line = plan.lines[number]
    return Side(
        number,
        line,
        column.title,
        tuple(metrics),
        reading.values,
        reading.runs,
    )


def _mark_significance(
    plan: Plan,
    cells: pd.DataFrame,
    tests: pd.DataFrame,
) -> dict[str, str]:
    """Put p-values and marks into the cells; return the letters of the rows that others differ
    from.
    """
    differs: dict[tuple[int, str], list[str]] = {}
    for test in tests.itertuples(index=False):
        place = (test.a, test.column)
        if test.reference == plan.artefact.reference:
            cells.loc[place, ["p", "p_holm"]] = test.p, test.p_holm
            signs = [sign for sign, level in LEVELS.items() if test.p_holm < level]
            cells.at[place, "marks"] = (*signs[:1], *cells.at[place, "marks"])
        elif test.p_holm < LEVELS["*"]:
            differs.setdefault(place, []).append(test.reference)
            differs.setdefault((test.b, test.column), []).append(test.row)
    return _mark_letters(cells, differs, _labels(plan))


def _mark_letters(
    cells: pd.DataFrame,
    differs: Mapping[tuple[int, str], Sequence[str]],
    labels: Sequence[str],
) -> dict[str, str]:
    """Mark each cell with the rows that it differs from; return the letters of these rows."""
    named: set[str] = set()
    for place, others in differs.items():
        named.update(others)
        marks = [f"differs:{other}" for other in sorted(others, key=labels.index)]
        cells.at[place, "marks"] += tuple(marks)
    letters = {label: chr(ord("a") + number) for number, label in enumerate(labels)}
    return {label: letter for label, letter in letters.items() if label in named}


def _about_tests(
    plan: Plan,
    tests: pd.DataFrame,
    untested: int,
    letters: Mapping[str, str],
    draws: int,
) -> Iterator[str]:
    reference = plan.artefact.reference
    test = plan.artefact.test
    if reference is None or test is None:
        return
    if reference not in _labels(plan):
        yield f"No test of significance: the reference row {reference} is not in this table."
    if len(tests):
        how = _TESTS["mcnemar"]
        if test == "bootstrap":
            how = f"{_TESTS['bootstrap']}, {draws:,} draws"
        count = f"{len(tests)} comparison{'s' * (len(tests) != 1)}"
        signs = ", ".join(f"{sign} p < {LEVELS[sign]}" for sign in reversed(LEVELS))
        yield (
            f"{signs} against {reference} with the same encoder "
            f"({how}; Holm over {count} of this table)."
        )
    if letters:
        named = ", ".join(f"{letter}: {label}" for label, letter in letters.items())
        yield f"Letters: p < {LEVELS['*']} against {named}."
    if untested:
        of = "between rows" if test == "mcnemar_all" else f"with {reference}"
        yield (
            "Not tested, since predictions are not kept with these records: "
            f"{untested} comparisons {of}."
        )


def short_commit(record: Mapping[str, Any]) -> str:
    """Return the first digits of a record's commit, with its ``-dirty`` mark if any, or
    ``unknown``.
    """
    digits, dirty, _ = str(value_at(record, "environment.commit") or "unknown").partition("-dirty")
    return digits[:7] + dirty


def machine_of(record: Mapping[str, Any]) -> str:
    """Return the machine of a record: the GPU, or the processor and its cores."""
    device = str(record.get("device") or "unknown")
    if device != "cpu":
        return device
    machine = value_at(record, "environment.machine") or {}
    cores = machine.get("cores")
    parts = [
        device,
        machine.get("cpu"),
        cores and f"{cores} core{'s' * (cores != 1)}",
    ]
    return ", ".join(str(part) for part in parts if part)
