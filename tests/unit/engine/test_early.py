"""What is said of a model by its name alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_cse.engine.early import CHECKPOINT, CONFIG, check_device, check_model, read_run
from lightning_cse.errors import ConfigError, EncoderError

RECORD = {"name": "a_run", "config_hash": "0123456789", "seed": 0, "encoder": {"tokenizer": "t"}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder that looks like a whole run."""
    folder = tmp_path / "runs" / "a_run"
    (folder / CHECKPOINT).parent.mkdir(parents=True)
    (folder / CHECKPOINT).write_bytes(b"weights")
    (folder / CONFIG).write_text("encoder: {}\n")
    (folder / "record.json").write_text(json.dumps(RECORD))
    return folder


def test_a_run_and_an_encoder_are_told_apart(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pytest.raises(EncoderError, match=r"^model: there is no folder /.*none.*; give the folder of a run or of an"):
        check_model(name)


@pytest.mark.parametrize("part", [CONFIG, CHECKPOINT, "record.json"])
def test_a_run_must_be_whole(part: str, run: Path) -> None:
    (run / part).unlink()
    with pytest.raises(EncoderError, match=f"{part} is not there|has no {part} "):
        check_model(str(run))


def test_a_run_is_read_as_it_was_trained(run: Path) -> None:
    with pytest.raises(ConfigError, match="pooling: a run is evaluated as it was trained"):
        check_model(str(run), pooling="mean")
    with pytest.raises(ConfigError, match="prompt: a run is evaluated as it was trained"):
        check_model(str(run), prompt="{} {mask}")
    with pytest.raises(EncoderError, match=rf"holds several; give one of them:\n  model={run}"):
        check_model(str(run.parent))


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

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


def test_a_name_is_looked_at_without_anything_heavy() -> None:
    code = "import sys, lightning_cse.engine.early, lightning_cse.analysis.scoring, lightning_cse.baselines\n"
    code += "print(*({'torch', 'hydra', 'transformers', 'numpy', 'pytorch_lightning'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
