"""Encoders given as a folder or a hub id: how they are called, from the command line to the
record.
"""

import logging
import os
import shutil
from pathlib import Path

import pytest
from oracles import save_tiny

from lightning_cse.engine.load import load
from lightning_cse.runs.redaction import portable

X = "+experiment=dualcse_cross"


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """A working directory with the folders of a tiny encoder ``mine``, ``other one`` and
    ``bert_base``.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    save_tiny(Path("mine"))
    shutil.copytree("mine", "deep/other one")
    shutil.copytree("mine", "bert_base")

    return tmp_path


NAMES = [
    ("encoder=mine", "mine"),
    ("encoder=deep/../mine/", "mine"),
    ("encoder='./deep/other one/'", "other one"),
    ("encoder={workdir}/mine", "mine"),
    ("encoder=~/mine", "mine"),
    ("encoder=./bert_base", "folder/bert_base"),
    ("encoder=sentence-transformers/all-MiniLM-L12-v2", "sentence-transformers/all-MiniLM-L12-v2"),
    ("encoder=bert_base", "bert_base"),
    ("encoder.source=./mine", "mine"),
    ("encoder.source=org/name", "org/name"),
]


@pytest.mark.parametrize(("override", "name"), NAMES)
def test_name_of_an_encoder(override, name, workdir, compose):
    cfg = compose(X, override.format(workdir=workdir))
    assert cfg.encoder.name == name

    if name != "bert_base" and "/" not in name.removeprefix("folder/"):
        assert Path(cfg.encoder.source).is_absolute()
        assert Path(cfg.encoder.source, "config.json").is_file()

    if "source" in override:
        assert cfg.encoder.pooling == "cls"  # of roberta_base, whose weights alone are replaced
    elif override != "encoder=bert_base":
        assert (cfg.encoder.pooling, cfg.encoder.max_length) == ("auto", "auto")

    assert cfg.method.optimizer.lr == cfg.recipe.default.lr


@pytest.mark.parametrize(
    ("override", "recorded"),
    [
        ("seed=1", "seed=1"),
        ("encoder.source=/a/b c/d/", "encoder.source=d/"),
        ("encoder.source='/a/b'", "encoder.source='b'"),
        ("model=~/x/y", "model=y"),
        ("encoder.source=../c/d", "encoder.source=../c/d"),
    ],
)
def test_record_has_no_path_of_this_machine(override, recorded):
    assert portable([override]) == [recorded]


SMALL = ("+experiment=gausscse", "data.train_rows=16", "trainer.max_epochs=1", "baselines=none")


@pytest.mark.slow
def test_training_with_the_encoder_of_a_folder(workdir, run_tiny, caplog, monkeypatch):
    small = (*SMALL, "encoder.pooling=mean")
    caplog.set_level(logging.INFO)
    folder = run_tiny(workdir, *small, f"encoder={workdir}/deep/other one")

    assert "16 training rows, other one, recipe default, cpu" in caplog.text

    record = folder.read()
    assert record["encoder"]["name"] == record["decisive"]["encoder"]["name"] == "other one"
    assert str(workdir) not in folder.record_path.read_text()

    same = run_tiny(workdir, *small, "encoder=./deep/../deep/other one")
    assert same.path == folder.path

    monkeypatch.chdir(os.sep)
    assert load(folder.path).encoder.name == "other one"
