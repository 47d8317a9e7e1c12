"""Whether runs differ: McNemar's tests and paired bootstraps from the predictions that finished runs left."""

from __future__ import annotations

import itertools
import json
import statistics
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from lightning_cse.errors import DataError, did_you_mean
from lightning_cse.metrics import McNemar, mcnemar, spearman
from lightning_cse.papers.paired_tests import PairedBootstrap, bootstrap_spearman, holm, majority_vote

__all__ = [
    "Comparison",
    "Correlations",
    "Outcome",
    "Point",
    "Run",
    "Scores",
    "baseline_points",
    "compare",
    "compare_accuracy",
    "points",
    "read_outcome",
    "read_run",
    "read_scores",
]

_EXAMPLE: Final = ("row", "type", "label")
"""The columns of predictions that say which example a line is, as far as they are there."""
_PAIR: Final = ("subset", "row", "gold")
"""The same for pairs of sentences with a gold score."""
_SHORTEST: Final = 4  # digits of an identity


@dataclass(frozen=True)
class Run:
    """A finished run: its folder and its record."""

    path: Path
    record: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.record["name"])

    @property
    def config_hash(self) -> str:
        """The hash of what decides the result, the seed excepted."""
        return str(self.record["config_hash"])

    @property
    def seed(self) -> int:
        """The seed."""
        return int(self.record["seed"])

    @cached_property
    def stored(self) -> list[str]:
        """The names of the predictions it left: ``<task>`` or ``<baseline>-<task>``."""
        return sorted(path.stem for path in (self.path / "predictions").glob("*.parquet"))

    def predictions(self, stored: str) -> Path:
        """Return the file of predictions.

        Raises:
            DataError: if it is not there, with those that are.
        """
        path = self.path / "predictions" / f"{stored}.parquet"
        if not path.is_file():
            there = ", ".join(self.stored) or "none"
            raise DataError(
                f"{path} is missing; predictions there: {there}{did_you_mean(stored, self.stored)}\n"
                "  name another task, leave this run out, or redo it with force=true"
            )
        return path


@dataclass(frozen=True)
class Point:
    """What is compared: the runs of one experiment and identity over their seeds, or a baseline evaluated beside them.

    Args:
        label: what it is called; no two points of a comparison have the same.
        runs: its runs.
        baseline: the baseline's name, None for the method itself.
    """

    label: str
    runs: tuple[Run, ...]
    baseline: str | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, none for a baseline: it is not trained, so the run it was evaluated beside does not matter."""
        return () if self.baseline else tuple(run.seed for run in self.runs)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that any of its runs left predictions of."""
        prefix = f"{self.baseline}-" if self.baseline else ""
        found = {stored.removeprefix(prefix) for run in self.runs for stored in run.stored if stored.startswith(prefix)}
        return tuple(sorted(task for task in found if "-" not in task))

    def files(self, task: str) -> list[Path]:
        """Return the predictions of a task, a file a run.

        Raises:
            DataError: if one is not there, with those that are.
        """
        stored = f"{self.baseline}-{task}" if self.baseline else task
        return [run.predictions(stored) for run in self.runs]


@dataclass(frozen=True)
class Outcome:
    """What a run got right on a task, ``correct`` of shape ``(n,)``, and which examples these were, by column."""

    path: Path
    examples: Mapping[str, list[Any]] = field(repr=False)
    correct: NDArray[np.bool_] = field(repr=False)

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.correct)


@dataclass(frozen=True)
class Scores:
    """The scores ``(n,)`` a run gave to pairs of sentences, their gold scores, and which pairs these were."""

    path: Path
    examples: Mapping[str, list[Any]] = field(repr=False)
    gold: NDArray[np.float64] = field(repr=False)
    scores: NDArray[np.float64] = field(repr=False)

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.scores)


