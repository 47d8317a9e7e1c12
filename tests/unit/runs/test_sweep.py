"""The table of a sweep's points, and their files."""

import pytest

from lightning_cse.runs.sweep import PointOutcome, Sweep, table


def outcome(overrides, folder=None, score=None, status="finished", metric="val/stsb/spearman"):
    return PointOutcome(overrides.split(), status, score, folder, metric, code=0)


def cells(text):
    """Return the words of each row by its first word."""
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}


def test_a_run_counts_once():
    points = [
        outcome("lr=0.05 seed=0", "a-s0", 0.5),
        outcome("lr=0.05 seed=0", "a-s0", 0.5, "skipped"),
        outcome("lr=0.05 seed=1", "a-s1", 0.7),
        outcome("lr=5e-2 seed=0", "a-s0", 0.5, "skipped"),
        outcome("lr=0.1 seed=0", "b-s0", 0.2),
    ]
    text = table(points)
    rows = cells(text)
    assert rows["lr=0.05"] == ["2", "0.6000", "0.1414", "val/stsb/spearman"]
    assert rows["lr=0.1"] == ["1", "0.2000", "-", "val/stsb/spearman"]
    assert "lr=5e-2" not in rows
    assert "5 points: 3 finished, 2 the same as another" in text


def test_points_without_a_score_name_no_metric():
    text = table(
        [outcome("seed=0", "a", metric=None), outcome("seed=1", status="killed", metric=None)]
    )
    assert text.splitlines()[0].split() == ["n", "mean", "s.d."]


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"overrides": 1}', b'{"status": 1}'])
def test_a_damaged_point_does_not_stop_the_table(content, tmp_path, capsys):
    sweep = Sweep(tmp_path / "sweeps" / "x", [["seed=0"], ["seed=1"]])
    outcome("seed=0", "a-s0", 0.5).write(sweep.folder / "0.json")
    (sweep.folder / "1.json").write_bytes(content)
    assert sweep.finish() == 2
    printed = capsys.readouterr().out
    assert "2 points: 1 finished, 1 not known" in printed
    assert f"{sweep.folder / '1.json'} is damaged" in printed


def test_files_of_points_have_no_secrets(tmp_path):
    path = tmp_path / "0.json"
    outcome("data.train=https://me:SECRET@h/a?sig=SECRET", "a-s0", 0.5).write(path)
    assert "SECRET" not in path.read_text()
    assert PointOutcome.read(path).overrides == ["data.train=https://h/a"]
