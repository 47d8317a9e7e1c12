"""Makes the table of an artefact from its finished runs: cells, tests of significance, and a
legend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from lightning_cse.papers.artefacts import Artefact, Line, Request
from lightning_cse.papers.cells import Cell, Place, read_cells, reason
from lightning_cse.papers.effects import effects, smallest
from lightning_cse.papers.nested import value_at
from lightning_cse.papers.significance import TEST_FIELDS, Side, compare_lines, is_comparable

if TYPE_CHECKING:
    from lightning_cse.papers.plan import Plan
    from lightning_cse.papers.records import FinishedRun

Cells = Mapping[Place, Cell]
Fact = Callable[[Mapping[str, Any]], str]
"""A text about a record, empty where the record does not say."""

LEVELS = {"**": 0.01, "*": 0.05}
"""The marks of significant differences from the reference row and their levels, the strictest
first.
"""
_SYMBOLS = ("†", "‡", "§", "¶", "‖", "††", "‡‡", "§§")
_TEST = (
    "McNemar's exact test of majority votes, of as many seeds on both sides and of an odd number"
)
_AREAS = "of AUCs, DeLong's paired test of the mean over these seeds"


@dataclass(frozen=True)
class Table:
    """A table: its lines, and its cells by number of the line and title of the column.

    ``symbols`` maps the ``marks`` of cells to the symbols shown; what
    the request changed for all cells is in ``request``. ``runs`` has the runs of all cells, and the
    trainings of those that are evaluations. ``tests`` has the comparisons of lines;
    ``p`` and ``p_holm`` in a cell are those with the reference row. ``effects`` has the mean of
    each cell and the difference of each pair of rows, with intervals over the seeds.
    """

    artefact: Artefact
    request: Request
    lines: tuple[Line, ...]
    cells: Cells
    runs: tuple[FinishedRun, ...]
    symbols: Mapping[str, str]
    legend: tuple[str, ...]
    tests: pd.DataFrame
    effects: pd.DataFrame

    def cells_of(self, line: Line) -> list[Cell]:
        """Return the cells of a line, in the order of the columns."""
        number = self.lines.index(line)
        return [self.cells[number, column.title] for column in self.artefact.columns]

    def signs(self, cell: Cell) -> str:
        """Return the symbols that a cell shows."""
        return "".join(dict.fromkeys(self.symbols.get(mark, "") for mark in cell.marks))

    def facts(self, fact: Fact, between: str = ", ") -> str:
        """Return the facts about the records of all runs, such as `machine_of`."""
        return between.join(sorted({fact(run.record) for run in self.runs} - {""}))

    def time(self) -> str:
        """Return the hours that all runs took, and their number."""
        records = [run.record for run in self.runs if run.record.get("seconds")]
        if not records:
            return ""

        hours = sum(sum(record["seconds"].values()) for record in records) / 3600
        return f"{hours:.2f} hours for {len(records)} run{'s' * (len(records) != 1)}"


def make_table(plan: Plan) -> Table:
    """Return the table of a plan."""
    cells = read_cells(plan)
    marks = dict.fromkeys(mark for cell in cells.values() for mark in cell.marks)
    symbols = dict(zip(marks, _SYMBOLS, strict=False))
    legend = [f"{symbol} {mark}." for mark, symbol in symbols.items()]
    pairs = list(_pairs(plan, cells))
    tests = compare_lines(pairs)
    _mark_significance(plan, cells, tests)
    legend += _about_tests(plan, tests, len(pairs) - len(tests))
    found = effects(plan.lines, plan.artefact.columns, cells, plan.artefact.reference)
    legend += smallest(found, plan.artefact.columns)
    legend += _notes(plan, cells)

    return Table(
        artefact=plan.artefact,
        request=plan.request,
        lines=tuple(plan.lines),
        cells=cells,
        runs=_runs(plan, cells),
        symbols={**symbols, "*": "*", "**": "**"},
        legend=tuple(legend),
        tests=tests[TEST_FIELDS],
        effects=found,
    )


def _runs(plan: Plan, cells: Cells) -> tuple[FinishedRun, ...]:
    measured = {run.source: run for cell in cells.values() for run in cell.runs}
    trainings = filter(None, map(plan.table.training, measured.values()))

    return tuple((measured | {run.source: run for run in trainings}).values())


# Notes


def _notes(plan: Plan, cells: Cells) -> Iterator[str]:
    """Yield the notes that follow those on marks and tests."""
    if any(cell.error == cell.error for cell in cells.values()):
        yield (
            "[from, to]: 95 % interval over the test pairs "
            "(DeLong; the standard errors of the seeds averaged)."
        )

    for line in plan.lines:
        if (other := plan.artefact.matched(line.label)) is None:
            continue

        # None while the other row is not trained.
        if steps := plan.steps(line, plan.artefact.columns[0]):
            yield f"Equal steps: {line.label} as {other} ({line.encoder}), {steps} steps."

    yield from _mixed(plan, cells, "Precision of the evaluation", _precision_of)
    yield from _mixed(plan, cells, "Machines", machine_of)
    reasons: dict[str, list[str]] = {}
    for number, line in enumerate(plan.lines):
        of_line = [cells[number, column.title] for column in plan.artefact.columns]
        if why := reason(line, of_line):
            reasons.setdefault(why.rstrip("."), []).append(line.label)

    for why, labels in reasons.items():
        yield f"Not measured here: {', '.join(labels)}: {why}."

    yield from _published_notes(plan)


def _mixed(plan: Plan, cells: Cells, title: str, fact: Fact) -> Iterator[str]:
    """Yield which rows share a fact about their records if the table has several such facts."""
    found: dict[str, dict[str, None]] = {}
    for (number, _), cell in cells.items():
        for run in cell.runs:
            if text := fact(run.record):
                found.setdefault(text, {})[plan.lines[number].label] = None

    if len(found) > 1:
        rows = [f"{text} ({', '.join(found[text])})" for text in sorted(found)]
        yield f"{title}: {'; '.join(rows)}."


def _published_notes(plan: Plan) -> Iterator[str]:
    """Yield the notes on published numbers."""
    labels = {(line.name, line.paper_encoder): line.label for line in plan.lines}
    notes: dict[str, dict[str, list[str]]] = {}
    for one in plan.artefact.published:
        label = labels.get((one.row, one.encoder))
        if one.note and label:
            notes.setdefault(one.note, {}).setdefault(label, []).append(one.column)

    for note, places in notes.items():
        shown = [f"{label} ({', '.join(columns)})" for label, columns in places.items()]
        yield f"Published value, {note}: {', '.join(shown)}."


# Significance


def _labels(plan: Plan) -> list[str]:
    return list(dict.fromkeys(line.label for line in plan.lines))


def _pairs(plan: Plan, cells: Cells) -> Iterator[tuple[Side, Side]]:
    """Yield the two sides of each comparison: a line and the reference row or, for ``mcnemar_all``,
    every other row.
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
            # With the same encoder; a line without one is compared with a row of one line.
            beside = [
                place
                for place, other in enumerate(plan.lines)
                if other.label == label
                and (not line.encoder or other.encoder in (line.encoder, None))
            ]
            for column in plan.artefact.columns if len(beside) == 1 else ():
                ours, theirs = (
                    Side(place, plan.lines[place], column.title, cells[place, column.title])
                    for place in (number, *beside)
                )
                if is_comparable(ours, theirs):
                    yield ours, theirs


