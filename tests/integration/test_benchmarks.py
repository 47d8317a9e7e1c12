"""Every benchmark runs, at its smallest size and on the sample corpus."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SHARED = {"measuring", "ours", "theirs", "shares"}
"""Files that others import."""

STEPS = "--steps=2 --batch=4 --precision=float32"
POINT = "+experiment=dualcse_cross +debug=tiny trainer.max_steps=2 trainer.max_epochs=-1"
JSON = "--json=results.json"
RUNS = {
    "bench": f"{STEPS} --repetitions=1 {JSON}",
    "bench, chunks": f"{STEPS} --repetitions=1 --chunk=3 {JSON}",
    "data": f"--rows 200 --data sentences hybrid {JSON}",
    "encode": f"--sentences=70 --repetitions=1 --lengths inli --precision float32 {JSON}",
    "gpu": f"--tiny --steps=2 --only gausscse infersent consert_joint_adversarial {JSON}",
    "growth": f"{STEPS} --length --rows=200 --devices --figure=growth.png {JSON}",
    "growth, devices": f"{STEPS} --batch --length=8 --rows --devices 1 2 --sides=ours --chunk=2 "
    f"--figure=growth.png {JSON}",
    "own_data": "--encoder=tiny --rows=12 --tested=60 --runs=runs "
    "--set data.batch_size=4 trainer.max_steps=2",
    "startup": POINT,
}
"""The arguments of each run; a file may have several."""


def test_every_benchmark_is_run():
    files = {path.stem for path in BENCHMARKS.glob("*.py")}
    assert {name.partition(",")[0] for name in RUNS} == files - SHARED


@pytest.fixture
def run(tmp_path, repository):
    """Run a benchmark in an empty folder; return what it prints, and the results that it writes."""

    def start(name, *options):
        sample = repository / "src" / "lightning_cse" / "data" / "sample"
        variables = {"LIGHTNING_CSE_DATA": str(sample), "PYTHONPATH": str(repository / "src")}
        script = BENCHMARKS / f"{name.partition(',')[0]}.py"
        process = subprocess.run(
            [sys.executable, script, *RUNS[name].split(), *options],
            cwd=tmp_path,
            env=os.environ | variables,
            capture_output=True,
            text=True,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        results = tmp_path / "results.json"

        return process.stdout, json.loads(results.read_text()) if results.exists() else {}

    return start


def numbers(results):
    """Yield all floats of the results."""
    if isinstance(results, dict | list):
        for part in results.values() if isinstance(results, dict) else results:
            yield from numbers(part)
    elif isinstance(results, float):
        yield results


CHECKED_BELOW = ("bench", "own_data")


@pytest.mark.parametrize("name", [name for name in RUNS if name not in CHECKED_BELOW])
def test_it_measures(name, run, tmp_path):
    stdout, results = run(name)
    assert len(stdout.splitlines()) > 2
    measurements = list(numbers(results))
    assert bool(measurements) == (JSON in RUNS[name])
    assert all(math.isfinite(number) and number >= 0 for number in measurements)
    files = {path.name for path in tmp_path.iterdir()}
    assert files <= {"results.json", "growth.png"}, "it leaves nothing else behind"


def test_the_shares_of_a_step_add_up(run):
    _, document = run("bench")
    results = document["batch 4"]["results"]["float32"]
    for task in ("training", "encoding"):
        ours, theirs, ratio = (results[f"{task} {side}"][0] for side in ("ours", "theirs", "ratio"))
        assert ratio == pytest.approx(ours / theirs, rel=1e-3)

    parts = {"tokens", "matrix products", "attention", "dropout", "loss", "optimizer", "Python"}
    assert results["shares"].keys() >= parts
    assert sum(results["shares"].values()) == pytest.approx(1, rel=1e-3)


def test_the_table_of_own_data_has_a_row_for_each_kind(run):
    docs = BENCHMARKS.parent / "docs" / "data.md"
    written = docs.read_bytes()
    stdout, _ = run("own_data")
    rows = [line.split("|")[1:-1] for line in stdout.splitlines()[-3:]]
    assert [(cells[0].split(", ")[-1].strip(), cells[2].split()[0]) for cells in rows] == [
        ("12 rows", "MRR@10"),
        ("12 rows", "AUC"),
        ("24 rows", "MRR@10"),
    ]
    assert docs.read_bytes() == written
