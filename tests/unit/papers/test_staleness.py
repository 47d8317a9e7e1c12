"""Whether a method was changed since a run, told from a small history."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lightning_cse.papers import staleness
from lightning_cse.papers.records import Found

FILES = {
    "similarity.py": "",
    "tokens.py": "",
    "losses/info_nce.py": "class InfoNCE(Module): ...\n",
    "losses/dual.py": "from lightning_cse.losses.info_nce import InfoNCE\nclass InfoNCEOther: ...\n",
    "methods/simcse.py": "class SimCSE(Method): ...\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "first")
    monkeypatch.setattr(staleness, "_PACKAGE", tmp_path)
    staleness._changed.cache_clear()
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "commit.gpgsign=false", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def record(commit: str) -> dict[str, Any]:
    method = {"_target_": "lightning_cse.methods.SimCSE", "optimizer": {"_target_": "torch.optim.AdamW"}}
    method["loss"] = {"_target_": "lightning_cse.losses.InfoNCE"}
    run = {"name": "simcse", "config_hash": "0a", "seed": 0}
    return {**run, "environment": {"commit": commit}, "decisive": {"config": {"method": method}}}


@pytest.mark.parametrize(
    ("commit", "changed", "wanted"),
    [
        ("HEAD", None, "fresh"),
        ("HEAD", "tokens.py", "fresh"),
        ("HEAD", "losses/dual.py", "fresh"),
        ("HEAD", "losses/info_nce.py", "stale"),
        ("HEAD", "methods/simcse.py", "stale"),
        ("HEAD", "similarity.py", "stale"),
        ("0123456789abcdef0123456789abcdef01234567", None, "unknown"),
        ("", None, "unknown"),
    ],
)
def test_a_run_is_stale_once_a_file_of_its_method_changes(
    package: Path, commit: str, changed: str | None, wanted: str
) -> None:
    if commit == "HEAD":
        commit = git(package, "rev-parse", "HEAD") + "-dirty"
    if changed:
        with (package / changed).open("a") as file:
            file.write("VERSION = 2\n")
    assert staleness.change_of(Found(record(commit), None, package / "x.json")) == wanted
    run = package / "runs" / "simcse" / "0a-s0"
    evaluation = run / "evaluate" / "sts" / "0b-s0"
    evaluation.mkdir(parents=True)
    (run / "record.json").write_text(json.dumps(record(commit)))
    of_run = {"model": {"run": {"name": "simcse", "config_hash": "0a", "seed": 0}}, "decisive": {"config": {}}}
    assert staleness.change_of(Found(of_run, evaluation, evaluation / "record.json")) == wanted, "as its training is"
    kept = package / "experiments" / "paper" / "results" / "records" / "simcse-sts-0b-s0.json"
    assert staleness.change_of(Found(of_run, None, kept)) == "unknown", "its training is not kept"
    other = package / "experiments" / "other" / "results" / "records"
    other.mkdir(parents=True)
    (other / "simcse-0a-s0.json").write_text(json.dumps(record(commit)))
    assert staleness.change_of(Found(of_run, None, kept)) == wanted, "another paper may keep it"


def test_a_model_without_a_training_here_is_never_stale(package: Path) -> None:
    assert staleness.change_of(Found({"model": {"run": None}, "decisive": {"config": {}}}, None, package)) == "fresh"
    (package / ".git").rename(package / "git")
    assert staleness.change_of(Found(record("HEAD"), None, package)) == "unknown"
