"""Where conf/ and experiments/ are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_cse.config import paths
from lightning_cse.errors import ConfigError


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    package, repository = tmp_path / "src" / "lightning_cse", tmp_path
    package.mkdir(parents=True)
    monkeypatch.setattr(paths, "_PACKAGE", package)
    monkeypatch.setattr(paths, "_REPOSITORY", repository)
    return package, repository


def _fill(folder: Path) -> Path:
    folder.mkdir()
    (folder / "train.yaml").write_text("seed: 0\n")
    return folder


def test_the_repository_root_is_used_in_a_checkout(places: tuple[Path, Path]) -> None:
    conf = _fill(places[1] / "conf")
    experiments = _fill(places[1] / "experiments")
    assert paths.conf_dir() == conf
    assert paths.experiments_dir() == experiments
    assert paths.conf_dir().is_absolute()


def test_the_packaged_copy_wins(places: tuple[Path, Path]) -> None:
    _fill(places[1] / "conf")
    packaged = _fill(places[0] / "conf")
    assert paths.conf_dir() == packaged


def test_an_empty_folder_of_the_same_name_does_not_win(places: tuple[Path, Path]) -> None:
    (places[0] / "conf").mkdir()
    conf = _fill(places[1] / "conf")
    assert paths.conf_dir() == conf


@pytest.mark.parametrize("name", ["conf", "experiments"])
def test_a_missing_folder_is_told_with_where_it_was_looked_for(places: tuple[Path, Path], name: str) -> None:
    find = {"conf": paths.conf_dir, "experiments": paths.experiments_dir}[name]
    with pytest.raises(ConfigError) as caught:
        find()
    message = str(caught.value)
    assert f"{name}/: not found" in message
    assert str(places[0] / name) in message
    assert str(places[1] / name) in message
    assert "pip install -e ." in message
