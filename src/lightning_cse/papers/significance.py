"""Tests whether runs differ: McNemar's test and the paired bootstrap on the predictions of finished runs."""

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
from numpy.typing import ArrayLike, NDArray

from lightning_cse.errors import DataError, did_you_mean
from lightning_cse.metrics import mcnemar
from lightning_cse.papers.artefacts import Baseline, Line
from lightning_cse.papers.nested import leaves, setting_text, value_at
from lightning_cse.papers.records import Found
from lightning_cse.runs import Run

_PLACE: Final = ("row", "encoder", "column", "reference", "test", "seeds", "seeds_reference")
TEST_FIELDS: Final = [*_PLACE, "mean", "mean_reference", "p", "p_holm"]
"""The columns of the comparisons that are kept beside a table."""
_EXAMPLE: Final = ("row", "type", "label", "subset", "gold")
"""The columns that identify an example in a file of predictions; a file may lack some of them."""
_SMALLEST_P: Final = 1e-300  # a float cannot tell smaller values from 0, and no test is certain
_CHUNK: Final = 16  # draws at a time: their counts stay in the processor's cache


@dataclass(frozen=True)
class Point:
    """A point to compare: the runs of one experiment and hash over their seeds, or a baseline evaluated beside them."""

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
        names = {
            name.removeprefix(prefix)
            for run in self.runs
            for name in stored(run)
            if name.startswith(prefix)
        }
        return sorted(name for name in names if "-" not in name)

    def files(self, task: str) -> list[Path]:
        """Return the prediction files of a task, one per run; raises DataError if one is missing."""
        name = f"{self.baseline}-{task}" if self.baseline else task
        for run in self.runs:
            if name not in (known := stored(run)):
                near = f"{did_you_mean(name, known)} (found: {', '.join(known) or 'none'})"
                raise DataError(f"{run.folder or run.source} has no predictions of {name}{near}")
        return [run.folder / "predictions" / f"{name}.parquet" for run in self.runs if run.folder]


def stored(run: Found) -> list[str]:
    """Return the names of a run's prediction files: ``<task>`` or ``<baseline>-<task>``."""
    return (
        sorted(path.stem for path in run.folder.glob("predictions/*.parquet")) if run.folder else []
    )


def read_run(path: Path) -> Found:
    """Return the finished run in a folder; raises LightningCSEError if there is none."""
    return Found(Run.at(path).read(), path, path / "record.json")


def points(runs: Iterable[Found]) -> list[Point]:
    """Group runs over their seeds, in the order given; a run given twice counts once."""
    groups: dict[tuple[str, str], dict[int, Found]] = {}
    for run in {run.source.resolve(): run for run in runs}.values():
        name, config_hash, seed = (run.record[key] for key in ("name", "config_hash", "seed"))
        other = groups.setdefault((name, config_hash), {}).setdefault(int(seed), run)
        if other is not run:
            raise DataError(
                f"{other.source} and {run.source} are both seed {seed} of {name}: give only one of them"
            )
    labels = labels_of([next(iter(of.values())).record for of in groups.values()])
    return [
        Point(label, tuple(of[s] for s in sorted(of)))
        for label, of in zip(labels, groups.values(), strict=True)
    ]


