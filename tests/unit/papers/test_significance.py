"""Holm, the vote and the bootstrap against loops and scipy, and runs compared by the predictions
they left.
"""

import random
from collections.abc import Callable
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, spearmanr

from lightning_cse.errors import DataError, LightningCSEError
from lightning_cse.papers.labels import labels_of
from lightning_cse.papers.significance import (
    baseline_points,
    bootstrap,
    compare,
    points,
    read_outcome,
    read_run,
)
from lightning_cse.papers.statistics import holm, majority_vote, spearman_of_draws
from lightning_cse.runs import Run, write_predictions

MakeRun = Callable[..., Path]
N = 60


# Tests against loops


def test_the_printed_example_of_holm():
    # A family of four tests at 0.05: only the first and the last are rejected.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(
    st.lists(
        st.floats(0, 1),
        min_size=1,
        max_size=8,
    ),
    st.floats(0.001, 0.999),
)
def test_holm_rejects_what_stepping_down_rejects(values, level):
    rejected = set()
    for step, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        if (len(values) - step) * values[index] >= level:
            break
        rejected.add(index)
    assert {index for index, p in enumerate(holm(values)) if p < level} == rejected


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(
            st.lists(
                st.booleans(),
                min_size=n,
                max_size=n,
            ),
            min_size=1,
        )
    )
)
def test_the_vote_is_that_of_more_than_half(seeds):
    assert majority_vote(seeds).tolist() == [
        2 * sum(of) > len(seeds) for of in zip(*seeds, strict=True)
    ]


@pytest.mark.parametrize("distinct", [3, 8, 1000])
def test_correlations_of_draws_against_scipy_on_the_drawn_pairs(distinct):
    generator = np.random.default_rng(distinct)
    n, draws = 25, 40
    gold, scores = (
        generator.integers(
            0,
            distinct,
            n,
        ).astype(float),
        generator.integers(
            0,
            distinct,
            (3, n),
        )
        / 7,
    )
    rows = generator.integers(
        0,
        n,
        (draws, n),
    )
    counts = np.stack([np.bincount(drawn, minlength=n) for drawn in rows], axis=1).astype(float)
    want = [[spearmanr(gold[drawn], model[drawn]).statistic for drawn in rows] for model in scores]
    assert spearman_of_draws(
        gold,
        scores,
        counts,
    ) == pytest.approx(np.array(want), abs=1e-12)


def test_a_draw_with_a_constant_side_has_no_correlation():
    counts = np.array(
        [
            [3.0, 0, 1],
            [0, 3, 1],
            [0, 0, 1],
        ]
    )
    found = spearman_of_draws(
        np.array([1.0, 2, 3]),
        np.array([[1.0, 2, 3], [5, 5, 5]]),
        counts,
    )
    assert found.tolist() == [[0, 0, 1], [0, 0, 0]]


# Runs


def answers(name, rate):
    generator = random.Random(name)
    return [generator.random() < rate for _ in range(N)]


def eis(correct):
    """Predictions with a column that says what is right."""
    return {
        "row": list(range(len(correct))),
        "type": ["explicit"] * len(correct),
        "correct": correct,
    }


def rte(correct):
    """Predictions of labels, every third of them positive."""
    labels = [row % 3 == 0 for row in range(len(correct))]
    predicted = [
        label == right
        for label, right in zip(
            labels,
            correct,
            strict=True,
        )
    ]
    return {
        "row": list(range(len(correct))),
        "label": labels,
        "prediction": predicted,
    }


@pytest.fixture
def make_run(tmp_path):
    """Leave a finished run and return its folder."""

    def make(name, seed, predictions, config_hash="01", **record):
        run = Run(
            tmp_path / "runs",
            name,
            config_hash,
            seed,
        )
        for stored, columns in predictions.items():
            write_predictions(
                run.predictions,
                stored,
                columns,
            )
        run.finish(
            {
                "name": name,
                "config_hash": config_hash,
                "seed": seed,
                "metrics": {},
                **record,
            }
        )
        return run.path

    return make


def compared(*paths, tasks=()):
    return list(compare(points(map(read_run, paths)), tasks).itertuples())


def exact(b, c):
    """Return the closed form of McNemar's exact test."""
    return min(1.0, 2 * sum(comb(b + c, k) for k in range(min(b, c) + 1)) / 2 ** (b + c))


