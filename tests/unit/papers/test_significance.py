"""Holm and the vote against loops, and runs compared by the predictions
they left.
"""

import random
from math import comb

import numpy as np
import pytest
from fake_plan import leave_run
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.errors import DataError
from lightning_cse.papers import predictions, significance
from lightning_cse.papers.labels import labels_of
from lightning_cse.papers.predictions import Answers, pack
from lightning_cse.papers.records import read_run
from lightning_cse.papers.significance import compare, read_values, settings
from lightning_cse.papers.statistics import holm, majority_vote, two_way_interval
from lightning_cse.runs import write_predictions

N = 60


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.999))
def test_holm_rejects_what_stepping_down_rejects(values, level):
    rejected = set()
    for step, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        if (len(values) - step) * values[index] >= level:
            break

        rejected.add(index)

    assert {index for index, p in enumerate(holm(values)) if p < level} == rejected


def test_the_vote_is_that_of_more_than_half():
    votes = [[True, True, False], [True, False, False], [True, True, False], [False, False, True]]
    assert majority_vote(votes).tolist() == [True, False, False], "a tie is wrong"


def answers(name, rate):
    generator = random.Random(name)
    return [generator.random() < rate for _ in range(N)]


def eis(correct):
    """Predictions with a column that says what is right."""
    return {"row": list(range(len(correct))), "correct": correct}


def rte(correct):
    """Predictions of labels, every third of them positive."""
    labels = [row % 3 == 0 for row in range(len(correct))]
    predicted = [label == right for label, right in zip(labels, correct, strict=True)]

    return {"row": list(range(len(correct))), "label": labels, "prediction": predicted}


@pytest.fixture
def make_run(tmp_path):
    """Leave a finished run with predictions and return it."""
    return lambda name, seed, predictions: leave_run(
        tmp_path / "runs", name, seed, predictions=predictions.items()
    )


def compared(*runs):
    return list(compare(settings(runs)).itertuples())


def test_mcnemar_of_votes_against_loops_over_rows(make_run):
    rates = {"a": 0.9, "b": 0.5}
    right = {name: [answers(f"{name}{s}", rates[name]) for s in range(3)] for name in rates}
    runs = [make_run(name, s, {"eis": eis(right[name][s])}) for name in right for s in range(3)]
    (found,) = compared(*runs)
    only_a = only_b = 0
    for row in range(N):
        a, b = (sum(right[name][s][row] for s in range(3)) >= 2 for name in right)
        only_a += a and not b
        only_b += b and not a

    assert only_a > only_b > 0, "the data must have both kinds of differences"
    assert (found.only_a, found.only_b, found.examples) == (only_a, only_b, N)
    differ = only_a + only_b
    tail = sum(comb(differ, k) for k in range(only_b + 1))
    assert found.p_exact == pytest.approx(2 * tail / 2**differ)
    accuracy = [np.mean(right[name]) for name in right]
    assert [found.accuracy_a, found.accuracy_b] == pytest.approx(accuracy)
    assert found.difference == pytest.approx(100 * (accuracy[0] - accuracy[1]))


def test_runs_are_paired_by_seed(make_run):
    right = {(name, s): answers(f"{name}{s}", 0.7) for name in "ab" for s in range(4)}
    seeds = {"a": (0, 1, 2), "b": (1, 2, 3)}
    runs = [make_run(name, s, {"eis": eis(right[name, s])}) for name in seeds for s in seeds[name]]
    (found,) = compared(*runs)
    differences = [100 * np.subtract(right["a", s], right["b", s], dtype=float) for s in (1, 2)]
    assert found.difference == pytest.approx(np.mean(differences))
    error = np.std(np.mean(differences, axis=0), ddof=1) / np.sqrt(N)
    _, *ends = two_way_interval(np.mean(differences, axis=1), error)
    assert [found.low, found.high] == pytest.approx(ends)

    (apart,) = compared(*runs[:2], *runs[4:])  # seeds 0 and 1, 2 and 3
    assert np.isnan([apart.difference, apart.low, apart.high]).all()
    assert apart.p_exact <= 1


def test_a_model_that_is_not_trained_is_the_same_for_all_seeds(tmp_path):
    right = [answers(f"a{s}", 0.8) for s in range(3)]
    fixed = answers("fixed", 0.6)
    runs = [
        leave_run(tmp_path / "runs", "a", s, predictions=[("eis", eis(right[s]))]) for s in range(3)
    ]
    runs.append(
        leave_run(
            tmp_path / "runs",
            "length",
            predictions=[("eis", eis(fixed))],
            suite="inli",
            model={"run": None},
        )
    )
    (found,) = compared(*runs)
    assert found.difference == pytest.approx(100 * (np.mean(right) - np.mean(fixed)))
    by_seed = [100 * (np.mean(each) - np.mean(fixed)) for each in right]
    error = 100 * np.std(np.mean(right, axis=0) - fixed, ddof=1) / np.sqrt(N)
    assert (found.low, found.high) == pytest.approx(two_way_interval(by_seed, error)[1:])