def labels_of(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one label per record: its name and, if records share the name, the settings in which they differ."""
    names = [str(record["name"]) for record in records]
    labels = list(names)
    for name in set(names):
        same = [number for number, other in enumerate(names) if other == name]
        for number, text in (
            zip(same, _differences([records[n] for n in same]), strict=True)
            if len(same) > 1
            else ()
        ):
            labels[number] = text if len(set(names)) == 1 else f"{name}, {text}"
    return labels


def _differences(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings in which records differ: those of their command lines, if these suffice to distinguish."""
    configs = [dict(leaves(value_at(record, "decisive.config") or {})) for record in records]
    settings = pd.DataFrame(
        [{key: setting_text(value) for key, value in config.items()} for config in configs]
    )
    settings = settings.fillna("null").loc[:, lambda frame: frame.nunique() > 1]
    differing = [key for key in settings if not key.endswith("_target_")]
    lines = {
        one.lstrip("+~").partition("=")[0]
        for record in records
        for one in record.get("overrides") or ()
    }
    given = [key for key in differing if key in lines or key.removesuffix(".name") in lines]
    texts = [""] * len(records)
    for keys in (given, differing):
        shorts = [key.removesuffix(".name").rpartition(".")[2] for key in keys]
        names = [
            key if shorts.count(short) > 1 else short
            for key, short in zip(keys, shorts, strict=True)
        ]
        texts = [
            ", ".join(map(" ".join, zip(names, values, strict=True)))
            for values in settings[keys].to_numpy()
        ]
        if len(set(texts)) == len(texts):
            return texts
    # The settings are the same, so the files differ, or the encoders of the same name.
    return [
        f"{text}, hash {r['config_hash']}".lstrip(", ")
        for text, r in zip(texts, records, strict=True)
    ]


def baseline_points(baseline: str, runs: Sequence[Found]) -> list[Point]:
    """Return a baseline that was evaluated beside these runs, as one point per encoder."""
    groups: dict[str, list[Found]] = {}
    for run in runs:
        if any(name.startswith(f"{baseline}-") for name in stored(run)):
            encoder = [run.record.get("encoder"), value_at(run.record, "decisive.config.encoder")]
            # The lengths of sentences do not depend on the encoder.
            groups.setdefault("" if baseline == "length" else json.dumps(encoder), []).append(run)
    if not groups:
        known = sorted(
            {name.rpartition("-")[0] for run in runs for name in stored(run) if "-" in name}
        )
        found = f"{did_you_mean(baseline, known)} (found: {', '.join(known) or 'none'})"
        raise DataError(f"no run has predictions of the baseline {baseline!r}{found}")
    names = [f"{baseline} {value_at(of[0].record, 'encoder.name')}" for of in groups.values()]
    labels = names if len(names) > 1 else [baseline]
    return [
        Point(label, tuple(of), baseline) for label, of in zip(labels, groups.values(), strict=True)
    ]


def read_outcome(path: Path, metric: str = "accuracy") -> pd.DataFrame:
    """Read predictions: the columns that identify the examples, and ``correct``.

    The metric ``accuracy_NAME`` uses the column ``correct_NAME``, or only the examples of type NAME, if these exist.
    """
    frame = _read(path)
    variant = metric.partition("_")[2]
    if variant and "type" in frame and (frame["type"] == variant).any():
        frame = frame[frame["type"] == variant].reset_index(drop=True)
    if not ("correct" in frame or {"label", "prediction"} <= set(frame)):
        raise DataError(
            f"{path}: no column correct, and no label and prediction (found: {', '.join(frame)})"
        )
    names = next(
        ([name] for name in (f"correct_{variant}", "correct") if name in frame),
        ["label", "prediction"],
    )
    examples = frame[[name for name in _EXAMPLE if name in frame]]
    if frame[names].isna().any(axis=None) or frame.empty or examples.empty:
        raise DataError(f"{path}: examples or answers are missing; redo the run with force=true")
    correct = frame[names[0]] if len(names) == 1 else frame["label"] == frame["prediction"]
    return examples.assign(correct=correct.astype(bool))


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise DataError(
            f"{path} cannot be read ({' '.join(str(error).split())[:200]}): redo the run"
        ) from None


@functools.cache
def _read_scores(path: Path) -> pd.DataFrame:
    frame = _read(path)
    if not {"row", "gold", "score"} <= set(frame) or not np.isfinite(frame[["gold", "score"]]).all(
        axis=None
    ):
        raise DataError(f"{path}: no finite scores of pairs in the columns row, gold and score")
    return frame


def _predictions(
    task: str, given: Sequence[Point], read: Callable[[Path], pd.DataFrame]
) -> list[list[pd.DataFrame]]:
    """Read the runs of each point; refuse runs that were evaluated on different files or examples."""
    frames = [[read(path) for path in point.files(task)] for point in given]
    paths = [path for point in given for path in point.files(task)]
    files = [(run.record.get("task_data") or {}).get(task) for point in given for run in point.runs]
    examples = [
        frame[[name for name in _EXAMPLE if name in frame]] for of in frames for frame in of
    ]
    for path, file, example in zip(paths, files, examples, strict=True):
        if (file and files[0] and file != files[0]) or not example.equals(examples[0]):
            raise DataError(
                f"{paths[0]} and {path} are of different examples of {task}: they cannot be compared"
            )
    return frames


def _outcomes(
    task: str, given: Sequence[Point], metric: str = "accuracy"
) -> list[list[NDArray[np.bool_]]]:
    """Return, for each run of each point, which examples it got right."""
    frames = _predictions(task, given, functools.partial(read_outcome, metric=metric))
    return [[frame["correct"].to_numpy() for frame in of] for of in frames]


def holm(pvalues: ArrayLike) -> NDArray[np.float64]:
    r"""Return p-values adjusted for their number (Holm 1979), in the order given.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min \bigl( 1, \; (m - j + 1) \, p_{(j)} \bigr)
    """
    values = np.asarray(pvalues, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(
        np.minimum(1.0, np.arange(len(values), 0, -1) * values[order])
    )
    return adjusted


def majority_vote(correct_by_seed: Sequence[ArrayLike]) -> NDArray[np.bool_]:
    """Return which examples more than half of the seeds get right (ours: GaussCSE does not say how it merges seeds)."""
    return np.asarray(
        2 * np.sum(np.asarray(correct_by_seed, dtype=np.int64), axis=0) > len(correct_by_seed)
    )


def bootstrap(a: Point, b: Point, metrics: Sequence[str], draws: int = 10_000) -> float:
    r"""Return the two-sided p-value of a paired bootstrap of two points, by one rank correlation or a mean of several.

    .. math:: p = \min \Bigl( 1, \; 2 \,
        \frac{1 + \min ( |\{ d : \delta_d \le 0 \}|, \; |\{ d : \delta_d \ge 0 \}| )}{D + 1} \Bigr)

    with :math:`\delta_d` the difference between the points, each averaged over its seeds, on draw :math:`d` of
    :math:`D`. A draw takes as many pairs as there are, with replacement, and is the same for all models. The tasks of a
    mean are drawn independently.

    Source: Efron and Tibshirani 1993, chapter 15; 1 added to both counts: Davison and Hinkley 1997, section 4.2.
    Differs: seeds are averaged.
    """
    differences = []
    for task in (metric.split("/")[1] for metric in metrics):
        _predictions(task, (a, b), _read_scores)
        drawn_a, drawn_b = (_drawn(tuple(point.files(task)), task, draws) for point in (a, b))
        differences.append(drawn_a - drawn_b)
    drawn = np.mean(differences, axis=0)
    return min(1.0, 2 * (1 + min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))) / (draws + 1))


