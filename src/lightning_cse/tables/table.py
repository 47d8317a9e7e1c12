"""Makes the table of a spec from its finished runs: cells, comparisons, and a legend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from lightning_cse.tables.comparisons import (
    TEST_FIELDS,
    Pair,
    compare,
    effects,
    is_comparable,
    smallest,
)
from lightning_cse.tables.frame import read_cells, read_values, weights_of
from lightning_cse.tables.nested import value_at
from lightning_cse.tables.spec import Line, Request, Spec

if TYPE_CHECKING:
    from lightning_cse.tables.plan import Plan
    from lightning_cse.tables.records import FinishedRun

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
    """A table: its lines, its long frame of values, and its cells by line and column.

    The columns of ``cells`` are those of `lightning_cse.tables.frame.read_cells`; the comparison
    with the reference row as ``p``, ``p_holm``, ``against_low`` and ``against_high``; ``marks``,
    the stars and the remarks; and ``signs``, the symbols that are shown for them. ``runs`` has the
    runs of all cells, and the trainings of those that are evaluations. ``tests`` has all
    comparisons, ``effects`` the means and the differences over the seeds.
    """

    spec: Spec
    request: Request
    lines: tuple[Line, ...]
    values: pd.DataFrame
    cells: pd.DataFrame
    runs: tuple[FinishedRun, ...]
    legend: tuple[str, ...]
    tests: pd.DataFrame
    effects: pd.DataFrame

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
    spec = plan.spec
    values = read_values(plan)
    weights = weights_of(spec)
    pairs = [pair for pair in _pairs(plan) if is_comparable(values, pair, weights)]
    tests = compare(values, pairs, weights)
    cells = _with_tests(read_cells(plan, values), tests, spec.reference)
    remarks = dict.fromkeys(remark for of_cell in cells["remarks"] for remark in of_cell)
    symbols = {"*": "*", "**": "**", **dict(zip(remarks, _SYMBOLS, strict=False))}
    cells["signs"] = [
        "".join(dict.fromkeys(symbols.get(mark, "") for mark in marks)) for marks in cells["marks"]
    ]
    table_effects = effects(values, spec.columns, spec.reference)
    legend = [
        *(f"{symbols[remark]} {remark}." for remark in remarks if remark in symbols),
        *_about_tests(plan, tests, len(pairs) - len(tests)),
        *smallest(table_effects, spec.columns),
        *_notes(plan, values, cells),
    ]

    return Table(
        spec=spec,
        request=plan.request,
        lines=tuple(plan.lines),
        values=values,
        cells=cells,
        runs=_runs(plan, values),
        legend=tuple(legend),
        tests=tests[TEST_FIELDS],
        effects=table_effects,
    )


def _runs(plan: Plan, values: pd.DataFrame) -> tuple[FinishedRun, ...]:
    measured = dict.fromkeys(values["run"])
    trainings = filter(None, map(plan.table.training, measured))

    return tuple(measured | dict.fromkeys(trainings))


# Comparisons


def _labels(plan: Plan) -> list[str]:
    return list(dict.fromkeys(line.label for line in plan.lines))


def _pairs(plan: Plan) -> Iterator[Pair]:
    """Yield what a table compares: each line with the reference row or, for ``mcnemar_all``, with
    every other row, in each column.
    """
    reference = plan.spec.reference
    labels = _labels(plan)
    if reference not in labels:
        return

    for number, line in enumerate(plan.lines):
        if line.label == reference:
            continue

        references = [reference]
        if plan.spec.test == "mcnemar_all":
            references += labels[labels.index(line.label) + 1 :]

        for label in dict.fromkeys(references):
            # With the same encoder; a line without one is compared with a row of one line.
            opposite = [
                opposite_number
                for opposite_number, candidate in enumerate(plan.lines)
                if candidate.label == label
                and (not line.encoder or candidate.encoder in (line.encoder, None))
            ]
            if len(opposite) == 1:
                for column in plan.spec.columns:
                    yield number, opposite[0], column.title


def _with_tests(cells: pd.DataFrame, tests: pd.DataFrame, reference: str | None) -> pd.DataFrame:
    """Return the cells with the comparisons with the reference row, and with their marks.

    There is no star where the interval over seeds and examples has 0.
    """
    columns = {"p": "p", "p_holm": "p_holm", "low": "against_low", "high": "against_high"}
    against = tests[tests["reference"] == reference].set_index(["line", "column"])
    against = against[list(columns)].rename(columns=columns).astype(float)
    cells = cells.join(against)
    stars = []
    for cell in cells.itertuples():
        signs = [sign for sign, level in LEVELS.items() if cell.p_holm < level]
        is_open = cell.against_low <= 0 <= cell.against_high  # False without a seed in common
        stars.append(() if is_open else tuple(signs[:1]))

    cells["marks"] = [
        (*star, *remarks) for star, remarks in zip(stars, cells["remarks"], strict=True)
    ]

    return cells


def _about_tests(plan: Plan, tests: pd.DataFrame, untested: int) -> Iterator[str]:
    reference = plan.spec.reference
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


# Notes


def _notes(plan: Plan, values: pd.DataFrame, cells: pd.DataFrame) -> Iterator[str]:
    """Yield the notes that follow those on marks and tests."""
    if cells["error"].notna().any():
        yield (
            "[from, to]: 95 % interval over the test pairs "
            "(DeLong; the standard errors of the seeds averaged)."
        )

    for line in plan.lines:
        if (matched := plan.spec.matched(line.label)) is None:
            continue

        # None while the other row is not trained.
        if steps := plan.steps(line, plan.spec.columns[0]):
            yield f"Equal steps: {line.label} as {matched} ({line.encoder}), {steps} steps."

    yield from _mixed_precision(values)
    reasons: dict[str, list[str]] = {}
    for number, line in enumerate(plan.lines):
        if text := reason(line, is_measured=cells.loc[number, "n"].any()):
            reasons.setdefault(text.rstrip("."), []).append(line.label)

    for text, labels in reasons.items():
        yield f"Not measured here: {', '.join(labels)}: {text}."

    yield from _published_notes(plan)


def reason(line: Line, *, is_measured: bool) -> str:
    """Return why a line has only the paper's numbers; finished runs are used, whatever it needs."""
    return str(line.needs) if line.needs and not is_measured else line.published


def _mixed_precision(values: pd.DataFrame) -> Iterator[str]:
    """Yield which rows were evaluated in which precision, if the table has several."""
    precisions = [run.record.get("precision") for run in values["run"]]
    rows = values.sort_values("line", kind="stable")["row"].groupby(pd.Series(precisions)).unique()
    if len(rows) > 1:
        texts = [f"{precision} ({', '.join(labels)})" for precision, labels in rows.items()]
        yield f"Precision of the evaluation: {'; '.join(texts)}."


def _published_notes(plan: Plan) -> Iterator[str]:
    """Yield the notes on published numbers."""
    labels = {(line.name, line.paper_encoder): line.label for line in plan.lines}
    notes: dict[str, dict[str, list[str]]] = {}
    for number in plan.spec.published:
        label = labels.get((number.row, number.encoder))
        if number.note and label:
            notes.setdefault(number.note, {}).setdefault(label, []).append(number.column)

    for note, columns_by_row in notes.items():
        texts = [f"{label} ({', '.join(columns)})" for label, columns in columns_by_row.items()]
        yield f"Published value, {note}: {', '.join(texts)}."


# Facts about records


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
