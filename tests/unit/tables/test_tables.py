"""Cells of tables and their tests of significance, from records and predictions as runs leave
them.
"""

import itertools
import random
import statistics
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fake_table import fake_table, leave_run, runs_of, spec
from scipy import stats

from lightning_cse.metrics import mcnemar, mean_influences
from lightning_cse.tables import comparisons
from lightning_cse.tables.effects import POWER
from lightning_cse.tables.legend import about, legend
from lightning_cse.tables.render import render
from lightning_cse.tables.statistics import (
    clustered_error,
    detectable_difference,
    holm,
    two_way_interval,
)

RTE, EIS = "test/rte/accuracy_all", "test/eis/accuracy"
TRAIN = {"experiment": "dualcse_cross"}
LENGTH = {"baseline": "length", "of": "a"}


def by_seed(table, line, column):
    values = table.values
    cell = values[(values["line"] == line) & (values["column"] == column)]
    return dict(zip(cell["seed"], cell["value"], strict=True))


def record(metrics=(), **more):
    return {"name": "a", "config_hash": "01", "metrics": dict(metrics), **more}


def table_of(table_spec, **records):
    """Return the table of a spec whose rows have these records, in the order of seeds."""
    return fake_table(table_spec, runs_of(**records))


def test_mean_deviation_range_and_published_number(tmp_path):
    paper = "a,bert_base,RTE,80.18,0.3, a,bert_base,EIS,99,,"
    table_spec = spec(tmp_path, {"RTE": RTE, "EIS": EIS}, {"a": TRAIN}, paper)
    values = (0.75, 0.80, 0.79)
    table = table_of(table_spec, a=[record({RTE: value}) for value in values])
    cell, empty = (table.cells.loc[(0, title)] for title in ("RTE", "EIS"))
    assert by_seed(table, 0, "RTE") == pytest.approx({0: 75, 1: 80, 2: 79})
    assert [cell["mean"], cell["sd"]] == pytest.approx([78, statistics.stdev([75, 80, 79])])
    assert cell[["n", "asked", "low", "high"]].tolist() == [3, 3, pytest.approx(75), 80]
    assert cell["published_deviation"] == 0.3
    assert cell["difference"] == pytest.approx(78 - 80.18)
    assert empty[["n", "asked", "published", "marks"]].tolist() == [0, 0, 99, ()]


def test_a_metric_that_is_absent_has_a_value_where_its_task_was_measured(tmp_path):
    ties = "test/eis/ties"
    table_spec = spec(
        tmp_path, {"EIS": EIS, "ties": {"metric": ties, "absent": 0}}, {"a": TRAIN, "b": TRAIN}
    )
    runs = {
        "a": [record({EIS: 0.5, ties: 0.25}), record({EIS: 0.5}), record({RTE: 0.5})],
        "b": [record({RTE: 0.5})],
    }
    table = table_of(table_spec, **runs)
    assert by_seed(table, 0, "ties") == {0: 25, 1: 0}
    assert not by_seed(table, 1, "ties")


def test_hours_are_those_of_the_evaluations_and_of_their_trainings(tmp_path):
    table_spec = spec(tmp_path, {"RTE": RTE, "EIS": EIS}, {"a": TRAIN, "b": TRAIN})
    both_metrics = record({RTE: 0.5, EIS: 0.5}, seconds={"test": 1800.0})
    runs = runs_of(a=[both_metrics, both_metrics], b=[record({RTE: 0.5})])
    of = runs_of(training=[record(seconds={"training": 3600.0, "evaluation": 900.0})])
    trainings = {runs["a"][seed].source: of["training"][0] for seed in (0, 1)}
    table = fake_table(table_spec, runs, training=lambda run: trainings.get(run.source))
    assert about(table)[-1].split("; ")[-1] == "2.25 hours for 3 runs"


def test_means_are_of_seeds_that_all_columns_have(tmp_path):
    columns = {
        "RTE": RTE,
        "EIS": EIS,
        "Avg": {"mean": ["RTE", "EIS"]},
        "gap": {"difference": ["EIS", "RTE"]},
        "lr": {"config": "lr"},
    }
    table_spec = spec(tmp_path, columns, {"a": TRAIN})
    metrics = [{RTE: 0.8, EIS: 0.6}, {RTE: 0.9}, {RTE: 0.6, EIS: 0.2}]
    records = [record(of_run, decisive={"config": {"lr": 1e-5}}) for of_run in metrics]
    table = table_of(table_spec, a=records)
    assert by_seed(table, 0, "Avg") == pytest.approx({0: 70, 2: 40})
    assert by_seed(table, 0, "gap") == pytest.approx({0: -20, 2: -40})
    cells = table.cells.loc[0]
    assert (cells["n"]["Avg"], cells["asked"]["Avg"], cells["mean"]["lr"]) == (2, 3, 1e-5)