@functools.cache
def _drawn(paths: tuple[Path, ...], task: str, draws: int) -> NDArray[np.float64]:
    frames = [_read_scores(path) for path in paths]
    scores = np.stack([frame["score"].to_numpy(np.float64) for frame in frames])
    return bootstrap_spearman(
        frames[0]["gold"].to_numpy(np.float64), scores, draws, zlib.crc32(task.encode())
    )


def bootstrap_spearman(
    gold: NDArray[np.float64], scores: NDArray[np.float64], draws: int = 10_000, seed: int = 0
) -> NDArray[np.float64]:
    """Return the rank correlation of every draw of the pairs, averaged over models: ``(n,)``, ``(S, n)`` to ``(D,)``.

    Calls with equal ``seed``, ``draws`` and number of pairs draw the same pairs.
    """
    generator = np.random.default_rng(seed)
    found = []
    for start in range(0, draws, _CHUNK):
        size = min(_CHUNK, draws - start)
        rows = generator.integers(0, len(gold), size=(len(gold), size))
        counts = np.bincount((rows * size + np.arange(size)).ravel(), minlength=rows.size).reshape(
            rows.shape
        )
        found.append(spearman_of_draws(gold, scores, counts.astype(np.float64)).mean(axis=0))
    return np.concatenate(found)


