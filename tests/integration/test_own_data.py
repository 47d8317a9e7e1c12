"""The benchmark of training on files of your own: its table, from the sample corpus."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROW = re.compile(
    r"\| (?P<title>.+), (?P<rows>\d+) rows \| `tiny` \| (?P<metric>\S+) [-\d.]+ → [-\d.]+ "
    r"\([-+\d.]+ to [-+\d.]+\) \| Spearman [-\d.]+ → [-\d.]+ \([-+\d.]+ to [-+\d.]+\) \|"
)


def test_the_table_has_a_row_for_each_kind_of_rows(tmp_path, repository):
    docs = repository / "docs" / "data.md"
    written = docs.read_bytes()
    command = [sys.executable, str(repository / "benchmarks" / "own_data.py")]
    tiny = ("--encoder=tiny", "--rows=12", "--tested=60", f"--runs={tmp_path}")
    overrides = ("data.batch_size=4", "trainer.max_steps=2")
    sample = repository / "src" / "lightning_cse" / "data" / "sample"
    variables = {"LIGHTNING_CSE_DATA": str(sample), "PYTHONPATH": str(repository / "src")}
    process = subprocess.run(
        [*command, *tiny, "--set", *overrides],
        cwd=tmp_path,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert process.returncode == 0, process.stdout + process.stderr

    rows = [
        match.groupdict() for match in map(ROW.fullmatch, process.stdout.splitlines()[-3:]) if match
    ]
    assert [(row["rows"], row["metric"]) for row in rows] == [
        ("12", "MRR@10"),
        ("12", "AUC"),
        ("24", "MRR@10"),
    ]
    assert len({row["title"] for row in rows}) == 3
    assert docs.read_bytes() == written
