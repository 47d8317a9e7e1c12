"""Trained models that come with the package: a name, a card, weights that load, and a command that
trains them.
"""

import json
import re

import kept_models
import pytest
import torch
from kept_models import MODELS, keep
from small_runs import SMALL

import lightning_cse
from lightning_cse import paths
from lightning_cse.analysis.card import kept_card
from lightning_cse.engine.load import CHECKPOINT
from lightning_cse.errors import EncoderError
from lightning_cse.evaluate import main as evaluate

pytestmark = pytest.mark.slow
SENTENCES = ["The ferry leaves at noon.", "Is that yours?", "Über Größe."]
FILES = ["README.md", "checkpoints/best.ckpt", "config.yaml", "record.json"]


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def run(run_tiny, tmp_path, monkeypatch):
    """A run of six steps; kept models are below the folder of the test."""
    monkeypatch.setattr(paths, "experiments_dir", lambda: tmp_path / "experiments")
    return run_tiny(tmp_path, *SMALL, "+adapter=lora", "encoder.adapter.r=4")


def test_a_kept_run_is_loaded_by_its_name(run, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "experiments/mine/kept/my_lora"
    keep(run.path, folder)
    assert files_below(folder) == FILES
    texts = [folder.joinpath(name).read_text() for name in FILES if not name.endswith("ckpt")]
    assert not any(str(tmp_path) in text for text in texts)
    assert 'lightning_cse.load("my_lora")' in texts[0]

    model = lightning_cse.load("my_lora")
    vectors = lightning_cse.load(run.path).encode(SENTENCES, convert_to_tensor=True)
    assert torch.equal(model.encode(SENTENCES, convert_to_tensor=True), vectors)
    with pytest.raises(EncoderError, match="'my_lroa' - did you mean 'my_lora'"):
        lightning_cse.load("my_lroa")

    monkeypatch.setenv("LIGHTNING_CSE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(
        "sys.argv", ["evaluate", "model=my_lora", "+suite=stsb", "corpora=sample", "paths=sample"]
    )
    evaluate()
    (record,) = (tmp_path / "runs/evaluate/my_lora").rglob("record.json")
    assert json.loads(record.read_text())["checkpoint"] == run.read()["checkpoint"]
    assert files_below(folder) == FILES, "what comes with the package stays as it is"


@pytest.mark.parametrize("model_name", MODELS)
def test_the_kept_models_are_those_of_the_script(model_name):
    name = model_name.partition("/")[2]
    folder = paths.kept_models()[name]
    assert folder == paths.experiments_dir() / model_name.replace("/", "/kept/")
    assert files_below(folder) == FILES

    model = lightning_cse.load(name)
    assert model.encode(SENTENCES).shape == (3, 384)
    assert tuple(model.record["overrides"]) == MODELS[model_name]
    assert folder.joinpath("README.md").read_text() == f"{kept_card(model, name)}"
    assert (folder / CHECKPOINT).stat().st_size <= kept_models.LIMIT


@pytest.mark.kept
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize("model_name", MODELS)
def test_the_command_of_a_kept_model_trains_it_again(model_name, tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTNING_CSE_RUNS", str(tmp_path))
    scores = lightning_cse.train(MODELS[model_name]).read()["metrics"]
    expected = lightning_cse.load(model_name.partition("/")[2]).record["metrics"]
    assert scores.keys() == expected.keys()
    for key in expected:
        # On another machine, sums are rounded in another order. Of equally good thresholds on dev,
        # any may be chosen, and accuracies of one kind of hypothesis follow it.
        if not re.search(r"threshold$|accuracy_(?!all)|_se$", key):
            assert scores[key] == pytest.approx(expected[key], abs=0.02), key
