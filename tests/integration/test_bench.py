"""The benchmarks of speed run: two steps of four triplets, once."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SMALLEST = ("--steps=2", "--batch=4", "--precision=float32")
KINDS = {"tokens", "matrix products", "attention", "dropout", "loss", "optimizer", "Python"}


def bench(repository, folder, script, *options):
    """Run a benchmark on the sample corpus; return what it prints, and the numbers that it
    saves.
    """
    numbers = folder / "bench.json"
    process = subprocess.run(
        [
            sys.executable,
            str(repository / "benchmarks" / script),
            *SMALLEST,
            *options,
            f"--json={numbers}",
        ],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "LIGHTNING_CSE_DATA"}
        | {"PYTHONPATH": str(repository / "src")},
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert process.returncode == 0, process.stdout + process.stderr

    return process.stdout, json.loads(numbers.read_text(encoding="utf-8"))


def test_the_checks_of_a_gpu_run_on_a_cpu(tmp_path, repository, monkeypatch):
    monkeypatch.delenv("LIGHTNING_CSE_DATA", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(repository / "src"))
    command = [sys.executable, str(repository / "benchmarks" / "gpu.py")]
    if not torch.cuda.is_available():
        assert subprocess.run(command, capture_output=True, check=True).stdout == b"no GPU\n"

    numbers = tmp_path / "gpu.json"
    names = ["gausscse", "infersent", "consert_joint_adversarial"]
    tiny = ("--tiny", "--steps=2", f"--json={numbers}", "--only", *names)
    process = subprocess.run([*command, *tiny], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    (results,) = json.loads(numbers.read_text(encoding="utf-8")).values()
    assert list(results["methods"]) == names
    for checks in results["methods"].values():
        assert checks["is_equal"]
        assert checks["differences"]["float32"] < 1e-5
        assert checks["waits"] is None

    hours = results["training"].pop("gausscse, hours")
    assert 0 < hours < math.inf
    assert len(results["training"]) == 4
    for sides in results["training"].values():
        assert all(0 < side["sentences_per_second"] < math.inf for side in sides.values())

    assert list(tmp_path.iterdir()) == [numbers]


def check_shares(results):
    assert results["shares"].keys() >= KINDS
    assert math.isclose(sum(results["shares"].values()), 1, rel_tol=1e-3)
    assert all(share > 0 for operation, share in results["shares"].items() if operation != "Python")


@pytest.mark.parametrize(
    ("options", "name"), [((), "batch 4"), (("--chunk=3",), "batch 4, chunk 3")]
)
def test_the_bench_measures_both_sides(options, name, tmp_path, repository):
    stdout, document = bench(repository, tmp_path, "bench.py", "--repetitions=1", *options)
    assert "times as fast as sentence-transformers' trainer" in stdout
    assert document.keys() == {name}
    assert document[name]["corpus"] == "the sample corpus"
    results = document[name]["results"]["float32"]
    speeds = [
        f"{task} {side}"
        for task in ("training", "encoding")
        for side in ("ours", "theirs", "ratio")
    ]
    for name in [*speeds, *(() if options else ("dualcse cross", "dualcse bi"))]:
        (value,) = results[name]
        assert 0 < value < math.inf, name

    check_shares(results)
    assert list(tmp_path.iterdir()) == [tmp_path / "bench.json"], "the bench leaves nothing behind"


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (
            ("--length", "--rows=200", "--devices"),
            {"batch": ["ours", "theirs"], "rows": ["ours", "ours, tokens cached", "theirs"]},
        ),
        (
            ("--batch", "--length=8", "--rows", "--devices=2", "--sides=ours", "--chunk=2"),
            {"length": ["ours, chunk 2"], "devices": ["ours, chunk 2"]},
        ),
    ],
)
def test_growth_is_measured_and_drawn(points, expected, tmp_path, repository):
    figure = tmp_path / "growth.png"
    _, document = bench(repository, tmp_path, "growth.py", *points, f"--figure={figure}")
    curves = document["growth"]["curves"]
    assert {axis: sorted(series) for axis, series in curves.items()} == expected
    for values in [
        value
        for series in curves.values()
        for points in series.values()
        for value in points.values()
    ]:
        assert 0 < values["sentences_per_second"] < math.inf
        assert 100 < values["peak_mib"] < 20_000

    assert figure.read_bytes().startswith(b"\x89PNG")
