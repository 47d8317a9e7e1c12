"""Records to the cells of a table: mean, scatter, what the paper printed beside them, and what tells them apart."""

from __future__ import annotations

import csv
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from lightning_cse.errors import DataError
from lightning_cse.papers.artefacts import Artefact, Baseline, Column, Line, Published, PublishedValue, Request
from lightning_cse.papers.nested import value_at
from lightning_cse.papers.records import Measured

if TYPE_CHECKING:
    from lightning_cse.papers.records import Found
    from lightning_cse.papers.significance import Correlations, Point

__all__ = ["Cell", "Change", "LineTest", "Mark", "Measured", "Table", "TableLine", "assemble", "read_tests"]

Change = Literal["fresh", "stale", "unknown"]
"""Whether the loss of a run has been changed since."""

LEVELS: Final = {"**": 0.01, "*": 0.05}
"""What marks a p-value below a level, the strictest first."""
_SYMBOLS: Final = "†‡§¶‖abcdefghijklmnopqrstuvwxyz"
_TESTS: Final = {
    "mcnemar": "McNemar's exact test of majority votes, of as many seeds on both sides and of an odd number",
    "bootstrap": "paired bootstrap over the sentence pairs, the seeds averaged in every draw",
}
_LEAST_P: Final = 1e-300  # what a float cannot tell from 0 is told as this: no test is certain
_FEW: Final = 4  # how many of a kind a line names before it counts the rest


@dataclass(frozen=True)
class Cell:
    """One value of a table; all numbers are in the column's units (percent), None where there is nothing.

    Args:
        n: how many seeds were measured.
        asked: how many were asked for.
        mean: the mean over the seeds.
        sd: their standard deviation (n - 1); None for fewer than two.
        low: the lowest.
        high: the highest.
        published: what the paper printed.
        published_deviation: the deviation it printed.
        difference: mean less published.
        marks: the names of what is to be known of it, see `Table.marks`, and ``*`` or ``**``.
        values: the value of each seed.
        text: what a cell shows that is no measured number: a setting.
        p: the p-value against the reference row.
        p_holm: the same adjusted for all comparisons of the table.
    """

    n: int = 0
    asked: int = 0
    mean: float | None = None
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    published: float | None = None
    published_deviation: float | None = None
    difference: float | None = None
    marks: tuple[str, ...] = ()
    values: Mapping[int, float] = field(default_factory=dict, hash=False)
    text: str | None = None
    p: float | None = None
    p_holm: float | None = None


@dataclass(frozen=True)
class Mark:
    """What is to be known of some cells; of all measured ones where ``everywhere``, and then no cell shows it."""

    name: str
    symbol: str
    text: str
    everywhere: bool


@dataclass(frozen=True)
class LineTest:
    """One comparison of a line with the reference row.

    The seeds are those that were tested, which may be fewer than were measured. The means are of all that were
    measured: they tell whether the comparison is still about the same runs.
    """

    row: str
    encoder: str | None
    column: str
    reference: str
    test: str
    seeds: tuple[int, ...]
    seeds_reference: tuple[int, ...]
    mean: float
    mean_reference: float
    p: float
    p_holm: float = 1.0

    @property
    def place(self) -> tuple[str, str | None, str]:
        """Row, encoder and column."""
        return self.row, self.encoder, self.column


@dataclass(frozen=True)
class TableLine:
    """A line and its cells, one a column."""

    line: Line
    cells: tuple[Cell, ...]

    @property
    def quoted(self) -> bool:
        """Whether it has only the paper's numbers: nothing measures it, or what does waits to be allowed."""
        waits = self.line.needs is not None and not any(cell.asked for cell in self.cells)
        return waits or isinstance(self.line.way, Published)


