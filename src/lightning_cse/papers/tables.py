"""Makes the table of an artefact from its finished runs: cells, tests of significance, and a
legend.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from lightning_cse.papers.artefacts import Artefact, Column, Line, Request
from lightning_cse.papers.cells import Cell, Place, read_cells, reason
from lightning_cse.papers.nested import value_at
from lightning_cse.papers.significance import TEST_FIELDS, Side, compare_lines

if TYPE_CHECKING:
    from lightning_cse.papers.plan import Plan

__all__ = ["LEVELS", "Table", "machine_of", "make_table", "short_commit"]

Cells = Mapping[Place, Cell]

LEVELS: Final = {"**": 0.01, "*": 0.05}
"""The marks of significant differences from the reference row and their levels, the strictest
first.
"""
_SYMBOLS: Final = ("†", "‡", "§", "¶", "‖", "††", "‡‡", "§§")
_TESTS: Final = {
    "mcnemar": "McNemar's exact test of majority votes, of as many seeds on both sides and of an odd number",
    "bootstrap": "paired bootstrap over the sentence pairs, the seeds averaged in every draw, {:,} draws",
}


@dataclass(frozen=True)
class Table:
    """A table: its lines, and its cells by number of the line and title of the column.

    ``symbols`` maps the ``marks`` of cells to the symbols shown. ``tests`` has the comparisons of
    lines; ``p`` and ``p_holm`` in a cell are those with the reference row.
    """

    artefact: Artefact
    request: Request
    lines: tuple[Line, ...]
    cells: Cells
    symbols: Mapping[str, str]
    legend: tuple[str, ...]
    tests: pd.DataFrame

    def cells_of(self, line: Line) -> list[Cell]:
        """Return the cells of a line, in the order of the columns."""
        number = self.lines.index(line)
        return [self.cells[number, column.title] for column in self.artefact.columns]

    def signs(self, cell: Cell) -> str:
        """Return the symbols that a cell shows."""
        return "".join(dict.fromkeys(self.symbols.get(mark, "") for mark in cell.marks))

    def facts(self, fact: Any) -> str:
        """Return a fact about the records of all cells, such as `machine_of`."""
        runs = itertools.chain.from_iterable(cell.runs for cell in self.cells.values())
        return ", ".join(sorted({fact(run.record) for run in runs}))


def make_table(plan: Plan, kept_tests: Path | None = None, draws: int = 10_000) -> Table:
    """Return the table of a plan; comparisons in ``kept_tests`` with the same seeds and means need
    no predictions.
    """
    cells = read_cells(plan)
    symbols, texts = _symbols(plan, cells)
    pairs = list(_pairs(plan, cells))
    test = "bootstrap" if plan.artefact.test == "bootstrap" else "mcnemar"
    tests = compare_lines(pairs, test, kept_tests, draws)
    letters = _mark_significance(plan, cells, tests)
    texts += _about_tests(plan, tests, len(pairs) - len(tests), letters, _TESTS[test].format(draws))
    texts += _notes(plan, cells)
    letter_of = {f"differs:{label}": letter for label, letter in letters.items()}
    return Table(
        artefact=plan.artefact,
        request=plan.request,
        lines=tuple(plan.lines),
        cells=cells,
        symbols={**symbols, **letter_of, "*": "*", "**": "**"},
        legend=tuple(texts),
        tests=tests[TEST_FIELDS],
    )


# Marks and notes


def _symbols(plan: Plan, cells: Cells) -> tuple[dict[str, str], list[str]]:
    """Return the symbols of the marks, and the notes on them; a mark of the request has no
    symbol.
    """
    marks = dict.fromkeys(mark for cell in cells.values() for mark in cell.marks)
    replaced = dict.fromkeys(
        f"{plan.lines[number].encoder} in place of {plan.lines[number].paper_encoder}"
        for (number, _), cell in cells.items()
        if "encoder" in cell.marks
    )
    general = {
        "profile": f"profile {plan.request.profile}",
        "encoder": f"measured with {', '.join(replaced)}",
        "settings": f"with {' '.join(plan.request.settings)}",
    }
    texts = {"stale": "measured before the last change of its method"}
    for column in plan.artefact.columns:
        for key, why in column.instead.items():
            texts[f"instead:{key}"] = why.rstrip(".")
    own = [mark for mark in marks if mark in texts]
    symbol_of = dict(zip(dict.fromkeys(texts[mark] for mark in own), _SYMBOLS, strict=False))
    shared = [general[mark] for mark in general if mark in marks]
    notes = [f"All measured values: {'; '.join(shared)}."] if shared else []
    notes += [f"{symbol} {text}." for text, symbol in symbol_of.items()]
    return {mark: symbol_of.get(texts[mark], "") for mark in own}, notes


def _notes(plan: Plan, cells: Cells) -> Iterator[str]:
    """Yield the notes that follow those on marks and tests."""
    if any(cell.error == cell.error for cell in cells.values()):
        yield (
            "[from, to]: 95 % interval over the test pairs "
            "(DeLong; the standard errors of the seeds averaged)."
        )
    for line in plan.lines:
        if (other := plan.artefact.matched(line.label)) is not None:
            steps = plan.steps(line, plan.artefact.columns[0]) or "?"
            yield f"Equal steps: {line.label} as {other} ({line.encoder}), {steps} steps."
    if any(cell.n < cell.asked for cell in cells.values()):
        yield "n: seeds measured / seeds asked for."
    reasons: dict[str, list[str]] = {}
    for number, line in enumerate(plan.lines):
        of_line = [cells[number, column.title] for column in plan.artefact.columns]
        if why := reason(line, of_line):
            reasons.setdefault(why.rstrip("."), []).append(line.label)
    for why, labels in reasons.items():
        yield f"Not measured here: {', '.join(labels)}: {why}."
    yield from _published_notes(plan)


def _published_notes(plan: Plan) -> Iterator[str]:
    """Yield the notes on published numbers; the columns are listed unless a note is on all numbers
    of a line.
    """
    notes: dict[str, list[str]] = {}
    for line in plan.lines:
        place = (line.name, line.paper_encoder)
        own = [one for one in plan.artefact.published if (one.row, one.encoder) == place]
        for note in dict.fromkeys(one.note for one in own if one.note):
            titles = [one.column for one in own if one.note == note]
            some = f" ({', '.join(titles)})" if len(titles) < len(own) else ""
            notes.setdefault(note, []).append(line.label + some)
    for note, shown in notes.items():
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
                ours = _side(plan, cells, number, column)
                theirs = _side(plan, cells, beside[0], column)
                if ours and theirs and ours.metrics == theirs.metrics:
                    yield ours, theirs


def _side(plan: Plan, cells: Cells, number: int, column: Column) -> Side | None:
    """Return a cell as a side of a comparison; None if the test does not suit it, or it has no
    value.
    """
    cell = cells[number, column.title]
    if not cell.metrics:
        return None
    metrics = []
    for metric in cell.metrics:
        task = metric.split("/")[1]
        parts = value_at(cell.runs[0].record, f"decisive.config.suite.{task}.of")
        metrics += [f"test/{part}" for part in parts] if isinstance(parts, list) else [metric]
    if plan.artefact.test == "bootstrap":
        suits = all(metric.endswith(("/spearman", "/spearman_all")) for metric in metrics)
    else:
        is_accuracy = column.source == "metric" and "/accuracy" in metrics[0]
        suits = is_accuracy and metrics == [*cell.metrics]  # not the mean of several tasks
    line = plan.lines[number]
    side = Side(number, line, column.title, tuple(metrics), cell.values, cell.runs)
    return side if suits else None


def _mark_significance(plan: Plan, cells: Cells, tests: pd.DataFrame) -> dict[str, str]:
    """Put p-values and marks into the cells; return the letters of the rows that others differ
    from.
    """
    labels = _labels(plan)
    named: set[str] = set()
    for test in tests.itertuples(index=False):
        cell = cells[test.a, test.column]
        if test.reference == plan.artefact.reference:
            cell.p = test.p
            cell.p_holm = test.p_holm
            signs = [sign for sign, level in LEVELS.items() if test.p_holm < level]
            cell.marks = (*signs[:1], *cell.marks)
        elif test.p_holm < LEVELS["*"]:
            cell.differs.append(test.reference)
            cells[test.b, test.column].differs.append(test.row)
            named |= {test.reference, test.row}
    for cell in cells.values():
        cell.marks += tuple(f"differs:{one}" for one in sorted(cell.differs, key=labels.index))
    return {label: chr(ord("a") + labels.index(label)) for label in labels if label in named}


def _about_tests(
    plan: Plan, tests: pd.DataFrame, untested: int, letters: Mapping[str, str], how: str
) -> Iterator[str]:
    reference = plan.artefact.reference
    if reference is not None and reference not in _labels(plan):
        yield f"No test of significance: the reference row {reference} is not in this table."
    if len(tests):
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
        of = "between rows" if plan.artefact.test == "mcnemar_all" else f"with {reference}"
        yield (
            "Not tested, since predictions are not kept with these records: "
            f"{untested} comparisons {of}."
        )


# Facts about records


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
    parts = [device, machine.get("cpu"), cores and f"{cores} core{'s' * (cores != 1)}"]
    return ", ".join(str(part) for part in parts if part)