def test_marks_have_symbols_which_the_legend_explains(tmp_path):
    eis = {"metric": EIS, "instead": {"test/eis2/accuracy": "matched dev."}}
    columns = {"EIS": eis, "Avg": {"mean": ["EIS"]}}
    table_spec = spec(tmp_path, columns, {"a": TRAIN, "b": TRAIN, "LENGTH": LENGTH})
    a = [record({EIS: 0.5}, baselines={"length": {EIS: 1.0}})]
    runs = runs_of(a=a, b=[record({"test/eis2/accuracy": 0.5})])
    table = fake_table(table_spec, runs, is_stale=lambda run: run.source.name == "b-s0.json")
    remarks = ("matched dev", "measured with another version of its method")
    assert table.cells["marks"].tolist() == [(), (), remarks, remarks, (), ()]
    assert {"† matched dev.", "‡ measured with another version of its method."} <= {*legend(table)}


# Significance

RATES = {"a": 0.8, "b": 0.78, "c": 0.5}


def rightness(name, rate):
    generator = random.Random(name)
    return [generator.random() < rate for _ in range(200)]


def votes(label, rate):
    of = [rightness(f"{label}{seed}", rate) for seed in range(3)]
    return [sum(answers) >= 2 for answers in zip(*of, strict=True)]


def make_runs(folder, rates):
    """Leave runs whose every seed gets a share of EIS right, with LENGTH beside them."""
    runs = {}
    for label, rate in rates.items():
        runs[label] = {}
        for seed in range(3):
            right = {
                "eis": rightness(f"{label}{seed}", rate),
                "length-eis": rightness("length", 0.99),
            }
            columns = [(task, {"row": [*range(200)], "correct": of}) for task, of in right.items()]
            runs[label][seed] = leave_run(
                folder / "runs",
                label,
                seed,
                predictions=columns,
                metrics={EIS: statistics.fmean(right["eis"])},
                baselines={"length": {EIS: 0.99}},
            )

    return runs


def with_tests(folder):
    rows = dict.fromkeys("abc", TRAIN) | {"LENGTH": LENGTH}
    return spec(folder, {"EIS": EIS, "AUPRC": "test/eis/auprc"}, rows, reference="a")


def without_folders(runs):
    bare = {}
    for name, of in runs.items():
        bare[name] = {seed: replace(run, folder=None) for seed, run in of.items()}

    return bare


def signs_of(table):
    return ["".join(marks) for marks in table.cells["marks"].xs("EIS", level="column")]


def test_votes_are_compared_with_the_reference_and_holm_is_over_the_table(tmp_path):
    table = fake_table(with_tests(tmp_path), make_runs(tmp_path, RATES))
    against = [votes("b", 0.78), votes("c", 0.5), rightness("length", 0.99)]
    raw = [mcnemar(right, votes("a", 0.8)).pvalue for right in against]
    cells = table.cells.xs("EIS", level="column").loc[[1, 2, 3]]
    assert cells["p"].tolist() == pytest.approx(raw)
    assert cells["p_holm"].tolist() == pytest.approx(list(holm(raw)))
    assert signs_of(table) == ["", "", "**", "**"]
    assert list(table.tests["row"]) == ["b", "c", "LENGTH"]
    (text,) = (text for text in legend(table) if text.startswith("* p < "))
    assert "against a with the same encoder" in text
    assert "Holm over 3 comparisons" in text


def test_without_predictions_there_is_no_test(tmp_path):
    bare = without_folders(make_runs(tmp_path, RATES))
    table = fake_table(with_tests(tmp_path), bare)
    assert table.tests.empty
    _, untested, least = legend(table)
    assert untested.endswith("predictions are not kept with these records: 3 comparisons.")
    assert least.startswith("Smallest difference")


@pytest.mark.parametrize(
    ("p", "sign"), [(0.0, "**"), (0.009, "**"), (0.01, "*"), (0.049, "*"), (0.05, "")]
)
def test_stars_begin_below_a_level(tmp_path, monkeypatch, p, sign):
    table_spec = spec(tmp_path, {"EIS": EIS}, {"a": TRAIN, "b": TRAIN}, reference="a")
    runs = make_runs(tmp_path, {"a": 0.6, "b": 0.6})
    monkeypatch.setattr(comparisons, "mcnemar", lambda *_: SimpleNamespace(pvalue=p))
    monkeypatch.setattr(comparisons, "two_way_interval", lambda *_: (1.5, 1.0, 2.0))
    table = fake_table(table_spec, runs)
    assert table.cells["marks"][1, "EIS"] == ((sign,) if sign else ())
    assert table.tests["p"][0] > 0, "no test is certain"
    assert ("&lt;1e-99" in render(table, "markdown")) == (p == 0)
    monkeypatch.setattr(comparisons, "two_way_interval", lambda *_: (0.5, -1.0, 2.0))
    table = fake_table(table_spec, runs)
    assert table.cells["marks"][1, "EIS"] == (), "the interval over seeds and examples has 0"