@dataclass(frozen=True)
class Table:
    """A table with all that is told of it.

    Args:
        artefact: the file it comes from.
        request: what was asked for.
        columns: its columns.
        lines: its lines.
        marks: what marks stand for, but those of significance.
        notes: further lines of the legend.
        tests: the comparisons with the reference row.
        commits: the code its records were measured with, short, ``-dirty`` marked.
        machines: what they were measured on.
    """

    artefact: Artefact
    request: Request
    columns: tuple[Column, ...]
    lines: tuple[TableLine, ...]
    marks: tuple[Mark, ...] = ()
    notes: tuple[str, ...] = ()
    tests: tuple[LineTest, ...] = ()
    commits: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()

    @property
    def legend(self) -> tuple[str, ...]:
        """The lines below the table: what is true of all of it first, then the marks, then the rest."""
        overall = [mark.text for mark in self.marks if mark.everywhere]
        lines = [f"All measured values: {'; '.join(overall)}."] if overall else []
        lines += dict.fromkeys(f"{mark.symbol} {mark.text}." for mark in self.marks if not mark.everywhere)
        return (*lines, *self.notes)

    def symbols(self, cell: Cell) -> tuple[str, ...]:
        """Return the signs that a cell shows."""
        shown = {mark.name: mark.symbol for mark in self.marks if not mark.everywhere}
        signs = (name if name in LEVELS else shown[name] for name in cell.marks if name in LEVELS or name in shown)
        return tuple(dict.fromkeys(signs))


MeasuredOf = Callable[[Line, Column], Measured]
SettingOf = Callable[[Line, Column], Any]


def assemble(
    artefact: Artefact,
    lines: Sequence[Line],
    measured: MeasuredOf,
    request: Request,
    *,
    change_of: Callable[[Found], Change],
    kept_tests: Path | None = None,
    setting_of: SettingOf | None = None,
    draws: int = 10_000,
) -> Table:
    """Return the table of an artefact.

    Args:
        artefact: the table.
        lines: its lines, as `Artefact.lines` returns them.
        measured: the finished runs of a cell.
        request: what was asked for.
        change_of: whether the loss of a run has been changed since.
        kept_tests: comparisons that `render.write` wrote; one of the same seeds and means is not computed again, which
            is also how a table of records without predictions keeps its p-values. A file that is not there holds none.
        setting_of: the value of a column of settings for a line that has no run.
        draws: of a bootstrap; p is at least ``2 / (draws + 1)``.

    Raises:
        DataError: if a value is no number, two runs that are compared were not evaluated on the same examples, or
            ``kept_tests`` is damaged.
    """
    assembly = _Assembly(artefact, tuple(lines), measured, request, change_of, setting_of)
    cells = {(line, column.title): assembly.cell(line, column) for line in lines for column in artefact.columns}
    marks = _with_symbols(assembly.texts(cells), cells)
    comparisons = list(assembly.comparisons(cells))
    tests, untested = _tested(comparisons, artefact.test, read_tests(kept_tests), draws)
    for test, (line, column, _) in tests:
        sign = next((sign for sign, level in LEVELS.items() if test.p_holm < level), None)
        cell = cells[line, column.title]
        signs = (sign, *cell.marks) if sign else cell.marks
        cells[line, column.title] = replace(cell, marks=signs, p=test.p, p_holm=test.p_holm)
    done = tuple(
        TableLine(line, tuple(cells[line, column.title] for column in artefact.columns)) for line in assembly.lines
    )
    notes = [*_about_tests(assembly, len(tests), untested, draws), *assembly.notes(done)]
    records = [found.record for found in assembly.used.values()]
    return Table(
        artefact,
        request,
        artefact.columns,
        done,
        marks,
        tuple(notes),
        tuple(test for test, _ in tests),
        tuple(sorted({short_commit(record) for record in records})),
        tuple(sorted({machine_of(record) for record in records})),
    )


# --------------------------------------------------------------------------------------------------------- one cell


@dataclass(frozen=True)
class _Reading:
    """The values of a cell by seed, how many were asked for, and the metric they were read from."""

    values: Mapping[int, float]
    asked: int
    metric: str | None = None
    found: tuple[Found, ...] = ()


