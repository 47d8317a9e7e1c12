"""A model by its name: what is checked before anything is loaded, and loading it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import lightning_cse
from lightning_cse.engine import train
from lightning_cse.engine.load import CHECKPOINT, CONFIG, check_device, check_model, load_model, read_run
from lightning_cse.errors import ConfigError, EncoderError
from lightning_cse.models import Model
from lightning_cse.runs import Run

RECORD = {
    "name": "a_run",
    "seed": 0,
    "model": {"class": "PointModel", "has_head": False},
    "encoder": {"weights": "w", "tokenizer": "t"},
    "config_hash": "0a",
    "checkpoint": {"sha256": hashlib.sha256(b"weights").hexdigest()},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder that looks like a whole run."""
    folder = tmp_path / "runs" / "a_run"
    (folder / CHECKPOINT).parent.mkdir(parents=True)
    (folder / CHECKPOINT).write_bytes(b"weights")
    (folder / CONFIG).write_text("encoder: {}\n")
    (folder / "record.json").write_text(json.dumps(RECORD))
    return folder


def test_a_run_and_an_encoder_are_distinguished(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_model("runs/a_run") == run
    assert read_run(run) == RECORD
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "config.json").write_text("{}")
    for encoder in ("./plain", "tiny", "no-such-name", "sentence-transformers/all-MiniLM-L6-v2"):
        assert check_model(encoder) is None
    assert check_model("./plain", pooling="mean", prompt="{} {mask}") is None


@pytest.mark.parametrize("name", ["./none", "../none", "runs/none/0-s0", "~/none-of-this-name", "/none"])
def test_what_can_only_be_a_path_must_be_there(name: str) -> None:
    with pytest.raises(
        EncoderError, match=r"^model: there is no folder /.*none.*; give that of a run or of an encoder"
    ):
        check_model(name)


@pytest.mark.parametrize("part", [CONFIG, CHECKPOINT, "record.json"])
def test_a_run_must_be_whole(part: str, run: Path) -> None:
    (run / part).unlink()
    with pytest.raises(EncoderError, match=f"the run {run} has no {part}: finish it"):
        check_model(str(run))


def test_a_run_is_read_as_it_was_trained(run: Path) -> None:
    with pytest.raises(ConfigError, match="pooling: a run is evaluated as it was trained"):
        check_model(str(run), pooling="mean")
    with pytest.raises(ConfigError, match="prompt: a run is evaluated as it was trained"):
        check_model(str(run), prompt="{} {mask}")
    with pytest.raises(EncoderError, match=rf"contains runs; give one of them:\n  model={run}"):
        check_model(str(run.parent))


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (torch.cuda, torch.backends.mps):
        monkeypatch.setattr(where, "is_available", lambda: False)
    for device in ("gpu", "cuda", "mps"):
        with pytest.raises(ConfigError, match=f"--device: torch finds no {device} on this machine"):
            check_device(device)
    check_device("cpu")
    check_device("auto")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    check_device("gpu")
    check_device("cuda")


def test_a_damaged_checkpoint_or_a_run_of_the_first_version_is_refused(run: Path) -> None:
    (run / CHECKPOINT).write_bytes(b"weightz")
    with pytest.raises(EncoderError, match=r"best\.ckpt is damaged \(its sha256 is not the record's\)"):
        load_model(run)
    first = {key: value for key, value in RECORD.items() if key not in ("model", "checkpoint")}
    (run / "record.json").write_text(json.dumps(first | {"identity": "0123456789"}))
    with pytest.raises(EncoderError, match=r"was trained by lightning_cse 0\.x and cannot be loaded; train it again"):
        load_model(run)
    (run / "record.json").write_text(json.dumps(first))
    with pytest.raises(EncoderError, match=r"is no record of a training run \('model'\)"):
        load_model(run)


def test_a_trained_model_is_loaded_as_it_was_evaluated(
    run_tiny: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested: list[Model] = []
    monkeypatch.setattr(train, "run_tasks", lambda tasks, model, split: tested.append(model) or {})
    overrides = ("+experiment=dualcse_bi", "baselines=none", "trainer.max_steps=2", "data.train_rows=8")
    folder = run_tiny(tmp_path, *overrides).path
    loaded = lightning_cse.load(folder)
    assert not loaded.answers.training
    assert loaded.answers.settings() == tested[0].settings() == loaded.record["model"]
    for name, value in tested[0].state_dict().items():
        assert torch.equal(value.cpu(), loaded.answers.state_dict()[name])

    checkpoint = folder / CHECKPOINT
    damaged = bytearray(checkpoint.read_bytes())
    for place in range(40):
        damaged[len(damaged) // 2 + place] ^= 0xFF
    checkpoint.write_bytes(damaged)
    with pytest.raises(EncoderError, match=r"best\.ckpt is damaged"):
        load_model(folder)


def modules_after(code: str) -> set[str]:
    code = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_a_name_is_checked_without_anything_heavy() -> None:
    code = "from lightning_cse.score import main; assert main(['--model', './none', '--input', '-']) == 2"
    assert not {"torch", "hydra", "transformers", "numpy", "pytorch_lightning"} & modules_after(code)


def test_a_command_of_a_loaded_model_needs_neither_lightning_nor_hydra(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\tb\n")
    code = f"from lightning_cse.score import main; assert main(['--model', 'tiny', '--input', '{tmp_path}/a.txt']) == 0"
    found = modules_after(code)
    assert "lightning_cse.analysis.scoring" in found
    assert not {"pytorch_lightning", "hydra", "lightning_cse.methods"} & found
