"""What a table says above and below its cells: choices, records, tests, and notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from lightning_cse.tables.effects import smallest
from lightning_cse.tables.frame import LEVELS
from lightning_cse.tables.nested import value_at

if TYPE_CHECKING:
    from lightning_cse.tables.records import FinishedRun
    from lightning_cse.tables.table import Table

Fact = Callable[[Mapping[str, Any]], str]
"""A text about a record, empty where the record does not say."""

_TEST = (
    "McNemar's exact test of majority votes, of as many seeds on both sides and of an odd number"
)
_AREAS = "of AUCs, DeLong's paired test of the mean over these seeds"


def about(table: Table) -> list[str]:
    """Return a line on the choices that hold for the whole table, and one on its records."""
    request = table.request
    encoders = encoders_of(table)
    runs = _runs_of(table)
    choices = {
        "profile ": request.profile,
        "encoder ": request.encoder or ("" if len(encoders) != 1 else encoders[0]),
        "seeds ": " ".join(map(str, request.seeds or ())),
        "": " ".join(request.settings),
        "only ": ", ".join(request.only),
    }
    facts = {
        "code ": facts_of(runs, short_commit),
        "measured on ": facts_of(runs, machine_of, " and "),
        "": time_of(runs),
    }
    lines = [
        "; ".join(name + text for name, text in part.items() if text) for part in (choices, facts)
    ]

    return [line for line in lines if line]


def legend(table: Table) -> list[str]:
    """Return what the symbols of a table mean, what was tested, and its note."""
    symbols = [(mark, sign) for mark, sign in table.symbols.items() if mark not in LEVELS]
    return [
        *_about_cells(table),
        *(f"{sign} {remark}." for remark, sign in symbols),
        *_about_tests(table),
        *smallest(table.effects, table.spec.columns),
        *_notes(table),
        *filter(None, [" ".join(table.spec.note.split())]),
    ]


def encoders_of(table: Table) -> list[str]:
    """Return the encoders of the rows that are measured or may be."""
    encoders = table.lines["encoder"][_reasons(table) == ""]
    return [encoder for encoder in encoders.unique() if encoder]


def _reasons(table: Table) -> pd.Series:
    """Return why a line has only the paper's numbers; finished runs are used, whatever it needs."""
    waits = table.lines["needs"].notna() & ~_is_measured(table)
    return table.lines["published"].where(~waits, table.lines["needs"].map(str))


def _is_measured(table: Table) -> pd.Series:
    counts = table.cells["n"].groupby(level="line").sum()
    return counts.reindex(table.lines.index, fill_value=0) > 0


def _about_cells(table: Table) -> Iterator[str]:
    cells, lines = table.cells, table.lines
    if cells["sd"].notna().any():
        yield "Mean ± standard deviation over the n seeds of a row."

    has_number = cells["published"].notna().groupby(level="line").any()
    if not has_number.any():
        return

    lines = lines[has_number]
    rows = lines[lines["paper_encoder"] != ""].groupby("paper_encoder", sort=False)["label"]
    of_encoder = ""
    if len(rows) and (lines["encoder"] == lines["paper_encoder"]).all():
        of_encoder = " with the same encoder"
    elif len(rows) == 1:
        of_encoder = " with " + next(iter(rows.groups))
    elif len(rows):
        of_encoder = " with " + "; ".join(f"{key} ({', '.join(of)})" for key, of in rows)

    text = f"paper: the published value{of_encoder}"
    is_compared = cells["difference"].notna().any()
    yield text + (", and in parentheses ours minus it." if is_compared else ".")


def _about_tests(table: Table) -> Iterator[str]:
    reference, tests = table.spec.reference, table.tests
    if reference is not None and reference not in table.labels:
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

    if untested := len(table.pairs) - len(tests):
        yield (
            "Not tested, since predictions are not kept with these records: "
            f"{_comparisons(untested)}."
        )


def _comparisons(count: int) -> str:
    return f"{count} comparison{'s' * (count != 1)}"


def _notes(table: Table) -> Iterator[str]:
    if table.cells["error"].notna().any():
        yield (
            "[from, to]: 95 % interval over the test pairs "
            "(DeLong; the standard errors of the seeds averaged)."
        )

    for line in table.lines.itertuples():
        matched = table.spec.matched(line.label)
        # The steps are None while the other row is not trained.
        if matched and (steps := table.steps(line, table.spec.columns[0])):
            yield f"Equal steps: {line.label} as {matched} ({line.encoder}), {steps} steps."

    yield from _mixed_precision(table.values)
    reasons = _reasons(table).str.rstrip(".")
    for text, labels in table.lines["label"].groupby(reasons, sort=False):
        if text:
            yield f"Not measured here: {', '.join(labels)}: {text}."

    yield from _published_notes(table)


def _mixed_precision(values: pd.DataFrame) -> Iterator[str]:
    """Yield which rows were evaluated in which precision, if the table has several."""
    precisions = [run.record.get("precision") for run in values["run"]]
    rows = values.sort_values("line", kind="stable")["row"].groupby(pd.Series(precisions)).unique()
    if len(rows) > 1:
        texts = [f"{precision} ({', '.join(labels)})" for precision, labels in rows.items()]
        yield f"Precision of the evaluation: {'; '.join(texts)}."


def _published_notes(table: Table) -> Iterator[str]:
    """Yield the notes on published numbers."""
    keys = ["name", "paper_encoder"]
    lines = table.lines.drop_duplicates(keys, keep="last")[[*keys, "label"]]
    numbers = table.spec.published
    numbers = numbers[numbers["note"] != ""].merge(lines, left_on=["row", "encoder"], right_on=keys)
    for note, of_note in numbers.groupby("note", sort=False):
        texts = [
            f"{label} ({', '.join(columns)})"
            for label, columns in of_note.groupby("label", sort=False)["column"]
        ]
        yield f"Published value, {note}: {', '.join(texts)}."


# Facts about records


def _runs_of(table: Table) -> list[FinishedRun]:
    """Return the runs of all cells, and the trainings of those that are evaluations."""
    measured = dict.fromkeys(table.values["run"])
    trainings = filter(None, map(table.runs.training, measured))

    return list(measured | dict.fromkeys(trainings))


def facts_of(runs: Iterable[FinishedRun], fact: Fact, between: str = ", ") -> str:
    """Return the facts about the records of runs, such as `machine_of`."""
    return between.join(sorted({fact(run.record) for run in runs} - {""}))


def time_of(runs: Iterable[FinishedRun]) -> str:
    """Return the hours that runs took, and their number."""
    seconds = [sum(run.record["seconds"].values()) for run in runs if run.record.get("seconds")]
    if not seconds:
        return ""

    return f"{sum(seconds) / 3600:.2f} hours for {len(seconds)} run{'s' * (len(seconds) != 1)}"


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