def leave_hits(folder, name, seed, rows, own_hits, other_hits):
    """Leave a run with the hits of two vectors on the same examples."""
    columns = {
        "row": list(rows),
        "correct_own": own_hits.tolist(),
        "correct_other": other_hits.tolist(),
    }
    return leave_run(
        folder / "runs",
        name,
        seed,
        predictions=[("retrieval", columns)],
        metrics={
            "test/retrieval/accuracy_own": np.mean(own_hits),
            "test/retrieval/accuracy_other": np.mean(other_hits),
        },
    )


def test_the_parts_of_a_mean_share_the_rows_of_a_task_and_the_scale_is_that_of_the_column(tmp_path):
    columns = {
        "own": {"metric": "test/retrieval/accuracy_own", "scale": 1},
        "other": {"metric": "test/retrieval/accuracy_other", "scale": 1},
        "both": {"mean": ["own", "other"], "scale": 10},
    }
    table_spec = spec(tmp_path, columns, {"a": TRAIN, "b": TRAIN}, reference="a")
    rng = np.random.default_rng(6)
    premises = np.repeat(np.arange(60), 4)
    means = {}
    runs = {"a": {}, "b": {}}
    for name, seed in itertools.product("ab", range(3)):
        easy = rng.random(60)[premises] + (0.1 if name == "a" else 0)
        own_hits, other_hits = (rng.random(240) < 0.4 + 0.5 * easy for _ in range(2))
        means[name, seed] = (own_hits.astype(float) + other_hits) / 2
        runs[name][seed] = leave_hits(tmp_path, name, seed, premises, own_hits, other_hits)

    tests = fake_table(table_spec, runs).tests.set_index("column")
    differences = 10 * np.array([means["b", seed] - means["a", seed] for seed in range(3)])
    influences = mean_influences(differences.mean(axis=0))
    error = clustered_error(influences, premises)
    assert error > 1.1 * clustered_error(influences, range(240)), "premises are clusters"
    _, *ends = two_way_interval(differences.mean(axis=1), error)
    assert [tests["low"]["both"], tests["high"]["both"]] == pytest.approx(ends)


def test_effects_are_paired_by_seed_and_a_constant_is_the_same_for_all(tmp_path):
    table_spec = spec(
        tmp_path,
        {"EIS": EIS},
        {"a": TRAIN, "b": {**TRAIN, "overrides": ["seed=1"]}, "length": LENGTH},
        reference="a",
    )
    a = (0.75, 0.80, 0.79)
    b = (0.70, 0.79)
    baselines = {"length": {EIS: 0.5}}
    table = table_of(
        table_spec,
        a=[record({EIS: value}, baselines=baselines) for value in a],
        b=[record({EIS: value}) for value in b],
    )
    effects = table.effects.set_index(["row", "reference"])
    assert set(effects.index) == {
        ("a", ""),
        ("b", ""),
        ("length", ""),
        ("b", "a"),
        ("length", "a"),
        ("length", "b"),
    }
    differences = [100 * (b_value - baseline) for b_value, baseline in zip(b, a, strict=False)]
    ends = stats.ttest_1samp(differences, 0).confidence_interval()
    assert effects.loc[("b", "a"), "seeds"] == 2
    assert effects.loc[("b", "a"), ["value", "low", "high"]].tolist() == pytest.approx(
        [statistics.fmean(differences), *ends]
    )
    assert effects.loc[("b", "a"), "sd"] == pytest.approx(statistics.stdev(differences))
    assert effects.loc[("length", "a"), "value"] == pytest.approx(50 - 78)
    assert effects.loc[("length", "a"), "seeds"] == 3
    least = detectable_difference(statistics.stdev(differences), 2, power=POWER)
    (text,) = (text for text in legend(table) if text.startswith("Smallest difference"))
    assert text.endswith(f"EIS {least:.2f}."), "a constant has no deviation of its own"


def test_rows_of_different_encoders_and_metrics_are_not_paired(tmp_path):
    column = {"metric": RTE, "instead": {EIS: "another task"}}
    table_spec = spec(tmp_path, {"RTE": column}, {"a": TRAIN, "b": TRAIN})
    table = table_of(table_spec, a=[record({RTE: 0.5})], b=[record({EIS: 0.5})])
    assert set(table.effects["reference"]) == {""}
    table_spec = spec(tmp_path, {"RTE": RTE}, {"a": TRAIN}, encoders=["bert_base", "tiny"])
    table = table_of(table_spec, a=[record({RTE: 0.5})])
    assert set(table.effects["reference"]) == {""}
    assert not any(text.startswith("Smallest difference") for text in legend(table))