def test_mcnemar_of_votes_against_loops_over_rows(make_run):
    right = {
        name: [answers(f"{name}{s}", rate) for s in range(3)]
        for name, rate in (("a", 0.9), ("b", 0.5))
    }
    (found,) = compared(
        *(
            make_run(
                name,
                s,
                {"eis": eis(right[name][s])},
            )
            for name in right
            for s in range(3)
        )
    )
    only_a = only_b = 0
    for row in range(N):
        a, b = (sum(right[name][s][row] for s in range(3)) >= 2 for name in right)
        only_a, only_b = only_a + (a and not b), only_b + (b and not a)
    assert only_a > only_b > 0, "the data must have both kinds of differences"
    assert (found.only_a, found.only_b, found.examples) == (only_a, only_b, N)
    assert (
        found.p_exact
        == pytest.approx(exact(only_a, only_b))
        == pytest.approx(binomtest(only_a, only_a + only_b).pvalue)
    )
    accuracy = [sum(map(sum, right[name])) / (3 * N) for name in right]
    assert [found.accuracy_a, found.accuracy_b] == pytest.approx(accuracy)
    assert found.difference == pytest.approx(100 * (accuracy[0] - accuracy[1]))


def test_all_pairs_on_all_tasks_and_holm_over_them(make_run):
    right = {name: answers(name, rate) for name, rate in (("a", 0.9), ("b", 0.6), ("c", 0.5))}
    stored = {"sts": {"row": [0], "score": [0.5]}}
    folders = [
        make_run(
            name,
            0,
            {
                "eis": eis(r),
                "rte": rte(r),
                **stored,
            },
        )
        for name, r in right.items()
    ]
    found = compared(*folders)
    pairs = (("a", "b"), ("a", "c"), ("b", "c"))
    assert [(c.task, c.a, c.b) for c in found] == [
        (task, *pair) for task in ("eis", "rte") for pair in pairs
    ]
    assert [c.p_exact for c in found[:3]] == [c.p_exact for c in found[3:]]
    assert [c.p_holm for c in found] == pytest.approx(list(holm([c.p_exact for c in found])))
    assert [c.task for c in compared(*folders, tasks=("rte",))] == ["rte"] * 3


def test_seeds_that_only_one_has_vote(make_run):
    a = [
        make_run(
            "a",
            seed,
            {"eis": eis([True] * 4)},
        )
        for seed in (0, 1, 2)
    ]
    b = [
        make_run(
            "b",
            seed,
            {
                "eis": eis(
                    [
                        seed == 2,
                        True,
                        True,
                        False,
                    ]
                )
            },
        )
        for seed in (2, 7)
    ]
    (found,) = compared(*a, *b)
    assert (found.seeds_a, found.seeds_b, found.only_a) == ((0, 1, 2), (2, 7), 2), (
        "a tie of two seeds is wrong"
    )


def test_a_baseline_is_one_point_for_each_encoder(make_run):
    right = {
        ("a", 0): "tiny",
        ("b", 0): "large",
        ("b", 1): "large",
    }
    stored = {"rte": rte(answers("t", 0.8)), "length-rte": rte(answers("l", 0.5))}
    runs = [
        read_run(
            make_run(
                n,
                s,
                {**stored, "untrained-rte": rte([e == "tiny"] * N)},
                encoder={"name": e},
            )
        )
        for (n, s), e in right.items()
    ]
    assert [(point.label, len(point.runs)) for point in baseline_points("length", runs)] == [
        ("length", 3)
    ]
    untrained = baseline_points("untrained", runs)
    assert [(point.label, point.seeds) for point in untrained] == [
        ("untrained tiny", ()),
        ("untrained large", ()),
    ]
    last = list(compare([*points(runs), *untrained]).itertuples())[-1]
    assert (last.a, last.b, last.accuracy_a, last.accuracy_b) == (
        *(p.label for p in untrained),
        1.0,
        0.0,
    )
    with pytest.raises(
        DataError, match=r"'untraind' - did you mean 'untrained'\? \(found: length, untrained\)"
    ):
        baseline_points("untraind", runs)


def test_types_and_variants_of_an_accuracy(tmp_path):
    columns = {
        "row": [0, 1],
        "type": ["neutral", "implied"],
        "correct": [True, False],
        "correct_det": [False, True],
    }
    path = write_predictions(
        tmp_path,
        "rte",
        columns,
    )
    cases = {
        "accuracy": [True, False],
        "accuracy_neutral": [True],
        "accuracy_det": [False, True],
        "accuracy_x": [True, False],
    }
    assert {metric: read_outcome(path, metric)["correct"].tolist() for metric in cases} == cases


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"row": [0, 1], "score": [0.1, 0.2]},
            "no column correct, and no label and prediction .*row, score",
        ),
        (
            {
                "row": [0, 1],
                "label": [True, None],
                "prediction": [True, True],
            },
            "answers are missing",
        ),
        ({"correct": [True, True]}, "examples or answers are missing"),
    ],
)
def test_predictions_that_say_too_little(tmp_path, columns, message):
    with pytest.raises(DataError, match=message):
        read_outcome(
            write_predictions(
                tmp_path,
                "rte",
                columns,
            )
        )


