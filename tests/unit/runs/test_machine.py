"""The commit that a record names."""

import subprocess
from pathlib import Path

import pytest

from lightning_cse.runs import machine


def test_results_do_not_make_the_code_dirty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [
        tmp_path / name for name in ("src/machine.py", "experiments/table.md", "conf/train.yaml")
    ]
    for file in files:
        file.parent.mkdir()
        file.write_text("a")
    git = [
        "git",
        "-C",
        str(tmp_path),
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "commit.gpgsign=false",
    ]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(machine, "__file__", str(files[0]))
    commit = machine.environment()["commit"]
    assert len(commit) == 40
    files[1].write_text("b")
    assert machine.environment()["commit"] == commit
    files[2].write_text("b")
    assert machine.environment()["commit"] == f"{commit}-dirty"