@dataclass
class _Assembly:
    """What belongs to one table while it is put together."""

    artefact: Artefact
    lines: tuple[Line, ...]
    measured: MeasuredOf
    request: Request
    change_of: Callable[[Found], Change]
    setting_of: SettingOf | None
    readings: dict[tuple[Line, str], _Reading] = field(default_factory=dict)
    quoted: dict[Line, bool] = field(default_factory=dict)
    used: dict[Path, Found] = field(default_factory=dict)
    changes: dict[Path, Change] = field(default_factory=dict)

    def cell(self, line: Line, column: Column) -> Cell:
        """Return a cell without its significance."""
        paper = self._published(line, column)
        if column.source == "config":
            return self._setting(line, column, paper)
        reading = self._read(line, column)
        cell = Cell(asked=reading.asked, published=paper.value if paper else None)
        if paper:
            cell = replace(cell, published_deviation=paper.deviation)
        values = [reading.values[seed] for seed in sorted(reading.values)]
        if not values:
            return cell
        mean = statistics.fmean(values)
        return replace(
            cell,
            n=len(values),
            mean=mean,
            sd=statistics.stdev(values) if len(values) > 1 else None,
            low=min(values),
            high=max(values),
            difference=None if paper is None else mean - paper.value,
            marks=tuple(self._marks(line, column, reading)),
            values=dict(sorted(reading.values.items())),
        )

    def _read(self, line: Line, column: Column) -> _Reading:
        key = (line, column.title)
        if key not in self.readings:
            if column.source == "mean":
                self.readings[key] = self._mean(line, column)
            elif self._is_quoted(line):
                self.readings[key] = _Reading({}, 0)
            else:
                self.readings[key] = self._values(line, column)
        return self.readings[key]

    def _is_quoted(self, line: Line) -> bool:
        """Whether a line has only the paper's numbers; a run that is there counts, whatever its row needs."""
        if line not in self.quoted:
            waits = line.needs is not None and not any(
                self.measured(line, column).found for column in self.artefact.columns if column.source != "mean"
            )
            self.quoted[line] = waits or isinstance(line.way, Published)
        return self.quoted[line]

    def _mean(self, line: Line, column: Column) -> _Reading:
        """Take the mean of other columns, of each seed that all of them have."""
        by_title = {other.title: other for other in self.artefact.columns}
        parts = [self._read(line, by_title[title]) for title in column.keys]
        seeds = set.intersection(*(set(part.values) for part in parts))
        values = {seed: column.scale * statistics.fmean(part.values[seed] for part in parts) for seed in seeds}
        found = {one.source: one for part in parts for one in part.found}
        return _Reading(values, max(part.asked for part in parts), None, tuple(found.values()))

    def _values(self, line: Line, column: Column) -> _Reading:
        runs = self.measured(line, column)
        metric = column.keys[0]
        if column.source == "metric" and column.instead:
            keys = (metric, *column.instead)
            there = [key for key in keys if any(_number(f, _metric(f, line, key), key) is not None for f in _of(runs))]
            metric = there[0] if there else metric
        values, found = {}, {}
        for seed, run in runs.found.items():
            raw = _metric(run, line, metric) if column.source == "metric" else value_at(run.record, metric)
            value = _number(run, raw, metric)
            if value is not None:
                values[seed], found[seed] = column.scale * value, run
        # What none of its runs measures, now that all are there, is no cell that waits for a run.
        asked = 0 if not values and set(runs.asked) <= set(runs.found) else len(runs.asked)
        if isinstance(line.way, Baseline) and values and len(set(values.values())) == 1:
            seed = min(values)  # it is not trained: the same beside every seed is one measurement
            values, found, asked = {seed: values[seed]}, {seed: found[seed]}, 1
        self.used |= {one.source: one for one in found.values()}
        return _Reading(values, asked, metric if column.source == "metric" else None, tuple(found.values()))

    def _published(self, line: Line, column: Column) -> PublishedValue | None:
        place = (line.name, line.paper_encoder, column.title)
        return next((v for v in self.artefact.published if (v.row, v.encoder, v.column) == place), None)

    def _setting(self, line: Line, column: Column, paper: PublishedValue | None) -> Cell:
        """Return a cell that shows a setting: of the runs, or of the config that they would have."""
        runs = _of(self.measured(line, column)) if not self._is_quoted(line) else []
        given = [value_at(run.record, f"decisive.config.{column.keys[0]}") for run in runs]
        known = [value for value in given if value is not None]
        if not known and self.setting_of is not None and not self._is_quoted(line):
            known = [value for value in (self.setting_of(line, column),) if value is not None]
        texts = list(dict.fromkeys(_setting_text(value) for value in known))
        value = known[0] if len(texts) == 1 and is_number(known[0]) else None
        return Cell(
            n=len(runs),
            asked=len(runs),
            mean=None if value is None else float(value),
            published=None if paper is None else paper.value,
            published_deviation=None if paper is None else paper.deviation,
            difference=None if paper is None or value is None else float(value) - paper.value,
            text=" / ".join(texts) or None,
            marks=tuple(self._asked(line)) if texts else (),
        )

    # Marks

    def _asked(self, line: Line) -> Iterator[str]:
        """Yield what was asked for in another way than the paper has it."""
        if self.request.profile:
            yield "profile"
        if line.encoder and line.paper_encoder and line.encoder != line.paper_encoder:
            yield "encoder"
        if self.request.settings:
            yield "settings"

    def _marks(self, line: Line, column: Column, reading: _Reading) -> Iterator[str]:
        yield from self._asked(line)
        mixed = False
        for title in column.keys if column.source == "mean" else (column.title,):
            other = next(c for c in self.artefact.columns if c.title == title)
            part = self._read(line, other)
            if part.metric is not None and part.metric != other.keys[0]:
                yield f"instead:{part.metric}"
            mixed |= len({_identity(found.record) for found in part.found}) > 1
        if mixed:
            yield "mixed"
        if any(self._change(found) == "stale" for found in reading.found):
            yield "stale"

    def _change(self, found: Found) -> Change:
        if found.source not in self.changes:
            self.changes[found.source] = self.change_of(found)
        return self.changes[found.source]

    def texts(self, cells: Mapping[tuple[Line, str], Cell]) -> dict[str, str]:
        """Return what each mark stands for, in the order in which they first appear."""
        pairs = dict.fromkeys(
            f"{line.encoder} in place of {line.paper_encoder}"
            for (line, _), cell in cells.items()
            if "encoder" in cell.marks
        )
        known = {
            "profile": f"profile {self.request.profile}",
            "encoder": f"measured with {', '.join(pairs)}",
            "settings": f"with {' '.join(self.request.settings)}",
            "stale": "measured before the last change of its loss",
            "mixed": "its seeds are of runs that differ in their data, or in what a choice left open became",
        }
        for column in self.artefact.columns:
            known |= {f"instead:{key}": why for key, why in column.instead.items()}
        return {name: known[name] for name in dict.fromkeys(name for cell in cells.values() for name in cell.marks)}

    def notes(self, lines: Sequence[TableLine]) -> Iterator[str]:
        """Yield what else is to be told."""
        unknown = [source for source in self.used if self._changed(source) == "unknown"]
        if unknown:
            yield (
                f"Whether the loss was changed since is not known of {len(unknown)} of {len(self.used)} records: "
                "they name no commit, or one that is not in the history at hand."
            )
        if any(cell.n < cell.asked for line in lines for cell in line.cells):
            yield "n: seeds that are measured / seeds asked for."
        labels = Counter(one.line.label for one in lines)
        called = {one.line: one.line.label if labels[one.line.label] == 1 else _called(one.line) for one in lines}
        reasons: dict[str, list[str]] = {}
        for line, name in called.items():
            if isinstance(line.way, Published):
                reasons.setdefault(line.way.why.rstrip("."), []).append(name)
            elif self._is_quoted(line):
                reasons.setdefault(str(line.needs), []).append(name)
        for why, names in reasons.items():
            yield f"Not measured here: {', '.join(names)}: {why}."
        shown = {(line.name, line.paper_encoder): name for line, name in called.items()}
        for note, named in _notes_of(self.artefact.published, shown).items():
            yield f"Published value, {note}: {', '.join(named)}."

    def _changed(self, source: Path) -> Change:
        return self._change(self.used[source])

    # Comparisons

    def comparisons(self, cells: Mapping[tuple[Line, str], Cell]) -> Iterator[tuple[Line, Column, _Pair]]:
        """Yield each measured cell that the table's test suits, with the reference row's of the same metric."""
        for line in self.lines:
            reference = self.reference(line)
            if reference is None:
                continue
            for column in self.artefact.columns:
                ours, theirs = cells[line, column.title], cells[reference, column.title]
                metrics = self._tested_metrics(line, column)
                if not metrics or ours.mean is None or theirs.mean is None:
                    continue
                if metrics == self._tested_metrics(reference, column):
                    readings = self._read(line, column), self._read(reference, column)
                    yield line, column, _Pair(line, reference, column, *readings, ours.mean, theirs.mean, metrics)

    def reference(self, line: Line) -> Line | None:
        """Return the reference row with the encoder of a line; a line without one needs there to be only one."""
        if line.label == self.artefact.reference:
            return None
        found = [other for other in self.lines if other.label == self.artefact.reference]
        if line.encoder is not None:
            found = [other for other in found if other.encoder in (line.encoder, None)]
        return found[0] if len(found) == 1 else None

    def _tested_metrics(self, line: Line, column: Column) -> tuple[str, ...]:
        """Return the metrics whose predictions a column's test needs; none where the test does not suit it."""
        reading = self._read(line, column)
        if column.source == "mean":
            by_title = {other.title: other for other in self.artefact.columns}
            parts = [metric for title in column.keys for metric in self._tested_metrics(line, by_title[title])]
            return tuple(parts) if self.artefact.test == "bootstrap" and len(parts) == len(column.keys) else ()
        if reading.metric is None or not reading.found:
            return ()
        _, task, name = reading.metric.split("/")
        of = value_at(reading.found[0].record, f"decisive.config.suite.{task}.of")
        metrics = tuple(f"test/{part}" for part in of) if isinstance(of, list) else (reading.metric,)
        if self.artefact.test == "mcnemar":
            return metrics if of is None and name.partition("_")[0] == "accuracy" else ()
        return metrics if all(m.rpartition("/")[2] in ("spearman", "spearman_all") for m in metrics) else ()


