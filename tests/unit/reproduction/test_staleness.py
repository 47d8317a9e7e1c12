"""Whether a loss was changed since a run, told from small histories."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lightning_cse
from lightning_cse.reproduction import staleness
from lightning_cse.reproduction.points import Found
from lightning_cse.reproduction.staleness import change_of, changed_since, loss_files

INFO_NCE = "lightning_cse.losses.InfoNCE"
DUAL = "lightning_cse.losses.DualContrastive"
METHOD = "lightning_cse.methods.SimCSE"


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """Histories change under the same path here, which they do not while a table is made."""
    staleness._compared.cache_clear()
    staleness._last_change.cache_clear()
    yield
    staleness._compared.cache_clear()
    staleness._last_change.cache_clear()


Commit = Callable[..., str]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "repository" / "src" / "lightning_cse"
    files = {
        "similarity.py": "",
        "losses/__init__.py": "from lightning_cse.losses.info_nce import InfoNCE\n"
        "from lightning_cse.losses.dual_contrastive import DualContrastive\n",
        "losses/info_nce.py": "class InfoNCE: ...\n",
        "losses/dual_contrastive.py": "from lightning_cse.losses.info_nce import InfoNCE\n",
        "methods/__init__.py": "from lightning_cse.methods.simcse import SimCSE\n",
        "methods/simcse.py": "from lightning_cse.methods.base import Method\n",
        "methods/base.py": "class Method: ...\n",
        "records.py": "",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def commit(package: Path) -> Commit:
    """Change files, commit, and return the commit."""
    root = package.parent.parent
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    variables |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(root), *who, *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.strip()

    def change(*names: str, message: str = "change", before: tuple[str, ...] = ()) -> str:
        if not (root / ".git").exists():
            git("init", "--quiet")
        if before:
            git(*before)
        for name in names:
            path = package / name
            path.write_text(path.read_text() + f"# {message}\n")
        git("add", "--all")
        git("commit", "--quiet", "--allow-empty", "-m", message)
        return git("rev-parse", "HEAD")

    return change


def record(commit: str | None, *targets: str) -> dict[str, Any]:
    method: dict[str, Any] = {"_target_": METHOD, "optimizer": {"_target_": "torch.optim.AdamW"}}
    method["loss"] = {"_target_": targets[0]} if targets else None
    return {"environment": {"commit": commit}, "identity_document": {"config": {"method": method}}}


class TestChangedSince:
    def test_fresh_until_the_loss_changes(self, package: Path, commit: Commit) -> None:
        first = commit()
        then = record(first, INFO_NCE)
        assert changed_since(then, package) == "fresh"
        commit("records.py", "methods/base.py", "losses/dual_contrastive.py")
        staleness._last_change.cache_clear()
        assert changed_since(then, package) == "fresh"

    @pytest.mark.parametrize("name", ["losses/info_nce.py", "similarity.py", "methods/simcse.py"])
    def test_stale_once_a_file_of_it_changes(self, package: Path, commit: Commit, name: str) -> None:
        first = commit()
        second = commit(name)
        third = commit("records.py")
        assert [changed_since(record(c, INFO_NCE), package) for c in (first, second, third)] == [
            "stale",
            "fresh",
            "fresh",
        ]

    def test_a_loss_is_as_old_as_the_losses_it_imports(self, package: Path, commit: Commit) -> None:
        first = commit()
        commit("losses/info_nce.py")
        assert changed_since(record(first, DUAL), package) == "stale"

    def test_a_dirty_tree_counts_as_its_commit(self, package: Path, commit: Commit) -> None:
        first = commit()
        assert changed_since(record(f"{first}-dirty", INFO_NCE), package) == "fresh"

    def test_the_same_files_in_another_history_are_fresh(self, package: Path, commit: Commit) -> None:
        base = commit()
        elsewhere = commit("losses/info_nce.py", message="same", before=("checkout", "--quiet", "-b", "side"))
        other = commit("losses/info_nce.py", message="other")
        commit("records.py", before=("checkout", "--quiet", "-b", "again", base))
        commit("losses/info_nce.py", message="same")
        found = [changed_since(record(c, INFO_NCE), package) for c in (elsewhere, other, base)]
        assert found == ["fresh", "stale", "stale"]

    def test_unknown_without_history(self, package: Path, commit: Commit) -> None:
        assert changed_since(record("0" * 40, INFO_NCE), package) == "unknown", "no repository"
        staleness._compared.cache_clear()
        staleness._last_change.cache_clear()
        first = commit()
        assert changed_since(record("0" * 40, INFO_NCE), package) == "unknown", "a commit of somebody else"
        assert changed_since(record(None, INFO_NCE), package) == "unknown"
        assert changed_since(record(first, "lightning_cse.losses.Gone"), package) == "unknown"

    def test_unknown_without_git(self, package: Path, commit: Commit, monkeypatch: pytest.MonkeyPatch) -> None:
        then = record(commit(), INFO_NCE)
        monkeypatch.setenv("PATH", "")
        assert changed_since(then, package) == "unknown"

    def test_what_has_no_method_is_fresh(self, package: Path) -> None:
        assert changed_since({"identity_document": {"config": {"suite": {}}}}, package) == "fresh"


class TestChangeOf:
    def test_an_evaluated_run_is_as_old_as_its_training(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []
        monkeypatch.setattr(staleness, "changed_since", lambda record: asked.append(record) or "stale")
        run = tmp_path / "simcse" / "01-s0"
        folder = run / "evaluate" / "sts-02"
        folder.mkdir(parents=True)
        evaluation = Found({"model": {"run": {"name": "simcse", "identity": "01", "seed": 0}}}, folder, folder / "r")
        assert change_of(evaluation) == "unknown", "the training's record is not there"
        training = {"name": "simcse", "identity": "01", "seed": 0}
        (run / "record.json").write_text(json.dumps(training | {"seed": 1}))
        assert change_of(evaluation) == "unknown", "another run's record is"
        (run / "record.json").write_text(json.dumps(training))
        assert change_of(evaluation) == "stale"
        assert asked == [training]
        assert change_of(Found(evaluation.record, None, folder / "r")) == "unknown"

    def test_others_are_as_old_as_they_are(self, tmp_path: Path) -> None:
        named = {"model": {"given": "x", "run": None}, "identity_document": {"config": {"suite": {}}}}
        assert change_of(Found(named, None, tmp_path)) == "fresh"


def test_every_loss_and_method_of_this_package_is_found() -> None:
    package = Path(lightning_cse.__file__).parent
    found = 0
    for room in ("losses", "methods"):
        (names,) = (
            ast.literal_eval(node.value)
            for node in ast.parse((package / room / "__init__.py").read_text()).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        )
        for name in names:
            files = loss_files(package, (f"lightning_cse.{room}.{name}",))
            assert package / "similarity.py" in files
            assert any(f"class {name}(" in file.read_text() or f"class {name}:" in file.read_text() for file in files)
        found += len(names)
    assert found >= 11
    assert package / "losses" / "info_nce.py" in loss_files(package, (DUAL,))
