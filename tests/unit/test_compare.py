"""``python -m lightning_cse.compare`` on folders as runs leave them: what it prints, and its exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_cse.compare import main
from lightning_cse.runs import Run, write_predictions

MakeRun = Callable[..., str]

GOOD = [True] * 30 + [False] * 10
POOR = [True] * 12 + [False] * 28


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Leave a finished run with predictions of rte, and the untrained encoder's beside them; return its folder."""

    def make(name: str, seed: int, correct: list[bool], identity: str = "0123456789", *overrides: str) -> str:
        folder = Run(tmp_path / "runs", name, identity, seed)
        labels = [row % 2 == 0 for row in range(len(correct))]
        predicted = [label == right for label, right in zip(labels, correct, strict=True)]
        columns = {"row": list(range(len(correct))), "label": labels, "prediction": predicted}
        write_predictions(folder.predictions, "rte", columns)
        write_predictions(folder.predictions, "untrained-rte", columns | {"prediction": labels[::-1]})
        folder.finish({"name": name, "config_hash": identity, "seed": seed, "overrides": [*overrides, f"seed={seed}"]})
        return str(folder.path)

    return make


@pytest.fixture
def two(make_run: MakeRun) -> list[str]:
    """Three seeds of a good and of a poor point."""
    return [make_run(name, seed, right) for name, right in (("good", GOOD), ("poor", POOR)) for seed in range(3)]


def test_the_table_fits_a_narrow_terminal(
    two: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main([*two, "--baseline", "untrained"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= width
        cells = [line.split() for line in lines if line.split()]
        # 18 examples are right in one only: p = 2^-17 exactly, (18 - 1)^2 / 18 asymptotically, three tests for Holm.
        assert ["rte", "good", "3", "75.00", "18", "+45.00", "8e-06", "6e-05", "2e-05", "*", "8e-06"] in cells
        assert cells[cells.index(["poor", "3", "30.00", "0"]) + 1][:2] == ["rte", "good"]
        assert ["untrained", "-", "0.00", "0"] in cells
        text = " ".join(" ".join(lines).split())
        assert "Seeds are merged by majority vote" in text
        assert "adjusted for the 3 tests of this table, * where it is below 0.05" in text


def test_csv_and_json_are_unrounded(two: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*two, "--format", "csv", "--task", "rte"]) == 0
    (line,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert main([*two, "--format", "json", "--alpha", "1e-6"]) == 0
    document = json.loads(capsys.readouterr().out)
    (entry,) = document["comparisons"]
    assert float(line["p_exact"]) == entry["p_exact"] == entry["p_holm"] == 2**-17
    assert entry["p_by_seed"] == {"0": 2**-17, "1": 2**-17, "2": 2**-17}
    assert (line["seeds_a"], entry["seeds_a"]) == ("0 1 2", [0, 1, 2])
    assert (line["only_a"], line["only_b"], entry["examples"]) == ("18", "0", 40)
    assert (line["significant"], entry["significant"]) == ("True", False)
    assert line.keys() <= entry.keys()
    assert [(point["label"], point["folders"]) for point in document["points"]] == [
        ("good", two[:3]),
        ("poor", two[3:]),
    ]


def test_markdown_has_a_cell_a_heading_and_the_legend(two: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*two, "--format", "markdown"]) == 0
    head, rule, row, empty, *legend = capsys.readouterr().out.splitlines()
    assert head.count("|") == rule.count("|") == row.count("|") == 15
    assert row.startswith("| rte | good | poor | 3 | 3 | 75.00 | 30.00 | +45.00 | 18 | 0 | 8e-06 | 6e-05 | 8e-06 \\* |")
    assert empty == ""
    assert "majority vote" in legend[0]


def test_nothing_is_marked_without_a_difference(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([make_run(name, 0, GOOD) for name in ("a", "b")]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("rte"))
    assert row.split() == ["rte", "a", "1", "75.00", "0", "+0.00", "1.0000", "1.0000", "1.0000", "1.0000"]


def test_points_of_one_name_are_told_apart(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [
        make_run("same", 0, right, identity, "+experiment=same", lr)
        for right, identity, lr in ((GOOD, "aaaa000000", "lr=1"), (POOR, "aaaab00000", "lr=2"))
    ]
    assert main(folders) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "same@aaaa0: +experiment=same lr=1" in lines
    assert "same@aaaab: +experiment=same lr=2" in lines
    assert any(line.split()[:2] == ["rte", "same@aaaa0"] for line in lines)


def test_an_even_number_of_seeds_is_pointed_out(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [make_run("two", seed, GOOD) for seed in range(2)] + [make_run("one", 0, GOOD)]
    assert main(folders) == 0
    out = capsys.readouterr().out
    assert "An even number of seeds: two. " in out


def test_what_the_user_can_mend_is_one_message_and_exit_code_2(
    two: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, message in (
        ([str(tmp_path / "runs" / "x*")], "x*: there is no such folder"),
        (two[:3], "needs two points, got good"),
        ([*two, "--task", "snli"], "snli.parquet is missing; predictions there: rte, untrained-rte"),
        ([*two, "--baseline", "length"], "baselines there: untrained"),
    ):
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("error: ")
        assert message in captured.err


@pytest.mark.parametrize("level", ["0", "1", "nan", "five"])
def test_a_level_is_between_0_and_1(two: list[str], level: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*two, "--alpha", level])
    assert caught.value.code == 2
    assert level in capsys.readouterr().err


def test_the_command_as_a_user_starts_it(two: list[str], repository: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(repository / "src"), "COLUMNS": "80"}
    command = [sys.executable, "-m", "lightning_cse.compare"]
    done = subprocess.run([*command, *two], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rte  good" in done.stdout
    told = subprocess.run([*command, two[0], "nowhere"], env=environment, capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr.splitlines() == [
        "error: nowhere: there is no such folder; give run folders, such as runs/NAME/*",
    ]
