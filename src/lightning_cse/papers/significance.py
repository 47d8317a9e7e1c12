"""Tests whether runs differ: McNemar's test and the paired bootstrap on the predictions of finished
runs.
"""

import functools
import itertools
import json
import statistics
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lightning_cse.errors import DataError, did_you_mean
from lightning_cse.metrics import mcnemar
from lightning_cse.papers.artefacts import Baseline, Line
from lightning_cse.papers.labels import labels_of
from lightning_cse.papers.nested import value_at
from lightning_cse.papers.records import Found
from lightning_cse.papers.statistics import (
    bootstrap_pvalue,
    bootstrap_spearman,
    holm,
    majority_vote,
)
from lightning_cse.runs import Run

_IDENTITY: Final = (
    "row",
    "encoder",
    "column",
    "reference",
    "test",
    "seeds",
    "seeds_reference",
)
_NUMBERS: Final = ("mean", "mean_reference", "p", "p_holm")
TEST_FIELDS: Final = [*_IDENTITY, *_NUMBERS]
"""The columns of the comparisons that are kept beside a table."""
_EXAMPLE: Final = (
    "row",
    "type",
    "label",
    "subset",
    "gold",
)
"""The columns that identify an example in a file of predictions; a file may lack some of them."""
_SMALLEST_P: Final = 1e-300  # a float cannot tell smaller values from 0, and no test is certain


@dataclass(frozen=True)
class Point:
    """A point to compare: the runs of one experiment and hash over their seeds, or a baseline
    evaluated beside them.
    """

    label: str
    runs: tuple[Found, ...]
    baseline: str | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds; none for a baseline, which is not trained."""
        return () if self.baseline else tuple(int(run.record["seed"]) for run in self.runs)

    @property
    def tasks(self) -> list[str]:
        """The tasks for which any of its runs has predictions."""
        prefix = f"{self.baseline}-" if self.baseline else ""
        names = {name for run in self.runs for name in stored(run) if name.startswith(prefix)}
        tasks = {name.removeprefix(prefix) for name in names}
        return sorted(task for task in tasks if "-" not in task)

    def files(self, task: str) -> list[Path]:
        """Return the prediction files of a task, one per run; raises DataError if one is
        missing.
        """
        name = f"{self.baseline}-{task}" if self.baseline else task
        paths = []
        for run in self.runs:
            known = stored(run)
            if run.folder is None or name not in known:
                place = run.folder or run.source
                raise DataError(f"{place} has no predictions of {name}{_near(name, known)}")
            paths.append(run.folder / "predictions" / f"{name}.parquet")
        return paths


def _near(name: str, known: Sequence[str]) -> str:
    return f"{did_you_mean(name, known)} (found: {', '.join(known) or 'none'})"


def stored(run: Found) -> list[str]:
    """Return the names of a run's prediction files: ``<task>`` or ``<baseline>-<task>``."""
    if run.folder is None:
        return []
    return sorted(path.stem for path in run.folder.glob("predictions/*.parquet"))


def read_run(path: Path) -> Found:
    """Return the finished run in a folder; raises LightningCSEError if there is none."""
    return Found(
        Run.at(path).read(),
        path,
        path / "record.json",
    )


# Points and their labels


def points(runs: Iterable[Found]) -> list[Point]:
    """Group runs over their seeds, in the order given; a run given twice counts once."""
    groups: dict[tuple[str, str], dict[int, Found]] = {}
    for run in {run.source.resolve(): run for run in runs}.values():
        name = run.record["name"]
        seed = int(run.record["seed"])
        group = groups.setdefault((name, run.record["config_hash"]), {})
        if seed in group:
            both = f"{group[seed].source} and {run.source}"
            raise DataError(f"{both} are both seed {seed} of {name}: give only one of them")
        group[seed] = run
    by_seed = [[group[seed] for seed in sorted(group)] for group in groups.values()]
    labels = labels_of([runs[0].record for runs in by_seed])
    return [Point(label, tuple(runs)) for label, runs in zip(labels, by_seed, strict=True)]