def spearman_of_draws(
    gold: NDArray[np.float64], scores: NDArray[np.float64], counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the rank correlations of many draws, ``(S, D)``, from how often each pair was drawn, ``(n, D)``.

    A correlation is 0 where one side is constant.
    """
    gold_ranks, gold_squares = _centred_ranks(gold, counts)
    found = np.zeros((len(scores), counts.shape[1]))
    for model, values in enumerate(scores):
        ranks, squares = _centred_ranks(values, counts)
        products = np.einsum("nd,nd,nd->d", counts, gold_ranks, ranks)
        np.divide(
            products,
            np.sqrt(gold_squares * squares),
            out=found[model],
            where=gold_squares * squares > 0,
        )
    return found


def _centred_ranks(
    values: NDArray[np.float64], counts: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Return each pair's rank in every draw less the mean rank, ``(n, D)``, and the sums of their squares, ``(D,)``.

    No draw is sorted: with :math:`t_k` pairs drawn of the :math:`k`-th smallest distinct value and :math:`N` pairs in
    all, the rank is :math:`R_k = \sum_{j < k} t_j + (t_k - N) / 2`, and the sum of squares :math:`\sum_k t_k R_k^2`.
    """
    _, places = np.unique(values, return_inverse=True)
    order = np.argsort(places, kind="stable")
    drawn = np.add.reduceat(
        counts[order], np.flatnonzero(np.diff(places[order], prepend=-1)), axis=0
    )
    ranks = np.cumsum(drawn, axis=0) - (drawn + counts.sum(axis=0)) / 2
    return ranks[places], np.einsum("kd,kd,kd->d", drawn, ranks, ranks)


def compare(given: Sequence[Point], tasks: Sequence[str] = ()) -> pd.DataFrame:
    """Compare every pair of points on every task, one row per comparison, with Holm's adjustment over all of them.

    Without ``tasks``, compare on every task with right and wrong answers. A point without predictions of a task is left
    out there (a symmetric score predicts no direction); ``attrs["left_out"]`` has the labels by task. Accuracies are
    fractions, and the difference is in percentage points.
    """
    methods = [point for point in given if not point.baseline] or list(given)
    having = {task: point for point in reversed(methods) for task in point.tasks}
    known = [
        t for t in sorted(having) if {"correct", "prediction"} & set(_read(having[t].files(t)[0]))
    ]
    rows, left_out = [], {}
    for task in dict.fromkeys(tasks or known):
        there = [point for point in given if task in point.tasks] if task in having else list(given)
        left_out[task] = [point.label for point in given if point not in there]
        for (a, of_a), (b, of_b) in itertools.combinations(
            zip(there, _outcomes(task, there), strict=True), 2
        ):
            test = mcnemar(majority_vote(of_a), majority_vote(of_b))
            accuracy_a, accuracy_b = (float(np.mean(of)) for of in (of_a, of_b))
            row: dict[str, Any] = {
                "task": task,
                "a": a.label,
                "b": b.label,
                "seeds_a": a.seeds,
                "seeds_b": b.seeds,
            }
            row |= {
                "accuracy_a": accuracy_a,
                "accuracy_b": accuracy_b,
                "difference": 100 * (accuracy_a - accuracy_b),
            }
            row |= {
                "only_a": test.only_a,
                "only_b": test.only_b,
                "examples": test.examples,
                "p_exact": test.pvalue,
            }
            rows.append({**row, "p_asymptotic": test.pvalue_asymptotic, "p_holm": 1.0})
    compared = {row[side] for row in rows for side in ("a", "b")}
    if len(given) < 2 or any(point.label not in compared for point in given):
        has = "".join(
            f"\n  {point.label}: {', '.join(point.tasks) or 'no predictions'}" for point in given
        )
        raise DataError(
            f"a comparison needs two points with a task in common, of right and wrong answers{has}"
        )
    frame = pd.DataFrame(rows)
    frame = frame.assign(p_holm=holm(frame["p_exact"]))
    frame.attrs["left_out"] = {task: labels for task, labels in left_out.items() if labels}
    return frame


class Side(NamedTuple):
    """A cell of a table as a side of a comparison: the number of its line, and what was measured."""

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
    pairs: Sequence[tuple[Side, Side]], test: str, kept: Path | None, draws: int
) -> pd.DataFrame:
    """Test the pairs whose predictions exist or whose p-value was kept, with Holm's adjustment.

    The second side of a pair is the reference. Each comparison is one row: `TEST_FIELDS`, and ``a`` and ``b``, the
    numbers of the two lines.
    """
    known = {
        (row.row, row.encoder, row.column, row.reference): row
        for row in read_tests(kept).itertuples(index=False)
    }
    done = []
    for a, b in pairs:
        seeds = _voters(a, b) if test == "mcnemar" else (sorted(a.values), sorted(b.values))
        texts = [" ".join(map(str, of)) for of in seeds]
        means = [statistics.fmean(side.values.values()) for side in (a, b)]
        place = (a.line.label, a.line.encoder or "", a.column, b.line.label)
        old: Any = known.get(place)
        # Retrained runs have other means.
        same = old is not None and [old.test, old.seeds, old.seeds_reference] == [test, *texts]
        if same and np.allclose([old.mean, old.mean_reference], means, rtol=1e-9, atol=1e-12):
            p = old.p
        elif (one := _point(a, seeds[0])) is None or (other := _point(b, seeds[1])) is None:
            continue
        elif test == "mcnemar":
            _, task, metric = a.metrics[0].split("/")
            p = mcnemar(*map(majority_vote, _outcomes(task, (one, other), metric))).pvalue
        else:
            p = bootstrap(one, other, a.metrics, draws)
        done.append((*place, test, *texts, *means, max(p, _SMALLEST_P), 1.0, a.number, b.number))
    frame = pd.DataFrame(done, columns=[*TEST_FIELDS, "a", "b"])
    return frame.assign(p_holm=holm(frame["p"].astype(float)))


