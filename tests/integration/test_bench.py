"""``make bench`` runs: two steps of four triplets, once."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

SMALLEST = ("--steps=2", "--repetitions=1", "--batch=4", "--precision=float32")


@pytest.mark.slow
def test_the_bench_measures_both_sides(tmp_path: Path, repository: Path) -> None:
    numbers = tmp_path / "bench.json"
    done = subprocess.run(
        [sys.executable, str(repository / "benchmarks" / "bench.py"), *SMALLEST, f"--json={numbers}"],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "LIGHTNING_CSE_DATA"}
        | {"PYTHONPATH": str(repository / "src")},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "times as fast as sentence-transformers' trainer" in done.stdout
    found = json.loads(numbers.read_text(encoding="utf-8"))
    assert found["corpus"] == "the sample corpus"
    results = found["results"]["float32"]
    speeds = [f"{what} {who}" for what in ("training", "encoding") for who in ("ours", "theirs", "ratio")]
    for name in [*speeds, "dualcse cross", "dualcse bi"]:
        (value,) = results[name]
        assert 0 < value < math.inf, name
    assert {"attention", "dropout", "matrix products"} <= results["shares"].keys()
    assert math.isclose(sum(results["shares"].values()), 1, rel_tol=1e-6)
    assert list(tmp_path.iterdir()) == [numbers], "the bench leaves nothing behind"
