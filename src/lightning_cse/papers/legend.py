"""The legend of a table: the symbols of the marks in its cells, and notes on what was measured and
how.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pandas as pd

from lightning_cse.papers.artefacts import Column, Line, Published
from lightning_cse.papers.cells import Readings
from lightning_cse.papers.nested import value_at
from lightning_cse.runs import mean_of_text, summarise

if TYPE_CHECKING:
    from lightning_cse.papers.plan import Plan

_SYMBOLS: Final = ("†", "‡", "§", "¶", "‖", "††", "‡‡", "§§")


def symbols(
    plan: Plan,
    cells: pd.DataFrame,
    readings: Readings,
) -> tuple[dict[str, str], list[str]]:
    """Return the symbols of the marks, and the notes on them; a mark of all measured cells has no
    symbol.
    """
    texts = _texts_of_marks(plan, cells)
    measured = []
    for place, reading in readings.items():
        if reading.values:
            measured.append((plan.lines[place[0]], cells.at[place, "marks"]))
    names = dict.fromkeys(name for marks in cells["marks"] for name in marks)
    shared = [name for name in names if _is_shared(name, measured)]
    own = [name for name in names if name not in shared]
    symbol_of = dict(zip(dict.fromkeys(texts[name] for name in own), itertools.cycle(_SYMBOLS)))
    notes = []
    if shared:
        notes.append(f"All measured values: {'; '.join(texts[name] for name in shared)}.")
    notes += [f"{symbol} {text}." for text, symbol in symbol_of.items()]
    return {name: symbol_of[texts[name]] for name in own}, notes


def _is_shared(name: str, measured: Sequence[tuple[Line, Sequence[str]]]) -> bool:
    # A line without an encoder cannot have been measured with another one.
    having = [marks for line, marks in measured if name != "encoder" or line.encoder]
    return all(name in marks for marks in having)


def _texts_of_marks(plan: Plan, cells: pd.DataFrame) -> dict[str, str]:
    replaced = {}
    for (number, _), marks in cells["marks"].items():
        line = plan.lines[number]
        if "encoder" in marks:
            replaced[f"{line.encoder} in place of {line.paper_encoder}"] = True
    texts = {
        "profile": f"profile {plan.request.profile}",
        "encoder": f"measured with {', '.join(replaced)}",
        "settings": f"with {' '.join(plan.request.settings)}",
        "stale": "measured before the last change of its method",
        "mixed": "its seeds are of runs that differ in their data, or in what an automatic choice became",
    }
    for column in plan.artefact.columns:
        for key, why in column.instead.items():
            texts[f"instead:{key}"] = why.rstrip(".")
    return texts


def notes(
    plan: Plan,
    cells: pd.DataFrame,
    readings: Readings,
    quoted: Sequence[bool],
) -> Iterator[str]:
    """Yield the notes that follow those on marks and tests."""
    runs = {run.source: run for reading in readings.values() for run in reading.runs}
    unknown = [plan.change_of(run) for run in runs.values()].count("unknown")
    if unknown:
        yield (
            f"Whether the loss has changed since is unknown for {unknown} of {len(runs)} records: "
            "they, or the records of their trainings, lack a digest of code."
        )
    if cells["error"].notna().any():
        yield (
            "[from, to]: 95 % interval over the test pairs "
            "(DeLong; the standard errors of the seeds averaged)."
        )
    yield from _matches(plan)
    yield from _final_scores(plan, readings)
    if (cells["n"] < cells["asked"]).any():
        yield "n: seeds measured / seeds asked for."
    titles = _titles(plan)
    yield from _reasons(plan, titles, quoted)
    yield from _published_notes(plan, titles)


def _titles(plan: Plan) -> list[str]:
    """Return the label of each line, with its encoder where several lines share the label."""
    count = Counter(line.label for line in plan.lines)
    several = {label for label, number in count.items() if number > 1}
    return [
        f"{line.label} ({line.encoder})" if line.label in several else line.label
        for line in plan.lines
    ]


def _matches(plan: Plan) -> Iterator[str]:
    for line in plan.lines:
        if (other := plan.artefact.matched(line.label)) is not None:
            steps = plan.setting(line, Column("", "config", ("trainer.max_steps",))) or "?"
            by = "".join(plan.artefact.match)
            yield f"Equal {by}: {line.label} as {other} ({line.encoder}), {steps} steps."


def _final_scores(plan: Plan, readings: Readings) -> Iterator[str]:
    for column in plan.artefact.columns:
        if column.keys != ("summary.final_score",):
            continue
        evaluations = []
        for number in range(len(plan.lines)):
            for run in readings[number, column.title].runs:
                monitor = str(value_at(run.record, "best.monitor"))
                evaluations.append(summarise(run.curves, monitor).evaluations)
        yield f"{column.title}: a run's final score, {mean_of_text(*evaluations)}."


def _reasons(
    plan: Plan,
    titles: Sequence[str],
    quoted: Sequence[bool],
) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for line, title, is_quoted in zip(plan.lines, titles, quoted, strict=True):
        if is_quoted:
            why = line.way.why if isinstance(line.way, Published) else str(line.needs)
            reasons.setdefault(why.rstrip("."), []).append(title)
    for why, names in reasons.items():
        yield f"Not measured here: {', '.join(names)}: {why}."


def _published_notes(plan: Plan, titles: Sequence[str]) -> Iterator[str]:
    """Yield the notes on published numbers; the columns are listed unless a note is on all numbers
    of a line.
    """
    places = {
        (line.name, line.paper_encoder): title
        for line, title in zip(plan.lines, titles, strict=True)
    }
    count = Counter((value.row, value.encoder) for value in plan.artefact.published)
    notes: dict[str, dict[tuple[str, str | None], list[str]]] = {}
    for value in plan.artefact.published:
        place = (value.row, value.encoder)
        if value.note and place in places:
            notes.setdefault(value.note, {}).setdefault(place, []).append(value.column)
    for note, lines in notes.items():
        shown = []
        for place, columns in lines.items():
            some = f" ({', '.join(columns)})" if len(columns) < count[place] else ""
            shown.append(f"{places[place]}{some}")
        yield f"Published value, {note}: {', '.join(shown)}."
