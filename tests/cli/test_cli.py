"""The commands as a user starts them: few processes, and what they cost before anything heavy is imported."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_cse.runs import Run, find_runs

Command = Callable[..., "subprocess.CompletedProcess[str]"]

# A busy machine may take minutes to load torch; pytest's own limit is made for tests that start no process.
pytestmark = pytest.mark.timeout(900)

HEAVY = {"torch", "pytorch_lightning", "transformers", "datasets", "wandb", "matplotlib", "pandas"}
COMMANDS = sorted(
    path.stem
    for path in (Path(__file__).resolve().parents[2] / "src" / "lightning_cse").glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text()
)
SMALL = (
    "baselines=none",
    "encoder.layers=1",
    "data.train_rows=20",
    "data.held_out_rows=8",
    "diag.sentences=16",
    "eval_every=2",
    *(f"limits.{split}_{what}=6" for split in ("dev", "test") for what in ("rows", "pairs")),
)


@pytest.fixture
def command(tmp_path: Path, repository: Path) -> Command:
    """Start a command in an empty folder, with runs and caches in it; W&B and the hub stay offline."""

    def start(name: str, *args: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(repository / "src"),
            "LIGHTNING_CSE_RUNS": str(tmp_path / "runs"),
            "LIGHTNING_CSE_CACHE": str(tmp_path / "cache"),
            "HF_HOME": str(tmp_path / "hub"),
        }
        environment.pop("LIGHTNING_CSE_DATA", None)
        environment.pop("HYDRA_FULL_ERROR", None)
        line = [sys.executable, *python, "-m", f"lightning_cse.{name}", *args]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)

    return start


def imported(done: subprocess.CompletedProcess[str]) -> set[str]:
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines() if "|" in line}


def test_all_commands_are_found() -> None:
    assert len(COMMANDS) == 12


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_quick_and_imports_nothing_heavy(name: str, command: Command, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = command(name, "--help", python=("-X", "importtime"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0
    assert f"lightning_cse.{name}" in done.stdout
    assert not imported(done) & HEAVY
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", ["epochs=1", "+method.foo=1", "trainer.max_epochs=abc", "-m seed=0,1 epochs=1"])
def test_a_typo_is_answered_before_anything_heavy_is_imported(line: str, command: Command, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = command("train", "+experiment=dualcse_cross", *line.split(), python=("-X", "importtime"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 2
    assert re.search(r"^error: ", done.stderr, re.MULTILINE)
    assert not imported(done) & HEAVY
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2  # 0.5 on a quiet machine
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["train", "reproduce", "score"])
def test_a_reader_that_has_seen_enough(name: str, repository: Path) -> None:
    line = f"set -o pipefail; {sys.executable} -m lightning_cse.{name} --help | true"
    environment = os.environ | {"PYTHONPATH": str(repository / "src")}
    done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=400)
    assert done.stderr == ""


def test_a_sweep_from_end_to_end(command: Command, tmp_path: Path) -> None:
    args = ("-m", "+experiment=dualcse_cross", "+debug=tiny", "seed=0,1", *SMALL)
    done = command("train", *args)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^all seeds +2 +0\.\d{4} +0\.\d{4}$", done.stdout, re.MULTILINE)
    runs = list(find_runs(tmp_path / "runs"))
    assert sorted((run.name, run.seed, run.status) for run in runs) == [
        ("dualcse_cross", 0, "finished"),
        ("dualcse_cross", 1, "finished"),
    ]
    stamps = {run.path: run.record_path.stat().st_mtime_ns for run in runs}
    nowhere = command("train", *args, "force=false", f"paths.data_dir={tmp_path},{tmp_path / 'nowhere'}")
    assert nowhere.returncode == 2
    assert "4 points: 4 failed" in nowhere.stdout
    assert "corpus 'inli', split 'train' is not there" in nowhere.stdout
    assert "Traceback" not in nowhere.stderr
    again = command("train", *args)
    assert again.returncode == 0
    assert "2 points: 2 finished before" in again.stdout
    assert {run.path: Run.at(run.path).record_path.stat().st_mtime_ns for run in runs} == stamps


def test_an_encoder_that_is_not_found_says_what_was_tried_and_what_helps(command: Command, tmp_path: Path) -> None:
    done = command("train", "+experiment=dualcse_cross", "+debug=tiny", "encoder=bert_base")
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    for text in ("google-bert/bert-base-uncased", "set 'HF_HUB_OFFLINE=0'", "encoder=minilm_l6"):
        assert text in done.stderr
    assert not list(find_runs(tmp_path / "runs"))
