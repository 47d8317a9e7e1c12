"""Makes tables from finished runs: a pandas frame of values by line, column and seed, grouped into cells."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from lightning_cse.errors import DataError
from lightning_cse.papers.artefacts import Artefact, Baseline, Column, Line, Published, Request
from lightning_cse.papers.nested import setting_text, value_at
from lightning_cse.papers.significance import TEST_FIELDS, Side, compare_lines
from lightning_cse.runs import mean_of_text, summarise

if TYPE_CHECKING:
    from lightning_cse.papers.records import Found, Measured

LEVELS: Final = {"**": 0.01, "*": 0.05}
"""The marks of significant differences from the reference row and their levels, the strictest first."""
NUMBERS: Final = (
    "n",
    "mean",
    "sd",
    "low",
    "high",
    "error",
    "published",
    "published_deviation",
    "difference",
)
"""The numbers in a cell: statistics of its values, and the paper's numbers."""
_SYMBOLS: Final = ("†", "‡", "§", "¶", "‖", "††", "‡‡", "§§")
_TESTS: Final = {
    "mcnemar": "McNemar's exact test of majority votes, of as many seeds on both sides and of an odd number",
    "bootstrap": "paired bootstrap over the sentence pairs, the seeds averaged in every draw",
}


@dataclass(frozen=True)
class Table:
    """A table: ``cells`` has a row for each line (by number) and column (by title), NaN where there is no number.

    ``symbols`` maps the ``marks`` of cells to the symbols shown. ``quoted`` says which lines have only the paper's
    numbers. ``tests`` has the comparisons of lines; ``p`` and ``p_holm`` in a cell are those with the reference row.
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
        """Yield each line with its cells and their columns; a cell has the columns of ``cells`` as attributes."""
        columns = self.artefact.columns
        cells = list(self.cells.itertuples(index=False))
        for number, line in enumerate(self.lines):
            inner = cells[number * len(columns) : (number + 1) * len(columns)]
            yield line, list(zip(inner, columns, strict=True))

    def signs(self, cell: Any) -> str:
        """Return the symbols that a cell shows."""
        return "".join(dict.fromkeys(self.symbols.get(mark, "") for mark in cell.marks))


class _Reading(NamedTuple):
    """The values of a cell by seed, and the runs and metrics they were read from."""

    values: Mapping[int, float]
    asked: int = 0
    metrics: tuple[str, ...] = ()
    found: tuple[Found, ...] = ()
    marks: tuple[str, ...] = ()
    error: float = math.nan  # the mean standard error over the examples, where all runs have one


@dataclass
class Assembly:
    """Assembles the table of an artefact.

    ``change_of`` returns whether the loss of a run has changed since the run: ``fresh``, ``stale`` or ``unknown``.
    ``setting_of`` returns the value of a config column for a line without runs.
    """

    artefact: Artefact
    lines: Sequence[Line]
    measured: Callable[[Line, Column], Measured]
    request: Request
    change_of: Callable[[Found], str]
    setting_of: Callable[[Line, Column], Any]

    def __post_init__(self) -> None:
        self.labels = list(dict.fromkeys(line.label for line in self.lines))
        self.used: dict[
            Path, tuple[Mapping[str, Any], str]
        ] = {}  # record and change of each run in a cell
        self.quoted = tuple(map(self._is_quoted, self.lines))
        self.readings: dict[tuple[int, str], _Reading] = {}
        for number, line in enumerate(self.lines):
            for column in sorted(self.artefact.columns, key=lambda column: column.source == "mean"):
                self.readings[number, column.title] = self._read(number, line, column)
        self.cells = self._cells()

    def table(self, kept_tests: Path | None = None, draws: int = 10_000) -> Table:
        """Return the table; comparisons in ``kept_tests`` with the same seeds and means need no predictions."""
        symbols, texts = self._symbols()
        pairs = list(self._pairs())
        tests = compare_lines(
            pairs,
            "bootstrap" if self.artefact.test == "bootstrap" else "mcnemar",
            kept_tests,
            draws,
        )
        letters = self._mark_significance(tests)
        return Table(
            self.artefact,
            self.request,
            tuple(self.lines),
            self.quoted,
            self.cells,
            {
                **symbols,
                **{f"differs:{label}": letter for label, letter in letters.items()},
                "*": "*",
                "**": "**",
            },
            (
                *texts,
                *self._about_tests(tests, len(pairs) - len(tests), letters, draws),
                *self._notes(),
            ),
            tests[TEST_FIELDS],
            *(
                tuple(sorted({of(record) for record, _ in self.used.values()}))
                for of in (short_commit, machine_of)
            ),
        )

    # Values

    def _is_quoted(self, line: Line) -> bool:
        """Return whether a line has only the paper's numbers; finished runs are used, whatever the row needs."""
        columns = [column for column in self.artefact.columns if column.source != "mean"]
        waits = line.needs is not None and not any(
            self.measured(line, column).found for column in columns
        )
        return waits or isinstance(line.way, Published)

    def _read(self, number: int, line: Line, column: Column) -> _Reading:
        if column.source == "mean":
            return self._mean(column, [self.readings[number, title] for title in column.keys])
        if column.source == "config" or self.quoted[number]:
            return _Reading({})
        runs = self.measured(line, column)
        values: dict[int, float] = {}
        metric = column.keys[0]
        for metric in (*column.keys, *column.instead):
            known = {
                seed: _number(run, line, column, metric) for seed, run in sorted(runs.found.items())
            }
            values = {
                seed: column.scale * value for seed, value in known.items() if value is not None
            }
            if values:
                break
        asked = (
            0 if runs.found and not values else len(runs.asked)
        )  # a metric that no run has is not missing
        if isinstance(line.way, Baseline) and len(set(values.values())) == 1:
            values, asked = dict([min(values.items())]), 1  # it is not trained: one measurement
        found = tuple(runs.found[seed] for seed in values)
        for run in found:
            if run.source not in self.used:
                self.used[run.source] = run.record, self.change_of(run)
        marks = {
            f"instead:{metric}": bool(values) and metric != column.keys[0],
            "mixed": len(
                {(value_at(run.record, "model.run") or run.record)["config_hash"] for run in found}
            )
            > 1,
            "stale": any(self.used[run.source][1] == "stale" for run in found),
        }
        metrics = (metric,) if values and column.source == "metric" else ()
        errors = pd.Series(
            [_number(run, line, column, f"{metric}_se") for run in found], dtype=float
        )
        error = column.scale * errors.mean(skipna=False)
        return _Reading(
            values,
            asked,
            metrics,
            found,
            tuple(mark for mark, true in marks.items() if true),
            error,
        )

    @staticmethod
    def _mean(column: Column, parts: Sequence[_Reading]) -> _Reading:
        """Return the mean of other columns, for each seed that all of them have."""
        seeds = set.intersection(*(set(part.values) for part in parts))
        found = [pair for part in parts for pair in zip(part.values, part.found, strict=False)]
        marks = dict.fromkeys(mark for part in parts for mark in part.marks)
        return _Reading(
            {
                seed: column.scale * statistics.fmean(part.values[seed] for part in parts)
                for seed in sorted(seeds)
            },
            max(part.asked for part in parts),
            tuple(metric for part in parts for metric in part.metrics),
            tuple({run.source: run for seed, run in found if seed in seeds}.values()),
            tuple(sorted(marks, key=lambda mark: (mark == "mixed") + 2 * (mark == "stale"))),
        )

    def _cells(self) -> pd.DataFrame:
        """Return the cells without their significance."""
        every = [
            (*place, value)
            for place, reading in self.readings.items()
            for value in reading.values.values()
        ]
        frame = pd.DataFrame(every, columns=["line", "column", "value"]).astype({"value": float})
        stats = frame.groupby(["line", "column"])["value"].agg(
            n="count", mean=statistics.fmean, sd="std", low="min", high="max"
        )
        papers = {
            (value.row, value.encoder, value.column): value for value in self.artefact.published
        }
        rows = {}
        for number, line in enumerate(self.lines):
            for column in self.artefact.columns:
                reading, place = self.readings[number, column.title], (number, column.title)
                paper = papers.get((line.name, line.paper_encoder, column.title))
                config = column.source == "config" and not self.quoted[number]
                setting = self._setting(line, column) if config else {"text": ""}
                own = stats.loc[place].to_dict() if reading.values else {"n": 0}
                marks = (
                    (*self._asked(line), *reading.marks)
                    if reading.values or setting["text"]
                    else ()
                )
                about = {
                    "asked": reading.asked,
                    "values": reading.values,
                    "marks": marks,
                    "error": reading.error,
                }
                printed = {
                    "published": paper and paper.value,
                    "published_deviation": paper and paper.deviation,
                }
                rows[place] = {**own, **about, **printed, **setting}
        cells = pd.DataFrame(
            list(rows.values()), pd.MultiIndex.from_tuples(list(rows)), dtype=object
        )
        cells = cells.reindex(columns=[*NUMBERS, "marks", "p", "p_holm", "asked", "values", "text"])
        cells = cells.astype(dict.fromkeys((*NUMBERS, "p", "p_holm"), float)).astype(
            {"n": int, "asked": int}
        )
        cells["difference"] = cells["mean"] - cells["published"]
        return cells

    def _setting(self, line: Line, column: Column) -> dict[str, Any]:
        """Return a cell that shows a setting of the runs or, without runs, of the config that they would have."""
        runs = self.measured(line, column).found
        known = [
            value_at(run.record, f"decisive.config.{column.keys[0]}")
            for _, run in sorted(runs.items())
        ]
        known = [value for value in known or [self.setting_of(line, column)] if value is not None]
        texts = list(dict.fromkeys(map(setting_text, known)))
        mean = float(known[0]) if len(texts) == 1 and is_number(known[0]) else None
        return {"n": len(runs), "asked": len(runs), "mean": mean, "text": " / ".join(texts)}

    # Marks and notes

    def _asked(self, line: Line) -> list[str]:
        other = line.encoder and line.paper_encoder and line.encoder != line.paper_encoder
        asked = {
            "profile": self.request.profile,
            "encoder": other,
            "settings": self.request.settings,
        }
        return [mark for mark, true in asked.items() if true]

    def _symbols(self) -> tuple[dict[str, str], list[str]]:
        """Return the symbols of the marks, and the notes on them; a mark of all measured cells has no symbol."""
        lines = [
            self.lines[number]
            for (number, _), marks in self.cells["marks"].items()
            if "encoder" in marks
        ]
        instead = ", ".join(
            dict.fromkeys(f"{line.encoder} in place of {line.paper_encoder}" for line in lines)
        )
        known = {
            "profile": f"profile {self.request.profile}",
            "encoder": f"measured with {instead}",
            "settings": f"with {' '.join(self.request.settings)}",
            "stale": "measured before the last change of its loss",
            "mixed": "its seeds are of runs that differ in their data, or in what an automatic choice became",
            **{
                f"instead:{key}": why.rstrip(".")
                for of in self.artefact.columns
                for key, why in of.instead.items()
            },
        }
        places = [place for place, reading in self.readings.items() if reading.values]
        measured = [(self.lines[place[0]], self.cells.at[place, "marks"]) for place in places]
        names = dict.fromkeys(name for marks in self.cells["marks"] for name in marks)
        # A line without an encoder cannot have been measured with another one.
        shared = [
            n
            for n in names
            if all(n in marks for line, marks in measured if n != "encoder" or line.encoder)
        ]
        own = dict.fromkeys(known[name] for name in names if name not in shared)
        texts = dict(zip(own, itertools.cycle(_SYMBOLS)))
        first = (
            [f"All measured values: {'; '.join(known[name] for name in shared)}."] if shared else []
        )
        symbols = {name: texts[known[name]] for name in names if name not in shared}
        return symbols, first + [f"{symbol} {text}." for text, symbol in texts.items()]

    def _notes(self) -> Iterator[str]:
        unknown = [change for _, change in self.used.values()].count("unknown")
        if unknown:
            yield (
                f"Whether the loss has changed since is unknown for {unknown} of {len(self.used)} records: "
                "they, or the records of their trainings, lack method_code."
            )
        if self.cells["error"].notna().any():
            yield "[from, to]: 95 % interval over the test pairs (DeLong; the standard errors of the seeds averaged)."
        for line in self.lines:
            if (other := self.artefact.matched(line.label)) is not None:
                steps = self.setting_of(line, Column("", "config", ("trainer.max_steps",))) or "?"
                yield f"Equal {''.join(self.artefact.match)}: {line.label} as {other} ({line.encoder}), {steps} steps."
        for title in [
            column.title
            for column in self.artefact.columns
            if column.keys == ("summary.final_score",)
        ]:
            runs = [
                run
                for number in range(len(self.lines))
                for run in self.readings[number, title].found
            ]
            known = [
                summarise(run.curves, str(value_at(run.record, "best.monitor"))).evaluations
                for run in runs
            ]
            yield f"{title}: a run's final score, {mean_of_text(*known)}."
        if (self.cells["n"] < self.cells["asked"]).any():
            yield "n: seeds measured / seeds asked for."
        count = Counter(line.label for line in self.lines)
        called = [
            line.label if count[line.label] == 1 else f"{line.label} ({line.encoder})"
            for line in self.lines
        ]
        reasons: dict[str, list[str]] = {}
        for line, name in itertools.compress(zip(self.lines, called, strict=True), self.quoted):
            why = line.way.why if isinstance(line.way, Published) else str(line.needs)
            reasons.setdefault(why.rstrip("."), []).append(name)
        yield from (
            f"Not measured here: {', '.join(names)}: {why}." for why, names in reasons.items()
        )
        shown = {
            (line.name, line.paper_encoder): name
            for line, name in zip(self.lines, called, strict=True)
        }
        printed = [(value, (value.row, value.encoder)) for value in self.artefact.published]
        columns = Counter(place for _, place in printed)
        notes: dict[str, dict[Any, list[str]]] = {}
        for value, place in printed:
            if value.note and place in shown:
                notes.setdefault(value.note, {}).setdefault(place, []).append(value.column)
        for note, lines in notes.items():
            of = [
                shown[at] + f" ({', '.join(some)})" * (len(some) < columns[at])
                for at, some in lines.items()
            ]
            yield f"Published value, {note}: {', '.join(of)}."

    # Comparisons

    def _pairs(self) -> Iterator[tuple[Side, Side]]:
        """Yield the two sides of each comparison: a line and the reference row or, if asked for, every other row.

        The two lines have the same encoder; a line without an encoder is compared if the other row has only one line.
        """
        reference = self.artefact.reference
        for a, line in enumerate(self.lines) if reference in self.labels else ():
            first = (
                self.labels.index(line.label) + 1
                if self.artefact.test == "mcnemar_all"
                else len(self.labels)
            )
            for label in (
                dict.fromkeys((str(reference), *self.labels[first:]))
                if line.label != reference
                else ()
            ):
                same = [b for b, other in enumerate(self.lines) if other.label == label]
                found = [
                    b
                    for b in same
                    if not line.encoder or self.lines[b].encoder in (line.encoder, None)
                ]
                for column in self.artefact.columns if len(found) == 1 else ():
                    ours, theirs = self._side(a, column), self._side(found[0], column)
                    if ours is not None and theirs is not None and ours.metrics == theirs.metrics:
                        yield ours, theirs

    def _side(self, number: int, column: Column) -> Side | None:
        """Return a cell as a side of a comparison; None if the test does not suit it, or it has no value."""
        line, reading = self.lines[number], self.readings[number, column.title]
        if not reading.found:
            return None
        metrics: list[str] = []
        for metric in reading.metrics if self.artefact.test else ():
            of = value_at(
                reading.found[0].record, f"decisive.config.suite.{metric.split('/')[1]}.of"
            )
            metrics += [f"test/{part}" for part in of] if isinstance(of, list) else [metric]
        if self.artefact.test == "bootstrap":
            suits = all(metric.endswith(("/spearman", "/spearman_all")) for metric in metrics)
            suits &= column.source != "mean" or len(reading.metrics) == len(column.keys)
        else:
            suits = column.source == "metric" and all(
                m.split("/")[2].partition("_")[0] == "accuracy" for m in metrics
            )
            suits &= metrics == [*reading.metrics]
        known = metrics and suits and reading.values
        return (
            Side(number, line, column.title, tuple(metrics), reading.values, reading.found)
            if known
            else None
        )

    def _mark_significance(self, tests: pd.DataFrame) -> dict[str, str]:
        """Put p-values and marks into the cells; return the letters of the rows that others differ from."""
        differs: dict[tuple[int, str], list[str]] = {}
        for test in tests.itertuples(index=False):
            place, other = (test.a, test.column), (test.b, test.column)
            if test.reference == self.artefact.reference:
                self.cells.loc[place, ["p", "p_holm"]] = test.p, test.p_holm
                sign = next(((sign,) for sign, level in LEVELS.items() if test.p_holm < level), ())
                self.cells.at[place, "marks"] = (*sign, *self.cells.at[place, "marks"])
            elif test.p_holm < LEVELS["*"]:
                differs.setdefault(place, []).append(test.reference)
                differs.setdefault(other, []).append(test.row)
        for place, others in differs.items():
            self.cells.at[place, "marks"] += tuple(
                f"differs:{o}" for o in sorted(others, key=self.labels.index)
            )
        named = {label for others in differs.values() for label in others}
        return {
            label: chr(ord("a") + number)
            for number, label in enumerate(self.labels)
            if label in named
        }

    def _about_tests(
        self, tests: pd.DataFrame, untested: int, letters: Mapping[str, str], draws: int
    ) -> Iterator[str]:
        reference, test = self.artefact.reference, self.artefact.test
        if reference is None or test is None:
            return
        if reference not in self.labels:
            yield f"No test of significance: the reference row {reference} is not in this table."
        if len(tests):
            how = (
                _TESTS["bootstrap"] + f", {draws:,} draws"
                if test == "bootstrap"
                else _TESTS["mcnemar"]
            )
            count = f"{len(tests)} comparison{'s' * (len(tests) != 1)}"
            signs = ", ".join(f"{sign} p < {LEVELS[sign]}" for sign in reversed(LEVELS))
            yield f"{signs} against {reference} with the same encoder ({how}; Holm over {count} of this table)."
        if letters:
            yield f"Letters: p < {LEVELS['*']} against {', '.join(f'{of}: {label}' for label, of in letters.items())}."
        if untested:
            of = "between rows" if test == "mcnemar_all" else f"with {reference}"
            yield f"Not tested, since predictions are not kept with these records: {untested} comparisons {of}."


