"""Holm and the vote against loops, and runs compared by the predictions
they left.
"""

import random
from math import comb

import numpy as np
import pandas as pd
import pytest
from fake_table import leave_run
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.errors import DataError
from lightning_cse.tables.comparisons import compare
from lightning_cse.tables.frame import values_of_runs
from lightning_cse.tables.labels import by_setting, labels_of
from lightning_cse.tables.outcomes import measure_of, values_of
from lightning_cse.tables.records import read_run
from lightning_cse.tables.statistics import holm, majority_vote, two_way_interval

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


@pytest.fixture
def make_run(tmp_path):
    """Leave a finished run with predictions and return it."""

    def make(name, seed, tasks, **record):
        metrics = {f"test/{task}/accuracy": np.mean(right) for task, right in tasks.items()}
        columns = [(task, eis(right)) for task, right in tasks.items()]
        return leave_run(
            tmp_path / "runs", name, seed, predictions=columns, metrics=metrics, **record
        )

    return make


def compared(*runs, metric="test/eis/accuracy"):
    values = values_of_runs(by_setting(runs))
    (row,) = compare(values, [(0, 1, metric)], {metric: {metric: 100.0}}).itertuples()

    return row


def test_mcnemar_of_votes_against_loops_over_rows(make_run):
    rates = {"a": 0.9, "b": 0.5}
    right = {name: [answers(f"{name}{s}", rates[name]) for s in range(3)] for name in rates}
    runs = [make_run(name, s, {"eis": right[name][s]}) for name in right for s in range(3)]
    row = compared(*runs)
    only_a = only_b = 0
    for example in range(N):
        a, b = (sum(right[name][s][example] for s in range(3)) >= 2 for name in right)
        only_a += a and not b
        only_b += b and not a

    assert only_a > only_b > 0, "the data must have both kinds of differences"
    differ = only_a + only_b
    tail = sum(comb(differ, k) for k in range(only_b + 1))
    assert row.p == pytest.approx(2 * tail / 2**differ)
    accuracies = [100 * np.mean(right[name]) for name in right]
    assert [row.mean, row.mean_reference] == pytest.approx(accuracies)
    assert row.difference == pytest.approx(accuracies[0] - accuracies[1])


def test_runs_are_paired_by_seed_and_an_odd_number_votes(make_run):
    right = {(name, s): answers(f"{name}{s}", 0.7) for name in "ab" for s in range(4)}
    seeds = {"a": (0, 1, 2), "b": (1, 2, 3)}
    runs = [make_run(name, s, {"eis": right[name, s]}) for name in seeds for s in seeds[name]]
    row = compared(*runs)
    differences = [100 * np.subtract(right["a", s], right["b", s], dtype=float) for s in (1, 2)]
    assert row.difference == pytest.approx(np.mean(differences))
    error = np.std(np.mean(differences, axis=0), ddof=1) / np.sqrt(N)
    _, *ends = two_way_interval(np.mean(differences, axis=1), error)
    assert [row.low, row.high] == pytest.approx(ends)
    assert (row.seeds, row.seeds_reference) == ("0 1 2", "1 2 3")

    apart = compared(*runs[:2], *runs[4:])  # seeds 0 and 1, 2 and 3
    assert np.isnan([apart.difference, apart.low, apart.high]).all()
    assert (apart.seeds, apart.seeds_reference) == ("0", "2")
    assert apart.p <= 1


def test_a_model_that_is_not_trained_is_the_same_for_all_seeds(make_run):
    right = [answers(f"a{s}", 0.8) for s in range(3)]
    fixed = answers("fixed", 0.6)
    runs = [make_run("a", s, {"eis": right[s]}) for s in range(3)]
    runs.append(make_run("length", 0, {"eis": fixed}, suite="inli", model={"run": None}))
    row = compared(*runs)
    assert row.difference == pytest.approx(100 * (np.mean(right) - np.mean(fixed)))
    by_seed = [100 * (np.mean(correct) - np.mean(fixed)) for correct in right]
    error = 100 * np.std(np.mean(right, axis=0) - fixed, ddof=1) / np.sqrt(N)
    assert (row.low, row.high) == pytest.approx(two_way_interval(by_seed, error)[1:])


def test_types_and_variants_of_an_accuracy():
    predictions = pd.DataFrame(
        {
            "row": [0, 1],
            "type": ["neutral", "implied"],
            "correct": [True, False],
            "correct_det": [False, True],
        }
    )
    cases = {
        "accuracy": [True, False],
        "accuracy_neutral": [True],
        "accuracy_det": [False, True],
        "accuracy_x": [True, False],
    }
    assert {
        metric: values_of(predictions, metric, "a run")["value"].tolist() for metric in cases
    } == cases


def test_runs_of_other_examples_are_refused(make_run):
    a = make_run("a", 0, {"eis": [True] * 3})
    b = make_run("b", 0, {"eis": [True] * 4})
    with pytest.raises(DataError, match=r"a/01-s0/.* and .*b/01-s0/.* different examples"):
        compared(a, b)


def test_two_runs_of_one_seed_are_refused(make_run, tmp_path):
    a = make_run("a", 0, {"eis": [True]})
    copy = tmp_path / "copy" / "a" / "01-s0"
    copy.parent.mkdir(parents=True)
    a.folder.rename(copy)
    with pytest.raises(DataError, match="are both seed 0 of a: give only one"):
        by_setting([read_run(copy / "record.json"), make_run("a", 0, {})])


@pytest.mark.parametrize(
    ("overrides", "labels"),
    [
        ([["lr=1", "seed=0"], ["lr=2", "seed=1"]], ["a, lr=1", "a, lr=2"]),
        ([["x=1", "lr=1"], ["x=1"], ["x=1"]], ["a, lr=1", "a, hash 01", "a, hash 02"]),
    ],
)
def test_points_of_one_name_are_called_by_the_overrides_that_differ(overrides, labels):
    records = []
    for number, own_overrides in enumerate(overrides):
        records.append({"name": "a", "config_hash": f"0{number}", "overrides": own_overrides})

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
    assert bool(measure_of(metric)) == expected


@pytest.mark.parametrize(
    ("metric", "columns", "lacking"),
    [
        ("auprc", {"label": [True, False]}, "score"),
        ("spearman", {"score": [0.1, 0.2]}, "gold"),
        ("auc", {"prediction": [True, False]}, "label and score"),
    ],
)
def test_predictions_without_the_columns_of_a_metric_are_an_error(metric, columns, lacking):
    predictions = pd.DataFrame({"row": [0, 1], **columns})
    with pytest.raises(DataError, match=f"a run has no {lacking}, which {metric} needs"):
        values_of(predictions, metric, "a run")
