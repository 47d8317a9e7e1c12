"""The commands as a user starts them: few processes, and what they cost before anything heavy is imported."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import LITTLE

from lightning_cse import __main__
from lightning_cse.runs import Run, find_runs
from lightning_cse.train import main as train

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Train = Callable[..., tuple[int, str, str]]

# A busy machine may take minutes to load torch; pytest's own limit is made for tests that start no process.
pytestmark = pytest.mark.timeout(900)

HEAVY = {"torch", "pytorch_lightning", "transformers", "datasets", "wandb", "matplotlib", "pandas"}
COMMANDS = sorted(
    path.stem
    for path in (Path(__file__).resolve().parents[2] / "src" / "lightning_cse").glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text() and path.stem != "__main__"
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, with runs and caches in it; W&B and the hub stay offline."""
    for name in ("LIGHTNING_CSE_DATA", "HYDRA_FULL_ERROR"):
        monkeypatch.delenv(name, raising=False)
    for name, folder in (
        ("LIGHTNING_CSE_RUNS", "runs"),
        ("LIGHTNING_CSE_CACHE", "cache"),
        ("HF_HOME", "hub"),
    ):
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(place: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Start a command in a process of its own."""
    monkeypatch.setenv("PYTHONPATH", str(repository / "src"))

    def start(
        name: str, *args: str, python: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, *python, "-m", f"lightning_cse.{name}", *args]
        return subprocess.run(line, cwd=place, capture_output=True, text=True, timeout=400)

    return start


@pytest.fixture
def in_process(in_place: Callable[..., tuple[int, str, str]], place: Path) -> Train:
    """Run ``lightning_cse.train`` in this process; return exit code, stdout and stderr."""
    return lambda *args: in_place(train, *args)


def lightly(command: Command, *line: str) -> subprocess.CompletedProcess[str]:
    """Run a command, which may not import anything heavy."""
    done = command(*line, python=("-X", "importtime"))
    imported = {
        shown.rpartition("|")[2].strip().partition(".")[0]
        for shown in done.stderr.splitlines()
        if "|" in shown
    }
    assert not imported & HEAVY
    return done


@pytest.mark.parametrize("name", COMMANDS)
def test_help_imports_nothing_heavy(name: str, command: Command, place: Path) -> None:
    done = lightly(command, name, "--help")
    assert done.returncode == 0
    assert f"lightning_cse.{name}" in done.stdout
    if name == "evaluate":
        assert all(
            word in done.stdout
            for word in ("model=MODEL +suite=NAME", "minilm_l6", "inli", "pooling: auto")
        )
    assert not list(place.iterdir())
    assert len(COMMANDS) == 10


def test_one_command_for_all(
    in_place: Callable[..., tuple[int, str, str]], place: Path, command: Command, repository: Path
) -> None:
    assert sorted(__main__.COMMANDS) == COMMANDS
    code, out, _ = in_place(__main__.main)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[2:]] == list(__main__.COMMANDS)
    assert "  export     Exports a model for sentence-transformers\n" in out
    code, _, errors = in_place(__main__.main, "trian", "+experiment=gausscse")
    assert code == 2
    assert errors.startswith(
        "error: unknown command 'trian' - did you mean 'train'? (choose from: train, evaluate,"
    )
    code, out, _ = in_place(
        __main__.main, "train", "+experiment=gausscse", "+debug=tiny", "--cfg", "job"
    )
    assert code == 0
    assert "name: gausscse" in out
    code, _, errors = in_place(__main__.main, "export", "--model", "nowhere/at/all", "--to", "x")
    assert code == 2
    assert "there is no folder" in errors
    assert (
        'lightning-cse = "lightning_cse.__main__:main"'
        in (repository / "pyproject.toml").read_text()
    )


@pytest.mark.parametrize("line", ["+method.foo=1", "-m seed=0,1 epochs=1"])
def test_a_typo_is_answered_before_anything_heavy_is_imported(
    line: str, command: Command, place: Path
) -> None:
    done = lightly(command, "train", "+experiment=dualcse_cross", *line.split())
    assert done.returncode == 2
    assert re.search(r"^error: ", done.stderr, re.MULTILINE)
    assert not list(place.iterdir())


def test_a_reader_that_has_seen_enough(repository: Path) -> None:
    line = f"set -o pipefail; {sys.executable} -m lightning_cse.reproduce --help | true"
    environment = os.environ | {"PYTHONPATH": str(repository / "src")}
    done = subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.stderr == ""


def test_a_sweep_from_end_to_end(command: Command, in_process: Train, place: Path) -> None:
    args = ("-m", "+experiment=dualcse_cross", "+debug=tiny", "seed=0,1", *LITTLE)
    done = command("train", *args)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^all seeds +2 +0\.\d{4} +0\.\d{4}$", done.stdout, re.MULTILINE)
    runs = sorted(find_runs(place / "runs"), key=lambda run: run.seed)
    found = [(run.name, run.seed, run.status) for run in runs]
    assert found == [("dualcse_cross", seed, "finished") for seed in (0, 1)]
    assert "step 6/6" in runs[0].log_path.read_text()
    stamps = {run.path: run.record_path.stat().st_mtime_ns for run in runs}

    code, out, errors = in_process(*args, f"paths.data_dir={place},{place / 'nowhere'}")
    assert code == 2
    assert "4 points: 4 failed" in out
    assert "corpus 'inli', split 'train' was not found" in out
    assert "Traceback" not in errors
    code, out, _ = in_process(*args)
    assert code == 0
    assert "2 points: 2 finished before" in out
    assert {run.path: Run.at(run.path).record_path.stat().st_mtime_ns for run in runs} == stamps


def test_an_encoder_that_is_not_found_says_what_was_tried_and_what_helps(
    in_process: Train, place: Path
) -> None:
    code, out, errors = in_process("+experiment=dualcse_cross", "+debug=tiny", "encoder=bert_base")
    assert code == 2
    assert "Traceback" not in out + errors
    for text in (
        "google-bert/bert-base-uncased",
        "set 'HF_HUB_OFFLINE=0'",
        "or minilm_l6 (pip install",
    ):
        assert text in errors
    assert not list(find_runs(place / "runs"))