class _Examples(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def examples(self) -> Mapping[str, list[Any]]: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Comparison:
    """Two points on one task; accuracies are fractions, and the merged test is that of the seeds' majority votes.

    Args:
        task: the task.
        a: one point.
        b: the other.
        accuracy_a: mean accuracy of the runs of A.
        accuracy_b: that of B.
        test: McNemar's test of the majority votes.
        by_seed: the exact p-value of each seed that both have; a baseline has the same answers beside every seed.
        pvalue_holm: the exact p-value of ``test``, adjusted for all comparisons made together.
    """

    task: str
    a: Point
    b: Point
    accuracy_a: float
    accuracy_b: float
    test: McNemar
    by_seed: Mapping[int, float]
    pvalue_holm: float = 1.0

    @property
    def difference(self) -> float:
        """By how many percentage points A is more accurate than B."""
        return 100 * (self.accuracy_a - self.accuracy_b)

    @property
    def voted_a(self) -> float:
        """The accuracy of A's majority vote."""
        return (self.test.both + self.test.only_a) / self.test.examples

    @property
    def voted_b(self) -> float:
        """The accuracy of B's majority vote."""
        return (self.test.both + self.test.only_b) / self.test.examples

    @property
    def pvalue_median(self) -> float | None:
        """The median of the seeds' p-values, None where no seed is common to both."""
        return statistics.median(self.by_seed.values()) if self.by_seed else None


def read_run(path: Path) -> Run:
    """Return the finished run in a folder.

    Raises:
        DataError: if there is no such folder, it holds no finished run, or its record is damaged.
    """
    record_path = path / "record.json"
    if not record_path.is_file():
        raise DataError(_no_run(path))
    try:
        record = json.loads(record_path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{record_path} is damaged ({error}): redo the run with force=true") from None
    missing = [key for key in ("name", "config_hash", "seed") if not isinstance(record, dict) or key not in record]
    if missing:
        raise DataError(f"{record_path} has no {', '.join(missing)}: it is not the record of a run")
    return Run(path, record)


def points(runs: Iterable[Run]) -> list[Point]:
    """Group runs over their seeds, in the order they came; a folder given twice counts once.

    A point is called by its name, and by its name and the beginning of its identity where another has the same name.

    Raises:
        DataError: if two folders hold the same point and seed.
    """
    groups: dict[tuple[str, str], dict[int, Run]] = {}
    for run in {run.path.resolve(): run for run in runs}.values():
        same = groups.setdefault((run.name, run.config_hash), {})
        if run.seed in same:
            raise DataError(
                f"{same[run.seed].path} and {run.path} are both seed {run.seed} of {run.name} {run.config_hash}: "
                "give only one of them"
            )
        same[run.seed] = run
    names = _labels(list(groups))
    return [Point(names[key], tuple(same[seed] for seed in sorted(same))) for key, same in groups.items()]


def baseline_points(baseline: str, runs: Sequence[Run]) -> list[Point]:
    """Return a baseline as it was evaluated beside these runs: one point for each encoder it gave other answers with.

    Raises:
        DataError: if none of the runs has predictions of it, with the baselines there are.
    """
    tasks = {run.path: [s for s in run.stored if s.rpartition("-")[0] == baseline] for run in runs}
    by_encoder: dict[str, list[Run]] = {}
    for run in runs:
        if tasks[run.path]:
            options = run.record.get("decisive", {}).get("config", {}).get("encoder")
            key = json.dumps([run.record.get("encoder"), options], sort_keys=True)
            by_encoder.setdefault(key, []).append(run)
    if not by_encoder:
        there = sorted({s.rpartition("-")[0] for run in runs for s in run.stored if "-" in s})
        raise DataError(
            f"baseline {baseline!r}: none of the {len(runs)} runs has predictions of it; "
            f"baselines there: {', '.join(there) or 'none'}{did_you_mean(baseline, there)}"
        )
    # LENGTH answers the same whatever the encoder: it must not be compared with itself.
    by_answers: dict[tuple[tuple[str, bytes], ...], list[Run]] = {}
    for same in by_encoder.values():
        answers = tuple((s, read_outcome(same[0].predictions(s)).correct.tobytes()) for s in tasks[same[0].path])
        by_answers.setdefault(answers, []).extend(same)
    found = [Point(baseline, tuple(same), baseline) for same in by_answers.values()]
    if len(found) > 1:
        found = [replace(p, label=f"{baseline} {p.runs[0].record.get('encoder', {}).get('name')}") for p in found]
    repeated = {label for label, count in Counter(point.label for point in found).items() if count > 1}
    return [
        replace(point, label=f"{point.label}@{point.runs[0].config_hash}") if point.label in repeated else point
        for point in found
    ]


def read_outcome(path: Path, metric: str = "accuracy") -> Outcome:
    """Read predictions: right is what the column ``correct`` says, or else where ``prediction`` is ``label``.

    Args:
        path: the predictions.
        metric: ``accuracy_NAME`` is of the column ``correct_NAME`` or of the examples of the type NAME, where there
            are such; every other accuracy is of all examples.

    Raises:
        DataError: if the file cannot be read, says neither, leaves an answer open, or does not say which examples it
            is about.
    """
    table = _table(path)
    names = ", ".join(table.column_names)
    variant = metric.partition("_")[2]
    if variant and "type" in table.column_names and variant in (types := table.column("type").to_pylist()):
        table = table.filter([kind == variant for kind in types])
    if not _has_answers(table.column_names):
        raise DataError(
            f"{path}: nothing tells right from wrong; needs the column correct, or label and prediction, has: {names}"
        )
    examples = {name: table.column(name).to_pylist() for name in _EXAMPLE if name in table.column_names}
    if not examples:
        raise DataError(f"{path}: nothing says which examples these are; needs {' or '.join(_EXAMPLE)}, has: {names}")
    answers = ["correct"] if "correct" in table.column_names else ["label", "prediction"]
    if f"correct_{variant}" in table.column_names:
        answers = [f"correct_{variant}"]
    columns = [table.column(name).to_pylist() for name in answers]
    for name, column in zip(answers, columns, strict=True):
        if None in column:
            raise DataError(f"{path}: {name} is empty at row {column.index(None)}: redo the run with force=true")
    if table.num_rows == 0:
        raise DataError(f"{path} holds no example")
    right = columns[0] if len(columns) == 1 else [a == b for a, b in zip(*columns, strict=True)]
    return Outcome(path, examples, np.asarray(right, dtype=np.bool_))


def read_scores(path: Path) -> Scores:
    """Read predictions of similarity.

    Raises:
        DataError: if the file cannot be read, lacks a column, holds no pair, or a number in it is not finite.
    """
    table = _table(path)
    absent = [name for name in ("row", "gold", "score") if name not in table.column_names]
    if absent:
        raise DataError(f"{path}: no scores of pairs; needs {', '.join(absent)}, has: {', '.join(table.column_names)}")
    examples = {name: table.column(name).to_pylist() for name in _PAIR if name in table.column_names}
    gold, scores = (np.array(table.column(name).to_pylist(), dtype=np.float64) for name in ("gold", "score"))
    if not len(gold):
        raise DataError(f"{path} holds no example")
    faulty = np.flatnonzero(~np.isfinite(gold + scores))
    if faulty.size:
        raise DataError(f"{path}: gold or score is no finite number at row {faulty[0]}: redo the run with force=true")
    return Scores(path, examples, gold, scores)


def compare(given: Sequence[Point], tasks: Sequence[str] = ()) -> list[Comparison]:
    """Compare every pair of points on every task, in the order they came, and adjust the p-values for their number.

    Args:
        given: the points; baselines are compared on those of the tasks that they have.
        tasks: the tasks; none stands for every task that all points but baselines have, if its predictions are right
            or wrong.

    Raises:
        DataError: if there are fewer than two points, a point lacks a named task, there is no task to compare on, or
            two runs have not been evaluated on the same examples.
    """
    if len(given) < 2:
        raise DataError(
            f"a comparison needs two points, got {', '.join(point.label for point in given) or 'none'}: "
            "give run folders of another point, or a baseline"
        )
    found: list[Comparison] = []
    for task in _common_tasks(given, tasks):
        there = [point for point in given if not point.baseline or task in point.tasks]
        found += _on_task(task, there)
    compared = {point.label for comparison in found for point in (comparison.a, comparison.b)}
    for point in given:
        if point.label not in compared:
            raise DataError(
                f"{point.label} has no task to compare it on: it has {', '.join(point.tasks) or 'none'}; "
                + "; ".join(
                    f"{other.label}: {', '.join(other.tasks) or 'none'}"
                    for other in given
                    if other.label != point.label
                )
            )
    adjusted = holm([comparison.test.pvalue for comparison in found])
    return [replace(comparison, pvalue_holm=float(p)) for comparison, p in zip(found, adjusted, strict=True)]


def compare_accuracy(a: Point, b: Point, metric: str) -> McNemar:
    """Return McNemar's test of two points' majority votes over their seeds.

    Args:
        a: a point.
        b: another.
        metric: ``test/<task>/<accuracy>``, see `read_outcome` for the examples it is of.

    Raises:
        DataError: if predictions are missing or are not right or wrong, or the two have not been evaluated on the same
            examples.
    """
    _, task, name = metric.split("/")
    outcomes = _outcomes(task, (a, b), name)
    return mcnemar(*(majority_vote([outcome.correct for outcome in of]) for of in outcomes))


class Correlations:
    """Paired bootstraps of rank correlations; what a point comes to in each draw is computed once and kept.

    The pairs of a task are drawn from all its subsets together, as ``spearman_all`` puts them together. The tasks of a
    mean are drawn independently of each other.

    Args:
        draws: how often the pairs are drawn.
        seed: of the draws.
    """

    def __init__(self, draws: int = 10_000, seed: int = 0) -> None:
        self.draws = draws
        self.seed = seed
        self._read: dict[tuple[Path, str], Scores] = {}
        self._drawn: dict[tuple[tuple[Path, ...], str], tuple[float, NDArray[np.float64]]] = {}

    def compare(self, a: Point, b: Point, metrics: Sequence[str]) -> PairedBootstrap:
        """Return the paired bootstrap of two points in a metric, or in the mean of several.

        Args:
            a: a point.
            b: another.
            metrics: ``test/<task>/spearman`` or ``test/<task>/spearman_all`` each.

        Raises:
            DataError: if predictions are missing or are no scores of pairs, or the two have not been evaluated on the
                same pairs.
        """
        differences = []
        for metric in metrics:
            task = metric.split("/")[1]
            first = a.runs[0]
            for point in (a, b):
                for run, path in zip(point.runs, point.files(task), strict=True):
                    _check_same_files(first, run, task)
                    _check_same_examples(self._scores(a.files(task)[0], task), self._scores(path, task))
            (mean_a, drawn_a), (mean_b, drawn_b) = (self._of(point.files(task), task) for point in (a, b))
            differences.append((mean_a - mean_b, drawn_a - drawn_b))
        observed, drawn = zip(*differences, strict=True)
        return PairedBootstrap.of_draws(float(np.mean(observed)), np.mean(drawn, axis=0))

    def _of(self, files: Sequence[Path], task: str) -> tuple[float, NDArray[np.float64]]:
        key = (tuple(files), task)
        if key not in self._drawn:
            read = [self._scores(path, task) for path in files]
            gold, scores = read[0].gold, [one.scores for one in read]
            observed = float(np.mean([spearman(gold, one, constant=0.0) for one in scores]))
            seed = self.seed + zlib.crc32(task.encode())
            self._drawn[key] = observed, bootstrap_spearman(gold, scores, self.draws, seed)
        return self._drawn[key]

    def _scores(self, path: Path, task: str) -> Scores:
        if (path, task) not in self._read:
            self._read[path, task] = read_scores(path)
        return self._read[path, task]


def _outcomes(task: str, given: Sequence[Point], metric: str = "accuracy") -> list[list[Outcome]]:
    """Return what each run of each point got right, once it is certain that all had the same examples."""
    outcomes = [[read_outcome(path, metric) for path in point.files(task)] for point in given]
    for point, of in zip(given, outcomes, strict=True):
        for run, outcome in zip(point.runs, of, strict=True):
            _check_same_files(given[0].runs[0], run, task)
            _check_same_examples(outcomes[0][0], outcome)
    return outcomes


def _on_task(task: str, given: Sequence[Point]) -> list[Comparison]:
    outcomes = dict(zip((point.label for point in given), _outcomes(task, given), strict=True))
    votes = {label: majority_vote([outcome.correct for outcome in of]) for label, of in outcomes.items()}
    accuracies = {label: float(np.mean([outcome.correct.mean() for outcome in of])) for label, of in outcomes.items()}
    found = []
    for a, b in itertools.combinations(given, 2):
        by_a, by_b = (_by_seed(point, outcomes[point.label], votes[point.label]) for point in (a, b))
        seeds = sorted(({*a.seeds} & {*b.seeds}) or (({*a.seeds} | {*b.seeds}) if a.baseline or b.baseline else ()))
        by_seed = {seed: mcnemar(by_a[seed], by_b[seed]).pvalue for seed in seeds}
        test = mcnemar(votes[a.label], votes[b.label])
        found.append(Comparison(task, a, b, accuracies[a.label], accuracies[b.label], test, by_seed))
    return found


def _by_seed(point: Point, outcomes: Sequence[Outcome], vote: NDArray[np.bool_]) -> Mapping[int, NDArray[np.bool_]]:
    """Return what a point gets right by seed; a baseline's answers are those of every seed."""
    if point.baseline:
        return defaultdict(lambda: vote)
    return {seed: outcome.correct for seed, outcome in zip(point.seeds, outcomes, strict=True)}


def _common_tasks(given: Sequence[Point], named: Sequence[str]) -> list[str]:
    methods = [point for point in given if not point.baseline] or list(given)
    if named:
        return list(dict.fromkeys(named))  # who lacks one is told by the file that is not there
    common = [task for task in methods[0].tasks if all(task in point.tasks for point in methods)]
    comparable = [task for task in common if _has_answers(_columns(methods[0].files(task)[0]))]
    if not comparable:
        lines = "".join(f"\n  {point.label}: {', '.join(point.tasks) or 'none'}" for point in methods)
        what = "whose predictions are right or wrong " if common else ""
        raise DataError(f"no task {what}is common to all points; predictions there:{lines}")
    return comparable


def _has_answers(columns: Sequence[str]) -> bool:
    return "correct" in columns or {"label", "prediction"} <= set(columns)


def _table(path: Path) -> Any:
    import pyarrow as pa  # heavy, and not needed to be told of a missing folder
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read ({' '.join(str(error).split())[:200]}): redo the run") from None


def _columns(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return list(pq.read_schema(path).names)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read ({' '.join(str(error).split())[:200]}): redo the run") from None


def _check_same_files(first: Run, other: Run, task: str) -> None:
    """Refuse runs whose task read different files: rows of the same number are other sentences then."""
    ours, theirs = ((run.record.get("task_data") or {}).get(task, {}) for run in (first, other))
    differing = sorted(dict(ours.items() ^ theirs.items())) if ours and theirs else []
    if differing:
        raise DataError(
            f"{first.path} and {other.path} were evaluated on different files for {task}: {', '.join(differing)}; "
            "compare runs with the same data directory and corpora"
        )


def _check_same_examples(first: _Examples, other: _Examples) -> None:
    fault = None
    if first.examples.keys() != other.examples.keys():
        fault = f"the columns {', '.join(first.examples)} and {', '.join(other.examples)}"
    elif len(first) != len(other):
        fault = f"{len(first)} and {len(other)} examples"
    else:
        for name, column in first.examples.items():
            if column != other.examples[name]:
                rows = zip(column, other.examples[name], strict=True)
                row = next(row for row, (one, two) in enumerate(rows) if one != two)
                fault = f"{name} {column[row]!r} and {other.examples[name][row]!r} in row {row}"
                break
    if fault:
        raise DataError(
            f"{first.path} and {other.path} hold different examples: {fault}; "
            "compare runs that were evaluated on the same rows of the same split"
        )


def _labels(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Name each point, and add as few digits of its identity as tell it from others of the name."""
    labels = {}
    for name, identity in keys:
        others = [other for same, other in keys if same == name and other != identity]
        length = min(_SHORTEST, len(identity))
        while any(other.startswith(identity[:length]) for other in others) and length < len(identity):
            length += 1
        labels[name, identity] = f"{name}@{identity[:length]}" if others else name
    return labels


def _no_run(path: Path) -> str:
    if not path.exists():
        return f"{path}: there is no such folder; give run folders, such as runs/NAME/*"
    if not path.is_dir():
        return f"{path} is no folder; give the folder of a run, the one with record.json in it"
    below = sorted(
        {record.parent.parent for record in path.glob("*/record.json")}
        | {record.parent.parent for record in path.glob("*/*/record.json")}
    )
    if below:
        return f"{path} holds no record.json but folders of runs do; give them: {' '.join(f'{b}/*' for b in below[:3])}"
    if (path / "failed.json").is_file():
        return f"{path} holds no record.json: the run failed, see failed.json there; redo it, or leave it out"
    if (path / "config.yaml").is_file():
        return f"{path} holds no record.json: the run is not finished; give its command again, or leave it out"
    return f"{path} holds no record.json: it is not the folder of a run; leave it out"