def _mark_significance(plan: Plan, cells: Cells, tests: pd.DataFrame) -> None:
    """Put the p-values of the comparisons with the reference row, and their marks, into the
    cells.
    """
    for test in tests[tests["reference"] == plan.artefact.reference].itertuples(index=False):
        cell = cells[test.a, test.column]
        cell.p = test.p
        cell.p_holm = test.p_holm
        cell.ends = (test.low, test.high)
        signs = [sign for sign, level in LEVELS.items() if test.p_holm < level]
        is_open = test.low <= 0 <= test.high  # False without a seed in common
        if not is_open:
            cell.marks = (*signs[:1], *cell.marks)


def _about_tests(plan: Plan, tests: pd.DataFrame, untested: int) -> Iterator[str]:
    reference = plan.artefact.reference
    if reference is not None and reference not in _labels(plan):
        yield f"No test of significance: the reference row {reference} is not in this table."

    with_reference = tests[tests["reference"] == reference]
    is_tested = with_reference["p"].notna().any()
    if is_tested:
        count = int(tests["p"].notna().sum())
        signs = ", ".join(f"{sign} p < {LEVELS[sign]}" for sign in reversed(LEVELS))
        test = f"{_TEST}; {_AREAS}" if (tests["test"] == "delong").any() else _TEST
        yield (
            f"{signs} against {reference} with the same encoder "
            f"({test}; Holm over {_comparisons(count)} of this table)."
        )

    if with_reference["low"].notna().any():
        text = (
            f"Difference from {reference}: 95 % interval over seeds and examples (the squares of the "
            "half widths of both intervals added; over the examples alone for one seed)."
        )
        if is_tested:
            text += (
                " The tests take the seeds as given; there is no mark where this interval has 0."
            )

        yield text

    if untested:
        yield (
            "Not tested, since predictions are not kept with these records: "
            f"{_comparisons(untested)}."
        )


def _comparisons(count: int) -> str:
    return f"{count} comparison{'s' * (count != 1)}"


# Facts about records


def _precision_of(record: Mapping[str, Any]) -> str:
    return str(record.get("precision") or "")


def short_commit(record: Mapping[str, Any]) -> str:
    """Return the first digits of a record's commit, with its ``-dirty`` mark if any, or
    ``unknown``.
    """
    digits, dirty, _ = str(value_at(record, "environment.commit") or "unknown").partition("-dirty")
    return digits[:7] + dirty


def machine_of(record: Mapping[str, Any]) -> str:
    """Return the machine of a record: the GPU, or the processor and its cores; nothing if the
    record names none.
    """
    device = str(record.get("device") or "")
    if device != "cpu":
        return device

    machine = value_at(record, "environment.machine") or {}
    cores = machine.get("cores")
    parts = [device, machine.get("cpu"), cores and f"{cores} core{'s' * (cores != 1)}"]

    return ", ".join(str(part) for part in parts if part)
