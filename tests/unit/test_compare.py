"""``python -m lightning_cse.compare`` on folders as runs leave them: what it prints, and its exit
codes.
"""

import csv
import io
from pathlib import Path

import pytest

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
        record = {"name": name, "config_hash": run.config_hash, "seed": seed, "metrics": {}}
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
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    # 18 examples are right in one only: p = 2^-17, and one test for Holm.
    numbers = ["0.7500", "0.3000", "45.0000", "18", "0", "8e-06", "8e-06", "True"]
    row = next(row for row in rows if row[:1] == ["rte"])
    low, high = map(float, row[12:14])
    assert row[:12] + row[14:] == ["rte", "good", "poor", *"012012", *numbers]
    assert 20 < low < 45 < high < 70


def test_points_without_predictions_of_a_task_are_left_out_and_named(two, make_run, capsys):
    columns = {"row": [0, 1], "correct": [True, False]}
    for run in (two[0], two[3]):
        write_predictions(Run.at(Path(run)).predictions, "sick_direction", columns)

    runs = [two[0], two[3], make_run("simcse", 0, POOR)]
    assert main([*runs, "--format", "csv"]) == 0
    printed = capsys.readouterr()
    tasks = [one["task"] for one in csv.DictReader(io.StringIO(printed.out))]
    assert sorted(tasks) == ["rte", "rte", "rte", "sick_direction"]
    assert printed.err.startswith("sick_direction: left out: simcse (no predictions")


def test_damaged_files_do_not_stop_the_comparison_of_the_others(two, make_run, capsys, caplog):
    broken = [Path(make_run("broken", 0, GOOD)), Path(make_run("broken", 1, GOOD))]
    file = broken[0] / "predictions" / "rte.parquet"
    whole = file.read_bytes()
    damaged = []
    for place in range(0, len(whole), 40):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        damaged.append(bytes(flipped))

    want = None
    (broken[1] / "record.json").write_bytes(b"[1]")
    for content in (b"", b"\xff", whole[:-30], *damaged):
        file.write_bytes(content)
        caplog.clear()
        assert main([*two, str(broken[0]), "--format", "csv"]) == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        (row,) = [row for row in rows if {row["a"], row["b"]} == {"good", "poor"}]
        want = want or row["p_exact"]
        assert row["p_exact"] == want
        assert len(rows) == 3 or f"{file} is damaged" in caplog.text

    assert main([*two, str(broken[1])]) == 2
    assert f"{broken[1] / 'record.json'} is damaged" in caplog.text


def test_csv_is_unrounded(two, capsys):
    assert main([*two, "--format", "csv", "--task", "rte", "--alpha", "1e-6"]) == 0
    (line,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (line["a"], line["b"], line["seeds_a"]) == ("good", "poor", "0 1 2")
    assert float(line["p_exact"]) == float(line["p_holm"]) == 2**-17
    assert (line["examples"], line["significant"]) == ("40", "False")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere holds no finished runs"),
        (["--task", "rte", "rtee"], "answers of the task 'rtee' - did you mean 'rte'?"),
    ],
)
def test_user_errors(two, arguments, message, capsys):
    assert main([*two, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
