"""``python -m lightning_cse.compare`` on folders as runs leave them: what it prints, and its exit
codes.
"""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from lightning_cse.compare import main
from lightning_cse.runs import Run, write_predictions

METHOD = {"_target_": "lightning_cse.methods.SimCSE"}
GOOD, POOR = [True] * 30 + [False] * 10, [True] * 12 + [False] * 28


@pytest.fixture
def make_run(tmp_path):
    """Leave a finished run with predictions of rte; return its folder."""

    def make(name, seed, correct, lr=1e-5):
        run = Run(tmp_path / "runs", name, f"{lr:.0e}".replace("-", ""), seed)
        labels = [row % 2 == 0 for row in range(len(correct))]
        predicted = [label == right for label, right in zip(labels, correct, strict=True)]
        columns = {"row": list(range(len(correct))), "label": labels, "prediction": predicted}
        write_predictions(run.predictions, "rte", columns)
        scores = {"test/rte/accuracy_all": sum(correct) / len(correct), "test/avg/accuracy": 0.5}
        record = {"name": name, "config_hash": run.config_hash, "seed": seed, "metrics": scores}
        run.finish(
            {**record, "decisive": {"config": {"method": METHOD | {"optimizer": {"lr": lr}}}}}
        )

        return str(run.path)

    return make


@pytest.fixture
def two(make_run):
    """Three seeds of a good and of a poor point."""
    points = (("good", GOOD), ("poor", POOR))
    return [make_run(name, seed, right) for name, right in points for seed in range(3)]


def test_table(two, capsys):
    assert main(two) == 0
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines()]
    # 18 examples are right in one only: p = 2^-17, and one test for Holm.
    row = next(row for row in rows if row[:1] == ["test/rte/accuracy_all"])
    low, high = map(float, row[12:14])
    assert row[1:9] == ["good", "poor", *"012012"]
    assert row[9:12] == ["75.0000", "30.0000", "45.0000"]
    assert row[14:] == ["mcnemar", "8e-06", "8e-06", "True"]
    assert 20 < low < 45 < high < 70
    assert printed.err == "not compared: test/avg/accuracy\n"


def test_correlations_are_compared_in_points_and_significant_off_zero(tmp_path, capsys):
    rng = np.random.default_rng(0)
    gold = np.tile(np.arange(6.0), 100)
    folders = []
    for name, noise in (("good", 1.0), ("poor", 9.0), ("same", 1.0)):
        for seed in range(3):
            run = Run(tmp_path / "runs", name, "01", seed)
            scores = gold + noise * rng.normal(size=len(gold))
            columns = {"row": list(range(len(gold))), "gold": gold, "score": scores}
            write_predictions(run.predictions, "sts12", columns)
            metrics = {"test/sts12/spearman": float(stats.spearmanr(gold, scores).statistic)}
            run.finish({"name": name, "config_hash": "01", "seed": seed, "metrics": metrics})
            folders.append(str(run.path))

    assert main([*folders, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["a"], row["b"]) for row in rows] == [
        ("good", "poor"),
        ("good", "same"),
        ("poor", "same"),
    ]
    for row in rows:
        low, high = float(row["low"]), float(row["high"])
        assert low < float(row["difference"]) < high
        assert float(row["difference"]) == pytest.approx(
            float(row["value_a"]) - float(row["value_b"])
        )
        assert (row["test"], row["p"]) == ("interval", "")
        assert row["significant"] == str(not low <= 0 <= high)

    assert [row["significant"] for row in rows] == ["True", "False", "True"]