def baseline_points(baseline: str, runs: Sequence[Found]) -> list[Point]:
    """Return a baseline that was evaluated beside these runs, as one point per encoder."""
    groups: dict[str, list[Found]] = {}
    known = {name for run in runs for name in stored(run) if "-" in name}
    for run in runs:
        if any(name.startswith(f"{baseline}-") for name in stored(run)):
            encoder = ""  # the lengths of sentences do not depend on it
            if baseline != "length":
                config = value_at(run.record, "decisive.config.encoder")
                encoder = json.dumps([run.record.get("encoder"), config])
            groups.setdefault(encoder, []).append(run)
    if not groups:
        near = _near(baseline, sorted({name.rpartition("-")[0] for name in known}))
        raise DataError(f"no run has predictions of the baseline {baseline!r}{near}")
    points = []
    for group in groups.values():
        encoder = value_at(group[0].record, "encoder.name")
        label = f"{baseline} {encoder}" if len(groups) > 1 else baseline
        points.append(Point(label, tuple(group), baseline))
    return points


# Predictions


def read_outcome(path: Path, metric: str = "accuracy") -> pd.DataFrame:
    """Read predictions: the columns that identify the examples, and ``correct``.

    The metric ``accuracy_NAME`` uses the column ``correct_NAME``, or only the examples of type
    NAME, if these exist.
    """
    frame = pd.read_parquet(path)
    variant = metric.partition("_")[2]
    if variant and "type" in frame and (frame["type"] == variant).any():
        frame = frame[frame["type"] == variant].reset_index(drop=True)
    if f"correct_{variant}" in frame:
        answers = frame[[f"correct_{variant}"]]
    elif "correct" in frame:
        answers = frame[["correct"]]
    elif {"label", "prediction"} <= set(frame):
        answers = frame[["label", "prediction"]]
    else:
        found = ", ".join(frame)
        raise DataError(f"{path}: no column correct, and no label and prediction (found: {found})")
    examples = _examples(frame)
    if answers.isna().any(axis=None) or frame.empty or examples.empty:
        raise DataError(f"{path}: examples or answers are missing; redo the run with force=true")
    if answers.shape[1] == 2:
        correct = answers["label"] == answers["prediction"]
    else:
        correct = answers.iloc[:, 0].astype(bool)
    return examples.assign(correct=correct)


