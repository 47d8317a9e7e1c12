"""A sweep over whatever happens to it: a point that raises, a worker and a driver that are killed; nothing twice."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from lightning_cse.runs import Run

# A busy machine may take minutes to load torch in every worker.
pytestmark = pytest.mark.timeout(2400)
PATIENCE = 700.0

SMALL = (
    "+debug=tiny",
    "baselines=none",
    "encoder.layers=1",
    "data.train_rows=20",
    "data.held_out_rows=8",
    "diag.sentences=16",
    "eval_every=2",
    "paths.cache_dir=null",
    *(f"limits.{split}_{what}=6" for split in ("dev", "test") for what in ("rows", "pairs")),
)
EXPERIMENTS = ("dualcse_cross", "gausscse", "simcse_inli")
SEEDS = range(4)
POINTS = {(experiment, seed) for seed in SEEDS for experiment in EXPERIMENTS}
LAUNCHERS = {
    "joblib": (["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], "joblib"),
    "ray": (["hydra/launcher=ray", "hydra.launcher.ray.init.num_cpus=2"], "ray"),
}


class Sweep:
    """One command, given several times, and what it leaves on disk."""

    def __init__(self, folder: Path, repository: Path, launcher: list[str]) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.late = folder / "late.txt"
        self.starts = 0
        self.environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(repository / "src"),
            "LIGHTNING_CSE_RUNS": str(self.runs),
        }
        self.environment.pop("LIGHTNING_CSE_DATA", None)
        # The first of twelve is evaluated beside a baseline that is fitted on a file, which is not there yet.
        lines = [
            f"- [+experiment={experiment}, seed={seed}"
            + (f", baselines=whitening, 'baselines.whitening.sources=[{self.late}]'" if number == 0 else "")
            + "]"
            for number, (seed, experiment) in enumerate((s, e) for s in SEEDS for e in EXPERIMENTS)
        ]
        (folder / "points.yaml").write_text("\n".join(lines) + "\n")
        choice = ["-m", "hydra/sweeper=points", "hydra.sweeper.file=points.yaml", *launcher]
        self.line = [sys.executable, "-m", "lightning_cse.train", *choice, *SMALL]

    def start(self, *args: str) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
        self.starts += 1
        # A file, which takes whatever comes also when nobody reads.
        output = (self.folder / f"output{self.starts}.txt").open("w+b")
        line = [*self.line, f"hydra.sweep.dir=sweep{self.starts}", *args]
        driver = subprocess.Popen(line, cwd=self.folder, env=self.environment, stdout=output, stderr=output)
        return driver, output

    def finish(self, driver: subprocess.Popen[bytes], output: IO[bytes]) -> str:
        driver.wait(PATIENCE)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
        output.close()
        return text

    def records(self) -> dict[Path, int]:
        """The records there are, with the time each was written at."""
        return {path: path.stat().st_mtime_ns for path in self.runs.rglob("record.json")}

    def failed(self) -> list[Path]:
        return sorted(self.runs.rglob("failed.json"))

    def running(self) -> dict[int, Path]:
        """Who is running which run folder, by process."""
        found = {}
        for path in self.runs.glob("*/*-s*"):
            identity, _, seed = path.name.rpartition("-s")
            owner = Run(self.runs, path.parent.name, identity, int(seed)).owner()
            if owner is not None:
                found[owner.pid] = path
        return found

    def kill_a_worker(self, spared: set[int]) -> bool:
        """Kill one of the processes that are running a point, if there is one."""
        for victim in set(self.running()) - spared:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                return True
        return False

    def outcomes(self, start: int) -> dict[tuple[str, int], str]:
        """What the points of a start said of themselves, by experiment and seed."""
        found = {}
        for path in (self.folder / f"sweep{start}").glob("*/outcome.json"):
            word = json.loads(path.read_text())
            given = dict(line.split("=", 1) for line in word["overrides"])
            found[given["+experiment"], int(given["seed"])] = word["outcome"]
        return found

    def processes(self) -> Iterator[int]:
        """Every process that one of the starts left behind, launchers' workers included."""
        mark = f"LIGHTNING_CSE_RUNS={self.runs}".encode()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if mark in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                    yield int(entry.name)


def wait_until(condition: Callable[[], object], driver: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert driver.poll() is None, "the driver ended before what it was waited for"
        assert time.monotonic() < end, "what was waited for did not come"
        time.sleep(0.05)


@pytest.fixture
def sweep(request: pytest.FixtureRequest, tmp_path: Path, repository: Path) -> Iterator[Sweep]:
    if sys.platform != "linux":
        pytest.skip("looks for processes in /proc")
    choice, module = LAUNCHERS[request.param]
    if importlib.util.find_spec(module) is None or (
        module == "joblib" and importlib.util.find_spec("hydra_plugins.hydra_joblib_launcher") is None
    ):
        pytest.skip(f"needs the extra `{request.param}`")
    made = Sweep(tmp_path, repository, choice)
    yield made
    for process in made.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["joblib", "ray"], indirect=True)
def test_a_sweep_ends_with_every_point_done_once(sweep: Sweep, request: pytest.FixtureRequest) -> None:
    # The driver is killed, when one point has failed and another is done.
    driver, output = sweep.start()
    wait_until(lambda: sweep.failed() and sweep.records(), driver)
    driver.kill()
    sweep.finish(driver, output)
    first = sweep.records()
    assert 1 <= len(first) < len(POINTS) - 2

    # The second start: a worker is killed. Workers of the first one may live on and finish what they were at.
    orphans = set(sweep.processes())
    driver, output = sweep.start()
    wait_until(lambda: len(sweep.records()) > len(first) and sweep.kill_a_worker(spared={driver.pid, *orphans}), driver)
    told = sweep.finish(driver, output)
    assert driver.returncode == 1, told
    assert "12 points: " in told
    assert "left no word: " in told
    assert "failed before, left alone: +experiment=dualcse_cross" in told
    assert "late.txt" in told, "the reason"
    assert "retry_failed=true tries the failed ones again" in told
    assert sweep.outcomes(2)["dualcse_cross", 0] == "left"
    second = sweep.records()
    assert {path: second[path] for path in first} == first, "a finished point was run again"
    assert len(first) < len(second) < len(POINTS)

    # The third: whatever is not there, and what failed, whose file has come.
    sweep.late.write_text("\n".join(f"sentence number {n} of those that came late" for n in range(40)) + "\n")
    driver, output = sweep.start("retry_failed=true")
    told = sweep.finish(driver, output)
    assert driver.returncode == 0, told
    third = sweep.records()
    assert {path: third[path] for path in second} == second, "a finished point was run again"
    outcomes = sweep.outcomes(3)
    assert set(outcomes) == POINTS
    before = sum(outcome == "skipped" for outcome in outcomes.values())
    assert before >= len(second)
    assert f"12 points: {12 - before} done now, {before} done before" in told
    done = [json.loads(path.read_text()) for path in third]
    assert sorted((record["name"], record["seed"]) for record in done) == sorted(POINTS), "each point has one record"
    (late,) = (record for record in done if (record["name"], record["seed"]) == ("dualcse_cross", 0))
    assert "whitening" in late["baselines"]
    assert sweep.failed() == []
    assert sweep.running() == {}
