"""Whether a loss was changed since a run, told from small histories."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lightning_cse
from lightning_cse.papers import staleness
from lightning_cse.papers.points import Found
from lightning_cse.papers.staleness import change_of, changed_since, differs, loss_files

INFO_NCE = "lightning_cse.losses.InfoNCE"
DUAL = "lightning_cse.losses.DualContrastive"
METHOD = "lightning_cse.methods.SimCSE"


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """Histories change under the same path here, which they do not while a table is made."""
    forget()
    yield
    forget()


def forget() -> None:
    staleness._compared.cache_clear()
    staleness._changed.cache_clear()


Commit = Callable[..., str]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "repository" / "src" / "lightning_cse"
    files = {
        "__init__.py": "",
        "similarity.py": "class Cosine: ...\n",
        "widths.py": "class Widths: ...\n",
        "losses/__init__.py": "from lightning_cse.losses.info_nce import InfoNCE\n"
        "from lightning_cse.losses.dual_contrastive import DualContrastive\n",
        "losses/info_nce.py": "class InfoNCE: ...\n",
        "losses/dual_contrastive.py": "from lightning_cse.losses.info_nce import InfoNCE\n",
        "methods/__init__.py": "from lightning_cse.methods.simcse import SimCSE\n"
        "from lightning_cse.methods.schedules import Schedule\n"
        "from lightning_cse.methods.twofold import Twofold\n",
        "methods/simcse.py": "from lightning_cse.methods.base import Method\n"
        "from lightning_cse.methods.schedules import Schedule\n",
        "methods/twofold.py": "from lightning_cse.methods import SimCSE\nfrom lightning_cse.models import PointModel\n",
        "models/__init__.py": "from lightning_cse.models.point import PointModel\n",
        "models/point.py": "from lightning_cse.models.heads import Heads\n",
        "models/heads.py": "class Heads: ...\n",
        "methods/base.py": "class Method: ...\n",
        "methods/schedules.py": "class Schedule: ...\n",
        "records.py": "",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"VERSION = 0\n{text}")
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
            first, _, rest = path.read_text().partition("\n")
            path.write_text(f"{first.partition('=')[0]}= {message!r}\n{rest}")
        git("add", "--all")
        git("commit", "--quiet", "--allow-empty", "-m", message)
        return git("rev-parse", "HEAD")

    return change


def record(commit: str | None, *targets: str, of: str = METHOD) -> dict[str, Any]:
    method: dict[str, Any] = {"_target_": of, "optimizer": {"_target_": "torch.optim.AdamW"}}
    method["loss"] = {"_target_": targets[0]} if targets else None
    return {"environment": {"commit": commit}, "decisive": {"config": {"method": method}}}


class TestChangedSince:
    def test_fresh_until_the_loss_changes(self, package: Path, commit: Commit) -> None:
        first = commit()
        then = record(first, INFO_NCE)
        assert changed_since(then, package) == "fresh"
        commit("records.py", "widths.py", "methods/base.py", "methods/schedules.py", "losses/dual_contrastive.py")
        forget()
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

    @pytest.mark.parametrize("name", ["methods/simcse", "methods/twofold", "models/point", "models/heads"])
    def test_a_method_is_as_old_as_the_methods_it_is_made_of(self, package: Path, commit: Commit, name: str) -> None:
        then = record(commit(), INFO_NCE, of="lightning_cse.methods.Twofold")
        commit(f"{name}.py")
        assert changed_since(then, package) == "stale"

    @pytest.mark.parametrize(
        ("target", "file"),
        [
            ("methods.Schedule", "methods/schedules.py"),
            ("methods.base.Method", "methods/base.py"),
            ("widths.Widths", "widths.py"),
        ],
    )
    def test_everything_of_this_package_that_a_record_names_counts(
        self, package: Path, commit: Commit, target: str, file: str
    ) -> None:
        then = record(commit(), INFO_NCE)
        config = then["decisive"]["config"]
        config["method"]["loss"]["more"] = [{"_target_": f"lightning_cse.{target}"}]
        assert changed_since(then, package) == "fresh"
        commit(file)
        forget()
        assert changed_since(then, package) == "stale"

    def test_what_is_added_beside_makes_nothing_stale(self, package: Path, commit: Commit) -> None:
        then = record(commit(), INFO_NCE)
        similarity = package / "similarity.py"
        similarity.write_text(f'"""Similarities."""\n{similarity.read_text()}class Gaussian: ...\n')
        commit()
        assert changed_since(then, package) == "fresh"
        similarity.write_text(similarity.read_text().replace("class Cosine: ...", "class Cosine:\n    eps = 1e-8"))
        commit()
        forget()
        assert changed_since(then, package) == "stale"

    def test_what_moves_is_changed(self, package: Path, commit: Commit) -> None:
        then = record(commit(), INFO_NCE)
        (package / "losses" / "info_nce.py").rename(package / "losses" / "contrastive.py")
        for room in ("__init__", "dual_contrastive"):
            path = package / "losses" / f"{room}.py"
            path.write_text(path.read_text().replace("info_nce", "contrastive"))
        commit()
        assert changed_since(then, package) == "stale"

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
        forget()
        first = commit()
        assert changed_since(record("0" * 40, INFO_NCE), package) == "unknown", "a commit of somebody else"
        assert changed_since(record(None, INFO_NCE), package) == "unknown"
        assert changed_since(record(first, "lightning_cse.losses.Gone"), package) == "unknown"

    def test_what_is_not_committed_is_not_looked_at(self, package: Path, commit: Commit) -> None:
        then = record(commit(), INFO_NCE)
        (package / "similarity.py").write_text("VERSION = 1\n")
        assert changed_since(then, package) == "fresh"

    def test_unknown_where_the_package_is_in_the_history_of_something_else(self, package: Path, commit: Commit) -> None:
        (package.parent.parent / ".gitignore").write_text("src/\n")
        assert changed_since(record(commit(), INFO_NCE), package) == "unknown"

    def test_unknown_without_git(self, package: Path, commit: Commit, monkeypatch: pytest.MonkeyPatch) -> None:
        then = record(commit(), INFO_NCE)
        monkeypatch.setenv("PATH", "")
        assert changed_since(then, package) == "unknown"

    def test_what_has_no_method_is_fresh(self, package: Path) -> None:
        assert changed_since({"decisive": {"config": {"suite": {}}}}, package) == "fresh"


class TestChangeOf:
    def test_an_evaluated_run_is_as_old_as_its_training(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []
        monkeypatch.setattr(staleness, "changed_since", lambda record: asked.append(record) or "stale")
        run = tmp_path / "simcse" / "01-s0"
        folder = run / "evaluate" / "sts" / "02-s0"
        folder.mkdir(parents=True)
        evaluation = Found({"model": {"run": {"name": "simcse", "config_hash": "01", "seed": 0}}}, folder, folder / "r")
        assert change_of(evaluation) == "unknown", "the training's record is not there"
        training = {"name": "simcse", "config_hash": "01", "seed": 0}
        (run / "record.json").write_text(json.dumps(training | {"seed": 1}))
        assert change_of(evaluation) == "unknown", "another run's record is"
        (run / "record.json").write_text(json.dumps(training))
        assert change_of(evaluation) == "stale"
        assert asked == [training]
        assert change_of(Found(evaluation.record, None, folder / "r")) == "unknown"

    def test_others_are_as_old_as_they_are(self, tmp_path: Path) -> None:
        named = {"model": {"given": "x", "run": None}, "decisive": {"config": {"suite": {}}}}
        assert change_of(Found(named, None, tmp_path)) == "fresh"


MODULE = '''"""A loss."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Loss"]
SCALE: float = 0.05
"""How sharp."""