def _examples(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[[name for name in _EXAMPLE if name in frame]]


@functools.cache
def _read_scores(path: Path) -> pd.DataFrame:
    frame = pd.read_parquet(path)
    has_columns = {"row", "gold", "score"} <= set(frame)
    if not has_columns or not np.isfinite(frame[["gold", "score"]]).all(axis=None):
        raise DataError(f"{path}: no finite scores of pairs in the columns row, gold and score")
    return frame


def _predictions(
    task: str,
    points: Sequence[Point],
    read: Callable[[Path], pd.DataFrame],
) -> list[list[pd.DataFrame]]:
    """Read the runs of each point; refuse runs that were evaluated on different files or
    examples.
    """
    paths = [path for point in points for path in point.files(task)]
    runs = [run for point in points for run in point.runs]
    digests = [(run.record.get("task_data") or {}).get(task) for run in runs]
    frames = [read(path) for path in paths]
    first = _examples(frames[0])
    for path, digest, frame in zip(
        paths,
        digests,
        frames,
        strict=True,
    ):
        other_files = digest and digests[0] and digest != digests[0]
        if other_files or not _examples(frame).equals(first):
            both = f"{paths[0]} and {path}"
            raise DataError(f"{both} are of different examples of {task}: they cannot be compared")
    remaining = iter(frames)
    return [list(itertools.islice(remaining, len(point.runs))) for point in points]


def _votes(
    task: str,
    points: Sequence[Point],
    metric: str = "accuracy",
) -> list[list[NDArray[np.bool_]]]:
    """Return, for each run of each point, which examples it got right."""
    frames = _predictions(
        task,
        points,
        functools.partial(read_outcome, metric=metric),
    )
    return [[frame["correct"].to_numpy() for frame in runs] for runs in frames]


def bootstrap(
    a: Point,
    b: Point,
    metrics: Sequence[str],
    draws: int = 10_000,
) -> float:
    """Return the p-value of a paired bootstrap of two points, by one rank correlation or a mean of
    several.

    A draw takes as many pairs as there are, with replacement, and is the same for all models; the
    difference on a draw is between the points, each averaged over its seeds. The tasks of a mean
    are drawn independently.

    Source: see `bootstrap_pvalue`.  Differs: seeds are averaged.
    """
    differences = []
    for metric in metrics:
        task = metric.split("/")[1]
        _predictions(task, (a, b), _read_scores)
        of_a = _drawn(tuple(a.files(task)), task, draws)
        of_b = _drawn(tuple(b.files(task)), task, draws)
        differences.append(of_a - of_b)
    return bootstrap_pvalue(np.mean(differences, axis=0))


@functools.cache
def _drawn(
    paths: tuple[Path, ...],
    task: str,
    draws: int,
) -> NDArray[np.float64]:
    frames = [_read_scores(path) for path in paths]
    gold = frames[0]["gold"].to_numpy(np.float64)
    scores = np.stack([frame["score"].to_numpy(np.float64) for frame in frames])
    return bootstrap_spearman(
        gold,
        scores,
        draws,
        zlib.crc32(task.encode()),
    )


# Comparisons of runs


def compare(points: Sequence[Point], tasks: Sequence[str] = ()) -> pd.DataFrame:
    """Compare every pair of points on every task, one row per comparison, with Holm's adjustment
    over all of them.

    Without ``tasks``, compare on every task with right and wrong answers. A point without
    predictions of a task is left out there (a symmetric score predicts no direction);
    ``attrs["left_out"]`` has the labels by task. Accuracies are fractions, and the difference is in
    percentage points.
    """
    rows: list[dict[str, Any]] = []
    left_out = {}
    for task in dict.fromkeys(tasks or _tasks_with_answers(points)):
        having = [point for point in points if task in point.tasks] or points
        if missing := [point.label for point in points if point not in having]:
            left_out[task] = missing
        outcomes = zip(having, _votes(task, having), strict=True)
        for (a, of_a), (b, of_b) in itertools.combinations(outcomes, 2):
            rows.append(
                {
                    "task": task,
                    **_compare_pair(
                        a,
                        b,
                        of_a,
                        of_b,
                    ),
                }
            )
    frame = pd.DataFrame(rows, columns=None if rows else ["a", "b", "p_exact"])
    compared = {*frame["a"], *frame["b"]}
    if len(points) < 2 or not compared.issuperset(point.label for point in points):
        known = [f"\n  {one.label}: {', '.join(one.tasks) or 'no predictions'}" for one in points]
        needs = "a comparison needs two points with a task in common, of right and wrong answers"
        raise DataError(needs + "".join(known))
    frame["p_holm"] = holm(frame["p_exact"])
    frame.attrs["left_out"] = left_out
    return frame


def _tasks_with_answers(points: Sequence[Point]) -> list[str]:
    """Return the tasks of the runs (of the baselines, if nothing else is given) that have right and
    wrong answers.
    """
    methods = [point for point in points if not point.baseline] or points
    first = {task: point for point in reversed(methods) for task in point.tasks}
    tasks = []
    for task in sorted(first):
        columns = pd.read_parquet(first[task].files(task)[0]).columns
        if "correct" in columns or "prediction" in columns:
            tasks.append(task)
    return tasks


def _compare_pair(
    a: Point,
    b: Point,
    of_a: Sequence[NDArray[np.bool_]],
    of_b: Sequence[NDArray[np.bool_]],
) -> dict[str, Any]:
    test = mcnemar(majority_vote(of_a), majority_vote(of_b))
    accuracy_a = float(np.mean(of_a))
    accuracy_b = float(np.mean(of_b))
    return {
        "a": a.label,
        "b": b.label,
        "seeds_a": a.seeds,
        "seeds_b": b.seeds,
        "accuracy_a": accuracy_a,
        "accuracy_b": accuracy_b,
        "difference": 100 * (accuracy_a - accuracy_b),
        "only_a": test.only_a,
        "only_b": test.only_b,
        "examples": test.examples,
        "p_exact": test.pvalue,
        "p_asymptotic": test.pvalue_asymptotic,
    }


# Comparisons of the lines of a table


class Side(NamedTuple):
    """A cell of a table as a side of a comparison: the number of its line, and what was
    measured.
    """

    number: int
    line: Line
    column: str
    metrics: tuple[str, ...]
    values: Mapping[int, float]
    found: tuple[Found, ...]

    @property
    def baseline(self) -> str | None:
        """The name of the baseline that the cell measures, if any."""
        return self.line.way.name if isinstance(self.line.way, Baseline) else None


def compare_lines(
    pairs: Sequence[tuple[Side, Side]],
    test: str,
    kept: Path | None,
    draws: int,
) -> pd.DataFrame:
    """Test the pairs whose predictions exist or whose p-value was kept, with Holm's adjustment.

    The second side of a pair is the reference. Each comparison is one row: `TEST_FIELDS`, and ``a``
    and ``b``, the numbers of the two lines.
    """
    earlier = read_tests(kept).set_index(list(_IDENTITY)).to_dict("index")
    rows = []
    for a, b in pairs:
        seeds = _voters(a, b) if test == "mcnemar" else (sorted(a.values), sorted(b.values))
        identity = (
            a.line.label,
            a.line.encoder or "",
            a.column,
            b.line.label,
            test,
            *(" ".join(map(str, side)) for side in seeds),
        )
        means = [statistics.fmean(side.values.values()) for side in (a, b)]
        p = _kept_p(earlier.get(identity), means)
        if p is None:
            p = _measure(
                a,
                b,
                seeds,
                test,
                draws,
            )
        if p is not None:
            rows.append(
                (
                    *identity,
                    *means,
                    max(p, _SMALLEST_P),
                    1.0,
                    a.number,
                    b.number,
                )
            )
    frame = pd.DataFrame(
        rows,
        columns=[
            *TEST_FIELDS,
            "a",
            "b",
        ],
    )
    return frame.assign(p_holm=holm(frame["p"].astype(float)))


def _kept_p(earlier: Mapping[Any, float] | None, means: Sequence[float]) -> float | None:
    """Return the p-value of an earlier comparison; None if its means are others, since runs were
    trained again.
    """
    if earlier is None:
        return None
    known = [earlier["mean"], earlier["mean_reference"]]
    return (
        earlier["p"]
        if np.allclose(
            known,
            means,
            rtol=1e-9,
            atol=1e-12,
        )
        else None
    )


def _measure(
    a: Side,
    b: Side,
    seeds: tuple[list[int], list[int]],
    test: str,
    draws: int,
) -> float | None:
    """Return the p-value of two cells; None where predictions are missing."""
    first = _point(a, seeds[0])
    second = _point(b, seeds[1])
    if first is None or second is None:
        return None
    if test == "bootstrap":
        return bootstrap(
            first,
            second,
            a.metrics,
            draws,
        )
    _, task, metric = a.metrics[0].split("/")
    return mcnemar(*map(majority_vote, _votes(task, (first, second), metric))).pvalue


def _voters(a: Side, b: Side) -> tuple[list[int], list[int]]:
    """Return the seeds that vote: the same odd number on both sides, beginning with the seeds that
    both have.

    A majority of several is right more often than one seed, and a tie is wrong. A baseline is the
    same for every seed.
    """
    counts = [len(side.values) for side in (a, b) if not (side.baseline and len(side.values) == 1)]
    odd = (min(counts, default=1) - 1) // 2 * 2 + 1
    common = a.values.keys() & b.values.keys()
    voters = []
    for side in (a, b):
        in_order = sorted(side.values, key=lambda seed: (seed not in common, seed))
        voters.append(sorted(in_order[:odd]))
    return voters[0], voters[1]


def _point(side: Side, seeds: Sequence[int]) -> Point | None:
    """Return a side as a point of these seeds; None where predictions are missing."""
    runs = side.found
    if len(seeds) < len(side.values):
        runs = tuple(run for seed, run in zip(side.values, runs, strict=True) if seed in seeds)
    point = Point(side.line.label, runs, side.baseline)
    tasks = {metric.split("/")[1] for metric in side.metrics}
    have_all = all(tasks <= set(Point("", (run,), side.baseline).tasks) for run in runs)
    return point if have_all else None


def read_tests(path: Path | None) -> pd.DataFrame:
    """Read the comparisons kept with a table; a missing file holds none. Raises DataError if it is
    damaged.
    """
    if path is None or not path.is_file():
        return pd.DataFrame(columns=TEST_FIELDS)
    try:
        frame = pd.read_csv(
            path,
            dtype=str,
            keep_default_na=False,
            usecols=TEST_FIELDS,
        )
        return frame.astype(dict.fromkeys(_NUMBERS, float))
    except ValueError as error:
        raise DataError(
            f"{path} is damaged ({error}); remove the file, and the tests are redone"
        ) from None