def _number(found: Found, line: Line, column: Column, key: str) -> float | None:
    path = f"baselines.{line.way.name}" if isinstance(line.way, Baseline) else "metrics"
    value = value_at(found.record, key if column.source == "field" else f"{path}.{key}")
    if value is None:
        return None
    if not is_number(value) or not math.isfinite(value):
        raise DataError(
            f"{found.source}: {key} is {value!r}, which is not a finite number; redo the run"
        )
    return float(value)


def short_commit(record: Mapping[str, Any]) -> str:
    """Return the first digits of a record's commit, with its ``-dirty`` mark if any, or ``unknown``."""
    digits, dirty, _ = str(value_at(record, "environment.commit") or "unknown").partition("-dirty")
    return digits[:7] + dirty


def machine_of(record: Mapping[str, Any]) -> str:
    """Return the machine of a record: the GPU, or the processor and its cores."""
    device = str(record.get("device") or "unknown")
    machine = value_at(record, "environment.machine") or {}
    cores = machine.get("cores")
    parts = (
        [device, machine.get("cpu"), cores and f"{cores} core{'s' * (cores != 1)}"]
        if device == "cpu"
        else [device]
    )
    return ", ".join(str(part) for part in parts if part)


def is_number(value: object) -> bool:
    """Return whether a plain value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