@pytest.mark.parametrize(
    "other",
    [
        {"label": [False] * 3},
        {"row": [0, 1, 5]},
        {"type": ["x"] * 3},
        "task_data",
    ],
)
def test_runs_of_other_examples_are_refused(make_run, other):
    mine = rte([True] * 3)
    a = make_run(
        "a",
        0,
        {"rte": mine},
        task_data={"rte": {"INLI/test.csv": "1"}},
    )
    files = {"rte": {"INLI/test.csv": "2" if other == "task_data" else "1"}}
    b = make_run(
        "b",
        0,
        {"rte": mine if other == "task_data" else {**mine, **other}},
        task_data=files,
    )
    with pytest.raises(
        DataError, match=r"a/01-s0/.*rte\.parquet and .*b/01-s0/.* different examples of rte"
    ):
        compared(a, b)


def test_nothing_to_compare(make_run, tmp_path):
    a, b = (
        make_run(
            "a",
            0,
            {"eis": eis([True])},
        ),
        make_run(
            "b",
            0,
            {"rte": rte([True])},
        ),
    )
    for paths in ((a, b), (a, a)):
        with pytest.raises(DataError, match=r"two points with a task in common.*\n  a: eis"):
            compared(*paths)
    with pytest.raises(
        DataError, match=r"a/01-s0 has no predictions of ess - did you mean 'eis'\? \(found: eis\)"
    ):
        compared(
            a,
            make_run(
                "c",
                0,
                {"eis": eis([True])},
            ),
            tasks=("ess",),
        )
    with pytest.raises(LightningCSEError, match=r"runs/a is not the folder of a run"):
        read_run(a.parent)
    copy = tmp_path / "copy" / "a" / "01-s0"
    copy.parent.mkdir(parents=True)
    a.rename(copy)
    with pytest.raises(DataError, match="are both seed 0 of a: give only one"):
        points(map(read_run, (copy, make_run("a", 0, {}))))


def test_the_bootstrap_of_runs_against_a_loop(make_run):
    gold = [float(row % 7) for row in range(N)]
    noise = {
        name: np.random.default_rng(seed).normal(
            0,
            6,
            (2, N),
        )
        for seed, name in enumerate("ab")
    }
    scores = {name: np.array(gold) + of for name, of in noise.items()}
    a, b = points(
        read_run(
            make_run(
                name,
                s,
                {
                    "x": {
                        "row": list(range(N)),
                        "gold": gold,
                        "score": list(scores[name][s]),
                    }
                },
            )
        )
        for name in "ab"
        for s in range(2)
    )
    p = bootstrap(
        a,
        b,
        ["test/x/spearman"],
        draws=400,
    )
    generator = np.random.default_rng(0)
    differences = []
    for _ in range(400):
        rows = generator.integers(0, N, N)
        means = [
            np.mean([spearmanr(np.array(gold)[rows], m[rows]).statistic for m in scores[n]])
            for n in "ab"
        ]
        differences.append(means[0] - means[1])
    below = sum(difference <= 0 for difference in differences)
    assert 0.05 < p < 1
    assert p == pytest.approx(2 * (1 + min(below, 400 - below)) / 401, abs=0.15)
    assert (
        bootstrap(
            a,
            a,
            ["test/x/spearman"],
            draws=50,
        )
        == 1
    )
    with pytest.raises(DataError, match="no finite scores of pairs"):
        path = make_run(
            "c",
            0,
            {
                "x": {
                    "row": [0],
                    "gold": [1.0],
                    "score": [float("nan")],
                }
            },
        )
        bootstrap(
            a,
            points([read_run(path)])[0],
            ["test/x/spearman"],
            draws=50,
        )


# Names


def config(lr=1e-5, batch=16, **more):
    return {
        "method": {"optimizer": {"lr": lr}},
        "data": {"batch_size": batch},
        **more,
    }


@pytest.mark.parametrize(
    ("configs", "overrides", "labels"),
    [
        (
            [config(), config(3e-5, 64)],
            [[], []],
            ["lr 1e-05, batch_size 16", "lr 3e-05, batch_size 64"],
        ),
        (
            [config(), config(3e-5, 64)],
            [["data.batch_size=16"], []],
            ["batch_size 16", "batch_size 64"],
        ),
        (
            [config(lr) for lr in (1e-5, 0.5, 0.5)],
            [[]] * 3,
            ["lr 1e-05, hash 00", "lr 0.5, hash 01", "lr 0.5, hash 02"],
        ),
        ([config(e={"name": n, "x": n}) for n in ("s", "b")], [["e=s"], ["e=b"]], ["e s", "e b"]),
    ],
)
def test_points_of_one_name_are_called_by_what_differs(configs, overrides, labels):
    records = [
        {
            "name": "a",
            "config_hash": f"0{n}",
            "overrides": given,
            "decisive": {"config": of},
        }
        for n, (of, given) in enumerate(
            zip(
                configs,
                overrides,
                strict=True,
            )
        )
    ]
    assert labels_of(records) == labels
    assert labels_of([*records, {"name": "b", "config_hash": "9"}]) == [
        *(f"a, {label}" for label in labels),
        "b",
    ]
