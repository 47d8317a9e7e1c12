"""Tests whether runs differ, on the predictions of finished runs: McNemar's test of accuracies and
DeLong's of AUCs, with intervals over seeds and examples. AUPRC, Spearman's correlation, means and
differences have an interval, and no test.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lightning_cse.errors import DataError, did_you_mean
from lightning_cse.metrics import auprc_influences, delong, mcnemar, spearman_influences
from lightning_cse.papers.artefacts import Line
from lightning_cse.papers.cells import Cell
from lightning_cse.papers.effects import by_seed, needs_no_seed
from lightning_cse.papers.labels import labels_of
from lightning_cse.papers.predictions import EXAMPLE, Answers, answers
from lightning_cse.papers.records import FinishedRun
from lightning_cse.papers.statistics import (
    clustered_error,
    holm,
    majority_vote,
    mean_influences,
    two_way_interval,
)

TEST_FIELDS = [
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
    "low",
    "high",
]
"""The columns of the comparisons that are kept beside a table. ``low`` and ``high`` are the ends of
the 95 % interval of the difference over seeds and examples, in points.
"""
_SMALLEST_P = 1e-300  # a float cannot tell smaller values from 0, and no test is certain
_TESTS = {"accuracy": "mcnemar", "auc": "delong", "auprc": "interval", "spearman": "interval"}
_INFLUENCES: dict[str, tuple[str, Callable[..., NDArray[np.float64]]]] = {
    "auprc": ("label", auprc_influences),
    "spearman": ("gold", spearman_influences),
}

Values = list[NDArray[Any]]
"""For each run of a setting, which examples it got right, or the ranks of its scores."""


@dataclass(frozen=True)
class Setting:
    """A setting to compare: the runs of one experiment and hash over their seeds, or a baseline of
    theirs.
    """

    label: str
    runs: tuple[FinishedRun, ...]
    baseline: str | None = None
    needs_no_seed: bool = False  # a model that is not trained: a baseline, or one evaluation

    @property
    def seeds(self) -> str:
        """The seeds of the runs, separated by spaces."""
        return " ".join(str(run.record["seed"]) for run in self.runs)

    def by_seed(self, values: Values) -> dict[int, NDArray[Any]]:
        """Return the values of the runs by seed."""
        seeds = [run.record["seed"] for run in self.runs]
        return dict(zip(seeds, values, strict=True))

    @functools.cached_property
    def files(self) -> dict[str, list[Answers]]:
        """The predictions of the tasks for which all runs have predictions, one per run."""
        by_run = [answers(run, self.baseline) for run in self.runs]
        common = set.intersection(*map(set, by_run))

        return {task: [files[task] for files in by_run] for task in sorted(common)}


def settings(runs: Iterable[FinishedRun]) -> list[Setting]:
    """Group runs over their seeds, in the order given."""
    groups: dict[tuple[str, str], dict[int, FinishedRun]] = {}
    for run in runs:
        name, seed = run.record["name"], run.record["seed"]
        group = groups.setdefault((name, run.record["config_hash"]), {})
        other = group.setdefault(seed, run)
        if other is not run:
            raise DataError(
                f"{other.source} and {run.source} are both seed {seed} of {name}: give only one "
                "of them"
            )

    by_seed = [tuple(group[seed] for seed in sorted(group)) for group in groups.values()]
    labels = labels_of([runs[0].record for runs in by_seed])

    return [
        Setting(label, runs, needs_no_seed=len(runs) == 1 and runs[0].is_untrained)
        for label, runs in zip(labels, by_seed, strict=True)
    ]


def read_values(found: Answers, metric: str) -> pd.DataFrame:
    """Read the examples that a metric is of: the columns that identify them, and ``value``, whether
    they are right or, for an area or a correlation, the rank of their score.

    The metric ``accuracy_NAME`` uses the column ``correct_NAME``, or only the examples of type
    NAME, if these exist; ``auc_NAME`` is of the examples of type NAME and of all with label 0.
    """
    frame = found.read()
    variant = metric.partition("_")[2]
    kind = _kind(metric)
    if "type" in frame and (frame["type"] == variant).any():
        chosen = frame["type"] == variant
        if kind == "auc":
            chosen |= ~frame["label"].astype(bool)

        frame = frame[chosen].reset_index(drop=True)

    examples = frame[[name for name in EXAMPLE if name in frame]]
    is_right = kind in ("", "accuracy")
    needed = {"score", _INFLUENCES.get(kind, ("label",))[0]}
    if not is_right and (missing := needed - {*frame}):
        raise DataError(f"{found} has no {' and '.join(sorted(missing))}, which {metric} needs")

    for column in (f"correct_{variant}", "correct") if is_right else ("score",):
        if column in frame:
            return examples.assign(value=frame[column])

    return examples.assign(value=frame["label"] == frame["prediction"])


def _read(
    task: str, settings: Sequence[Setting], metric: str = "accuracy"
) -> tuple[pd.DataFrame, list[Values]]:
    """Return the examples of a task, and what each run of each setting has; refuse runs that were
    evaluated on different examples.
    """
    first = settings[0].files[task][0]
    examples = read_values(first, metric).drop(columns="value")
    values = []
    for setting in settings:
        of_setting = []
        for found in setting.files[task]:
            frame = read_values(found, metric)
            of_setting.append(frame.pop("value").to_numpy())
            if not frame.equals(examples):
                raise DataError(
                    f"{first} and {found} are of different examples of {task}: they cannot be "
                    "compared"
                )

        values.append(of_setting)

    return examples, values


def clusters_of(examples: pd.DataFrame) -> NDArray[Any]:
    """Return the cluster of each example: the number of the row that it comes from, which the
    hypotheses of a premise of INLI share; without such numbers, each is its own.
    """
    return np.asarray(examples.get("row", examples.index))


def compare(settings: Sequence[Setting], tasks: Sequence[str] = ()) -> pd.DataFrame:
    """Compare every pair of settings on every task, one row per comparison, with Holm's adjustment
    over all of them.

    Without ``tasks``, compare on every task with right and wrong answers. A setting without
    predictions of a task is left out there (a symmetric score predicts no direction);
    ``attrs["left_out"]`` has the labels by task. Accuracies are fractions, and the difference is in
    percentage points.
    """
    rows = []
    left_out = {}
    files = {task: found[0] for setting in settings for task, found in setting.files.items()}
    answered = {task for task, file in files.items() if {"correct", "prediction"} & {*file.read()}}
    for task in tasks:
        if task not in answered:
            near = did_you_mean(task, answered)
            raise DataError(f"no run has answers of the task {task!r}{near}")

    for task in sorted(set(tasks or answered)):
        having = [setting for setting in settings if task in setting.files]
        if len(having) < len(settings):
            left_out[task] = [setting.label for setting in settings if setting not in having]

        examples, values = _read(task, having)
        outcomes = zip(having, values, strict=True)
        for (a, of_a), (b, of_b) in itertools.combinations(outcomes, 2):
            found = _compare_pair(a, b, of_a, of_b, clusters_of(examples))
            rows.append({"task": task, **found})

    if not rows:
        known = [f"\n  {one.label}: {', '.join(one.files) or 'no predictions'}" for one in settings]
        needs = "a comparison needs two settings with a task in common, of right and wrong answers"
        raise DataError(needs + "".join(known))

    frame = pd.DataFrame(rows)
    frame["p_holm"] = holm(frame["p_exact"])
    frame.attrs["left_out"] = left_out

    return frame


def _compare_pair(
    a: Setting, b: Setting, of_a: Values, of_b: Values, clusters: NDArray[Any]
) -> dict[str, Any]:
    test = mcnemar(majority_vote(of_a), majority_vote(of_b))
    ours, theirs = _common(a, b, of_a, of_b)
    by_seed = [100 * (one.mean() - other.mean()) for one, other in zip(ours, theirs, strict=True)]
    error = math.nan
    if ours:
        error = 100 * clustered_error(mean_influences(ours, theirs), clusters)

    difference, low, high = two_way_interval(by_seed, error)

    return {
        "a": a.label,
        "b": b.label,
        "seeds_a": a.seeds,
        "seeds_b": b.seeds,
        "accuracy_a": float(np.mean(of_a)),
        "accuracy_b": float(np.mean(of_b)),
        "difference": difference,
        "low": low,
        "high": high,
        "only_a": test.only_a,
        "only_b": test.only_b,
        "examples": test.examples,
        "p_exact": test.pvalue,
        "p_asymptotic": test.pvalue_asymptotic,
    }


def _common(
    a: Setting, b: Setting, of_a: Values, of_b: Values, among: Sequence[int] | None = None
) -> tuple[Values, Values]:
    """Return the outcomes for the seeds that two settings have in common, and that are among those
    given; a setting that needs no seed has all.
    """
    ours, theirs = a.by_seed(of_a), b.by_seed(of_b)
    if b.needs_no_seed:
        theirs = dict.fromkeys(ours, of_b[0])
    if a.needs_no_seed:
        ours = dict.fromkeys(theirs, of_a[0])

    common = [seed for seed in ours if seed in theirs and (among is None or seed in among)]

    return [ours[seed] for seed in common], [theirs[seed] for seed in common]


class Side(NamedTuple):
    """A cell of a table as a side of a comparison, with the number of its line."""

    number: int
    line: Line
    column: str
    cell: Cell

    @property
    def setting(self) -> Setting:
        """All runs of the cell."""
        fixed = needs_no_seed(self.line, self.cell)
        return Setting(self.line.label, self.cell.runs, self.line.row.baseline, fixed)

    @property
    def parts(self) -> "list[Side]":
        """The sides of the cells that a mean or a difference is of, or this one."""
        return [self._replace(cell=part) for part in self.cell.parts or [self.cell]]

    @property
    def test(self) -> str:
        """The test that compares the cell; ``interval`` if it has an interval alone."""
        if self.cell.parts:
            return "interval"

        return _TESTS[_kind(self.cell.metric)]


def is_comparable(a: Side, b: Side) -> bool:
    """Return whether there is a test of two cells, or an interval over the examples: of metrics
    that are computed from examples, and of their means and differences.
    """
    if not (a.cell.n and b.cell.n):
        return False

    ours, theirs = ([part.cell.metric for part in side.parts] for side in (a, b))
    return ours == theirs and all(map(_kind, ours))


def compare_lines(pairs: Sequence[tuple[Side, Side]]) -> pd.DataFrame:
    """Test the pairs whose predictions exist, with Holm's adjustment.

    The second side of a pair is the reference. Each comparison is one row: `TEST_FIELDS`, and ``a``
    and ``b``, the numbers of the two lines.
    """
    rows = []
    for a, b in pairs:
        voters = _voters(a, b)
        means = [a.cell.mean, b.cell.mean]
        place = (
            a.line.label,
            a.line.encoder or "",
            a.column,
            b.line.label,
            a.test,
            *(" ".join(map(str, seeds)) for seeds in voters),
        )
        if found := _tested(a, b, voters):
            p, *ends = found
            p = float(np.maximum(p, _SMALLEST_P))
            rows.append([*place, *means, p, math.nan, *ends, a.number, b.number])

    frame = pd.DataFrame(rows, columns=[*TEST_FIELDS, "a", "b"])
    pvalues = frame["p"].astype(float).dropna()
    frame["p_holm"] = pd.Series(holm(pvalues), index=pvalues.index, dtype=float)

    return frame


def _kind(metric: str) -> str:
    """Return what a metric measures, such as ``accuracy``; nothing for one that is not computed
    from examples of the test split, such as the average of several tasks or a standard error.
    """
    task, _, name = metric.rpartition("/")
    is_elsewhere = task and (not task.startswith("test/") or task.endswith("_avg"))
    if is_elsewhere or name.endswith("_se"):
        return ""

    if name in ("auprc", "spearman", "spearman_all"):
        return name.partition("_")[0]

    start = name.partition("_")[0]

    return start if start in ("accuracy", "auc") else ""


def _tested(a: Side, b: Side, voters: Sequence[Sequence[int]]) -> tuple[float, float, float] | None:
    """Return the p-value of two cells, NaN without a test, and the ends of the interval of their
    difference; None where predictions are missing.
    """
    differences = by_seed(a.line, a.cell, b.line, b.cell)
    if a.test == "interval":
        voters = ()

    parts = []
    for ours, theirs in zip(a.parts, b.parts, strict=True):
        of_part = _compare_parts(ours, theirs, list(differences.index), voters)
        if of_part is None:
            return None

        parts.append(of_part)

    _, low, high = two_way_interval(differences, _error(parts, a.cell.weights))

    return parts[0].p, low, high


class _Part(NamedTuple):
    """A metric of two settings: the p-value of their difference, NaN without a test, and the
    influence of each example of the task on it, in the unit of the cell.
    """

    task: str
    p: float
    influences: NDArray[np.float64]
    clusters: NDArray[Any]


def _error(parts: Sequence[_Part], weights: Sequence[float]) -> float:
    """Return the standard error, over the examples, of a sum of weighted parts: those of different
    tasks are independent, those of one task have the examples of one row as a cluster.
    """
    by_task: dict[str, list[tuple[_Part, float]]] = {}
    for part, weight in zip(parts, weights, strict=True):
        by_task.setdefault(part.task, []).append((part, weight))

    errors = (
        clustered_error(
            np.concatenate([weight * part.influences for part, weight in found]),
            np.concatenate([part.clusters for part, _ in found]),
        )
        for found in by_task.values()
    )

    return math.hypot(*errors)


def _compare_parts(
    a: Side, b: Side, seeds: Sequence[int], voters: Sequence[Sequence[int]]
) -> _Part | None:
    """Return the comparison of two cells of one metric, with the influences over these seeds; None
    where predictions are missing. Without voters, there is no test.
    """
    _, task, name = a.cell.metric.split("/")
    settings = (a.setting, b.setting)
    if any(task not in setting.files for setting in settings):
        return None

    examples, outcomes = _read(task, settings, name)
    p = math.nan
    if voters:
        chosen = [
            [setting.by_seed(values)[seed] for seed in of_side]
            for setting, values, of_side in zip(settings, outcomes, voters, strict=True)
        ]
        p = _pvalue(a.test, examples, *chosen)

    of_a, of_b = outcomes
    ours, theirs = _common(*settings, of_a, of_b, seeds)
    influences = np.zeros(len(examples))  # without a seed in common
    if ours:
        influences = a.cell.scale * _influences(_kind(a.cell.metric), examples, ours, theirs)

    return _Part(task, p, influences, clusters_of(examples))


def _pvalue(test: str, examples: pd.DataFrame, ours: Values, theirs: Values) -> float:
    """Return the p-value of two sets of runs."""
    if test == "delong":
        return delong(examples["label"], ours, theirs).pvalue

    return mcnemar(majority_vote(ours), majority_vote(theirs)).pvalue


def _influences(
    kind: str, examples: pd.DataFrame, ours: Values, theirs: Values
) -> NDArray[np.float64]:
    """Return the influence of each example on the mean difference of two metrics over their
    seeds.
    """
    if kind == "accuracy":
        return mean_influences(ours, theirs)
    if kind == "auc":
        return delong(examples["label"], ours, theirs).influences

    column, influences_of = _INFLUENCES[kind]
    first, second = (
        np.mean([influences_of(examples[column], scores) for scores in values], axis=0)
        for values in (ours, theirs)
    )

    return np.asarray(first - second)


def _voters(a: Side, b: Side) -> list[list[int]]:
    """Return the seeds that vote: the same odd number on both sides, beginning with those that both
    have.

    A majority of several is right more often than one seed, and a tie is wrong. A baseline is the
    same for every seed.
    """
    counts = [side.cell.n for side in (a, b) if not needs_no_seed(side.line, side.cell)]
    odd = (min(counts, default=1) - 1) // 2 * 2 + 1
    common = a.cell.values.index.intersection(b.cell.values.index)
    voters = []
    for side in (a, b):
        in_order = sorted(side.cell.values.index, key=lambda seed: (seed not in common, seed))
        voters.append(sorted(in_order[:odd]))

    return voters
