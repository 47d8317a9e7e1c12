"""Runs killed at random moments: what is compared, and two real kills."""

import json
import os
import subprocess
import sys

import pytest
import stress_kills


@pytest.fixture
def run(tmp_path):
    """Write the files of a run into a folder; return what they leave."""

    def write(run_name, metric=0.5, seconds=1.0, log="one", curves="step,loss\n1,0.5\n"):
        folder = tmp_path / run_name / "runs" / "name" / "hash-s0"
        (folder / "predictions").mkdir(parents=True)
        record = {"metrics": {"auc": metric}, "best": {"score": float("nan")}, "seconds": seconds}
        (folder / "record.json").write_text(json.dumps(record))
        (folder / "curves.csv").write_text(curves)
        (folder / "train.log").write_text(log)
        (folder / "predictions" / "rte.parquet").write_bytes(b"scores")

        return folder

    return write


def differences(tmp_path):
    return stress_kills.differences(tmp_path / "run", stress_kills.outcome(tmp_path / "reference"))


def test_costs_and_logs_are_not_compared(run, tmp_path):
    run("reference")
    run("run", seconds=2.0, log="other")

    assert differences(tmp_path) == []


def test_everything_else_is_compared(run, tmp_path):
    run("reference")
    folder = run("run", metric=0.6, curves="step,loss\n1,0.6\n")
    (folder / "predictions" / "rte.parquet").unlink()
    (folder / ".last.ckpt.tmp").touch()

    assert sorted(differences(tmp_path)) == [
        ".last.ckpt.tmp",
        "curves.csv",
        "metrics of the record",
        "predictions/rte.parquet",
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)  # five processes, on a machine that is busy
def test_two_kills(repository, tmp_path):
    process = subprocess.run(
        [
            sys.executable,
            str(repository / "scripts" / "stress_kills.py"),
            *("--kills=2", "--experiments", "simcse_sup"),
        ],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr

    heads, values = (line.split() for line in process.stdout.splitlines())
    row = dict(zip(heads, values, strict=True))
    assert (row["experiment"], row["kills"], row["different"]) == ("simcse_sup", "2", "0")
    assert sum(int(row[phase]) for phase in stress_kills.PHASES) == 2
    assert not list(tmp_path.glob("stress_kills*")), "its folder is removed"