def test_all_pairs_on_all_tasks_with_answers_and_holm_over_them(make_run):
    scores = {"row": [0], "score": [0.5]}
    runs = []
    for name, rate in (("a", 0.9), ("b", 0.6), ("c", 0.5)):
        right = answers(name, rate)
        runs.append(make_run(name, 0, {"eis": eis(right), "rte": rte(right), "sts": scores}))

    found = compare(settings(runs))
    assert found["task"].tolist() == ["eis"] * 3 + ["rte"] * 3
    assert (found["a"] + found["b"]).tolist() == ["ab", "ac", "bc"] * 2
    assert found["p_exact"][:3].tolist() == found["p_exact"][3:].tolist()
    assert found["p_holm"].tolist() == pytest.approx(holm(found["p_exact"]).tolist())
    assert len(compare(settings(runs), ["rte"])) == 3


def answers_of(folder, task, columns):
    write_predictions(folder / "predictions", task, columns)
    return Answers(folder, task, pack(folder))


def test_types_and_variants_of_an_accuracy(tmp_path):
    columns = {
        "row": [0, 1],
        "type": ["neutral", "implied"],
        "correct": [True, False],
        "correct_det": [False, True],
    }
    found = answers_of(tmp_path, "rte", columns)
    cases = {
        "accuracy": [True, False],
        "accuracy_neutral": [True],
        "accuracy_det": [False, True],
        "accuracy_x": [True, False],
    }
    assert {metric: read_values(found, metric)["value"].tolist() for metric in cases} == cases


def test_a_task_with_a_hyphen_is_no_baseline(make_run):
    tasks = {"my-task": rte([True]), "rte": rte([True]), "length-rte": rte([False])}
    run = make_run("a", 0, tasks)
    run.record["baselines"] = {"length": {}}
    assert {*predictions.answers(run)} == {"my-task", "rte"}
    assert {*predictions.answers(run, "length")} == {"rte"}


def test_runs_of_other_examples_are_refused(make_run):
    a = make_run("a", 0, {"rte": rte([True] * 3)})
    b = make_run("b", 0, {"rte": {**rte([True] * 3), "row": [0, 1, 5]}})
    with pytest.raises(DataError, match=r"a/01-s0/.* and .*b/01-s0/.* different examples of rte"):
        compared(a, b)


def test_what_cannot_be_compared(make_run, tmp_path):
    a = make_run("a", 0, {"eis": eis([True])})
    b = make_run("b", 0, {"sts": {"row": [0], "score": [0.5]}})
    for runs in ((a, b), (a, a)):
        with pytest.raises(DataError, match=r"two settings with a task in common.*\n  a: eis"):
            compared(*runs)

    copy = tmp_path / "copy" / "a" / "01-s0"
    copy.parent.mkdir(parents=True)
    a.folder.rename(copy)
    with pytest.raises(DataError, match="are both seed 0 of a: give only one"):
        settings([read_run(copy / "record.json"), make_run("a", 0, {})])


@pytest.mark.parametrize(
    ("overrides", "labels"),
    [
        ([["lr=1", "seed=0"], ["lr=2", "seed=1"]], ["a, lr=1", "a, lr=2"]),
        ([["x=1", "lr=1"], ["x=1"], ["x=1"]], ["a, lr=1", "a, hash 01", "a, hash 02"]),
    ],
)
def test_points_of_one_name_are_called_by_the_overrides_that_differ(overrides, labels):
    records = []
    for number, own in enumerate(overrides):
        records.append({"name": "a", "config_hash": f"0{number}", "overrides": own})

    assert labels_of([*records, {"name": "b", "config_hash": "9"}]) == [*labels, "b"]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("test/rte/accuracy_all", True),
        ("test/rte/auc_implied", True),
        ("test/rte/auc_implied_se", False),
        ("test/snli/auprc", True),
        ("test/sts12/spearman_all", True),
        ("test/sts12/spearman_wmean", False),
        ("test/snli/auprc_1001", False),
        ("test/sts_avg/spearman_all", False),
        ("val/stsb/spearman", False),
        ("test/snli/threshold", False),
        ("", False),
    ],
)
def test_metrics_that_are_compared_over_the_examples(metric, expected):
    assert bool(significance._kind(metric)) == expected


@pytest.mark.parametrize(
    ("metric", "columns", "lacking"),
    [
        ("auprc", {"label": [True, False]}, "score"),
        ("spearman", {"score": [0.1, 0.2]}, "gold"),
        ("auc", {"prediction": [True, False]}, "label and score"),
    ],
)
def test_predictions_without_the_columns_of_a_metric_are_an_error(
    tmp_path, metric, columns, lacking
):
    found = answers_of(tmp_path, "task", {"row": [0, 1], **columns})
    with pytest.raises(DataError, match=f"has no {lacking}, which {metric} needs"):
        read_values(found, metric)