def test_two_seeds_that_disagree_are_not_significant(make_run, capsys):
    # One seed of each is right on all examples, and one on few; a vote of two would be of both.
    runs = [
        make_run(name, seed, right)
        for name, of_seeds in (("a", (GOOD, POOR)), ("b", (POOR, GOOD)))
        for seed, right in enumerate(of_seeds)
    ]
    assert main([*runs, "--format", "csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert float(row["p_holm"]) < 0.001
    assert float(row["low"]) < 0 < float(row["high"])
    assert row["significant"] == "False"


def test_points_without_predictions_of_a_task_are_left_out_and_named(two, make_run, capsys):
    simcse = make_run("simcse", 0, POOR)
    (Path(simcse) / "predictions" / "rte.parquet").unlink()
    assert main([two[0], two[3], simcse, "--format", "csv"]) == 0
    printed = capsys.readouterr()
    (row,) = csv.DictReader(io.StringIO(printed.out))
    assert (row["a"], row["b"]) == ("good", "poor")
    assert printed.err.startswith("test/rte/accuracy_all: left out: simcse (no predictions)")


@pytest.mark.slow
def test_damaged_files_do_not_stop_the_comparison_of_the_others(two, make_run, capsys, caplog):
    broken = [Path(make_run("broken", 0, GOOD)), Path(make_run("broken", 1, GOOD))]
    file = broken[0] / "predictions" / "rte.parquet"
    original = file.read_bytes()
    damaged = []
    for offset in range(0, len(original), 40):
        flipped = bytearray(original)
        flipped[offset] ^= 1 << offset % 8
        damaged.append(bytes(flipped))

    want = None
    (broken[1] / "record.json").write_bytes(b"[1]")
    for content in (b"", b"\xff", original[:-30], *damaged):
        file.write_bytes(content)
        caplog.clear()
        assert main([*two, str(broken[0]), "--format", "csv"]) == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        (row,) = [row for row in rows if {row["a"], row["b"]} == {"good", "poor"}]
        want = want or row["p"]
        assert row["p"] == want
        assert len(rows) == 3 or f"{file} is damaged" in caplog.text

    assert main([*two, str(broken[1])]) == 2
    assert f"{broken[1] / 'record.json'} is damaged" in caplog.text


def test_csv_is_unrounded(two, capsys):
    assert main([*two, "--format", "csv", "--task", "rte", "--alpha", "1e-6"]) == 0
    (line,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (line["a"], line["b"], line["seeds_a"]) == ("good", "poor", "0 1 2")
    assert float(line["p"]) == float(line["p_holm"]) == 2**-17
    assert line["significant"] == "False"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere holds no finished runs"),
        (["--metric", "test/rte/auc"], "predictions of the metric 'test/rte/auc'"),
        (["--task", "rte", "rtee"], "predictions of the task 'rtee' - did you mean 'rte'?"),
    ],
)
def test_user_errors(two, arguments, message, capsys):
    assert main([*two, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_an_average_over_tasks_is_compared_like_the_tasks(tmp_path, capsys):
    rng = np.random.default_rng(1)
    gold = np.tile(np.arange(6.0), 50)
    tasks = ("sts12/spearman", "sts13/spearman")
    folders = []
    for name, noise in (("good", 1.0), ("poor", 5.0)):
        run = Run(tmp_path / "runs", name, "01", 0)
        metrics = {}
        for task in tasks:
            scores = gold + noise * rng.normal(size=len(gold))
            columns = {"row": list(range(len(gold))), "gold": gold, "score": scores}
            write_predictions(run.predictions, task.partition("/")[0], columns)
            metrics[f"test/{task}"] = float(stats.spearmanr(gold, scores).statistic)

        metrics["test/sts_avg/spearman"] = np.mean([*metrics.values()])
        suite = {"sts_avg": {"of": [*tasks]}}
        record = {"name": name, "config_hash": "01", "seed": 0, "metrics": metrics}
        run.finish({**record, "decisive": {"config": {"suite": suite}}})
        folders.append(str(run.path))

    assert main([*folders, "--format", "csv"]) == 0
    rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
    by_metric = {row.pop("metric"): row for row in rows}
    first, second, average = (
        {key: float(row[key]) for key in ("difference", "low", "high")}
        for row in (by_metric[f"test/{task}"] for task in (*tasks, "sts_avg/spearman"))
    )
    assert average["difference"] == pytest.approx((first["difference"] + second["difference"]) / 2)
    halves = [(row["high"] - row["low"]) / 2 for row in (first, second)]
    assert (average["high"] - average["low"]) / 2 == pytest.approx(np.hypot(*halves) / 2)
