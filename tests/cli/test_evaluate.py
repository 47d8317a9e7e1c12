"""``python -m lightning_cse.evaluate`` as a user starts it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_cse.encoders import tiny_encoder

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]

# A busy machine may take minutes to load torch; pytest's own limit is made for tests that start no process.
pytestmark = pytest.mark.timeout(900)

SAMPLE = ("corpora=sample", "paths=sample")


def hear_interrupts() -> None:
    """Undo what a shell does to its background jobs, which inherit that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def start(tmp_path: Path, repository: Path) -> Start:
    """Start ``lightning_cse.evaluate`` in an empty folder, with runs in it; the hub stays offline."""

    def started(*args: str, python: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(repository / "src"),
            "LIGHTNING_CSE_RUNS": str(tmp_path / "runs"),
            "HF_HOME": str(tmp_path / "hub"),
        }
        environment.pop("LIGHTNING_CSE_DATA", None)
        line = [sys.executable, *python, "-m", "lightning_cse.evaluate", *args]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            line,
            cwd=tmp_path,
            env=environment,
            stdout=pipe,
            stderr=pipe,
            text=True,
            preexec_fn=hear_interrupts,  # noqa: PLW1509 - these tests have no threads
        )

    return started


@pytest.fixture
def command(start: Start) -> Command:
    """The same, and wait for its end."""

    def ended(*args: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        process = start(*args, python=python)
        stdout, stderr = process.communicate(timeout=400)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    return ended


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The tiny encoder in a folder whose name Hydra's grammar could not read."""
    folder = tmp_path / "models, all" / 'it\'s {a}="b" [c]'
    encoder = tiny_encoder()
    encoder.backbone.save_pretrained(folder)
    encoder.tokenizer.tokenizer.save_pretrained(folder)
    return folder


def test_a_model_that_is_nowhere_says_what_was_tried(command: Command) -> None:
    done = command("model=org/nothing like it", "+suite=stsb", *SAMPLE)
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    assert "org/nothing like it" in done.stderr


@pytest.mark.slow
def test_a_path_with_anything_in_it_is_evaluated_once(command: Command, tiny: Path, tmp_path: Path) -> None:
    line = (f"model={tiny}", "+suite=stsb", "pooling=mean", "max_length=64", *SAMPLE)
    done = command(*line)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress bar without a terminal
    (path,) = (tmp_path / "runs" / "evaluate").rglob("record.json")
    assert path.parents[1].name == tiny.name
    assert done.stdout.splitlines()[-1] == f"record: {path}"
    record = json.loads(path.read_text())
    assert record["model"]["given"] == str(tiny)
    assert {"+suite=stsb", "pooling=mean", "paths=sample"} <= set(record["overrides"])
    assert f"{100 * record['metrics']['test/stsb/spearman']:.2f}" in done.stdout
    stamp = path.stat().st_mtime_ns
    again = command(*line)
    assert "is finished; force=true evaluates it again" in again.stdout
    assert again.stdout.splitlines()[-3:] == done.stdout.splitlines()[-3:]
    assert path.stat().st_mtime_ns == stamp


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished(command: Command, start: Start, tmp_path: Path) -> None:
    line = ("model=tiny", "+suite=transfer", *SAMPLE)  # whose tasks take long enough to be interrupted
    process = start(*line)
    assert process.stdout is not None
    for told in process.stdout:
        if "1/7 mr: " in told:
            process.send_signal(signal.SIGINT)
            break
    _, stderr = process.communicate(timeout=400)
    assert process.returncode == 130
    assert stderr == "interrupted; the same command continues after the last finished task, or reply\n"
    assert not list((tmp_path / "runs" / "evaluate").rglob("record.json"))
    done = command(*line)
    assert done.returncode == 0, done.stderr
    assert "1/7 mr: done before, accuracy_lbfgs " in done.stdout
    assert re.search(r"7/7 mrpc: accuracy_lbfgs \d", done.stdout)
    (path,) = (tmp_path / "runs" / "evaluate").rglob("record.json")
    assert len(json.loads(path.read_text())["task_seconds"]) == 7