# ------------------------------------------------------------------------------------------------------ comparisons


@dataclass(frozen=True)
class _Pair:
    line: Line
    reference: Line
    column: Column
    ours: _Reading
    theirs: _Reading
    mean: float
    mean_reference: float
    metrics: tuple[str, ...]

    def tested(self, test: str, p: float) -> LineTest:
        ours, theirs = self.seeds(test)
        place = (self.line.label, self.line.encoder, self.column.title, self.reference.label, test)
        return LineTest(*place, ours, theirs, self.mean, self.mean_reference, p)

    def seeds(self, test: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the seeds of the two that are tested.

        A majority of several is more often right than one is, and a tie counts as wrong: votes compare only where both
        sides have the same odd number of voters. Seeds that both have come first. A baseline has the same answers
        beside every seed, so that its one vote is everybody's.
        """
        ours, theirs = self.ours.values.keys(), self.theirs.values.keys()
        if test != "mcnemar":
            return tuple(sorted(ours)), tuple(sorted(theirs))
        sides = ((self.line, ours), (self.reference, theirs))
        voters = [len(of) for line, of in sides if not (isinstance(line.way, Baseline) and len(of) == 1)]
        most = min(voters, default=1)
        odd = most if most % 2 else most - 1

        def first(of: Iterable[int]) -> tuple[int, ...]:
            return tuple(sorted(sorted(of, key=lambda seed: (seed not in ours & theirs, seed))[:odd]))

        return first(ours), first(theirs)

    def points(self, test: str) -> tuple[Point, Point] | None:
        """Return the two as points of a comparison, None where predictions of one are not there."""
        seeds, others = self.seeds(test)
        ours, theirs = self._point(self.line, self.ours, seeds), self._point(self.reference, self.theirs, others)
        return None if ours is None or theirs is None else (ours, theirs)

    def _point(self, line: Line, reading: _Reading, seeds: Sequence[int]) -> Point | None:
        from lightning_cse.papers.significance import Point, Run

        tested = list(reading.found)
        if len(seeds) < len(reading.values):
            by_seed = dict(zip(reading.values, reading.found, strict=True))
            tested = [by_seed[seed] for seed in seeds]
        folders = [found.folder for found in tested if found.folder is not None]
        baseline = line.way.name if isinstance(line.way, Baseline) else None
        runs = [Run(folder, found.record) for folder, found in zip(folders, tested, strict=False)]
        stored = [f"{baseline}-{task}" if baseline else task for task in (m.split("/")[1] for m in self.metrics)]
        if len(folders) < len(tested) or not all({*stored} <= {*run.stored} for run in runs):
            return None
        return Point(_called(line), tuple(runs), baseline)


def _tested(
    pairs: Sequence[tuple[Line, Column, _Pair]], test: str | None, kept: Sequence[LineTest], draws: int
) -> tuple[list[tuple[LineTest, tuple[Line, Column, _Pair]]], int]:
    """Return the comparisons that could be made or were kept, adjusted together, and how many could not."""
    if test is None or not pairs:
        return [], 0
    from lightning_cse.papers.paired_tests import holm
    from lightning_cse.papers.significance import Correlations, compare_accuracy

    known = {one.place: one for one in kept}
    correlations = Correlations(draws)
    done = []
    for pair in pairs:
        new = pair[2].tested(test, 1.0)
        old = known.get(new.place)
        if old is not None and _same(old, new):
            done.append((replace(new, p=old.p), pair))
            continue
        points = pair[2].points(test)
        if points is None:
            continue
        if test == "mcnemar":
            p = compare_accuracy(*points, pair[2].metrics[0]).pvalue
        else:
            p = _bootstrap(correlations, points, pair[2].metrics)
        done.append((replace(new, p=max(p, _LEAST_P)), pair))
    if not done:
        return [], len(pairs)
    adjusted = holm([one.p for one, _ in done])
    found = [(replace(one, p_holm=float(p)), pair) for (one, pair), p in zip(done, adjusted, strict=True)]
    return found, len(pairs) - len(done)


def _bootstrap(correlations: Correlations, points: tuple[Point, Point], metrics: Sequence[str]) -> float:
    return correlations.compare(*points, metrics).pvalue


def _same(old: LineTest, new: LineTest) -> bool:
    """Whether two comparisons are of the same runs: who trains again gets other means."""
    facts = ("reference", "test", "seeds", "seeds_reference")
    means = ((old.mean, new.mean), (old.mean_reference, new.mean_reference))
    close = all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in means)
    return close and all(getattr(old, fact) == getattr(new, fact) for fact in facts)


def _about_tests(assembly: _Assembly, made: int, untested: int, draws: int) -> Iterator[str]:
    reference, test = assembly.artefact.reference, assembly.artefact.test
    if reference is None or test is None:
        return
    if all(line.label != reference for line in assembly.lines):
        yield f"No test of significance: the reference row {reference} is not in this table."
        return
    if made:
        of = f", {draws:,} draws" if test == "bootstrap" else ""
        signs = ", ".join(f"{sign} p < {LEVELS[sign]}" for sign in reversed(LEVELS))
        count = f"{made} comparison{'' if made == 1 else 's'}"
        how = f"{_TESTS[test]}{of}; Holm over {count} of this table"
        yield f"{signs} against {reference} with the same encoder ({how})."
    if untested:
        yield (
            f"Not tested: {untested} comparison{'' if untested == 1 else 's'} with {reference}, since predictions are "
            "not kept with these records."
        )


TEST_FIELDS: Final = (
    "row",
    "encoder",
    "column",
    "reference",
    "test",
    "seeds",
    "seeds_reference",
    "mean",
    "mean_reference",
    "p",
    "p_holm",
)


def rows_of_tests(tests: Iterable[LineTest]) -> list[dict[str, str]]:
    """Return comparisons as the rows of a CSV that `read_tests` reads back to the last bit."""
    return [{name: _written(getattr(test, name)) for name in TEST_FIELDS} for test in tests]


def read_tests(path: Path | None) -> list[LineTest]:
    """Read the comparisons that were kept with a table; a file that is not there holds none.

    Raises:
        DataError: if a line is damaged.
    """
    if path is None or not path.is_file():
        return []
    found = []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        absent = [name for name in TEST_FIELDS if name not in (reader.fieldnames or ())]
        if absent:
            raise DataError(f"{path}, line 1: no column {', '.join(absent)}; remove the file, and the tests are redone")
        for row in reader:
            try:
                seeds, others = (tuple(map(int, row[key].split())) for key in ("seeds", "seeds_reference"))
                numbers = [float(row[key]) for key in ("mean", "mean_reference", "p", "p_holm")]
                if not 0 <= numbers[2] <= 1 or not all(map(math.isfinite, numbers)):
                    raise ValueError
            except (AttributeError, TypeError, ValueError):
                raise DataError(
                    f"{path}, line {reader.line_num}: no comparison in {list(row.values())}; "
                    "remove the file, and the tests are redone"
                ) from None
            place = (row["row"], row["encoder"] or None, row["column"], row["reference"], row["test"])
            found.append(LineTest(*place, seeds, others, *numbers))
    return found


# ------------------------------------------------------------------------------------------------------ small things


def short_commit(record: Mapping[str, Any]) -> str:
    """Return the beginning of a record's commit, ``-dirty`` marked, or ``unknown``."""
    commit = value_at(record, "environment.commit")
    if not isinstance(commit, str):
        return "unknown"
    digits, dirty, _ = commit.partition("-dirty")
    return digits[:7] + dirty


def _identity(record: Mapping[str, Any]) -> Any:
    """Return what decided a run's result but for its seed; of an evaluated run that of the run."""
    return (value_at(record, "model.run") or record).get("config_hash")


def machine_of(record: Mapping[str, Any]) -> str:
    """Return what a record was measured on: the GPU, or the processor and its cores."""
    device = str(record.get("device") or "unknown")
    if device != "cpu":
        return device
    machine = value_at(record, "environment.machine") or {}
    cpu, cores = machine.get("cpu"), machine.get("cores")
    told = [str(cpu)] if cpu else []
    told += [f"{cores} core{'' if cores == 1 else 's'}"] if cores else []
    return ", ".join(["cpu", *told])


def _with_symbols(texts: Mapping[str, str], cells: Mapping[tuple[Line, str], Cell]) -> tuple[Mark, ...]:
    marks = []
    symbols = iter(_SYMBOLS)
    taken: dict[str, str] = {}  # two columns may say the same: it has one sign
    measured = [(line, cell) for (line, _), cell in cells.items() if cell.values]
    for name, text in texts.items():
        # A line without an encoder cannot have been measured with another one.
        everywhere = all(name in cell.marks for line, cell in measured if name != "encoder" or line.encoder)
        told = text.rstrip(".")
        if not everywhere and told not in taken:
            taken[told] = next(symbols, name)
        marks.append(Mark(name, "" if everywhere else taken[told], told, everywhere))
    return tuple(marks)


def _notes_of(published: Sequence[PublishedValue], shown: Mapping[tuple[str, str | None], str]) -> dict[str, list[str]]:
    """Return which lines a note is about: with the columns, where it is not about all that the paper printed."""
    columns: dict[tuple[str, str | None], list[str]] = {}
    noted: dict[str, dict[tuple[str, str | None], list[str]]] = {}
    for value in published:
        place = (value.row, value.encoder)
        columns.setdefault(place, []).append(value.column)
        if value.note and place in shown:
            noted.setdefault(value.note, {}).setdefault(place, []).append(value.column)
    return {
        note: [f"{shown[place]}{_only(of, columns[place])}" for place, of in lines.items()]
        for note, lines in noted.items()
    }


def _only(of: Sequence[str], columns: Sequence[str]) -> str:
    left = [column for column in columns if column not in of]
    if not left:
        return ""
    return f" (but {', '.join(left)})" if len(left) < len(of) else f" ({', '.join(of)})"


def few(items: Sequence[str]) -> str:
    """Return a few items, and how many there are beyond them."""
    left = len(items) - _FEW
    return ", ".join(items) if left <= 1 else f"{', '.join(items[:_FEW])} and {left} others"


def _called(line: Line) -> str:
    return f"{line.label} ({line.encoder})" if line.encoder else line.label


def _of(runs: Measured) -> list[Found]:
    return [runs.found[seed] for seed in sorted(runs.found)]


def _metric(found: Found, line: Line, key: str) -> Any:
    metrics = found.record.get("metrics")
    if isinstance(line.way, Baseline):
        metrics = (found.record.get("baselines") or {}).get(line.way.name)
    return (metrics or {}).get(key)


def is_number(value: object) -> bool:
    """Tell whether a plain value is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(found: Found, value: Any, key: str) -> float | None:
    if value is None:
        return None
    if not is_number(value) or not math.isfinite(value):
        raise DataError(
            f"{found.source}: {key} is {value!r}, no number that a table could hold; "
            "name another key in the artefact, or redo the run with force=true"
        )
    return float(value)


def _setting_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "+".join(map(_setting_text, value)) if isinstance(value, list) else str(value)


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)