class Loss:
    """A loss."""

    margin = 1.0

    def forward(self, x: Any) -> Tensor:
        return x * math.exp(SCALE)
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A loss."""', '"""Another."""'),
        ('"""How sharp."""', ""),
        ('    """A loss."""\n', ""),
        ("x * math.exp(SCALE)", "(x\n            * math.exp(SCALE))  # sharper"),
        ('__all__ = ["Loss"]', '__all__ = ["Loss", "More"]'),
        ("import TYPE_CHECKING, Any", "import TYPE_CHECKING, Any, Literal"),
        ("    from torch import Tensor", "    from torch import Tensor, nn\n    import torch"),
        ("import math\n", "import math\nimport functools\nfrom dataclasses import dataclass\n"),
        ("\n\nclass Loss:", "\nBIAS = 1\n\ndef more() -> None: ...\n\n@object\nclass More: ...\n\nclass Loss:"),
    ],
)
def test_no_difference(old: str, new: str) -> None:
    assert old in MODULE
    assert not differs(MODULE, MODULE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.05", "0.06"),
        ("SCALE: float = 0.05", ""),
        ("margin = 1.0", "margin = 2.0"),
        ("class Loss:", "@object\nclass Loss:"),
        ("class Loss:", "class Lost:"),
        ("def forward(self, x: Any)", "def forward(self, x: Any, y: int = 0)"),
        ("import math\n", "import cmath as math\n"),
        ("from typing import", "from typing_extensions import"),
        ("import TYPE_CHECKING, Any", "import TYPE_CHECKING"),
        ('__all__ = ["Loss"]', "import random as math"),
        ('__all__ = ["Loss"]', "math.exp = lambda x: x"),
        ('__all__ = ["Loss"]', "SCALE, other = 1, 2"),
        ('__all__ = ["Loss"]', "SCALE += 1"),
        ('__all__ = ["Loss"]', "print(1)"),
        ('__all__ = ["Loss"]', "if True:\n    import torch"),
        ("import math\n", "import math as\n"),
        ("import math\n", "import math\0\n"),
        ("A loss", "A l\udcffss"),
    ],
)
def test_a_difference(old: str, new: str) -> None:
    assert old in MODULE
    assert differs(MODULE, MODULE.replace(old, new))


@pytest.mark.parametrize(
    ("method", "files"),
    [
        ("DualCSE", {"methods/dualcse", "models/dual"}),
        (
            "DualGauss",
            {"methods/dualgauss", "methods/dualcse", "models/dual_gaussian", "models/dual", "models/gaussian"},
        ),
        ("GaussCSE", {"methods/gausscse", "models/gaussian"}),
        ("NGCSE", {"methods/ngcse", "models/point"}),
        ("Schedule", {"methods/schedules"}),
    ],
)
def test_the_files_of_a_method(method: str, files: set[str]) -> None:
    package = Path(lightning_cse.__file__).parent
    expected = [package / f"{file}.py" for file in {*files, "similarity"}]
    assert loss_files(package, (f"lightning_cse.methods.{method}",)) == sorted(expected)


def test_every_loss_and_method_of_this_package_is_found() -> None:
    package = Path(lightning_cse.__file__).parent
    found = 0
    for room in ("losses", "methods"):
        names = importlib.import_module(f"lightning_cse.{room}").__all__
        for name in names:
            files = loss_files(package, (f"lightning_cse.{room}.{name}",))
            assert package / "similarity.py" in files
            assert any(f"class {name}(" in file.read_text() or f"class {name}:" in file.read_text() for file in files)
        found += len(names)
    assert found >= 11
    assert package / "losses" / "info_nce.py" in loss_files(package, (DUAL,))