def _voters(a: Side, b: Side) -> tuple[list[int], list[int]]:
    """Return the seeds that vote: the same odd number on both sides, beginning with the seeds that both have.

    A majority of several is right more often than one seed, and a tie is wrong. A baseline is the same for every seed.
    """
    counts = [len(side.values) for side in (a, b) if not (side.baseline and len(side.values) == 1)]
    odd = (min(counts, default=1) - 1) // 2 * 2 + 1
    both = a.values.keys() & b.values.keys()
    first, second = (
        sorted(sorted(side.values, key=lambda s: (s not in both, s))[:odd]) for side in (a, b)
    )
    return first, second


def _point(side: Side, seeds: Sequence[int]) -> Point | None:
    """Return a side as a point of these seeds; None where predictions are missing."""
    runs = side.found
    if len(seeds) < len(side.values):
        runs = tuple(run for seed, run in zip(side.values, runs, strict=True) if seed in seeds)
    tasks = [metric.split("/")[1] for metric in side.metrics]
    names = {f"{side.baseline}-{task}" if side.baseline else task for task in tasks}
    return (
        Point(side.line.label, runs, side.baseline)
        if all(names <= set(stored(run)) for run in runs)
        else None
    )


def read_tests(path: Path | None) -> pd.DataFrame:
    """Read the comparisons kept with a table; a missing file holds none. Raises DataError if it is damaged."""
    if path is None or not path.is_file():
        return pd.DataFrame(columns=TEST_FIELDS)
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, usecols=TEST_FIELDS)
        frame = frame.astype(dict.fromkeys(("mean", "mean_reference", "p", "p_holm"), float))
    except ValueError as error:
        raise DataError(
            f"{path} is damaged ({error}); remove the file, and the tests are redone"
        ) from None
    return frame
