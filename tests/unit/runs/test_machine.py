"""The commit that a record names."""

import subprocess

import pytest

from lightning_cse.runs import machine


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with one commit, which the code seems to come from."""
    for name in ("src/machine.py", "experiments/table.md", "conf/train.yaml"):
        file = tmp_path / name
        file.parent.mkdir()
        file.write_text("a")

    for arguments in (["init"], ["add", "."], ["commit", "-m", "a"]):
        git(tmp_path, *arguments)

    monkeypatch.setattr(machine, "_FILE", tmp_path / "src/machine.py")

    return tmp_path


def git(folder, *arguments):
    settings = ("user.name=a", "user.email=a@b", "commit.gpgsign=false")
    options = [word for setting in settings for word in ("-c", setting)]
    command = ["git", "-C", str(folder), *options, *arguments]
    subprocess.run(command, check=True, capture_output=True)


def test_results_do_not_make_the_commit_dirty(checkout):
    commit = machine.environment()["commit"]
    assert len(commit) == 40
    (checkout / "experiments/table.md").write_text("b")
    assert machine.environment()["commit"] == commit
    (checkout / "conf/train.yaml").write_text("b")
    assert machine.environment()["commit"] == f"{commit}-dirty"
